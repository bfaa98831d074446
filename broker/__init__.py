"""The AMQP server: its actors and the rules of the protocol.

One folder per subject, from the node down to a queue; ``pyproject.toml`` has the order, which
import-linter checks, imports for types included. ``mail``, ``script`` and ``delivery_gate`` lie below all of
them. docs/README.md follows a message through these files.
"""
