"""How a queue is stored: its backing queue, messages that the store gets before the queue does, replay retention."""
