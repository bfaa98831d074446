"""Delay queues: the messages that exchanges of the type ``x-delayed-message`` have delayed."""
