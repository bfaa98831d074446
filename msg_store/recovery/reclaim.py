"""Reclaim: rows for messages in the segments whose journal records are missing.

A flush writes its messages to the segments and its rows to the journal at the same time. So damage of the journal need
not cost a message. Segments are filled in the order of the flushes: messages behind the **known end**, the highest
place that index, journal or end mark name, are from flushes whose frames are missing.

* If they are from one flush, a crash between its two writes leaves the same. As far as is known the flush was not
  confirmed, so its messages are garbage.
* If they are from two or more flushes (each flush has its own time in its messages), the journal was cut: a flush
  begins only when the previous flush is durable.

If the journal is damaged, by this test or another one (a gap, ``Recovery._check_end``), the missing frames may also
have held rows for earlier messages, in other queues of their routes. So the reclaim reads all messages from the place
that the checkpoint gives (``Checkpoint.since``), and gives a message a row in each queue of its route, unless index or
journals have its row or an ack of it there. So acked messages can come back, also a message that was acked before its
row was written.

The new rows get the seqs of a rebuild (``rebuild.seq_of``), above all seqs that their queues gave in that start. Their
expiries are lost; sequences of producers are taken from the headers of the messages.

Turned down: rows for the messages of a single flush, which may have been confirmed. Most kills leave such a flush, and
messages of queues with a TTL would not expire any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import HEADER_BYTES, MOVED
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.journal_frames import DurablePosition
from leveret.msg_store.format.journal_records import PERSISTENT, Publishes
from leveret.msg_store.format.record import Record, row_number, unpack_meta
from leveret.msg_store.format.rows import (
    SEQ_END,
    Index,
    IndexRow,
    Location,
    ProducerKey,
    ProducerRow,
    Producers,
)
from leveret.msg_store.reading.verify import Segment
from leveret.msg_store.recovery.rebuild import JournalMemory, note_producer, seq_of
from leveret.msg_store.recovery.replay import Replay, pages
from leveret.msg_store.wal.flush import publishes

Place = tuple[int, int]  # file_no, offset


class Found(NamedTuple):
    """A whole record of a segment, without its body."""

    file_no: int
    offset: int
    msg_no: int
    ts_ms: int
    length: int
    size_bytes: int
    meta: bytes

    @property
    def location(self) -> Location:
        return self.file_no, self.offset, self.length, self.size_bytes, 1


class Reclaim:
    """Finds messages without journal records and gives them rows.

    Attributes:
        runs: the new rows; the next journal begins with them.
        sequences: the sequences of the producers of these messages.
        counts: how many messages each queue got.
    """

    def __init__(self, folder: StoreFolder, index: Index, replay: Replay) -> None:
        self.runs: list[Publishes] = []
        self.sequences: dict[ProducerKey, ProducerRow] = {}
        self.counts: dict[int, int] = {}
        self._producers: Producers = {}
        self._folder = folder
        self._index = index
        self._replay = replay

    def indexed_end(self, next_file_no: int) -> Place:
        """Return the place behind all messages, in segments below a number, that the index may name."""
        indexed, on_disk = self._index.files(), set(self._folder.rdq_nos())
        for file_no in sorted(indexed, reverse=True):
            if file_no < next_file_no and not (file_no in on_disk and self._is_copy(file_no)):
                return file_no, indexed[file_no].size_bytes
        return 0, 0

    def known_end(self, durable: DurablePosition, next_file_no: int) -> Place:
        """Return the place behind all messages that index, journal or end mark name."""
        ends = self._replay.ends.items()
        return max(self.indexed_end(next_file_no), (durable.file_no, durable.offset), *ends)

    def cut_from(self, place: Place) -> Place | None:
        """Return the first place behind ``place`` with a message of a durable flush; None: there is none."""
        first: Found | None = None
        for each in self._records(place):
            if first is None:
                first = each
            elif each.ts_ms != first.ts_ms:
                return first.file_no, first.offset
        return None

    def take_missing(
        self, place: Place, memory: JournalMemory, trusted: DurablePosition | None
    ) -> None:
        """Give the messages from a place on their missing rows: rows that index and journals neither have nor had.

        ``memory`` is of the journals. After a failed sync, ``trusted`` ends the part of the segments to use.
        """
        found = [
            each
            for each in self._records(place)
            if trusted is None or trusted.covers(each.file_no, each.offset + each.length)
        ]
        seen = memory.seen()
        for queue_no, some in self._by_queue(found).items():
            known = self._in_index(queue_no, some) | seen.get(queue_no, set())
            self._publish(queue_no, [each for no, each in some.items() if no not in known])

    def finish(self) -> None:
        """Note the producers' sequences, and look up reference counts in the index."""
        replay = self._replay
        for queue_no, found in self._producers.items():
            known = replay.producers.get(queue_no, {})
            for producer, row in found.items():
                key = queue_no, producer
                if row > known.get(producer, (0, -1, 0)) and key not in replay.rolled_back:
                    replay.set_producer(key, row)
                    self.sequences[key] = row
        replay.finish()

    def _records(self, place: Place) -> Iterator[Found]:
        """Yield the whole messages of all segments from a place on, without copies of the collector."""
        for file_no in self._folder.rdq_nos():
            if file_no < place[0]:
                continue
            with Segment(self._folder, file_no) as segment:
                if segment.is_foreign or (segment.header and segment.header.flags & MOVED):
                    continue
                start = max(HEADER_BYTES, place[1] if file_no == place[0] else 0)
                for offset, record in segment.records(start):
                    yield _found(file_no, offset, record)

    def _is_copy(self, file_no: int) -> bool:
        with Segment(self._folder, file_no) as segment:
            return segment.header is not None and bool(segment.header.flags & MOVED)

    def _by_queue(self, found: list[Found]) -> dict[int, dict[int, Found]]:
        """Return the messages of each queue by message number, ascending."""
        queues: dict[int, dict[int, Found]] = {}
        for each in sorted(found, key=lambda each: each.msg_no):
            try:
                meta = unpack_meta(each.meta)
            except Corrupt:
                continue
            for route_no in meta.queue_nos:
                queues.setdefault(row_number(route_no, meta.head), {})[each.msg_no] = each
        return queues

    def _in_index(self, queue_no: int, some: dict[int, Found]) -> set[int]:
        """Return the messages that have a row of this queue in the index; mostly few or none."""
        placed = self._index.locations(some).keys()
        if not placed:
            return set()
        return {row[1] for row in pages(self._index, queue_no, 0, SEQ_END) if row[1] in placed}

    def _publish(self, queue_no: int, some: list[Found]) -> None:
        rows: list[IndexRow] = []
        places: dict[int, Location] = {}
        for each in some:
            meta = unpack_meta(each.meta)
            note_producer(self._producers, meta.head, meta.queue_nos, each.ts_ms)
            rows.append((seq_of(each.msg_no), each.msg_no, each.size_bytes, 0, PERSISTENT))
            places[each.msg_no] = each.location
        if rows:
            self.counts[queue_no] = len(rows)
            for run in publishes(queue_no, rows, places):
                self._replay.publish(run)
                self.runs.append(run)


def _found(file_no: int, offset: int, record: Record) -> Found:
    return Found(
        file_no,
        offset,
        record.msg_no,
        record.ts_ms,
        record.total_len,
        len(record.body),
        record.meta,
    )
