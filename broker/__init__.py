"""The AMQP server: its actors and the rules of the protocol.

``tree`` is the supervision tree. Below it one folder per subject, from the cluster and the node down to a queue and the
registry of all queues; ``pyproject.toml`` has the order, which import-linter checks, imports for types included.
``mail``, ``script`` and ``limiter`` lie below all of them. docs/README.md follows a message through these files.
"""
