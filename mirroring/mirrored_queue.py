"""MirroredQueue: the backing queue of a queue with mirrors, on its master's node.

It wraps the queue's own backing queue and tells the replicas what changes, as ``rabbit_mirror_queue_master`` does.
Mirrors learn which messages were published and which are gone, by their seqs. Which are unacked the master alone knows.

**Confirms.** A batch is safe when the master has confirmed its instruction: at once only if no disk and no mirror is
waited for.

**Handing out.** A message is handed out when all in-sync replicas know that it may be (rule 8 of ``replicas``).
A message that goes straight to a consumer carries that mark in its own instruction. A fetch takes ready messages that
are *deliverable*: the replicas know. It asks for more before the last one is taken. When the head is not deliverable,
the fetch says ``pending``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from leveret.core.entry import SEQ
from leveret.mirroring.replicas.seq_runs import ALL_SEQS, SeqRuns, runs_of, without
from leveret.mirroring.replicated import Batch
from leveret.queue_backing.api import (
    Accumulator,
    AckStep,
    BackingQueue,
    Dropped,
    Fetched,
    FoldStep,
    Predicate,
)

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.core.message import Message
    from leveret.mirroring.master_content import MasterContent
    from leveret.mirroring.replicas.master import Master
    from leveret.queue_backing.api import QueueMode, ReplicaQueue

AHEAD: Final = 64  # messages that become deliverable at least, when some must


class MirroredQueue(BackingQueue):
    """See ``BackingQueue`` for the methods.

    Args:
        queue: the queue's own, which has no message that ``content`` does not know.
        content: of the master.
        master: has just begun.
        now_s: a clock.
        safe: gets ``(first_seq, count)`` that are confirmed, if ``publish`` has not said so.
    """

    def __init__(
        self,
        queue: ReplicaQueue,
        content: MasterContent,
        master: Master,
        now_s: Callable[[], float],
        safe: Callable[[list[tuple[int, int]]], None],
    ) -> None:
        self._queue = queue
        self._content = content
        self._master = master
        self._now_s = now_s
        self._safe = safe
        self._unacked: set[int] = set()
        self._unconfirmed: deque[tuple[int, int, int]] = deque()  # instruction, first seq, count
        self._asked_below = master.deliverable_below
        self._awaits_deliverable = self._is_fetch_ready = False
        queue.skip_to(master.next_seq)

    # What the master tells.

    def confirmed(self, no: int) -> None:
        """All instructions up to this one are confirmed."""
        runs: list[tuple[int, int]] = []
        waiting = self._unconfirmed
        while waiting and waiting[0][0] <= no:
            runs.append(waiting.popleft()[1:])
        if runs:
            self._safe(runs)

    def deliverable(self) -> None:
        """More messages may be handed out."""
        if self._awaits_deliverable:
            self._awaits_deliverable, self._is_fetch_ready = False, True

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
        batch = Batch(messages[:], persistent, expiries, first_msg_no, size_bytes)
        return self._publish(batch, delivered)

    def publish_delivered(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        batch = Batch(messages[:], persistent, expiries, first_msg_no, size_bytes, is_straight=True)
        first, is_safe = self._publish(batch, is_handed_out=True)
        self._unacked.update(range(first, first + len(messages)))
        return first, is_safe

    def _publish(self, batch: Batch, is_handed_out: bool) -> tuple[int, bool]:
        master, first = self._master, self._master.next_seq
        no = master.publish(batch, self._now_s(), is_handed_out)
        is_safe = master.confirmed_no >= no
        if not is_safe:
            self._unconfirmed.append((no, first, len(batch)))
        return first, is_safe

    def discard(self, messages: list[Message], persistent: bool, first_msg_no: int = 0) -> None:
        self._queue.discard(messages, persistent, first_msg_no)

    # Out.

    def fetch(self, limit: int, bytes_max: int, ack_required: bool) -> Fetched:
        below = self._master.deliverable_below
        fetched, head = self._queue.fetchwhile(lambda entry: entry[SEQ] < below, limit, bytes_max)
        self._unacked.update(fetched.seqs)
        if head is not None and head[SEQ] >= self._asked_below - AHEAD // 2:
            self._ask_deliverable(head[SEQ], limit)
        if head is not None and head[SEQ] >= self._master.deliverable_below:
            fetched.pending = self._awaits_deliverable = True
        if not ack_required:
            self._forget(fetched.seqs)
        return fetched

    def _ask_deliverable(self, first: int, limit: int) -> None:
        """Have the next ready messages become deliverable, which begin at a seq."""
        ready = self._queue.ready_seqs(first, max(2 * limit, AHEAD)).seqs
        below = ready[-1] + 1 if ready else first + 1
        if below > self._asked_below:
            self._asked_below = below
            self._master.hand_out(below, self._now_s())

    def fetchwhile(
        self, predicate: Predicate, limit: int, bytes_max: int
    ) -> tuple[Fetched, Entry | None]:
        """Take expired messages, say; they go to no consumer, so nobody need know before."""
        fetched, head = self._queue.fetchwhile(predicate, limit, bytes_max)
        self._unacked.update(fetched.seqs)
        return fetched, head

    def drop(self, limit: int, ack_required: bool) -> list[int]:
        seqs = self._queue.drop(limit, ack_required)
        if ack_required:
            self._unacked.update(seqs)
        else:
            self._gone(runs_of(sorted(seqs)))
        return seqs

    def dropwhile(self, predicate: Predicate, limit: int) -> Dropped:
        held: list[int] = []

        def noted(entry: Entry) -> bool:
            holds = predicate(entry)
            if holds:
                held.append(entry[SEQ])
            return holds

        dropped = self._queue.dropwhile(noted, limit)
        self._gone(runs_of(sorted(held[: dropped.count])))
        return dropped

    def ack(self, seqs: list[int]) -> int:
        return self._forget([seq for seq in seqs if seq in self._unacked])

    def _forget(self, seqs: list[int]) -> int:
        count = self._queue.ack(seqs)
        self._unacked.difference_update(seqs)
        self._gone(runs_of(sorted(seqs)))
        return count

    def _gone(self, seqs: SeqRuns) -> None:
        if seqs:
            self._master.remove(seqs, self._now_s())

    def requeue(self, seqs: list[int]) -> int:
        count = self._queue.requeue(seqs)
        self._unacked.difference_update(seqs)
        return count

    def purge(self) -> int:
        count = self._queue.purge()
        live, _ = self._content.live.from_seq(0, ALL_SEQS)
        self._gone(without(live, runs_of(sorted(self._unacked))))
        return count

    def purge_acks(self) -> int:
        count = self._queue.purge_acks()
        self._gone(runs_of(sorted(self._unacked)))
        self._unacked.clear()
        return count

    # All.

    def ackfold(
        self, step: AckStep[Accumulator], start: Accumulator, seqs: list[int]
    ) -> Accumulator:
        return self._queue.ackfold(step, start, seqs)

    def expiries(self, seqs: list[int]) -> dict[int, int]:
        return self._queue.expiries(seqs)

    def fold(
        self, step: FoldStep[Accumulator], start: Accumulator, from_seq: int = 0
    ) -> Accumulator:
        return self._queue.fold(step, start, from_seq)

    def len(self) -> int:
        return self._queue.len()

    def len_bytes(self) -> int:
        return self._queue.len_bytes()

    def is_empty(self) -> bool:
        return self._queue.is_empty()

    def depth(self) -> int:
        return self._queue.depth()

    def set_queue_mode(self, mode: QueueMode) -> None:
        self._queue.set_queue_mode(mode)

    def info(self) -> dict[str, Any]:
        return self._queue.info()

    # Start and end; the replicas' record says whether the mirrors stay.

    def init(self, recover: bool) -> None:
        """Nothing is to be done: the queue's own has begun before."""

    def terminate(self) -> None:
        self._queue.terminate()

    def abandon(self) -> None:
        self._queue.abandon()

    def delete_and_terminate(self) -> None:
        self._queue.delete_and_terminate()

    # Housekeeping.

    def take_fetch_ready(self) -> bool:
        is_ready, self._is_fetch_ready = self._is_fetch_ready, False
        return self._queue.take_fetch_ready() or is_ready

    def ram_duration(self) -> float:
        return self._queue.ram_duration()

    def set_ram_duration_target(self, duration_s: float) -> None:
        self._queue.set_ram_duration_target(duration_s)

    def needs_timeout(self) -> bool:
        return self._queue.needs_timeout()

    def timeout(self) -> None:
        self._queue.timeout()

    def resume(self) -> None:
        self._queue.resume()
        self._content.resume()
