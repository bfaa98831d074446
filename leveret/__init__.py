"""Leveret: an AMQP 0-9-1 message broker built like an Erlang/OTP system."""

__version__ = "0.1.0"
