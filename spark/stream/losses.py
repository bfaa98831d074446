"""Losses: what was freed before it was read, as ``archive.json`` and an offset tell it. No I/O.

Segments are freed one by one: one that another queue keeps, or that has a message which still waits, stays while
younger ones go. So behind messages that are there others may be gone. A queue is *complete* from its last freed
position on, and a stream that is to miss nothing reads it from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from leveret.msg_store.archive.archive import ArchivedQueue, Position
from leveret.msg_store.archive.archive_file import ArchiveContents
from leveret.spark.stream.offsets import StoreOffset

GAPS_MAX: Final = 5  # that are named


def begin_of(queue: ArchivedQueue, is_complete: bool) -> Position:
    """Return where the archived messages of a queue begin; ``is_complete``: from where on none is missing."""
    if queue.freed is None or not is_complete:
        return queue.since
    return max(queue.since, Position(*queue.freed[:2]))


def losses(
    contents: ArchiveContents | None, wanted: Iterable[ArchivedQueue], start: StoreOffset
) -> Iterator[str]:
    """Yield the losses of a reader that resumes from an offset, one text each.

    Args:
        contents: of ``archive.json``, read after the segments were listed; None: there is none.
        wanted: its queues that are read.
        start: where the reader goes on.
    """
    position = start.position
    if contents is None:
        yield "no queue of it is archived any more: its policies were taken away, or the vhost was deleted"
        return
    if contents.watermark < position:
        yield (
            f"it ends at {at(contents.watermark)}, before {at(position)} up to which it was read: it was restored from"
            " an older state, or the machine lost power and the broker has not started since"
        )
        return
    if position.segment < contents.begun:
        yield (
            f"its archive begins with segment {contents.begun:08x}, behind {at(position)} up to which it was read: all"
            " policies were taken away for a time, or archive.json was lost"
        )
    by_number = {queue.queue_nos[0]: queue for queue in contents.queues}
    for number, name in start.queues.items():
        queue = by_number.get(number)
        if queue is None:
            yield f"queue '{name}' is not archived any more: it was deleted, or has no policy replay-retention"
        elif queue.since > position:
            yield (
                f"queue '{queue.name}' was not archived from {at(position)} to {at(queue.since)}: its policy was taken"
                " away for a time"
            )
    for queue in wanted:
        freed = queue.freed
        if freed is not None and freed.no > start.frees and freed[:2] > position:
            yield (
                f"messages of queue '{queue.name}' behind {at(position)} were freed before they were read: segment"
                f" {freed.segment:08x} is gone, and older ones may be; read more often, or keep them for longer with"
                " the policy replay-retention"
            )


def missing(existing: Sequence[int], last: int) -> str:
    """Return the numbers that are missing among ascending ones, up to ``last``, as errors name segments."""
    pairs = zip(existing, [*existing[1:], last + 1], strict=True)
    gaps = [(low + 1, high - 1) for low, high in pairs if high - low > 1]
    texts = [f"{low:08x}" if low == high else f"{low:08x}-{high:08x}" for low, high in gaps]
    more = [f"and {len(texts) - GAPS_MAX} more gaps"] if len(texts) > GAPS_MAX else []
    return ", ".join(texts[:GAPS_MAX] + more)


def is_lost(
    contents: ArchiveContents | None, queues: Mapping[int, str], segment: int, low: int
) -> bool:
    """Return whether a segment that is gone may have had records of queues behind an offset in it."""
    if contents is None or segment < contents.begun:
        return True
    by_number = {queue.queue_nos[0]: queue.freed for queue in contents.queues}
    return any(
        number not in by_number or _reaches(by_number[number], (segment, low)) for number in queues
    )


def _reaches(freed: tuple[int, ...] | None, position: tuple[int, int]) -> bool:
    return freed is not None and freed[:2] > position


def at(position: Position) -> str:
    """Return a position as errors name it."""
    return f"{position.segment:08x}:{position.byte}"
