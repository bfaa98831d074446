"""Replay: journal records become the rows of queues and the places of messages.

Any prefix may be replayed twice, and any part of it be missing, without harm to the rest: a publish
overwrites, an ack of what is not there is ignored, and of two places of a message the one in the higher
file wins, for the collector copies upwards.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from leveret.msg_store.journal_frames import Frame
from leveret.msg_store.journal_records import AckRange, Acks, JournalRecord, Move, Publishes
from leveret.msg_store.rdq_writer import Location

# msg_no, body_size, expiry_ms, flags of ``journal_records``, LSN
ReplayedRow: TypeAlias = tuple[int, int, int, int, int]


class Replay:
    """The state that records add up to."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[int, ReplayedRow]] = {}
        self.locations: dict[int, Location] = {}
        self.seqs_seen: dict[int, int] = {}  # queue_no -> highest
        self.msg_no_seen = 0
        self.file_no_seen = 0

    def add(self, frame: Frame, records: list[JournalRecord]) -> None:
        """Replay a frame."""
        for lsn, record in enumerate(records, frame.first_lsn):
            match record:
                case Publishes():
                    self._publishes(record, lsn)
                case Acks():
                    self._acks(record)
                case AckRange():
                    self._ack_range(record)
                case Move(msg_no, file_no, offset, length):
                    size = self.locations.get(msg_no, (0, 0, 0, 0))[3]
                    self._place(msg_no, (file_no, offset, length, size))

    def _publishes(self, run: Publishes, lsn: int) -> None:
        rows = self.rows.setdefault(run.queue_no, {})
        expiries = run.expiries_ms or [0] * len(run.msg_nos)
        columns = zip(run.msg_nos, run.offsets, run.lengths, run.body_sizes, expiries, strict=True)
        for seq, (msg_no, offset, length, size, expiry) in enumerate(columns, run.first_seq):
            rows[seq] = (msg_no, size, expiry, run.flags, lsn)
            self._place(msg_no, (run.file_no, offset, length, size))
        self.msg_no_seen = max(self.msg_no_seen, *run.msg_nos)
        self._seen(run.queue_no, run.first_seq + len(run.msg_nos) - 1)

    def _place(self, msg_no: int, location: Location) -> None:
        known = self.locations.get(msg_no)
        if known is None or known[0] <= location[0]:
            self.locations[msg_no] = location
        self.file_no_seen = max(self.file_no_seen, location[0])

    def _acks(self, acks: Acks) -> None:
        rows = self.rows.get(acks.queue_no, {})
        for seq in acks.seqs:
            rows.pop(seq, None)
        if acks.seqs:
            self._seen(acks.queue_no, max(acks.seqs))

    def _ack_range(self, acked: AckRange) -> None:
        rows = self.rows.get(acked.queue_no, {})
        first, last = acked.first, acked.last
        if last - first < len(rows):
            for seq in range(first, last + 1):
                rows.pop(seq, None)
        else:
            for seq in [seq for seq in rows if first <= seq <= last]:
                del rows[seq]
        self._seen(acked.queue_no, last)

    def _seen(self, queue_no: int, seq: int) -> None:
        self.seqs_seen[queue_no] = max(seq, self.seqs_seen.get(queue_no, 0))

    def references(self) -> dict[int, int]:
        """Count the rows of each message."""
        counts: Counter[int] = Counter()
        for rows in self.rows.values():
            counts.update([row[0] for row in rows.values()])
        return dict(counts)

    def prune(self) -> dict[int, int]:
        """Forget empty queues and places nobody refers to; return the references."""
        counts = self.references()
        self.rows = {no: dict(sorted(rows.items())) for no, rows in self.rows.items() if rows}
        self.locations = {no: at for no, at in self.locations.items() if no in counts}
        return counts
