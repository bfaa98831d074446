"""Taking: how messages leave a variable queue at its head.

The head is Q4, and Q3 when Q4 is empty. A part is taken from in *chunks*, sized so that a batch keeps
to its bytes; what is too much goes back. Messages of Q3 are fetched from the store as they are taken;
the first that is not in RAM ends the batch, which then says ``pending``, and is read meanwhile. What
turns out to be damaged is passed over and forgotten: asked for again it would be damaged again.

A message leaves Q3 for the consumer, never for Q4. RabbitMQ takes the head and puts it back when a
predicate refuses it (``in_r``); here the predicate sees it in its place, so nothing is put back.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from leveret.core.message import LOST
from leveret.msg_store.format.kernel import bytes_of
from leveret.queue_backing.api import Dropped, Fetched
from leveret.queue_backing.status import MESSAGE, message_of, seq_of, size_of
from leveret.queue_backing.variable.delta import BLANK
from leveret.queue_backing.variable.load_delta import deltas_to_betas, q3_was_taken_from

if TYPE_CHECKING:
    from collections import deque

    from leveret.core.message import Message
    from leveret.queue_backing.api import Predicate
    from leveret.queue_backing.status import Entry
    from leveret.queue_backing.variable.state import QueueState

_CHUNK: Final = 1_024
_UNBOUNDED: Final = 1 << 62


class _Batch:
    """What has been taken so far, and what may still be."""

    __slots__ = ("ack_required", "bytes_left", "messages", "pending", "seqs", "with_contents")

    def __init__(self, bytes_max: int, ack_required: bool, with_contents: bool) -> None:
        self.bytes_left = bytes_max
        self.ack_required = ack_required
        self.with_contents = with_contents
        self.messages: list[Message] = []
        self.seqs: list[int] = []
        self.pending = False


def fetch(queue: QueueState, limit: int, bytes_max: int, ack_required: bool) -> Fetched:
    """Take messages with their contents."""
    batch = _Batch(bytes_max, ack_required, with_contents=True)
    while _take(queue, batch, limit - len(batch.seqs)):
        if not queue.count or len(batch.seqs) == limit:
            break  # else some were damaged
    return _fetched(queue, batch)


def drop(queue: QueueState, limit: int, ack_required: bool) -> list[int]:
    """Take messages without their contents."""
    batch = _Batch(_UNBOUNDED, ack_required, with_contents=False)
    _take(queue, batch, limit)
    return _fetched(queue, batch).seqs


def dropwhile(queue: QueueState, predicate: Predicate, limit: int) -> Dropped:
    """Remove messages while the predicate holds."""
    batch = _Batch(_UNBOUNDED, ack_required=False, with_contents=False)
    head = _take_while(queue, batch, predicate, limit)
    fetched = _fetched(queue, batch)
    return Dropped(len(fetched.seqs), head, fetched.pending)


def fetchwhile(
    queue: QueueState, predicate: Predicate, limit: int, bytes_max: int
) -> tuple[Fetched, Entry | None]:
    """Take messages as unacked while the predicate holds."""
    batch = _Batch(bytes_max, ack_required=True, with_contents=True)
    head = _take_while(queue, batch, predicate, limit)
    return _fetched(queue, batch), head


def _fetched(queue: QueueState, batch: _Batch) -> Fetched:
    if batch.pending:
        queue.waiting = queue.wanted = True
    redelivered = queue.pass_watermark(batch.seqs)
    return Fetched(batch.messages, batch.seqs, redelivered, batch.pending)


def _find_head(queue: QueueState) -> bool:
    """See to it that the head is in RAM, if there is one; return False when it is awaited."""
    if queue.q4:
        return True
    if queue.columns.messages:
        queue.make_entries(_CHUNK)
        return True
    if queue.q3 or queue.delta is BLANK:
        return True
    return deltas_to_betas(queue)


def _take_while(queue: QueueState, batch: _Batch, predicate: Predicate, limit: int) -> Entry | None:
    """Take while the predicate holds, part by part; return the first entry that stays."""
    while queue.count:
        if not _find_head(queue):
            batch.pending = True
            return None
        part = queue.q4 or queue.q3
        matching = _count_matching(part, predicate, limit - len(batch.seqs))
        if not matching or not _take(queue, batch, matching):
            return part[0]
    return None


def _count_matching(part: deque[Entry], predicate: Predicate, limit: int) -> int:
    count = 0
    for entry in part:
        if count == limit or not predicate(entry):
            break
        count += 1
    return count


def _take(queue: QueueState, batch: _Batch, limit: int) -> bool:
    """Take up to ``limit`` messages; return whether there may be more within the batch's bounds."""
    left = min(limit, queue.count)
    while left > 0:
        if batch.bytes_left < 0:
            return False
        if not _find_head(queue):
            batch.pending = True
            return False
        is_q4 = bool(queue.q4)
        part = queue.q4 if is_q4 else queue.q3
        chunk = _cut(queue, part, left, batch)
        if not chunk:
            return False
        left -= len(chunk)
        if batch.with_contents:
            _resolve(queue, part, chunk, batch, is_q4)
        if chunk:
            _hand_out(queue, chunk, batch, is_q4)
        if batch.pending:
            return False
    return True


def _cut(queue: QueueState, part: deque[Entry], limit: int, batch: _Batch) -> list[Entry]:
    """Take a chunk that keeps to the bytes of the batch, whose first message always does."""
    bytes_left = batch.bytes_left
    mean_bytes = queue.ready_bytes // queue.count + 1
    guess = max(1, min(_CHUNK, bytes_left // mean_bytes + 1))
    take = part.popleft
    chunk = [take() for _ in range(min(guess, limit, len(part)))]
    if bytes_of(chunk) > bytes_left:
        keep = bisect_right(list(accumulate(map(size_of, chunk))), bytes_left)
        keep = max(keep, 0 if batch.seqs else 1)
        part.extendleft(reversed(chunk[keep:]))
        del chunk[keep:]
    return chunk


def _resolve(
    queue: QueueState, part: deque[Entry], chunk: list[Entry], batch: _Batch, is_q4: bool
) -> None:
    """Get the contents of a chunk; put back what comes from the first on that is not in RAM."""
    if is_q4 and not queue.absent:
        batch.messages += map(message_of, chunk)
        return
    messages: list[Any] = fetch_contents(queue, chunk) if is_q4 else _read_back(queue, chunk)
    if None in messages:
        there = messages.index(None)
        rest = chunk[there:]
        queue.index.prefetch([entry for entry in rest if entry[MESSAGE] is None])
        batch.pending = True
        part.extendleft(reversed(rest))
        del chunk[there:], messages[there:]
    if LOST in messages:
        messages = _without_lost(queue, chunk, messages, is_q4)
    batch.messages += messages


def _without_lost(
    queue: QueueState, chunk: list[Entry], messages: list[Any], is_q4: bool
) -> list[Any]:
    """Forget the entries of a chunk whose contents are damaged; return the other contents."""
    gone = [entry for entry, each in zip(chunk, messages, strict=True) if each is LOST]
    chunk[:] = [entry for entry, each in zip(chunk, messages, strict=True) if each is not LOST]
    queue.count -= len(gone)
    queue.ready_bytes -= bytes_of(gone)
    if is_q4:
        queue.absent -= len(gone)
    queue.forget(gone)
    if not is_q4 and not chunk:
        q3_was_taken_from(queue)
    return [each for each in messages if each is not LOST]


def fetch_contents(queue: QueueState, entries: list[Entry]) -> list[Message | None]:
    """Return the contents of entries, None for those to be read first, ``LOST`` for damaged ones."""
    missing = [entry for entry in entries if entry[MESSAGE] is None]
    if not missing:
        return list(map(message_of, entries))
    found = _read_back(queue, missing)
    if len(missing) == len(entries):
        return found
    more = iter(found)
    return [next(more) if entry[MESSAGE] is None else entry[MESSAGE] for entry in entries]


def _read_back(queue: QueueState, entries: list[Entry]) -> list[Message | None]:
    """Return the contents of entries that have none."""
    found = queue.index.fetch_contents(entries)
    queue.disk_reads += len(found) - found.count(None)
    return found


def _hand_out(queue: QueueState, chunk: list[Entry], batch: _Batch, is_q4: bool) -> None:
    seqs = list(map(seq_of, chunk))
    size_bytes = bytes_of(chunk)
    queue.count -= len(chunk)
    queue.ready_bytes -= size_bytes
    queue.outgoing += len(chunk)
    queue.wanted = False
    batch.bytes_left -= size_bytes
    batch.seqs += seqs
    in_ram, on_disk = (chunk, []) if is_q4 else ([], chunk)
    if is_q4 and queue.absent:
        in_ram = [entry for entry in chunk if entry[MESSAGE] is not None]
        on_disk = [entry for entry in chunk if entry[MESSAGE] is None]
        queue.absent -= len(on_disk)
    queue.ram_count -= len(in_ram)
    if batch.ack_required:
        queue.unacked_bytes += size_bytes
        if in_ram:
            queue.await_acks(list(map(seq_of, in_ram)), in_ram)
        if on_disk:
            queue.await_acks_on_disk(on_disk)
    else:
        queue.ram_bytes -= bytes_of(in_ram)
        queue.forget(chunk)
    if not is_q4:
        q3_was_taken_from(queue)
