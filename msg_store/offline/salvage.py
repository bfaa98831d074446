"""Salvage: all messages that can be read are copied into a new store. The old one is not changed.

The new store has a uuid of its own, segments with the live messages one behind the other, an index and
no journal; numbers of queues, seqs and messages stay, so the definitions of the old store fit. FORMAT is
written last: a salvage that was cut off leaves no store.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, islice
from pathlib import Path
from typing import Final

from leveret.core.system.files import Files
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import HEADER_BYTES, RDQ_MAGIC, Identity
from leveret.msg_store.format.folder import SEGMENT_NAME, write_format
from leveret.msg_store.format.record import resealed
from leveret.msg_store.format.rows import (
    Batch,
    Checkpoint,
    FileRow,
    IndexFull,
    IndexRow,
    QueueTerms,
)
from leveret.msg_store.index import lmdb_index
from leveret.msg_store.index.lmdb_index import LmdbIndex
from leveret.msg_store.memtable.memtable import LiveTerms
from leveret.msg_store.offline.audit import Audit, LostRow, Progress
from leveret.msg_store.offline.locations import UNKNOWN, LocationTable
from leveret.msg_store.reading.verify import Segment
from leveret.msg_store.recovery.journal_scan import FIRST_FILE, FIRST_LSN
from leveret.msg_store.wal.segment_writer import FILE_BYTES

PIECE: Final = 50_000  # rows or locations per transaction
_BUFFER_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Salvaged:
    """How much of a damaged store ``salvage`` has copied, and the rows it could not copy."""

    messages: int = 0
    rows: int = 0
    size_bytes: int = 0
    lost: list[LostRow] = field(default_factory=list)


def salvage(audit: Audit, target: Path, uuid: bytes, now_ms: int, progress: Progress) -> Salvaged:
    """Copy all messages that have rows and can be read into a new store, in an empty folder.

    The audit, of the old store, is kept open meanwhile.
    """
    return _Salvage(audit, target, Identity(uuid, audit.store.epoch_seen), now_ms, progress).run()


class _Salvage:
    def __init__(
        self, audit: Audit, target: Path, identity: Identity, now_ms: int, progress: Progress
    ) -> None:
        self._old = audit.store
        self._table = _readable(audit)  # gets the new locations; segment 0: it cannot be read
        self._counted = audit.queues
        self._target = target
        self._files = Files()
        self._identity = identity
        self._now_ms = now_ms
        self._progress = progress
        self._segments: dict[int, FileRow] = {}
        self._failed: dict[int, str] = {}  # messages that could not be read again
        self._out = Salvaged(lost=list(audit.lost))

    def run(self) -> Salvaged:
        for folder in ("rdq", "journal", "quarantine"):
            self._files.mkdir(self._target / folder)
        records = self._records()
        while (first := next(records, None)) is not None:
            self._write_segment(len(self._segments) + 1, chain([first], records))
        index = LmdbIndex(self._target / lmdb_index.FOLDER, self._identity.uuid)
        try:
            self._write_index(index)
        except IndexFull as error:
            raise OSError(errno.ENOSPC, str(error), str(self._target)) from error
        finally:
            index.close()
        write_format(self._files, self._target, self._identity.uuid, self._now_ms)
        return self._out

    def _records(self) -> Iterator[tuple[int, bytes]]:
        """Yield the records that can be read, with their positions in the table."""
        table, extend, seed = self._table, self._identity.extend, self._identity.seed
        done, total = 0, sum(table.lengths)
        for file_no, positions in table.by_file().items():
            with Segment(self._old.folder, file_no) as segment:
                for at in positions:
                    length = table.lengths[at]
                    try:
                        data = segment.bytes_at(table.offsets[at], length)
                        segment.decode(data, length)
                    except (Corrupt, OSError) as error:  # the audit could: the disk is failing
                        self._failed[table.msg_nos[at]] = str(error)
                        table.file_nos[at] = 0
                    else:
                        yield at, resealed(data, extend, seed)
                    done += length
            self._progress("copied", done, total)

    def _write_segment(self, file_no: int, records: Iterable[tuple[int, bytes]]) -> None:
        """Write records into a new segment until it is full."""
        table, rdq = self._table, self._target / "rdq"
        buffer = [self._identity.header(RDQ_MAGIC, file_no, self._now_ms)]
        written, end = 0, HEADER_BYTES
        with self._files.create(rdq / (SEGMENT_NAME % file_no)) as file:
            for at, data in records:
                table.file_nos[at], table.offsets[at] = file_no, end
                self._out.messages += 1
                buffer.append(data)
                end += len(data)
                if end - written >= _BUFFER_BYTES or end >= FILE_BYTES:
                    file.append([b"".join(buffer)])
                    buffer.clear()
                    written = end
                if end >= FILE_BYTES:
                    break
            file.append([b"".join(buffer)])
            file.fsync()
        self._files.fsync_dir(rdq)
        self._segments[file_no] = FileRow(end - HEADER_BYTES, end)
        self._out.size_bytes += end

    # Index.

    def _write_index(self, index: LmdbIndex) -> None:
        table = self._table
        for first in range(0, len(table), PIECE):
            some = range(first, min(first + PIECE, len(table)))
            locations = [
                (table.msg_nos[at], table.location(at)) for at in some if table.file_nos[at]
            ]
            index.write(Batch(locations=locations))
        queues: dict[int, QueueTerms | None] = {}
        for queue_no, counted in self._counted.items():
            terms = LiveTerms()
            rows = self._rows(queue_no, terms)
            while piece := {row[0]: row for row in islice(rows, PIECE)}:
                index.write(Batch(rows={queue_no: piece}))
            said = self._old.queues.get(queue_no, LiveTerms())
            next_seq = max(said.next_seq, counted.next_seq)
            queues[queue_no] = QueueTerms(next_seq, 0, terms.messages, terms.size_bytes, False)
            self._out.rows += terms.messages
        # Behind the first record there is: a journal that begins must not look as if it had all.
        next_file_no = len(self._segments) + 1
        point = Checkpoint(FIRST_LSN + 1, FIRST_FILE, self._identity.boot_epoch, next_file_no)
        producers = {
            (queue_no, producer): row
            for queue_no, known in self._old.recovered.producers.items()
            for producer, row in known.items()
        }
        index.write(
            Batch(
                files=self._segments, queues=queues.items(), checkpoint=point, producers=producers
            )
        )

    def _rows(self, queue_no: int, terms: LiveTerms) -> Iterator[IndexRow]:
        """Yield the rows of a queue whose messages were copied, and count them in ``terms``."""
        table, failed = self._table, self._failed
        for row in self._old.rows(queue_no):
            if (at := table.find(row[1])) == UNKNOWN:
                continue
            if not table.file_nos[at]:
                self._out.lost.append(LostRow(queue_no, *row[:3], failed[row[1]]))
                continue
            size = table.sizes[at]
            terms.messages += 1
            terms.size_bytes += size
            yield (*row[:2], size, *row[3:])


def _readable(audit: Audit) -> LocationTable:
    """Return the messages that have rows and can be read, with their true locations."""
    table = LocationTable()
    for msg_no, _, location in merge(audit.indexed(), sorted(audit.unindexed())):
        if location is not None:
            table.add(msg_no, location)
    return table
