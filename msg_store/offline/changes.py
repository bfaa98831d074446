"""Corrections of an index, as an audit shows them to be needed.

* A message that is not at its location, and lies elsewhere, gets that location.
* A row whose message cannot be read is removed.
* Wrong counts and sums are replaced by the counted ones.

Each correction says what an entry must be, so making one twice does no harm. The fields of a correction, and its name
in ``KINDS``, are those of its line in a plan file (``repair_plan``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from leveret.msg_store.format.rows import Batch, FileRow, IndexRow, Location, QueueTerms
from leveret.msg_store.offline.audit import Audit

_NO_TERMS: Final = QueueTerms(0, 0, 0, 0, False)


class SetAside(NamedTuple):
    """The bytes of a lost message go to the quarantine; the index is not changed by it."""

    location: Location


class Remove(NamedTuple):
    """A row is removed: its message cannot be read."""

    queue_no: int
    seq: int
    message: int
    size_bytes: int
    reason: str


class Place(NamedTuple):
    """A message gets this location, with this count of rows."""

    message: int
    location: Location


class Forget(NamedTuple):
    """A location is removed: no row needs the message, or it is lost."""

    message: int


class Resize(NamedTuple):
    """A row gets the body size that its message has."""

    queue_no: int
    row: IndexRow


class CountQueue(NamedTuple):
    """The sums of a queue, as counted; ``next_seq`` may be raised by it and is never lowered."""

    queue_no: int
    messages: int
    size_bytes: int
    next_seq: int


class CountSegment(NamedTuple):
    """The live bytes of a segment, as counted."""

    file_no: int
    live_bytes: int


Change: TypeAlias = SetAside | Remove | Place | Forget | Resize | CountQueue | CountSegment

KINDS: Final[dict[str, type[Change]]] = {
    "set_aside": SetAside,
    "remove": Remove,
    "place": Place,
    "forget": Forget,
    "resize": Resize,
    "count_queue": CountQueue,
    "count_segment": CountSegment,
}
_NAMES: Final = {kind: name for name, kind in KINDS.items()}


def line_of(change: Change) -> dict[str, Any]:
    """Return a change as a plan file has it."""
    return {"do": _NAMES[type(change)], **change._asdict()}


def change_of(line: dict[str, Any]) -> Change:
    """Return the change of a line; raises ``ValueError``, ``KeyError`` or ``TypeError`` if it has none."""
    if (kind := KINDS.get(line["do"])) is None:
        raise ValueError(f"unknown change {line['do']!r}")
    values: Any = (_value(name, line[name]) for name in kind._fields)
    return kind(*values)


def _value(name: str, value: Any) -> object:
    match name:
        case "reason":
            return str(value)
        case "location" | "row":  # both have five numbers
            a, b, c, d, e = map(int, value)
            return a, b, c, d, e
        case _:
            return int(value)


def batch_of(
    changes: Iterable[Change], queues: Mapping[int, QueueTerms], files: Mapping[int, FileRow]
) -> Batch:
    """Return the transaction for an index that has these queues and segments now."""
    rows: dict[int, dict[int, IndexRow]] = {}
    acked: dict[int, set[int]] = {}
    locations: dict[int, Location | None] = {}
    sums: dict[int, QueueTerms | None] = {}
    segments: dict[int, FileRow | None] = {}
    for change in changes:
        match change:
            case Resize(queue_no, row):
                rows.setdefault(queue_no, {})[row[0]] = row
            case Remove():
                acked.setdefault(change.queue_no, set()).add(change.seq)
            case Place(message, location):
                locations[message] = location
            case Forget(message):
                locations[message] = None
            case CountQueue(queue_no, messages, size_bytes, next_seq):
                terms = queues.get(queue_no, _NO_TERMS)
                sums[queue_no] = terms._replace(
                    messages=messages,
                    size_bytes=size_bytes,
                    next_seq=max(terms.next_seq, next_seq),
                )
            case CountSegment(file_no, live_bytes) if file_no in files:
                segments[file_no] = files[file_no]._replace(valid_bytes=live_bytes)
            case _:  # a start has removed the empty segment; or bytes are set aside
                pass
    return Batch(rows, acked, locations.items(), segments, sums.items())


def changes_of(audit: Audit) -> Iterator[Change]:
    """Yield the corrections that the index of a store needs behind what its next start does."""
    if audit.is_index_sound:
        return
    lost = {row.msg_no for row in audit.lost}
    yield from (SetAside(place) for no, place in audit.unreadable.items() if no in lost)
    yield from (Remove(*row) for row in audit.lost)
    for msg_no, said, true in chain(audit.indexed(), audit.unindexed()):
        if true is None:
            yield Forget(msg_no)
        elif true != said:
            yield Place(msg_no, true)
    for queue_no, odd in audit.odd.items():
        for row, size in odd:
            if row[1] not in lost:
                yield Resize(queue_no, (*row[:2], size, *row[3:]))
    yield from _queue_sums(audit, lost)
    yield from _segment_sums(audit)


def _queue_sums(audit: Audit, lost: set[int]) -> Iterator[CountQueue]:
    """Yield the sums of queues that are wrong, or become so by the other changes."""
    sums = {no: [each.messages, each.size_bytes] for no, each in audit.queues.items()}
    for row in audit.lost:
        sums[row.queue_no][0] -= 1
        sums[row.queue_no][1] -= row.size_bytes
    for queue_no, odd in audit.odd.items():
        sums[queue_no][1] += sum(size - row[2] for row, size in odd if row[1] not in lost)
    for queue_no in {*audit.terms, *audit.odd, *(row.queue_no for row in audit.lost)}:
        messages, size_bytes = sums[queue_no]
        yield CountQueue(queue_no, messages, size_bytes, audit.queues[queue_no].next_seq)


def _segment_sums(audit: Audit) -> Iterator[CountSegment]:
    live_bytes = Counter[int]()
    for _, _, true in chain(audit.indexed(), audit.unindexed()):
        if true is not None:
            live_bytes[true[0]] += true[2]
    for file_no, state in audit.store.recovered.memtables.files.items():
        if state.valid_bytes != live_bytes[file_no]:
            yield CountSegment(file_no, live_bytes[file_no])
