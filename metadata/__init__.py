"""What the broker was told to keep: users, vhosts, exchanges, queues, bindings."""
