"""Corrections of an index, as an audit shows them to be needed.

* A message that is not at its location, and lies elsewhere, gets that location.
* A row whose message cannot be read is removed.
* Wrong counts and sums are replaced by the counted ones.

Each correction says what an entry must be, so making one twice does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from leveret.msg_store.format.rows import Batch, FileRow, IndexRow, Location, QueueTerms
from leveret.msg_store.offline.audit import Audit, LostRow

_NO_TERMS = QueueTerms(0, 0, 0, 0, False)


class QueueSums(NamedTuple):
    """What a queue has, as counted; ``next_seq`` may be raised by it and is never lowered."""

    messages: int
    size_bytes: int
    next_seq: int


@dataclass(slots=True)
class Changes:
    """The corrections.

    Attributes:
        locations: of messages; None: no row needs the message, or it is lost.
        rows: rows with the body sizes that their messages have, by queue number.
        lost: rows that are removed.
        set_aside: the locations whose bytes go to the quarantine first.
        queues: sums by queue number.
        segments: live bytes by segment.
    """

    locations: dict[int, Location | None] = field(default_factory=dict)
    rows: dict[int, list[IndexRow]] = field(default_factory=dict)
    lost: list[LostRow] = field(default_factory=list)
    set_aside: list[Location] = field(default_factory=list)
    queues: dict[int, QueueSums] = field(default_factory=dict)
    segments: dict[int, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.locations or self.rows or self.lost or self.queues or self.segments)

    def batch(self, queues: dict[int, QueueTerms], files: dict[int, FileRow]) -> Batch:
        """Return the transaction for an index that has these queues and segments now."""
        acked: dict[int, set[int]] = {}
        for row in self.lost:
            acked.setdefault(row.queue_no, set()).add(row.seq)
        return Batch(
            rows={no: {row[0]: row for row in rows} for no, rows in self.rows.items()},
            acked=acked,
            locations=self.locations.items(),
            files={
                no: files[no]._replace(valid_bytes=count)
                for no, count in self.segments.items()
                if no in files  # else a start has removed the empty segment
            },
            queues={
                no: _with(queues.get(no, _NO_TERMS), sums) for no, sums in self.queues.items()
            }.items(),
        )


def _with(terms: QueueTerms, sums: QueueSums) -> QueueTerms:
    return terms._replace(
        next_seq=max(terms.next_seq, sums.next_seq),
        messages=sums.messages,
        size_bytes=sums.size_bytes,
    )


def changes_of(audit: Audit) -> Changes:
    """Return the corrections that the index of a store needs behind what its next start does."""
    changes = Changes()
    if audit.is_index_sound:
        return changes
    gone = {row.msg_no for row in audit.lost}
    changes.lost = list(audit.lost)
    changes.set_aside = [
        location for msg_no, location in audit.unreadable.items() if msg_no in gone
    ]
    for queue_no, odd in audit.odd.items():
        rows = [(*row[:2], size, *row[3:]) for row, size in odd if row[1] not in gone]
        if rows:
            changes.rows[queue_no] = rows
    _add_queues(changes, audit, gone)
    _add_locations(changes, audit, gone)
    return changes


def _add_queues(changes: Changes, audit: Audit, gone: set[int]) -> None:
    sums = {no: [each.messages, each.size_bytes] for no, each in audit.queues.items()}
    for lost in audit.lost:
        sums[lost.queue_no][0] -= 1
        sums[lost.queue_no][1] -= lost.size_bytes
    for queue_no, odd in audit.odd.items():
        sums[queue_no][1] += sum(size - row[2] for row, size in odd if row[1] not in gone)
    for queue_no in {*audit.terms, *audit.odd, *(row.queue_no for row in audit.lost)}:
        messages, size_bytes = sums[queue_no]
        next_seq = audit.queues[queue_no].next_seq
        changes.queues[queue_no] = QueueSums(messages, size_bytes, next_seq)


def _add_locations(changes: Changes, audit: Audit, gone: set[int]) -> None:
    elsewhere, valid_bytes = audit.elsewhere, dict.fromkeys(audit.sizes, 0)
    for at, msg_no in enumerate(audit.locations.msg_nos):
        count = audit.locations.rows[at]
        if msg_no in gone or not count:
            changes.locations[msg_no] = None
            continue
        location = elsewhere.get(msg_no, audit.locations.location(at))
        if msg_no in elsewhere or count != location[4]:
            changes.locations[msg_no] = (*location[:4], count)
        valid_bytes[location[0]] += location[2]
    for msg_no, count in audit.bare.items():
        if msg_no in elsewhere:
            location = elsewhere[msg_no]
            changes.locations[msg_no] = (*location[:4], count)
            valid_bytes[location[0]] += location[2]
    for file_no, state in audit.store.recovered.memtables.files.items():
        if state.valid_bytes != valid_bytes[file_no]:
            changes.segments[file_no] = valid_bytes[file_no]
