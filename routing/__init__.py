"""Routing: from exchange, routing key and headers to queues; no I/O, no clock."""
