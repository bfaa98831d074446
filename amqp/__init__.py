"""AMQP 0-9-1 without I/O: bytes in, events out."""
