"""Publish record batches to a broker with confirms: a pipelined client, a ledger, rejects.

``job`` is the way of a batch: ``rows`` reads it, ``publisher`` (no I/O) numbers, confirms and settles,
``client.blocking`` is the socket, ``ledger`` remembers what is settled. Works with any AMQP 0-9-1 broker.
Imports client, amqp and core; never pyspark. Only ``rows`` and ``rejects`` import pyarrow; ``edits`` and ``target`` are
used by ``leveret migrate`` too, without the extra ``spark``.
"""
