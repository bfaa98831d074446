"""A queue: its actor and arguments; folders for publishers, consumers, limits, dead letters, delays, storage.

The other half of the pair, the backing actor, is in ``queue_backing``. The rest of the broker holds entries
of ``broker.registry`` and asks a queue through ``calls``, across its restarts.
May import ``broker.registry``, ``broker.remote`` and the modules of ``broker`` itself.
"""
