"""The backing queue, which stores the messages of an amqqueue, and its actor.

``api`` is RabbitMQ's ``rabbit_backing_queue``; ``variable`` implements it, ``priority_queue`` over several of
these. ``index`` connects a variable queue with the message store; ``memory_monitor`` divides the RAM of the
node among the queues. ``actor`` owns a backing queue, ``proxy`` is the amqqueue's way to it.
Imports msg_store, actors, amqp and core; ``pyproject.toml`` has the order of its parts.
"""
