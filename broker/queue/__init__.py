"""A queue: the amqqueue actor, its consumers, publisher credit, expiry, arguments, registry.

The other half of the pair, the backing actor, is in ``queue_backing``. ``registry`` is what the rest of the
broker holds of a queue, ``asking`` how it is asked across restarts.
May import the modules of ``broker`` itself, and none of its other folders.
"""
