"""MovingQueue: a queue in memory on its way to one that can page, while it is used.

A queue that is not durable begins in memory, where it costs least. When it is made lazy, or memory is
short, what it has goes over to a ``VariableQueue``, oldest first and a slice in each turn::

    out  <--  front: VariableQueue  <--  back: MemoryQueue  <--  in

Ready messages with seqs below the front's next one stand in front, all others behind. What is unacked
stays where it was handed out; put back, it goes to where its seq belongs. When nothing is ready behind,
the unacked follow, and the front alone is the queue (``finish``).

What is ready behind but was handed out before has seqs among those of the unacked, and is put back into
the front, too, not published: Q1 holds only what is younger than anything that may be put back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from leveret.core.message import BODY
from leveret.queue_backing.api import Accumulator, Dropped, Fetched, Predicate
from leveret.queue_backing.status import EXPIRY_MS, MESSAGE, SEQ, message_of, seq_of

if TYPE_CHECKING:
    from leveret.core.message import Message
    from leveret.queue_backing.api import QueueMode, Urgency
    from leveret.queue_backing.memory.queue import MemoryQueue
    from leveret.queue_backing.status import Entry
    from leveret.queue_backing.variable.queue import VariableQueue

STEP: Final = 500  # messages that go over in a turn; with what paging does behind it, below 5 ms
_NO_SUMS: Final = frozenset({"next_seq_id", "next_deliver_seq_id", "head_message_timestamp"})


class MovingQueue:
    """See ``BackingQueue`` for the methods.

    Args:
        back: what is to go.
        front: where to; new and empty.
        done: called, perhaps more than once, when ``finish`` has next to nothing left to do.
    """

    __slots__ = ("_back", "_done", "_front", "_is_done")

    def __init__(self, back: MemoryQueue, front: VariableQueue, done: Callable[[], None]) -> None:
        self._back = back
        self._front = front
        self._done = done
        self._is_done = False
        front.set_queue_mode(back.mode)

    # Going over.

    def finish(self) -> VariableQueue:
        """Move what is left; return the queue that has all of it."""
        while self._move(STEP):
            pass
        return self._front

    def _move(self, count: int) -> int:
        """Move so many messages at most; return how many it were."""
        front, back = self._front, self._back
        entries = back.take_ready(count)
        handed_out = 0
        if back.depth() > back.len():
            handed_out = bisect_left(entries, back.next_deliver, key=seq_of)
            self._put_back(entries[:handed_out])
        fresh = enumerate(entries[handed_out:])
        for _, run in groupby(fresh, lambda item: item[1][SEQ] - item[0]):
            self._append([entry for _, entry in run])
        front.next_deliver = max(front.next_deliver, min(back.next_deliver, front.next_seq))
        if len(entries) < count:
            front.skip_to(back.next_seq)
            front.next_deliver = max(front.next_deliver, back.next_deliver)
            entries += self._take_over(back.take_unacked(count - len(entries)))
        if len(entries) < count and not self._is_done and back.needs_timeout() is None:
            self._is_done = True
            self._done()
        return len(entries)

    def _append(self, run: list[Entry]) -> None:
        """Publish ready messages with seqs in a row to the front."""
        expiries = [entry[EXPIRY_MS] for entry in run]
        self._front.skip_to(run[0][SEQ])
        self._front.publish(
            list(map(message_of, run)),
            False,
            expiries if any(expiries) else None,
            first_msg_no=run[0][SEQ],
        )

    def _put_back(self, entries: list[Entry]) -> None:
        """Have the front requeue ready messages that were handed out before."""
        if entries:
            self._front.skip_to(entries[-1][SEQ] + 1)
            self._front.requeue(list(map(seq_of, self._take_over(entries))))

    def _take_over(self, unacked: list[Entry]) -> list[Entry]:
        """Let unacked messages be the front's."""
        if unacked:
            front = self._front
            unacked.sort()
            wide = [
                (seq, message, expiry_ms, False, seq, len(message[BODY]), False, False)
                for seq, message, expiry_ms, _ in unacked
            ]
            size_bytes = sum([len(entry[MESSAGE][BODY]) for entry in unacked])
            front.unacked_bytes += size_bytes
            front.ram_bytes += size_bytes
            front.await_acks(list(map(seq_of, wide)), wide)
        return unacked

    # Lifecycle.

    def init(self, recover: bool) -> None:
        """Both have begun."""

    def terminate(self) -> None:
        """End; nothing is persistent."""
        self._back.terminate()
        self._front.terminate()

    def abandon(self) -> None:
        """End."""
        self._back.abandon()
        self._front.abandon()

    def delete_and_terminate(self) -> None:
        """End and keep nothing."""
        self._back.delete_and_terminate()
        self._front.delete_and_terminate()

    # In.

    def publish(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        delivered: bool = False,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        """Append a batch, and move twice as many, so that it comes to an end."""
        answer = self._back.publish(messages, persistent, expiries, size_bytes, delivered)
        self._move(2 * len(messages))
        return answer

    def publish_delivered(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        """Take a batch as unacked."""
        assert not self._front.count, "publish_delivered on a queue that is not empty"
        return self._back.publish_delivered(messages, persistent, expiries, size_bytes)

    def discard(self, messages: list[Message], persistent: bool, first_msg_no: int = 0) -> None:
        """Nothing to note."""

    def is_duplicate(self, message: Message) -> bool:
        """Never: there is no mirror."""
        return False

    # Out.

    def fetch(self, limit: int, bytes_max: int, ack_required: bool) -> Fetched:
        """Take messages from the head."""
        fetched = self._front.fetch(limit, bytes_max, ack_required)
        room_bytes = self._room_bytes(fetched, bytes_max)
        if room_bytes is None or len(fetched.seqs) == limit:
            return fetched
        behind = self._back.fetch(limit - len(fetched.seqs), room_bytes, ack_required)
        return _joined(fetched, behind)

    def _room_bytes(self, fetched: Fetched, bytes_max: int) -> int | None:
        """Return how many bytes more may come from behind; None when nothing may."""
        if fetched.pending or self._front.count:
            return None
        _, head = self._back.fetchwhile(_never, 0, 0)
        if head is None or not fetched.seqs:
            return bytes_max
        left = bytes_max - sum([len(message[BODY]) for message in fetched.messages])
        return None if len(head[MESSAGE][BODY]) > left else left

    def drop(self, limit: int, ack_required: bool) -> list[int]:
        """Take messages from the head."""
        seqs = self._front.drop(limit, ack_required)
        if self._front.count or len(seqs) == limit:
            return seqs
        return seqs + self._back.drop(limit - len(seqs), ack_required)

    def dropwhile(self, predicate: Predicate, limit: int) -> Dropped:
        """Remove messages from the head while the predicate holds."""
        first = self._front.dropwhile(predicate, limit)
        if first.head is not None or first.pending:
            return first
        then = self._back.dropwhile(predicate, limit - first.count)
        return Dropped(first.count + then.count, then.head)

    def fetchwhile(
        self, predicate: Predicate, limit: int, bytes_max: int
    ) -> tuple[Fetched, Entry | None]:
        """Hand out messages from the head while the predicate holds."""
        fetched, head = self._front.fetchwhile(predicate, limit, bytes_max)
        if head is not None:
            return fetched, head
        room_bytes = self._room_bytes(fetched, bytes_max)
        if room_bytes is None:
            return fetched, None if fetched.pending else self._back.fetchwhile(_never, 0, 0)[1]
        behind, head = self._back.fetchwhile(predicate, limit - len(fetched.seqs), room_bytes)
        return _joined(fetched, behind), head

    # Back.

    def ack(self, seqs: list[int]) -> int:
        """Forget unacked messages for good."""
        return self._front.ack(seqs) + self._back.ack(seqs)

    def requeue(self, seqs: list[int]) -> int:
        """Put unacked messages back to their places."""
        front, back = self._front, self._back
        passed = [seq for seq in seqs if seq < front.next_seq]
        self._take_over(back.settle(passed))
        return front.requeue(passed) + back.requeue(seqs)

    # All.

    def ackfold(
        self,
        step: Callable[[Entry, Accumulator], Accumulator],
        start: Accumulator,
        seqs: list[int],
    ) -> Accumulator:
        """Fold over the given unacked messages."""
        for is_behind, run in groupby(seqs, self._back.is_unacked):
            queue: Any = self._back if is_behind else self._front
            start = queue.ackfold(step, start, list(run))
        return start

    def fold(
        self,
        step: Callable[[Entry | None, bool, Accumulator], tuple[bool, Accumulator]],
        start: Accumulator,
        from_seq: int = 0,
    ) -> Accumulator:
        """Fold over everything by ``seq``, which takes as long as to move it does."""
        return self.finish().fold(step, start, from_seq)

    def purge(self) -> int:
        """Remove all ready messages."""
        return self._front.purge() + self._back.purge()

    def purge_acks(self) -> int:
        """Forget all unacked messages."""
        return self._front.purge_acks() + self._back.purge_acks()

    # Figures and housekeeping.

    def take_resident(self) -> bool:
        """Whether what was pending may be there now."""
        return self._front.take_resident()

    def len(self) -> int:
        """Return the number of ready messages."""
        return self._front.count + self._back.len()

    def is_empty(self) -> bool:
        """Whether no message is ready."""
        return not self._front.count and self._back.is_empty()

    def depth(self) -> int:
        """Return the number of ready and unacked messages."""
        return self._front.depth() + self._back.depth()

    def ram_duration(self) -> float:
        """Return what has gone over keeps in RAM."""
        return self._front.ram_duration()

    def set_ram_duration_target(self, duration_s: float) -> None:
        """Set it for what has gone over."""
        self._front.set_ram_duration_target(duration_s)

    def set_queue_mode(self, mode: QueueMode) -> None:
        """Change what has gone over."""
        self._back.mode = mode
        self._front.set_queue_mode(mode)

    def needs_timeout(self) -> Urgency | None:
        """``timed`` until everything has gone over."""
        if not self._is_done:
            return "timed"
        return self._front.needs_timeout() or self._back.needs_timeout()

    def timeout(self) -> None:
        """Move a slice, and do a slice of what either has to do."""
        self._front.timeout()
        self._back.timeout()
        self._move(STEP)

    def handle_pre_hibernate(self) -> None:
        """Let go of empty containers."""
        self._front.handle_pre_hibernate()
        self._back.handle_pre_hibernate()

    def resume(self) -> None:
        """Go on with paging and with what had to be read."""
        self._front.resume()

    def info(self) -> dict[str, Any]:
        """Return figures of both together."""
        figures, behind = self._front.info(), self._back.info()
        for name, value in behind.items():
            if type(value) is int and name not in _NO_SUMS:
                figures[name] += value
        for name in ("next_seq_id", "next_deliver_seq_id"):
            figures[name] = max(figures[name], behind[name])
        if not self._front.depth():
            figures["head_message_timestamp"] = behind["head_message_timestamp"]
        return figures


def _never(entry: Entry) -> bool:
    """Take nothing, and see the head."""
    return False


def _joined(fetched: Fetched, behind: Fetched) -> Fetched:
    return Fetched(
        fetched.messages + behind.messages,
        fetched.seqs + behind.seqs,
        fetched.redelivered + behind.redelivered,
    )
