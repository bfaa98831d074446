"""A queue: the amqqueue actor, consumers, publisher credit, expiry, arguments, registry.

The other half of the pair is queue_backing/actor.
Imports mail, script, gate, settings.
"""
