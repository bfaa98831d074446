"""Ack coalescing: acks that come one by one are read a few at a time.

At some thousand messages per second, each delivered and acked by itself, every ack wakes the loop and
costs a poll and a read, which is more than all other work of the broker for the message. Those acks
are not urgent while there is room in the prefetch. So a connection that sends nothing but single acks, in
close succession, is left unread for a moment, as network cards hold interrupts back (interrupt
coalescing).

* A pause begins after a streak of ``STREAK`` such reads, and one follows the other as long as each read
  brings enough of them.
* It lasts ``PAUSE_S`` at most, and no longer than a quarter of the smallest prefetch of the connection
  lasts at the present rate, so that no consumer runs dry. With a small prefetch there is none.
* It is over when ``ENOUGH`` acks should have come. A client that sends many more in it has waited for its socket,
  which takes some 150 of them on Linux until the broker reads: its acks come together by themselves, and the streak
  ends.
* Then it ends behind the next delivery to that connection: the loop is awake, and no message waits while
  the acks are handled but the one after it. Without a delivery it ends after ``LATEST`` times its length.
* Anything else that is read (a publish, a method, acks of many at once) ends the streak.
* There is none from when the connection consumes from a durable queue: a persistent message that is acked soon is never
  written, and its publisher's confirm does not wait for the disk (``msg_store/wal/driver.py``).

The client's next request waits for the end of the pause. Sans-IO: ``ReadControl`` asks, and pauses.
"""

from __future__ import annotations

from typing import Final

STREAK: Final = 16  # reads
FEW: Final = 8  # acks in a read; more come together by themselves
GAP_S: Final = 0.003  # between two reads of a streak
PAUSE_S: Final = 0.01
LATEST: Final = 1.5  # lengths of a pause
WORTH: Final = 5  # acks that a pause should bring
ENOUGH: Final = 32  # acks for which it lasts at most
_ROOM: Final = 4  # which part of a prefetch a pause may take


class AckCoalescing:
    """When to leave one connection unread.

    Attributes:
        reads: of the streak; 0: there is none.
    """

    __slots__ = ("_acks", "_began_s", "_is_pausing", "_last_s", "_room", "reads")

    def __init__(self) -> None:
        self.reads = 0
        self._acks = 0
        self._began_s = 0.0
        self._last_s = 0.0
        self._is_pausing = False
        self._room = 1 << 30

    def limit(self, prefetch: int) -> None:
        """Mind a prefetch of the connection (0 = none) from now on, for good."""
        if prefetch:
            self._room = min(self._room, prefetch // _ROOM)

    def stop(self) -> None:
        """Pause no more, for good."""
        self._room = 0

    def other(self) -> None:
        """Something else than single acks was read."""
        self.reads = 0
        self._is_pausing = False

    def acked(self, acks: int, now_s: float) -> float:
        """Take a read that held nothing but single acks; return for how long to read no more."""
        since_s = now_s - self._last_s
        self._last_s = now_s
        if self._is_pausing:
            self._is_pausing = False
            is_streak = WORTH <= acks <= 2 * ENOUGH and since_s < 2 * PAUSE_S
        else:
            is_streak = acks <= FEW and since_s < GAP_S
        if not is_streak or not self.reads:
            self.reads, self._acks, self._began_s = 1, 0, now_s
            return 0.0
        self.reads += 1
        self._acks += acks
        return self._pause_s(now_s) if self.reads > STREAK else 0.0

    def _pause_s(self, now_s: float) -> float:
        """Begin a pause, if it is worth it; the next streak is counted from here."""
        pace_s = (now_s - self._began_s) / self._acks
        pause_s = min(PAUSE_S, min(self._room, ENOUGH) * pace_s)
        if not pace_s or pause_s < WORTH * pace_s:
            self.reads = 0
            return 0.0
        self._acks, self._began_s = 0, now_s
        self._is_pausing = True
        return pause_s
