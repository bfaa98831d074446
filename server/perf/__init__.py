"""``leveret perf``: a load generator in the shape of RabbitMQ's PerfTest that verifies every message.

A client of its own over plain sockets; works against any AMQP 0-9-1 broker.
Imports no other part of the server.
"""
