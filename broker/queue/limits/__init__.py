"""Limits of a queue: its length, how often a message is delivered, and when messages and unused queues expire."""
