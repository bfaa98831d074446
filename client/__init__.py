"""The client's side of AMQP 0-9-1, for ``leveret perf``, ``leveret migrate`` and the publisher of Spark.

``asynchronous`` is a connection on an asyncio loop.
May import amqp and core.
"""
