"""Limits of a queue: its length, and how often a message is delivered."""
