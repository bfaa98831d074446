"""From exchange, routing key and headers to queues; pure."""
