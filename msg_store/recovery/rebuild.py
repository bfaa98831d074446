"""The rebuild of an index from the segments: when LMDB is lost, damaged, or older than the journals.

Every message in a segment comes back to the queues that its record names, unless a journal that is left
acked it: delivery stays at least once. The rest is not known any more: seqs are made of the message
numbers, so order is that of routing, and only journals that are left know expiries. A message comes back
with its priority, which its properties have (``record.row_number``). The caller deletes queues that do
not exist any more.

A producer's last sequence is the highest, in the highest epoch, that a message in a segment has in its headers, also
of messages that were acked (``amqp/producer_headers``). Those of messages that the collector has removed, or that
only the archive keeps, are not known any more: duplicates of them are taken in. Journals that are left are not asked:
a sequence whose message cannot be read would keep the producer from sending it again.

A segment that the archive keeps although its messages are settled is left out, if that was noted beside it
(``archive.segment_shares``): a lost index must not deliver a day's settled messages once more.

A queue never gives a seq that was made here (``seq_of``): journals from before and after a rebuild may
meet in the next rebuild, where an ack must not remove another message. The first journal after a rebuild says so
in its header (``file_header.REBUILT``), for acks in it are of no row of an index from before.

The new index is written in pieces, and its checkpoint at the end of recovery. A crash before that leaves
an index without a checkpoint, and the next start rebuilds it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from leveret.amqp.producer_headers import producer_in
from leveret.msg_store.archive.segment_shares import load_shares
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import MOVED
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.journal_frames import DurablePosition, Frame
from leveret.msg_store.format.journal_records import (
    PERSISTENT,
    AckRange,
    Acks,
    JournalRecord,
    Publishes,
)
from leveret.msg_store.format.record import queue_no_of, row_number, unpack_meta
from leveret.msg_store.format.rows import (
    Batch,
    FileRow,
    Index,
    IndexRow,
    Location,
    Producers,
    QueueTerms,
)
from leveret.msg_store.memtable.memtable import LiveTerms
from leveret.msg_store.reading.verify import Segment

MADE = 1 << 39  # in a seq: not given by a queue; queues count from ``epoch << 40``

_PIECE = 10_000  # messages per transaction

Found = tuple[int, Location, tuple[int, ...]]  # msg_no, location, queue_nos


def seq_of(msg_no: int) -> int:
    """Return the seq that a message gets in every queue."""
    return msg_no | MADE


class JournalMemory:
    """The rows, acks and expiries of the existing journals."""

    def __init__(self) -> None:
        self.expiries_ms: dict[tuple[int, int], int] = {}  # by queue_no and msg_no
        self.gone: set[tuple[int, int]] = set()
        self._rows: dict[int, dict[int, int]] = {}  # queue_no -> seq -> msg_no

    def add(self, frame: Frame, records: list[JournalRecord]) -> None:
        for record in records:
            match record:
                case Publishes():
                    self._publishes(record)
                case Acks(queue_no, seqs):
                    self._acked(queue_no, seqs)
                case AckRange(queue_no, first, last):
                    rows = self._rows.get(queue_no, {})
                    if first & last & MADE:
                        self._acked(queue_no, range(first, last + 1))
                    self._acked(queue_no, [seq for seq in rows if first <= seq <= last])

    def seen(self) -> dict[int, set[int]]:
        """Return, by queue, the messages that have a row or an ack in the journals."""
        found = {queue_no: set(rows.values()) for queue_no, rows in self._rows.items()}
        for queue_no, msg_no in self.gone:
            found.setdefault(queue_no, set()).add(msg_no)
        return found

    def _publishes(self, run: Publishes) -> None:
        rows = self._rows.setdefault(run.queue_no, {})
        rows.update(enumerate(run.msg_nos, run.first_seq))
        for msg_no, expiry_ms in zip(run.msg_nos, run.expiries_ms or (), strict=False):
            self.expiries_ms[run.queue_no, msg_no] = expiry_ms

    def _acked(self, queue_no: int, seqs: Iterable[int]) -> None:
        rows = self._rows.get(queue_no, {})
        for seq in seqs:
            msg_no = seq & ~MADE if seq & MADE else rows.pop(seq, None)
            if msg_no is not None:
                self.gone.add((queue_no, msg_no))


class Rebuild:
    """Fills an empty index. After a failed sync, ``trusted`` ends the good part of the segments."""

    def __init__(
        self,
        folder: StoreFolder,
        index: Index,
        memory: JournalMemory,
        trusted: DurablePosition | None,
    ) -> None:
        self.files: dict[int, FileRow] = {}
        self.queues: dict[int, LiveTerms] = {}
        self.msg_no_seen = 0
        self._folder = folder
        self._index = index
        self._memory = memory
        self._trusted = trusted
        self._valid_bytes: dict[int, int] = {}
        self.producers: Producers = {}

    def run(self) -> None:
        """Read all segments and write all but the checkpoint."""
        for file_no in self._folder.rdq_nos():
            self._valid_bytes[file_no] = 0
            with Segment(self._folder, file_no) as segment:
                self.files[file_no] = FileRow(0, segment.size_bytes)
                shares = load_shares(self._folder, file_no)
                if shares is not None and shares.is_settled:
                    continue
                piece: list[Found] = []
                for found in self._messages(file_no, segment):
                    piece.append(found)
                    if len(piece) >= _PIECE:
                        self._write(piece)
                        piece = []
                self._write(piece)
        for file_no, row in self.files.items():
            self.files[file_no] = row._replace(valid_bytes=self._valid_bytes[file_no])

    def terms(self) -> dict[int, QueueTerms]:
        return {queue_no: terms.frozen() for queue_no, terms in self.queues.items()}

    def _messages(self, file_no: int, segment: Segment) -> Iterator[Found]:
        # The collector syncs a copy before it gets its name, so a copy can be trusted.
        is_copy = segment.header is not None and segment.header.flags & MOVED
        trusted = None if is_copy else self._trusted
        for offset, record in segment.records():
            end = offset + record.total_len
            if trusted is not None and not trusted.covers(file_no, end):
                return
            self.msg_no_seen = max(self.msg_no_seen, record.msg_no)
            try:
                meta = unpack_meta(record.meta)
            except Corrupt:
                continue
            note_producer(self.producers, meta.head, meta.queue_nos, record.ts_ms)
            queue_nos = [row_number(no, meta.head) for no in meta.queue_nos]
            gone = self._memory.gone
            left = tuple(no for no in queue_nos if (no, record.msg_no) not in gone)
            if left:
                location = (file_no, offset, record.total_len, len(record.body), len(left))
                yield record.msg_no, location, left

    def _write(self, piece: list[Found]) -> None:
        if not piece:
            return
        # A message may have two records, in this piece even: the collector copied it. The later one counts.
        locations = self._index.locations([found[0] for found in piece])
        rows: dict[int, dict[int, IndexRow]] = {}
        for msg_no, location, queue_nos in piece:
            earlier = locations.get(msg_no)
            locations[msg_no] = location
            if earlier is not None:
                self._valid_bytes[earlier[0]] -= earlier[2]
            self._valid_bytes[location[0]] += location[2]
            for queue_no in queue_nos:
                expiry_ms = self._memory.expiries_ms.get((queue_no, msg_no), 0)
                seq = seq_of(msg_no)
                row = (seq, msg_no, location[3], expiry_ms, PERSISTENT)
                rows.setdefault(queue_no, {})[seq] = row
                if earlier is None:
                    self._count(queue_no, seq, location[3])
        self._index.write(Batch(rows=rows, locations=[(found[0], found[1]) for found in piece]))

    def _count(self, queue_no: int, seq: int, size_bytes: int) -> None:
        terms = self.queues.get(queue_no)
        if terms is None:
            terms = self.queues[queue_no] = LiveTerms()
        terms.messages += 1
        terms.size_bytes += size_bytes
        terms.next_seq = max(terms.next_seq, seq + 1)


def note_producer(
    producers: Producers, head: bytes, route_nos: Iterable[int], used_ms: int
) -> None:
    """Note the producer's sequence in a message's headers for the queues with these route numbers."""
    sent = producer_in(head)
    if sent is None:
        return
    producer, epoch, seq = sent
    for route_no in route_nos:
        known = producers.setdefault(queue_no_of(route_no), {})
        known[producer] = max(known.get(producer, (0, 0, 0)), (epoch, seq, used_ms))
