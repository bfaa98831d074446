"""One consumer of a queue, and the queue's record of one channel with its consumers (RabbitMQ's ``#cr{}``).

The record also has the unacked messages of basic.get and of cancelled consumers, which stay with the channel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.actors.runtime.signals import MonitorRef
    from leveret.broker.queue_requests import Consume

UNLIMITED: Final = 1 << 30
TAGS_MAX: Final = 10  # in one mail: a channel handles 200 mails in a turn


class Consumer:
    """One basic.consume on one queue.

    Attributes:
        spec: the basic.consume.
        channel: of ``spec``, like ``gate``, ``limiter`` and ``tag``.
        gate: of its connection.
        limiter: of its channel.
        unacked: seqs delivered and not acked; made on first use, always None when ``no_ack``.
        in_flight: their number, counted when they are dealt.
        blocked: set aside, not in its ring.
    """

    __slots__ = (
        "blocked",
        "channel",
        "gate",
        "in_flight",
        "limiter",
        "no_ack",
        "prefetch",
        "spec",
        "tag",
        "unacked",
    )

    def __init__(self, spec: Consume) -> None:
        # First what each message needs: compiled, fields lie in memory in this order.
        self.gate = spec.gate
        self.limiter = spec.limiter
        self.no_ack = spec.no_ack
        self.blocked = False
        self.tag = spec.tag
        self.channel = spec.channel
        self.prefetch = 0 if spec.no_ack else spec.prefetch
        self.in_flight = 0
        self.unacked: set[int] | None = None
        self.spec = spec

    def room(self) -> int:
        if not self.gate.is_open:
            return 0
        limiter = self.limiter
        room = limiter.room() if limiter.limit else UNLIMITED
        if self.no_ack:
            return UNLIMITED if room else 0
        if self.prefetch:
            return min(room, max(0, self.prefetch - self.in_flight))
        return room

    def dealt(self, count: int) -> None:
        """Count messages that it gets and must ack."""
        self.in_flight += count
        self.limiter.in_flight += count

    def owe(self, seqs: list[int]) -> None:
        """Note messages that were sent and must be acked."""
        if self.unacked is None:
            self.unacked = set(seqs)
        else:
            self.unacked.update(seqs)

    def sent(self, seqs: list[int]) -> None:
        """Count messages that were sent and must be acked, and note them: ``dealt`` and ``owe`` at once."""
        count = len(seqs)
        self.in_flight += count
        self.limiter.in_flight += count
        if self.unacked is None:
            self.unacked = set(seqs)
        elif count == 1:
            self.unacked.add(seqs[0])
        else:
            self.unacked.update(seqs)

    def settle(self, seqs: list[int]) -> int:
        """Forget acked, rejected or requeued messages; return how many of them were its own."""
        unacked = self.unacked
        if not unacked:
            return 0
        before = len(unacked)
        if len(seqs) == 1:
            unacked.discard(seqs[0])
        else:
            unacked.difference_update(seqs)
        settled = before - len(unacked)
        self.in_flight -= settled
        return settled


class ChannelRecord:
    """A queue's record of one channel.

    Attributes:
        consumers: by tag.
        blocked: the blocked ones, in the order in which they were blocked.
        waits_for_resume: the channel's limiter has refused one of them. Then an ack unblocks no
            consumer, only ``Resume`` does: the channel gives its queues their turns.
        unacked_without_consumer: seqs of basic.get and of cancelled consumers.
        monitor: tells the queue of the channel's end.
    """

    __slots__ = ("blocked", "consumers", "monitor", "unacked_without_consumer", "waits_for_resume")

    def __init__(self) -> None:
        self.consumers: dict[bytes, Consumer] = {}
        self.blocked: dict[Consumer, None] | None = None
        self.waits_for_resume = False
        self.unacked_without_consumer: set[int] | None = None
        self.monitor: MonitorRef | None = None

    def owe(self, seqs: Iterable[int]) -> None:
        """Note unacked messages that belong to no consumer."""
        if self.unacked_without_consumer is None:
            self.unacked_without_consumer = set()
        self.unacked_without_consumer.update(seqs)

    def tags(self) -> Iterator[list[bytes]]:
        """Yield the tags of the consumers, ``TAGS_MAX`` at once."""
        tags = list(self.consumers)
        for start in range(0, len(tags), TAGS_MAX):
            yield tags[start : start + TAGS_MAX]

    def is_idle(self) -> bool:
        """Whether the channel has neither consumers nor unacked messages here."""
        return not self.consumers and not self.unacked_without_consumer

    def unacked(self) -> list[set[int]]:
        """Return all seqs that are unacked; the sets are the record's own."""
        of_consumers = [each.unacked for each in self.consumers.values()]
        return [seqs for seqs in (self.unacked_without_consumer, *of_consumers) if seqs]
