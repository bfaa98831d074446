"""What stands behind an amqqueue: the backing queue and its actor.

``api`` is RabbitMQ's ``rabbit_backing_queue``; ``variable`` implements it, ``priority_queue`` over several of
these; ``actor`` owns one, ``proxy`` is how the amqqueue calls it.
Imports msg_store, actors, amqp and core; ``pyproject.toml`` has the order of its parts.
"""
