"""One flush: pending work as records, frames and jobs.

Rows of a queue become one PUBS record per run of seqs that follow each other and lie in one segment;
acks one ACKR per run. All records of a flush are one frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from leveret.msg_store import journal_records as records
from leveret.msg_store.append_log import Job, Place
from leveret.msg_store.journal import JournalEnd
from leveret.msg_store.pending import SeqRun, TakenRow, seq_runs
from leveret.msg_store.rdq_writer import Location
from leveret.msg_store.record import Unwritten


@dataclass(slots=True)
class Taken:
    """The pending work of one flush."""

    rows: list[tuple[int, list[TakenRow]]] = field(default_factory=list)  # by queue_no
    acks: list[tuple[int, list[int]]] = field(default_factory=list)
    items: list[Unwritten] = field(default_factory=list)

    def runs(self) -> list[SeqRun]:
        """Name the rows, for whoever waits for them."""
        return [
            run for queue_no, rows in self.rows for run in seq_runs(queue_no, [r[0] for r in rows])
        ]

    def records(self, locations: dict[int, Location]) -> list[bytes]:
        """Return the journal records of all of it."""
        made = []
        for queue_no, rows in self.rows:
            made += [records.encode_publishes(run) for run in publishes(queue_no, rows, locations)]
        for queue_no, seqs in self.acks:
            made += records.encode_acks(queue_no, seqs)
        return made


@dataclass(frozen=True, slots=True)
class Flush:
    """A flush on its way: two jobs that may be done in any order, and what to undo if they fail."""

    taken: Taken
    rdq: Job
    journal: Job
    rdq_before: Place
    journal_before: JournalEnd


def publishes(
    queue_no: int, rows: list[TakenRow], locations: dict[int, Location]
) -> Iterator[records.Publishes]:
    """Yield a queue's rows as runs: seqs in a row, one segment, not too long for a record."""
    places = [locations[msg_no] for _, msg_no, _ in rows]
    first, last_seq, last_file = 0, rows[0][0] - 1, places[0][0]
    for index, (row, place) in enumerate(zip(rows, places, strict=True)):
        is_next = row[0] == last_seq + 1 and place[0] == last_file
        if not is_next or index - first == records.COUNT_MAX:
            yield _run(queue_no, rows[first:index], places[first:index])
            first = index
        last_seq, last_file = row[0], place[0]
    yield _run(queue_no, rows[first:], places[first:])


def _run(queue_no: int, rows: list[TakenRow], places: list[Location]) -> records.Publishes:
    _, msg_nos, expiries = zip(*rows, strict=True)
    file_nos, offsets, lengths, sizes = zip(*places, strict=True)
    return records.Publishes(
        queue_no,
        rows[0][0],
        records.PERSISTENT,
        file_nos[0],
        msg_nos,
        offsets,
        lengths,
        sizes,
        expiries if any(expiries) else None,
    )
