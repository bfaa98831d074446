"""When messages and unused queues expire.

A message expires at its time of publishing plus the lesser of the queue's ``x-message-ttl`` and its
own ``expiration``. Expiry is looked at only at the head of the queue: a short-lived message behind a
long-lived one stays, and counts, until it is the head (amqp.md 8.5).

A queue with ``x-expires`` is deleted when it had no consumer, declare or basic.get for that long. One
timer per queue is enough: uses only note the time, and the timer, when it fires early, is set again
for what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leveret.queue_backing.status import EXPIRY_MS

if TYPE_CHECKING:
    from leveret.actors.runtime.timers import Timer
    from leveret.queue_backing.api import Predicate


def deadlines(
    now_ms: int, ttl_ms: int | None, expirations: list[int | None] | None, count: int
) -> list[int]:
    """Return the expiry of each message of a batch in ms since 1970, 0 = never."""
    if expirations is None:
        return [0 if ttl_ms is None else now_ms + ttl_ms] * count
    if ttl_ms is None:
        return [0 if own is None else now_ms + own for own in expirations]
    return [now_ms + (ttl_ms if own is None else min(own, ttl_ms)) for own in expirations]


def expired_at(now_ms: int) -> Predicate:
    """Return the predicate of entries that have expired."""
    return lambda entry: 0 < entry[EXPIRY_MS] <= now_ms


def alive_at(now_ms: int) -> Predicate:
    """Return the predicate of entries that have not expired."""
    return lambda entry: not 0 < entry[EXPIRY_MS] <= now_ms


class HeadTimer:
    """The timer for the expiry of the head; set again only when the head expires sooner.

    Args:
        start: ``start(delay_s)`` starts the timer.
    """

    __slots__ = ("_at_ms", "_start", "_timer")

    def __init__(self, start: Callable[[float], Timer]) -> None:
        self._start = start
        self._timer: Timer | None = None
        self._at_ms = 0

    def set(self, at_ms: int, now_ms: int) -> None:
        """See to it that the timer fires at ``at_ms`` or before."""
        if self._timer is not None:
            if self._at_ms <= at_ms:
                return
            self._timer.cancel()
        self._at_ms = at_ms
        self._timer = self._start(max(1, at_ms - now_ms) / 1000)

    def fired(self) -> None:
        """Take note that it has fired."""
        self._timer = None

    def cancel(self) -> None:
        """Stop it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class UnusedTimer:
    """Tells when a queue that expires has been unused for too long.

    Args:
        expires_ms: after how long without use.
        start: ``start(delay_s)`` starts the timer.
        now_s: the time.
    """

    __slots__ = ("_expires_s", "_start", "_timer", "_used_s")

    def __init__(self, expires_ms: int, start: Callable[[float], Timer], now_s: float) -> None:
        self._expires_s = expires_ms / 1000
        self._start = start
        self._used_s = now_s
        self._timer: Timer | None = start(self._expires_s)

    def used(self, now_s: float) -> None:
        """Take note of a use; the time starts again."""
        self._used_s = now_s
        if self._timer is None:
            self._timer = self._start(self._expires_s)

    def fired(self, now_s: float, has_consumers: bool) -> bool:
        """Return whether the queue must go; with consumers the time starts when the last leaves.

        What fired may be the timer of an ``UnusedTimer`` before this one: then this one's still runs.
        """
        self.cancel()
        if has_consumers:
            return False
        left_s = self._used_s + self._expires_s - now_s
        if left_s <= 0:
            return True
        self._timer = self._start(left_s)
        return False

    def cancel(self) -> None:
        """Stop it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
