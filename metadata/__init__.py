"""The broker's durable settings and topology: users, vhosts, exchanges, queues, bindings."""
