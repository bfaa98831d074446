"""A queue: its actor, arguments, registry; folders for publishers, consumers, limits, dead letters, delays, storage.

The other half of the pair, the backing actor, is in ``queue_backing``. The rest of the broker holds entries
of the ``registry`` and asks a queue through ``calls``, across its restarts.
May import the modules of ``broker`` itself, and none of its other folders.
"""
