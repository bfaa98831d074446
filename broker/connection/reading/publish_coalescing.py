"""Publish coalescing: publishes that stream in are read a thousand times per second.

A client library writes each publish by itself. One that publishes as fast as it can, and waits for no confirm, is read
some ten thousand times per second then, with ten or twenty messages each time; the polls and system calls of a read,
and of the deliveries that follow it, cost more than the messages. So a connection that sends such a stream is left
unread for ``pause_s`` behind each read, and the next one brings hundreds (docs/decisions/0046).

* A pause begins after a *streak*: ``streak_s`` with nothing but publishes, ``few_messages`` in a read on the average. A
  client that sends now and then, or in step with answers, sends fewer; where there are more than ``many_messages`` in
  the first read they come together by themselves.
* Fewer in a read are enough where all messages go to *backlogs*, behind others that wait for a consumer: a producer of
  jobs that are done later. They are not delivered later because of a pause, so it may take ``backlog_pause_s``. Such
  pauses end at the second read behind a message that went to a consumer at once.
* At the pace of the streak a pause brings ``worth`` times as many messages as a read of it, and ``bytes_max`` at
  most: with large bodies a client would soon wait for room in its socket.
* Pauses must not slow the client down: the rate over ``period_pauses`` pauses is compared with that of the streak. When
  it is lower, ``rest_reads`` reads go by before the next streak begins, and twice as many each time this comes again,
  up to ``rest_reads_max``: a client may be in step with answers that another connection gets. After ``periods`` periods
  there is a new streak to compare with: a client may have become faster since, and its socket takes no more in a pause.
* Anything else that is read ends it all.
* A connection that has, or had, a channel in confirm or transaction mode is never paused: a client that waits for an
  answer would wait for the pause, too.

A message of a stream reaches its consumer up to ``pause_s`` later, and the client's next request waits for the end of
a pause. Sans-IO: ``ReadControl`` asks, and pauses. Turned down: a sleep of the loop, which holds up all connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.core.batching import PublishPauses


class PublishCoalescing:
    """When to leave one connection unread, and for how long.

    Args:
        policy: how long at most.

    Attributes:
        reads: since a streak began; 0: none has.
    """

    __slots__ = (
        "_began_s", "_bytes", "_is_awaited", "_last", "_messages", "_pause_s", "_pauses", "_per_s", "_periods", "_rest",
        "_rest_next", "policy", "reads"
    )  # fmt: skip

    def __init__(self, policy: PublishPauses) -> None:
        self.policy = policy
        self.reads = 0
        self._messages = 0  # behind the first read of the streak, or in the period
        self._bytes = 0
        self._began_s = 0.0
        self._pauses = 0  # left of the period; 0: there is a streak, or none
        self._pause_s = policy.pause_s
        self._last = 0  # messages of the read before
        self._is_awaited = False  # some message since the streak began went to no backlog
        self._periods = 0  # since the streak
        self._per_s = 0.0  # messages, in the streak
        self._rest = 0  # reads
        self._rest_next = policy.rest_reads

    def other(self) -> None:
        """Something else was read."""
        self.reads = self._pauses = 0

    def published(
        self, messages: int, size_bytes: int, now_s: float, to_backlogs: int = 0
    ) -> float:
        """Take a read that held nothing but publishes; return how many seconds to pause, 0: not at all.

        Unless a streak has begun, only of those with ``few_messages`` to ``many_messages``, or when messages go to
        backlogs. ``to_backlogs`` says how many have gone there since the read before.
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
            return self._pause_again(now_s)
        self._bytes += size_bytes
        return self._begin(now_s) if now_s - self._began_s >= self.policy.streak_s else 0.0

    def _begin(self, now_s: float) -> float:
        """Begin with pauses behind a streak, if they are worth it."""
        policy = self.policy
        lasted_s, reads = now_s - self._began_s, self.reads - 1
        is_few = self._messages < policy.few_messages * reads
        pause_s = policy.backlog_pause_s if is_few else policy.pause_s
        if (
            (is_few and self._is_awaited)
            or reads * pause_s < policy.worth * lasted_s
            or self._bytes * pause_s > policy.bytes_max * lasted_s
        ):
            self.reads = 0
            return 0.0
        self._per_s, self._periods, self._pause_s = self._messages / lasted_s, 0, pause_s
        self._begin_period(now_s)
        return pause_s

    def _pause_again(self, now_s: float) -> float:
        """Behind a read after a pause: return how long another one takes."""
        policy = self.policy
        if self._is_awaited and self._pause_s == policy.backlog_pause_s:
            self.other()
            return 0.0
        self._pauses -= 1
        if self._pauses:
            return self._pause_s
        if self._messages < policy.slower * self._per_s * (now_s - self._began_s):
            self.reads, self._rest = 0, self._rest_next
            self._rest_next = min(2 * self._rest, policy.rest_reads_max)
            return 0.0
        self._rest_next = policy.rest_reads
        self._periods += 1
        if self._periods == policy.periods:
            self.reads = 0
            return 0.0
        self._begin_period(now_s)
        return self._pause_s

    def _begin_period(self, now_s: float) -> None:
        self._pauses, self._messages, self._began_s = self.policy.period_pauses, 0, now_s
