"""Producers that number their messages, as a channel sees them: each message with the one sent before it.

A queue filters duplicates by the last sequence that it took in (``broker/queue/publishers/producers``). Gaps are
allowed, so the queue alone cannot tell a sequence that its producer left out from one that was refused or got lost on
the way, while later ones were already under way. If it took those in, the lost one could never be sent again. So the
channel sends a *predecessor* with each message: one of the sequences that it has sent to this queue for the same
producer and epoch. A queue that does not have the predecessor refuses the message.

* A sequence above all that were sent has the highest of them as its predecessor.
* A publisher that goes back sends again in order: the first has no predecessor, each of the others the one before.
* The first of a channel has none.

So two numbers are enough, the highest and the last that were sent. Without confirms or a transaction a publisher does
not hear of refusals, and is not asked for predecessors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.mail import NO_PREDECESSOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.amqp.producer_headers import Sent
    from leveret.broker.mail import ProducerSeq
    from leveret.broker.registry.registry import QueueEntry

KNOWN_MAX: Final = 1_024  # pairs of queue and producer, about 300 KB; above that all are forgotten


class Predecessors:
    """The last sequences that a channel has sent, by queue and producer."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[
            tuple[QueueEntry, bytes], tuple[int, int, int]
        ] = {}  # epoch, highest, last

    def by_queue(
        self, queues: Sequence[QueueEntry], sent: Sequence[Sent | None], has_confirms: bool
    ) -> dict[QueueEntry, list[ProducerSeq | None]]:
        """Number the messages for each queue.

        A queue that refuses messages is among them: it must hear of their numbers before later ones come.
        """
        there = [entry for entry in queues if entry.ref is not None or entry.is_refusing]
        if not has_confirms:
            same = [each and (*each, NO_PREDECESSOR) for each in sent]
            return dict.fromkeys(there, same)
        return {entry: self.number(entry, sent) for entry in there}

    def number(self, queue: QueueEntry, sent: Sequence[Sent | None]) -> list[ProducerSeq | None]:
        """Return messages for one queue with their predecessors; they count as sent."""
        last = self._last
        found: list[ProducerSeq | None] = []
        for each in sent:
            if each is None:
                found.append(None)
                continue
            producer, epoch, seq = each
            before = last.get((queue, producer))
            if before is None and len(last) >= KNOWN_MAX:
                last.clear()
            predecessor, highest = NO_PREDECESSOR, seq
            if before is not None and before[0] == epoch:
                highest = max(before[1], seq)
                if seq > before[1]:
                    predecessor = before[1]
                elif seq > before[2]:
                    predecessor = before[2]
            found.append((producer, epoch, seq, predecessor))
            last[queue, producer] = epoch, highest, seq
        return found
