"""Publish coalescing: publishes that stream in are read a thousand times per second.

A client library writes each publish by itself. One that publishes as fast as it can, and waits for no confirm, is read
some ten thousand times per second then, with ten or twenty messages each time; the polls and system calls of a read,
and of the deliveries that follow it, cost more than the messages. So a connection that sends such a stream is left
unread for ``PAUSE_S`` behind each read, and the next one brings hundreds (docs/decisions/0046).

* A pause begins after a *streak*: ``STREAK_S`` with nothing but publishes, ``FEW`` in a read on the average. A client
  that sends now and then, or in step with answers, sends fewer; where there are more than ``MANY`` in the first read
  they come together by themselves.
* Fewer in a read are enough where all messages go to *backlogs*, behind others that wait for a consumer: a producer of
  jobs that are done later. They are not delivered later because of a pause, so it may take ``BACKLOG_PAUSE_S``. Such
  pauses end at the second read behind a message that went to a consumer at once.
* At the pace of the streak a pause brings ``WORTH`` times as many messages as a read of it, and ``BYTES_MAX`` at
  most: with large bodies a client would soon wait for room in its socket.
* Pauses must not slow the client down: the rate over ``PERIOD`` pauses is compared with that of the streak. When
  it is lower, ``REST`` reads go by before the next streak begins, and twice as many each time this comes again, up to
  ``REST_MAX``: a client may be in step with answers that another connection gets. After ``PERIODS`` periods there is
  a new streak to compare with: a client may have become faster since, and its socket takes no more in a pause.
* Anything else that is read ends it all.
* A connection that has, or had, a channel in confirm or transaction mode is never paused: a client that waits for an
  answer would wait for the pause, too.

A message of a stream reaches its consumer up to ``PAUSE_S`` later, and the client's next request waits for the end of
a pause. Sans-IO: ``ReadControl`` asks, and pauses. Turned down: a sleep of the loop, which holds up all connections.
"""

from __future__ import annotations

from typing import Final

PAUSE_S: Final = 0.001  # the grain of uvloop's timers
BACKLOG_PAUSE_S: Final = 0.002
STREAK_S: Final = 0.02  # uvloop's time, too, goes by milliseconds
FEW: Final = 4  # messages in a read
MANY: Final = 64
WORTH: Final = 4
BYTES_MAX: Final = 256 * 1024
PERIOD: Final = 16  # pauses
PERIODS: Final = 64
SLOWER: Final = 0.8  # of the streak's rate: less is too slow
REST: Final = 1024  # reads
REST_MAX: Final = 64 * REST


class PublishCoalescing:
    """When to leave one connection unread, and for how long.

    Attributes:
        reads: since a streak began; 0: none has.
    """

    __slots__ = (
        "_began_s", "_bytes", "_is_awaited", "_last", "_messages", "_pause_s", "_pauses", "_per_s", "_periods", "_rest",
        "_rest_next", "reads"
    )  # fmt: skip

    def __init__(self) -> None:
        self.reads = 0
        self._messages = 0  # behind the first read of the streak, or in the period
        self._bytes = 0
        self._began_s = 0.0
        self._pauses = 0  # left of the period; 0: there is a streak, or none
        self._pause_s = PAUSE_S
        self._last = 0  # messages of the read before
        self._is_awaited = False  # some message since the streak began went to no backlog
        self._periods = 0  # since the streak
        self._per_s = 0.0  # messages, in the streak
        self._rest = 0  # reads
        self._rest_next = REST

    def other(self) -> None:
        """Something else was read."""
        self.reads = self._pauses = 0

    def published(
        self, messages: int, size_bytes: int, now_s: float, to_backlogs: int = 0
    ) -> float:
        """Take a read that held nothing but publishes; return how many seconds to pause, 0: not at all.

        Unless a streak has begun, only of those with ``FEW`` to ``MANY`` messages, or when messages go to backlogs.
        ``to_backlogs`` says how many have gone there since the read before.
        """
        if self._rest:
            self._rest -= 1
            return 0.0
        self.reads += 1
        last, self._last = self._last, messages
        if self.reads == 1:
            self._began_s, self._messages, self._bytes, self._is_awaited = now_s, 0, 0, False
            return 0.0
        self._is_awaited = self._is_awaited or to_backlogs < last
        self._messages += messages
        if self._pauses:
            return self._goes_on(now_s)
        self._bytes += size_bytes
        return self._begin(now_s) if now_s - self._began_s >= STREAK_S else 0.0

    def _begin(self, now_s: float) -> float:
        """Begin with pauses behind a streak, if they are worth it."""
        lasted_s, reads = now_s - self._began_s, self.reads - 1
        is_few = self._messages < FEW * reads
        pause_s = BACKLOG_PAUSE_S if is_few else PAUSE_S
        if (
            (is_few and self._is_awaited)
            or reads * pause_s < WORTH * lasted_s
            or self._bytes * pause_s > BYTES_MAX * lasted_s
        ):
            self.reads = 0
            return 0.0
        self._per_s, self._periods, self._pause_s = self._messages / lasted_s, 0, pause_s
        self._begin_period(now_s)
        return pause_s

    def _goes_on(self, now_s: float) -> float:
        """Behind a read after a pause: return how long another one takes."""
        if self._is_awaited and self._pause_s == BACKLOG_PAUSE_S:
            self.other()
            return 0.0
        self._pauses -= 1
        if self._pauses:
            return self._pause_s
        if self._messages < SLOWER * self._per_s * (now_s - self._began_s):
            self.reads, self._rest = 0, self._rest_next
            self._rest_next = min(2 * self._rest, REST_MAX)
            return 0.0
        self._rest_next = REST
        self._periods += 1
        if self._periods == PERIODS:
            self.reads = 0
            return 0.0
        self._begin_period(now_s)
        return self._pause_s

    def _begin_period(self, now_s: float) -> None:
        self._pauses, self._messages, self._began_s = PERIOD, 0, now_s
