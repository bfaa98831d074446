"""The client's side of AMQP 0-9-1, for ``leveret perf``, ``leveret migrate`` and the publisher of Spark.

``protocol`` is a connection without I/O: bytes of the broker become events, and the login and the broker's requests
are answered. ``asynchronous`` drives it on an asyncio loop, for many channels and calls per event; ``blocking`` drives
it on a socket in a thread, for one channel in confirm mode. ``target`` reads AMQP URIs.
May import amqp and core.
"""
