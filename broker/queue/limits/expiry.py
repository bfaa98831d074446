"""When messages (message TTL) and unused queues (queue TTL, ``x-expires``) expire.

A message expires at its time of publishing plus the lesser of the queue's ``x-message-ttl`` and its
own ``expiration``. As in RabbitMQ, messages expire only at the head of the queue: a short-lived message
behind a long-lived one stays, and counts, until it is the head.

A queue with ``x-expires`` is deleted when it had no consumer, declare or basic.get for that long. One
timer per queue is enough: uses only note the time, and the timer, when it fires early, is set again
for the rest of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from leveret.broker.queue.dead_letters.death_headers import EXPIRED
from leveret.core.entry import EXPIRY_MS
from leveret.core.limits import DEAD_LETTER_BYTES_IN_FLIGHT, TURN_MESSAGES
from leveret.queue_backing.api import Dropped

if TYPE_CHECKING:
    from leveret.actors.runtime.timers import Timer
    from leveret.broker.queue.dead_letters.dead_letters import DeadLetters
    from leveret.broker.registry.registry import QueueEntry
    from leveret.core.clock import Clock
    from leveret.queue_backing.api import Predicate
    from leveret.queue_backing.proxy import BackingProxy

StartTimer: TypeAlias = "Callable[[float], Timer]"
"""Starts a timer of the queue's actor that fires after so many seconds."""


def expired_at(now_ms: int) -> Predicate:
    """Return the predicate of entries that have expired."""
    return lambda entry: 0 < entry[EXPIRY_MS] <= now_ms


def alive_at(now_ms: int) -> Predicate:
    """Return the predicate of entries that have not expired."""
    return lambda entry: not 0 < entry[EXPIRY_MS] <= now_ms


class MessageExpiry:
    """The TTL of a queue, which of its messages may expire, and the timer for its head.

    Attributes:
        ttl_ms: of all messages published from now on; None = only their own expirations count.
        may_expire: a message with an expiry may be in the queue.
        is_unordered: a message may expire before an older one.
    """

    __slots__ = ("_timer", "_timer_at_ms", "is_unordered", "may_expire", "ttl_ms")

    def __init__(self, recovered: bool) -> None:
        self.ttl_ms: int | None = None
        self.may_expire = self.is_unordered = recovered
        self._timer: Timer | None = None
        self._timer_at_ms = 0

    def set_ttl(self, ttl_ms: int | None, backing: BackingProxy) -> None:
        """Have messages expire so long after they are published, from now on."""
        if ttl_ms != self.ttl_ms and backing.depth():
            self.may_expire = self.is_unordered = True
        self.ttl_ms = ttl_ms

    def deadlines(self, expiration_ms: int | None, clock: Clock, count: int) -> list[int] | None:
        """Return the expiry of each of so many messages in ms since 1970; None = none expires."""
        lifetime_ms = self.ttl_ms
        if expiration_ms is not None:
            self.is_unordered = True
            lifetime_ms = expiration_ms if lifetime_ms is None else min(expiration_ms, lifetime_ms)
        if lifetime_ms is None:
            return None
        self.may_expire = True
        return [int(clock.wall_s() * 1000) + lifetime_ms] * count

    def drop_expired(
        self,
        backing: BackingProxy,
        dead_letters: DeadLetters | None,
        now_ms: int,
        start_timer: StartTimer,
        entry: QueueEntry,
    ) -> Dropped:
        """Drop or dead-letter a turn's worth of expired messages from the head; time the head that stays.

        Messages are read to be dropped only while the firehose of the queue's vhost is told of them.
        """
        firehose = entry.vhost.firehose if entry.vhost is not None else None
        if dead_letters is None and firehose is None:
            dropped = backing.dropwhile(expired_at(now_ms), TURN_MESSAGES)
        elif dead_letters is None:
            fetched, head = backing.fetchwhile(
                expired_at(now_ms), TURN_MESSAGES, DEAD_LETTER_BYTES_IN_FLIGHT
            )
            if fetched.seqs:
                assert firehose is not None
                firehose.died(entry.name, EXPIRED, fetched.messages, is_dropped=True)
                backing.ack(fetched.seqs)
            dropped = Dropped(len(fetched.seqs), head, fetched.pending)
        else:
            room = dead_letters.room()
            fetched, head = backing.fetchwhile(
                expired_at(now_ms), room, DEAD_LETTER_BYTES_IN_FLIGHT
            )
            dead_letters.take(fetched, EXPIRED)
            dropped = Dropped(len(fetched.seqs), head, fetched.pending)
        head = dropped.head
        if head is None:
            if self.is_unordered and not dropped.pending and not backing.depth():
                self.may_expire = self.is_unordered = False
        elif head[EXPIRY_MS] > now_ms:
            self._time_head(head[EXPIRY_MS], now_ms, start_timer)
        return dropped

    def _time_head(self, at_ms: int, now_ms: int, start_timer: StartTimer) -> None:
        """Have the timer fire at ``at_ms`` or before."""
        if self._timer is not None:
            if self._timer_at_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = at_ms
        self._timer = start_timer(max(1, at_ms - now_ms) / 1000)

    def fired(self) -> None:
        self._timer = None

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class UnusedTimer:
    """Tells when a queue with ``x-expires`` has been unused for too long."""

    __slots__ = ("_clock", "_expires_s", "_start", "_timer", "_used_s")

    def __init__(self, expires_ms: int, clock: Clock, start: StartTimer) -> None:
        self._clock = clock
        self._expires_s = expires_ms / 1000
        self._start = start
        self._used_s = clock.monotonic_s()
        self._timer: Timer | None = start(self._expires_s)

    def used(self) -> None:
        """Note a use; the time starts again."""
        self._used_s = self._clock.monotonic_s()
        if self._timer is None:
            self._timer = self._start(self._expires_s)

    def fired(self, has_consumers: bool) -> bool:
        """Return whether the queue must go; with consumers the time starts when the last leaves.

        The timer of an ``UnusedTimer`` before this one may have fired: then this one's still runs.
        """
        self.cancel()
        if has_consumers:
            return False
        left_s = self._used_s + self._expires_s - self._clock.monotonic_s()
        if left_s <= 0:
            return True
        self._timer = self._start(left_s)
        return False

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
