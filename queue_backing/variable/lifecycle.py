"""The rarer operations of a variable queue: start, end, purge, figures.

A start takes what the index has as one delta, of which the first window is loaded: recovery costs
the same for a hundred messages as for a hundred million. After a clean end the terms say what had
been handed out; after any other everything counts as handed out, hence redelivered.

A purge acks *runs* of seqs that are free of unacked ones, so that its cost is that of the runs; only
contents without a row, which no range reaches, are given up one by one (``release.py``).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from leveret.queue_backing.figures import head_timestamp, memory_bytes
from leveret.queue_backing.index.api import Terms
from leveret.queue_backing.status import SIZE, size_of
from leveret.queue_backing.variable.columns import NO_COLUMNS
from leveret.queue_backing.variable.delta import BLANK, Delta
from leveret.queue_backing.variable.load_delta import deltas_to_betas
from leveret.queue_backing.variable.paging import page_out
from leveret.queue_backing.variable.release import CONTENTS, NOTHING_ON_DISK, ROWS_AND_CONTENTS
from leveret.queue_backing.variable.state import INFINITE, NOBODY, NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.queue_backing.status import Entry
    from leveret.queue_backing.variable.state import QueueState


def recover(queue: QueueState) -> None:
    """Start with what the index has."""
    if not queue.can_page:
        return
    bounds, terms = queue.index.bounds(), queue.index.terms()
    queue.next_seq = queue.next_deliver = bounds.next_seq
    count, size_bytes = bounds.messages, bounds.size_bytes
    if terms is not None:
        queue.next_seq = max(bounds.next_seq, terms.next_seq)
        queue.next_deliver = terms.next_deliver
        count, size_bytes = terms.messages, terms.size_bytes
    queue.transient_threshold = queue.next_seq
    queue.count = queue.persistent_count = count
    queue.ready_bytes = queue.persistent_bytes = size_bytes
    if count:
        queue.has_stored = True
        queue.delta = Delta(bounds.low, count, 0, queue.next_seq)
        deltas_to_betas(queue)


def terminate(queue: QueueState) -> None:
    """End and keep what is persistent; the unacked come back as ready."""
    if queue.releasing:
        queue.releasing.finish()
    terms = Terms(
        queue.next_seq, queue.next_deliver, queue.persistent_count, queue.persistent_bytes
    )
    if queue.open_index is None and queue.can_page:
        queue.index.terminate(terms)
    elif queue.can_page:
        queue.index.delete()
    _leave(queue)


def abandon(queue: QueueState) -> None:
    """End after a crash, of the queue or of its store: its figures are not to be trusted."""
    if queue.releasing:
        queue.releasing.abandon()
    if queue.can_page:
        queue.index.forget()
    _leave(queue)


def delete(queue: QueueState) -> None:
    """End and keep nothing."""
    if queue.releasing:
        queue.releasing.abandon()
    if queue.can_page:
        queue.index.delete()
    _leave(queue)


def _leave(queue: QueueState) -> None:
    """Free the RAM; the disk has been seen to."""
    _release_ready(queue, NOTHING_ON_DISK)
    _release_unacked(queue, NOTHING_ON_DISK)
    queue.persistent_count = queue.persistent_bytes = 0
    queue.target = queue.reduce_above = INFINITE
    queue.has_stored = queue.to_lazy = queue.bump = queue.waiting = False


def purge(queue: QueueState) -> int:
    """Remove all ready messages."""
    if queue.releasing:
        queue.releasing.free_rows()  # or the ranges below would remove them a second time
    count, head = queue.count, queue.head_seq()
    messages, size_bytes = queue.persistent_count, queue.persistent_bytes
    if queue.persistent_count:
        unacked = _sizes_of_persistent(queue)
        queue.persistent_count, queue.persistent_bytes = len(unacked), sum(unacked)
        messages, size_bytes = messages - len(unacked), size_bytes - sum(unacked)
    if queue.has_stored and head is not None:
        runs = runs_between(head, queue.next_seq, chain(queue.rpa, queue.dpa))
        queue.index.ack_ranges(runs, messages, size_bytes)
    _release_ready(queue, CONTENTS if queue.has_stored else NOTHING_ON_DISK)
    queue.next_deliver = queue.next_seq
    queue.has_stored = queue.has_stored and bool(queue.rpa or queue.dpa)
    return count


def runs_between(low: int, high: int, seqs: Any) -> list[tuple[int, int]]:
    """Return the runs within ``[low, high)`` that are free of the given seqs, as half-open ranges."""
    runs = []
    for seq in sorted([seq for seq in seqs if seq >= low]):
        if low < seq:
            runs.append((low, seq))
        low = seq + 1
    if low < high:
        runs.append((low, high))
    return runs


def _sizes_of_persistent(queue: QueueState) -> list[int]:
    unacked = chain(queue.rpa.values(), queue.dpa.values())
    return [size for _, _, _, persistent, _, size, _, _ in unacked if persistent]


def purge_acks(queue: QueueState) -> int:
    """Forget all unacked messages."""
    count = len(queue.rpa) + len(queue.dpa)
    if queue.persistent_count:
        sizes = _sizes_of_persistent(queue)
        queue.persistent_count -= len(sizes)
        queue.persistent_bytes -= sum(sizes)
    _release_unacked(queue, ROWS_AND_CONTENTS if queue.has_stored else NOTHING_ON_DISK)
    queue.ack_out += count
    queue.has_stored = queue.has_stored and queue.count > 0
    return count


def _release_ready(queue: QueueState, what: str) -> None:
    for part in (queue.q4, queue.q3, queue.q2, queue.q1):
        queue.release(part, what)
    queue.release(queue.columns.messages, NOTHING_ON_DISK)
    queue.columns = NO_COLUMNS
    queue.q1 = queue.q2 = queue.q3 = queue.q4 = NOTHING
    queue.delta = BLANK
    queue.count = queue.ready_bytes = queue.ram_count = 0
    queue.absent = queue.delta_transient_bytes = 0
    queue.ram_bytes = sum(map(size_of, queue.rpa.values()))
    queue.rows_awaited = queue.loading_goes_on = queue.wanted = False


def _release_unacked(queue: QueueState, what: str) -> None:
    queue.ram_bytes -= sum(map(size_of, queue.rpa.values()))
    queue.release(queue.rpa, what)
    queue.release(queue.dpa, what)
    queue.rpa = queue.dpa = NOBODY
    queue.unacked_bytes = 0


def to_disk(queue: QueueState, entries: list[Entry]) -> list[Entry]:
    """Write contents and rows of transients that stay in RAM all the same; return them so marked."""
    page_out(queue, entries, must=True)
    queue.index.add([(*entry[:-1], True) for entry in entries])
    return [(*entry[: SIZE + 1], True, True) for entry in entries]


def info(queue: QueueState) -> dict[str, Any]:
    """Return figures by RabbitMQ's names; those of the disk only when the queue can page."""
    unacked = len(queue.rpa) + len(queue.dpa)
    ram_count = queue.ram_count if queue.can_page else queue.count
    in_ram = ram_count + len(queue.rpa)
    heads: Iterable[Entry] = queue.q4 or (
        queue.columns.entries() if queue.columns.messages else queue.q3
    )
    ram_bytes = queue.ram_bytes if queue.can_page else queue.ready_bytes + queue.unacked_bytes
    entries = in_ram - queue.len_q4() + len(queue.q4)
    figures = {
        "messages_ready": queue.count,
        "messages_unacknowledged": unacked,
        "messages": queue.count + unacked,
        "messages_ready_ram": ram_count,
        "messages_unacknowledged_ram": len(queue.rpa),
        "messages_ram": in_ram,
        "messages_persistent": queue.persistent_count,
        "messages_paged_out": queue.count - ram_count,
        "message_bytes_ready": queue.ready_bytes,
        "message_bytes_unacknowledged": queue.unacked_bytes,
        "message_bytes": queue.ready_bytes + queue.unacked_bytes,
        "message_bytes_ram": ram_bytes,
        "message_bytes_persistent": queue.persistent_bytes,
        "disk_reads": queue.disk_reads,
        "disk_writes": queue.disk_writes,
        "memory": memory_bytes(
            ram_bytes, in_ram, entries + len(queue.dpa) + len(queue.q2) + len(queue.q3)
        ),
        "head_message_timestamp": head_timestamp(
            [next(iter(part), None) for part in (heads, queue.rpa.values())]
        ),
        "next_seq_id": queue.next_seq,
        "next_deliver_seq_id": queue.next_deliver,
        "mode": "lazy" if queue.to_lazy else queue.mode,
    }
    return figures | _disk_figures(queue) if queue.can_page else figures


def _disk_figures(queue: QueueState) -> dict[str, Any]:
    delta, rates = queue.delta, queue.rates
    return {
        "q1": len(queue.q1),
        "q2": len(queue.q2),
        "delta": (delta.start, delta.length, delta.transient, delta.end),
        "delta_messages": delta.length,
        "q3": len(queue.q3),
        "q4": queue.len_q4(),
        "target_ram_count": "infinity" if queue.target == INFINITE else queue.target,
        "avg_ingress_rate": rates.incoming,
        "avg_egress_rate": rates.outgoing,
        "avg_ack_ingress_rate": rates.ack_in,
        "avg_ack_egress_rate": rates.ack_out,
    }
