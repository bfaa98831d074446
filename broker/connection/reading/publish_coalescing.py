"""Publish coalescing: publishes that stream in are read a thousand times per second.

A client library writes each publish by itself. One that publishes as fast as it can, and waits for no confirm, is read
some ten thousand times per second then, with ten or twenty messages each time; the polls and system calls of a read,
and of the deliveries that follow it, cost more than the messages. So a connection that sends such a stream is left
unread for ``PAUSE_S`` behind each read, and the next one brings hundreds (docs/decisions/0046).

* A pause begins after a *streak*: ``STREAK_S`` with nothing but publishes, ``FEW`` in a read on the average. A client
  that sends now and then, or in step with answers, sends fewer; where there are more than ``MANY`` in the first read
  they come together by themselves.
* At the pace of the streak a pause brings ``WORTH`` times as many messages as a read of it, and ``BYTES_MAX`` at
  most: with large bodies a client would soon wait for room in its socket.
* Pauses must not slow the client down: the rate over ``PERIOD`` pauses is compared with that of the streak. When
  it is lower, ``REST`` reads go by before the next streak begins. After ``PERIODS`` periods there is a new streak to
  compare with: a client may have become faster since, and its socket takes no more in a pause.
* Anything else that is read ends it all.
* A connection that has, or had, a channel in confirm or transaction mode is never paused: a client that waits for an
  answer would wait for the pause, too.

A message of a stream reaches its consumer up to ``PAUSE_S`` later, and the client's next request waits as long.
Sans-IO: ``ReadControl`` asks, and pauses. Turned down: a sleep of the loop, which holds up all connections.
"""

from __future__ import annotations

from typing import Final

PAUSE_S: Final = 0.001  # the grain of uvloop's timers
STREAK_S: Final = 0.02  # uvloop's time, too, goes by milliseconds
FEW: Final = 4  # messages in a read
MANY: Final = 64
WORTH: Final = 4
BYTES_MAX: Final = 256 * 1024
PERIOD: Final = 16  # pauses
PERIODS: Final = 64
SLOWER: Final = 0.8  # of the streak's rate: less is too slow
REST: Final = 1024  # reads


class PublishCoalescing:
    """When to leave one connection unread for ``PAUSE_S``.

    Attributes:
        reads: since a streak began; 0: none has.
    """

    __slots__ = (
        "_began_s", "_bytes", "_messages", "_pauses", "_per_s", "_periods", "_rest", "reads"
    )  # fmt: skip

    def __init__(self) -> None:
        self.reads = 0
        self._messages = 0  # behind the first read of the streak, or in the period
        self._bytes = 0
        self._began_s = 0.0
        self._pauses = 0  # left of the period; 0: there is a streak, or none
        self._periods = 0  # since the streak
        self._per_s = 0.0  # messages, in the streak
        self._rest = 0  # reads

    def other(self) -> None:
        """Something else was read."""
        self.reads = self._pauses = 0

    def published(self, messages: int, size_bytes: int, now_s: float) -> bool:
        """Take a read that held nothing but publishes; return whether to pause.

        Unless a streak has begun, only of those with ``FEW`` to ``MANY`` messages.
        """
        if self._rest:
            self._rest -= 1
            return False
        self.reads += 1
        if self.reads == 1:
            self._began_s, self._messages, self._bytes = now_s, 0, 0
            return False
        self._messages += messages
        if self._pauses:
            return self._goes_on(now_s)
        self._bytes += size_bytes
        return now_s - self._began_s >= STREAK_S and self._begin(now_s)

    def _begin(self, now_s: float) -> bool:
        """Begin with pauses behind a streak, if they are worth it."""
        lasted_s, reads = now_s - self._began_s, self.reads - 1
        if (
            self._messages < FEW * reads
            or reads * PAUSE_S < WORTH * lasted_s
            or self._bytes * PAUSE_S > BYTES_MAX * lasted_s
        ):
            self.reads = 0
            return False
        self._per_s, self._periods = self._messages / lasted_s, 0
        self._begin_period(now_s)
        return True

    def _goes_on(self, now_s: float) -> bool:
        """Behind a read after a pause: return whether another one follows."""
        self._pauses -= 1
        if self._pauses:
            return True
        if self._messages < SLOWER * self._per_s * (now_s - self._began_s):
            self.reads, self._rest = 0, REST
            return False
        self._periods += 1
        if self._periods == PERIODS:
            self.reads = 0
            return False
        self._begin_period(now_s)
        return True

    def _begin_period(self, now_s: float) -> None:
        self._pauses, self._messages, self._began_s = PERIOD, 0, now_s
