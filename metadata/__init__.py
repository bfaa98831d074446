"""Metadata: the definitions that survive a restart: users, vhosts, exchanges, queues, bindings, policies.

``tables`` has a class per row. ``interface`` is the store that the broker writes to; ``store`` keeps it in LMDB
(``environment``), ``memory`` until the process ends; ``reader`` reads that of a stopped broker. ``definitions``
and ``definitions_reader`` translate rows to RabbitMQ's JSON and back.
Imports amqp and core only.
"""
