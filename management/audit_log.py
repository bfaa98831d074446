"""Audit log: one line for each change that an operator makes: what, to what, by whom.

The control socket sets who asks; a service that embeds the broker is ``the service``. No line has a password.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from leveret.core.log.loggers import logger

log = logger(__name__)

OPERATOR: Final[ContextVar[str]] = ContextVar("operator", default="the service")


def audit(text: str, *values: object) -> None:
    """Log a change; ``text`` has a ``%s`` for each value, and ``by=%s`` at its end for who asked."""
    log.info(text, *values, OPERATOR.get())
