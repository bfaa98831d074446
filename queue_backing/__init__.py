"""What stands behind an amqqueue: the backing queue and its actor."""
