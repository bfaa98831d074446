"""Calls that only delay queues answer: they list, describe and withdraw waiting messages."""

from __future__ import annotations

from msgspec import Struct


class ListWaiting(Struct, eq=False):
    """Call: all messages that wait, as ``Schedule.keys``."""


class Describe(Struct, eq=False):
    """Call: look at messages, at least one.

    The answer is how many of the seqs were looked at, one at least, and a ``Waiting`` for each of these that is there.
    """

    seqs: list[int]


class Waiting(Struct, frozen=True):
    """A message that waits, or is on its way to its queues.

    Attributes:
        due_ms: since 1970.
        exchange: that it was published to.
    """

    seq: int
    due_ms: int
    exchange: bytes
    routing_key: bytes
    body_bytes: int


class Withdraw(Struct, eq=False):
    """Call: forget messages that are not due yet; answered with their number."""

    seqs: list[int]
