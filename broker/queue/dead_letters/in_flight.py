"""Dead letters on their way: which batches wait for which queues.

A batch is a run of dead letters with the same target queues, and has consecutive confirm numbers. Each target answers
every number once, in any pieces; so it is enough to count per batch and target. A batch is *done* when it has been
sent to all targets and each has answered all of it, or has been deleted. A target that dies before it has answered
gets the batch again, when it runs.

Sans-IO: ``dead_letters.py`` sends.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.broker.registry.registry import QueueEntry
    from leveret.core.message import Message


class DeadLetterBatch:
    """A run of dead letters with the same targets.

    Attributes:
        first: the first confirm number; set when the batch is begun.
        messages: the letters.
        seqs: of the messages that they come from, in the backing queue of the source; empty where the
            messages never were in it.
        size_bytes: of heads and bodies.
        head_bytes: the heads' part of it.
        targets: queues that it goes to.
        sent: the first so many targets have been sent the batch.
        owing: targets that have not answered all, with the number of letters they have not answered.
        retries: targets that must be sent the batch again.
    """

    __slots__ = ("first", "head_bytes", "messages", "owing", "persistent", "retries", "sent", "seqs", "size_bytes",
        "targets")  # fmt: skip

    def __init__(
        self,
        messages: list[Message],
        seqs: list[int],
        persistent: bool,
        targets: Sequence[QueueEntry],
    ) -> None:
        self.first = 0
        self.messages = messages
        self.seqs = seqs
        self.persistent = persistent
        self.targets = targets
        self.head_bytes = sum([len(head) for _, head, _ in messages])
        self.size_bytes = self.head_bytes + sum([len(body) for _, _, body in messages])
        self.sent = self.retries = 0
        self.owing: dict[Ref, tuple[QueueEntry, int]] = {}

    def next_slice(self, count_max: int) -> Sequence[QueueEntry]:
        """Return the targets that are next to be sent the batch, and count them as sent."""
        first, self.sent = self.sent, self.sent + count_max
        return self.targets[first : self.sent]

    def owes(self, target: QueueEntry, ref: Ref) -> None:
        """Note that a target has been sent the batch."""
        self.owing[ref] = (target, len(self.messages))

    @property
    def is_done(self) -> bool:
        return not self.owing and not self.retries and self.sent >= len(self.targets)


class DeadLettersInFlight:
    """The batches of one source that are not done.

    Attributes:
        count: letters in them.
        size_bytes: of these.
    """

    __slots__ = ("_batches", "_firsts", "_next_number", "count", "size_bytes")

    def __init__(self) -> None:
        self._next_number = 1
        self._firsts: list[int] = []  # of the batches, ascending
        self._batches: dict[int, DeadLetterBatch] = {}  # by first number
        self.count = self.size_bytes = 0

    def begin(self, batch: DeadLetterBatch) -> None:
        """Number a batch."""
        batch.first = self._next_number
        self._next_number += len(batch.messages)
        self._firsts.append(batch.first)
        self._batches[batch.first] = batch
        self.count += len(batch.messages)
        self.size_bytes += batch.size_bytes

    def answered(self, ref: Ref, ranges: Iterable[tuple[int, int]]) -> list[DeadLetterBatch]:
        """Take a target's answers; return the batches that may be done now."""
        touched: list[DeadLetterBatch] = []
        for first, count in ranges:
            end = first + count
            place = max(0, bisect_right(self._firsts, first) - 1)
            while place < len(self._firsts) and self._firsts[place] < end:
                batch = self._batches[self._firsts[place]]
                start, stop = max(first, batch.first), min(end, batch.first + len(batch.messages))
                if start < stop and ref in batch.owing:
                    target, left = batch.owing[ref]
                    if left > stop - start:
                        batch.owing[ref] = (target, left - (stop - start))
                    else:
                        del batch.owing[ref]
                        touched.append(batch)
                place += 1
        return touched

    def gone(self, ref: Ref) -> list[tuple[DeadLetterBatch, QueueEntry]]:
        """Forget an incarnation of a target; return the batches it owed answers for, with its entry."""
        owed = [batch for batch in self._batches.values() if ref in batch.owing]
        return [(batch, batch.owing.pop(ref)[0]) for batch in owed]

    def end(self, batch: DeadLetterBatch) -> None:
        """Forget a batch that is done."""
        if self._batches.pop(batch.first, None) is None:
            return
        del self._firsts[bisect_right(self._firsts, batch.first) - 1]
        self.count -= len(batch.messages)
        self.size_bytes -= batch.size_bytes
