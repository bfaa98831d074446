"""The consumers of a queue: who is ready, who gets which messages, and the deliveries to them."""
