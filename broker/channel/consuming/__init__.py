"""What a channel's consumers get: deliveries from the queues, also of other nodes, until the client settles them."""
