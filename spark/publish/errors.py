"""The errors of publishing: what ends a task, and with which remedy."""

from __future__ import annotations

from leveret.core.errors import LeveretError


class PublishError(LeveretError):
    """Publishing cannot go on; what the ledger has is settled, the rest is sent again by the next attempt."""


class RowError(PublishError):
    """A row cannot become a message."""


class Unroutable(PublishError):  # noqa: N818 - AMQP's word
    """A message reached no queue, and ``onUnroutable`` is ``fail``."""


class Nacked(PublishError):  # noqa: N818 - AMQP's word
    """The broker refused a message, and ``onNack`` is ``fail`` or the retries are used up."""


class ConnectionFailed(PublishError):  # noqa: N818 - what happened, not who erred
    """The connection cannot be made, was closed by the broker, or is silent."""


class LedgerError(PublishError):
    """The ledger is of another plan, or the rows are not those of the attempt that wrote it."""
