"""Ack coalescing: acks that come one by one are read a few at a time.

At some thousand messages per second, each delivered and acked by itself, every ack wakes the loop and
costs a poll and a read, which is more than all other work of the broker for the message. Those acks
are not urgent while there is room in the prefetch. So a connection that sends nothing but single acks, in
close succession, is left unread for a moment, as network cards hold interrupts back (interrupt
coalescing).

* A pause begins after a streak of ``streak_reads`` such reads, and one follows the other as long as each read
  brings enough of them.
* It lasts ``pause_s`` at most, and no longer than a quarter of the smallest prefetch of the connection
  lasts at the present rate, so that no consumer runs dry. With a small prefetch there is none.
* It is over when ``enough_acks`` acks should have come. A client that sends many more in it has waited for its socket,
  which takes some 150 of them on Linux until the broker reads: its acks come together by themselves, and the streak
  ends.
* Then it ends behind the next delivery to that connection: the loop is awake, and no message waits while
  the acks are handled but the one after it. Without a delivery it ends after ``latest`` times its length.
* Anything else that is read (a publish, a method, acks of many at once) ends the streak.
* There is none from when the connection consumes from a durable queue: a persistent message that is acked soon is never
  written, and its publisher's confirm does not wait for the disk (``msg_store/wal/driver.py``).

The client's next request waits for the end of the pause. Sans-IO: ``ReadControl`` asks, and policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.core.batching import AckPauses


class AckCoalescing:
    """When to leave one connection unread.

    Args:
        policy: how long.

    Attributes:
        reads: of the streak; 0: there is none.
    """

    __slots__ = ("_acks", "_began_s", "_is_pausing", "_last_s", "_room", "policy", "reads")

    def __init__(self, policy: AckPauses) -> None:
        self.policy = policy
        self.reads = 0
        self._acks = 0
        self._began_s = 0.0
        self._last_s = 0.0
        self._is_pausing = False
        self._room = 1 << 30

    def limit(self, prefetch: int) -> None:
        """Mind a prefetch of the connection (0 = none) from now on, for good."""
        if prefetch:
            self._room = min(self._room, prefetch // self.policy.prefetch_parts)

    def other(self) -> None:
        """Something else than single acks was read."""
        self.reads = 0
        self._is_pausing = False

    def acked(self, acks: int, now_s: float) -> float:
        """Take a read that held nothing but single acks; return for how long to read no more."""
        policy = self.policy
        since_s = now_s - self._last_s
        self._last_s = now_s
        if self._is_pausing:
            self._is_pausing = False
            is_streak = (
                policy.worth_acks <= acks <= 2 * policy.enough_acks and since_s < 2 * policy.pause_s
            )
        else:
            is_streak = acks <= policy.few_acks and since_s < policy.gap_s
        if not is_streak or not self.reads:
            self.reads, self._acks, self._began_s = 1, 0, now_s
            return 0.0
        self.reads += 1
        self._acks += acks
        return self._pause_s(now_s) if self.reads > policy.streak_reads else 0.0

    def _pause_s(self, now_s: float) -> float:
        """Begin a pause, if it is worth it; the next streak is counted from here."""
        policy = self.policy
        pace_s = (now_s - self._began_s) / self._acks
        pause_s = min(policy.pause_s, min(self._room, policy.enough_acks) * pace_s)
        if not pace_s or pause_s < policy.worth_acks * pace_s:
            self.reads = 0
            return 0.0
        self._acks, self._began_s = 0, now_s
        self._is_pausing = True
        return pause_s
