"""Routing: from exchange, routing key and headers to queues; no I/O, no clock.

``topology`` holds the exchanges, queues and bindings of a vhost, ``router`` finds the queues of a message;
``direct``, ``fanout``, ``topic``, ``headers``, ``hashing`` and ``random_choice`` match one exchange each, ``exchange``
registers them.
Imports amqp and core only.
"""
