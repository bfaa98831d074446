"""Leveret: an AMQP 0-9-1 message broker built like an Erlang/OTP system."""

from leveret.core.compiled_path import choose_form

__version__ = "0.1.0"

choose_form()  # before any module is imported that may be compiled
