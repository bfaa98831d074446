"""The rarer operations of a variable queue: start, end and purge.

A start takes all rows of the index as one delta, of which the first window is loaded: recovery costs the
same for a hundred messages as for a hundred million. After a clean end the terms tell up to which seq
messages had been handed out; after any other end all count as handed out, hence redelivered.

A purge acks the range of seqs from the head on, but for the unacked ones: the store looks its rows up. Only contents
without a row, which no range reaches, are given up one by one (``release.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.core.entry import CONTENT_ON_DISK, SEQ
from leveret.msg_store.format.seq_range import SeqRange
from leveret.queue_backing.variable.columns import NO_COLUMNS
from leveret.queue_backing.variable.delta import BLANK, Delta
from leveret.queue_backing.variable.paged import NOTHING, NOTHING_PAGED
from leveret.queue_backing.variable.release import (
    CONTENTS,
    NOTHING_ON_DISK,
    Release,
)

if TYPE_CHECKING:
    from leveret.queue_backing.variable.queue import VariableQueue
    from leveret.queue_backing.variable.release import Container


def recover(queue: VariableQueue) -> None:
    """Start with the rows of the index."""
    (low, next_seq), terms = queue.index.bounds(), queue.index.terms()
    queue.next_seq = queue.next_deliver = next_seq
    if terms is not None:
        queue.next_seq = max(next_seq, terms.next_seq)
        queue.next_deliver = terms.next_deliver
    queue.count, queue.ready_bytes = queue.persistent()
    if queue.count:
        queue.has_stored = True
        paged = queue.use_paged()
        paged.transient_threshold = queue.next_seq
        paged.delta = Delta(low, queue.count, 0, queue.next_seq)
        paged.paged_bytes = queue.ready_bytes
        paged.load()


def terminate(queue: VariableQueue) -> None:
    """End and keep the persistent messages; the unacked ones come back as ready."""
    if queue.can_page:
        queue.index.terminate(queue.next_seq, queue.next_deliver)
    _leave(queue)


def abandon(queue: VariableQueue) -> None:
    """End after a crash, of the queue or of its store: its figures are not to be trusted."""
    if queue.can_page:
        queue.index.forget()
    _leave(queue)


def delete(queue: VariableQueue) -> None:
    """End and keep nothing."""
    if queue.can_page:
        queue.index.delete()
    _leave(queue)


def _leave(queue: VariableQueue) -> None:
    """Free the RAM; the disk has been seen to."""
    if queue.releasing:
        queue.releasing.abandon()
    _release_ready(queue, NOTHING_ON_DISK)
    _release_unacked(queue)
    queue.ram.clear()
    queue.has_stored = queue.to_lazy = queue.pages_next_turn = queue.paged.fetch_is_pending = False


def purge(queue: VariableQueue) -> int:
    """Remove all ready messages."""
    count, head = queue.count, _head_seq(queue)
    if queue.has_stored and head is not None:
        ready = SeqRange(head, queue.next_seq, queue.pending.seqs_from(head))
        queue.index.ack_range(ready, *_persistent_ready(queue))
    _release_ready(queue, CONTENTS if queue.has_stored else NOTHING_ON_DISK)
    queue.next_deliver = queue.next_seq
    queue.has_stored = queue.has_stored and queue.pending.count() > 0
    return count


def _persistent_ready(queue: VariableQueue) -> tuple[int, int]:
    """Return how many ready messages are persistent, and their bytes.

    The unacked ones are looked at in a queue with transient messages only.
    """
    messages, size_bytes = queue.persistent()
    pending = queue.pending
    all_bytes = queue.ready_bytes + pending.size_bytes
    if (messages, size_bytes) == (queue.count + pending.count(), all_bytes):
        return queue.count, queue.ready_bytes
    unacked = pending.persistent_sizes() if messages else []
    return messages - len(unacked), size_bytes - sum(unacked)


def _head_seq(queue: VariableQueue) -> int | None:
    """Return the seq of the first ready message, or one below; None when there is none."""
    if queue.q4:
        return int(queue.q4[0][SEQ])
    if queue.columns.messages:
        return queue.columns.end_seq - len(queue.columns.messages)
    if queue.paged.q3:
        return int(queue.paged.q3[0][SEQ])
    return None if queue.paged.delta is BLANK else queue.paged.delta.start


def purge_acks(queue: VariableQueue) -> int:
    """Forget all unacked messages; their rows at once, or a window of delta would bring them back."""
    count = queue.pending.count()
    if queue.has_stored:
        stored = [entry for entry in queue.pending.entries() if entry[CONTENT_ON_DISK]]
        if stored:
            queue.index.ack(stored)
    _release_unacked(queue)
    if queue.can_page:
        queue.ram.ack_out += count
    queue.has_stored = queue.has_stored and queue.count > 0
    return count


def _release_ready(queue: VariableQueue, what: str) -> None:
    for part in (queue.q4, queue.paged.q3, queue.paged.q2, queue.q1):
        release(queue, part, what)
    release(queue, queue.columns.messages, NOTHING_ON_DISK)
    queue.columns = NO_COLUMNS
    queue.q1 = queue.q4 = NOTHING
    if queue.paged is not NOTHING_PAGED:
        queue.paged.clear()
    queue.count = queue.ready_bytes = queue.absent = 0


def _release_unacked(queue: VariableQueue) -> None:
    pending = queue.pending
    if pending.on_disk:
        queue.paged.paged_bytes -= pending.size_on_disk()
    release(queue, pending.in_ram, NOTHING_ON_DISK)
    release(queue, pending.on_disk, NOTHING_ON_DISK)
    pending.clear()


def release(queue: VariableQueue, entries: Container, what: str) -> None:
    """Free a container, at once or in the next turns; ``what`` is to be acked, see ``release.py``."""
    if not entries:
        return
    if queue.releasing is None:
        queue.releasing = Release(queue.index if queue.can_page else None)
    queue.releasing.take(entries, what)
