"""Salvage: all messages that can be read are copied into a new store. The old one is not changed.

The new store has a uuid of its own, segments with the live messages one behind the other, an index and
no journal; numbers of queues, seqs and messages stay, so the definitions of the old store fit. FORMAT is
written last: a salvage that was cut off leaves no store.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leveret.core.system.files import File, Files
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
    Location,
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
        self._locations = _locations_of(audit)
        self._unreadable = audit.unreadable.keys() - audit.elsewhere.keys()
        self._counted = audit.queues
        self._target = target
        self._files = Files()
        self._identity = identity
        self._now_ms = now_ms
        self._progress = progress
        self._file: File | None = None
        self._file_no = self._offset = 0
        self._buffer: list[bytes] = []
        self._buffered_bytes = 0
        self._new_file_nos = array("I", bytes(4 * len(self._locations)))
        self._new_offsets = array("I", bytes(4 * len(self._locations)))
        self._states: dict[int, FileRow] = {}
        self._failed: dict[int, str] = {}  # messages that could not be read again
        self._out = Salvaged(lost=list(audit.lost))

    def run(self) -> Salvaged:
        for folder in ("rdq", "journal", "quarantine"):
            self._files.mkdir(self._target / folder)
        self._copy_messages()
        index = LmdbIndex(self._target / lmdb_index.FOLDER, self._identity.uuid)
        try:
            self._write_index(index)
        except IndexFull as error:
            raise OSError(errno.ENOSPC, str(error), str(self._target)) from error
        finally:
            index.close()
        write_format(self._files, self._target, self._identity.uuid, self._now_ms)
        return self._out

    # Messages.

    def _copy_messages(self) -> None:
        locations, unreadable, done = self._locations, self._unreadable, 0
        total = sum(locations.lengths)
        for file_no, positions in locations.by_file().items():
            wanted = [
                at
                for at in positions
                if locations.rows[at] and locations.msg_nos[at] not in unreadable
            ]
            if wanted:
                with Segment(self._old.folder, file_no) as segment:
                    for at in wanted:
                        self._copy(segment, at)
            done += sum(locations.lengths[at] for at in positions)
            self._progress("copied", done, total)
        self._seal()

    def _copy(self, segment: Segment, at: int) -> None:
        locations = self._locations
        try:
            data = segment.bytes_at(locations.offsets[at], locations.lengths[at])
            segment.decode(data, locations.lengths[at])
        except (Corrupt, OSError) as error:  # the audit could read it: the disk is failing
            self._failed[locations.msg_nos[at]] = str(error)
            return
        if self._file is None or self._offset >= FILE_BYTES:
            self._begin()
        self._new_file_nos[at], self._new_offsets[at] = self._file_no, self._offset
        self._buffer.append(resealed(data, self._identity.extend, self._identity.seed))
        self._offset += len(data)
        self._buffered_bytes += len(data)
        if self._buffered_bytes >= _BUFFER_BYTES:
            self._write()
        self._out.messages += 1

    def _begin(self) -> None:
        self._seal()
        self._file_no += 1
        rdq = self._target / "rdq"
        self._file = self._files.create(rdq / (SEGMENT_NAME % self._file_no))
        self._file.append([self._identity.header(RDQ_MAGIC, self._file_no, self._now_ms)])
        self._offset = HEADER_BYTES

    def _write(self) -> None:
        assert self._file is not None, "messages are buffered for a segment"
        self._file.append([b"".join(self._buffer)])
        self._buffer.clear()
        self._buffered_bytes = 0

    def _seal(self) -> None:
        if self._file is None:
            return
        self._write()
        self._file.fsync()
        self._file.close()
        self._file = None
        self._files.fsync_dir(self._target / "rdq")
        self._states[self._file_no] = FileRow(self._offset - HEADER_BYTES, self._offset)
        self._out.size_bytes += self._offset

    # Index.

    def _write_index(self, index: LmdbIndex) -> None:
        for batch in self._location_batches():
            index.write(batch)
        queues: dict[int, QueueTerms | None] = {}
        for queue_no in self._counted:
            terms = LiveTerms()
            for batch in self._row_batches(queue_no, terms):
                index.write(batch)
            said = self._old.queues.get(queue_no, LiveTerms())
            next_seq = max(said.next_seq, self._counted[queue_no].next_seq)
            queues[queue_no] = QueueTerms(next_seq, 0, terms.messages, terms.size_bytes, False)
            self._out.rows += terms.messages
        # Behind the first record there is: a journal that begins must not look as if it had all.
        point = Checkpoint(FIRST_LSN + 1, FIRST_FILE, self._identity.boot_epoch, self._file_no + 1)
        producers = {
            (queue_no, producer): row
            for queue_no, known in self._old.recovered.producers.items()
            for producer, row in known.items()
        }
        index.write(
            Batch(files=self._states, queues=queues.items(), checkpoint=point, producers=producers)
        )

    def _location_batches(self) -> Iterator[Batch]:
        locations = self._locations
        for first in range(0, len(locations), PIECE):
            some = range(first, min(first + PIECE, len(locations)))
            kept = [at for at in some if self._new_file_nos[at]]
            yield Batch(locations=[(locations.msg_nos[at], self._location(at)) for at in kept])

    def _location(self, at: int) -> Location:
        _, _, length, size, _ = self._locations.location(at)
        return self._new_file_nos[at], self._new_offsets[at], length, size, self._locations.rows[at]

    def _row_batches(self, queue_no: int, terms: LiveTerms) -> Iterator[Batch]:
        piece: dict[int, IndexRow] = {}
        for row in self._old.rows(queue_no):
            at = self._locations.find(row[1])
            if at == UNKNOWN or not self._new_file_nos[at]:
                if row[1] in self._failed:
                    lost = LostRow(queue_no, row[0], row[1], row[2], self._failed[row[1]])
                    self._out.lost.append(lost)
                continue
            size = self._locations.sizes[at]
            piece[row[0]] = (*row[:2], size, *row[3:])
            terms.messages += 1
            terms.size_bytes += size
            if len(piece) >= PIECE:
                yield Batch(rows={queue_no: piece})
                piece = {}
        yield Batch(rows={queue_no: piece})


def _locations_of(audit: Audit) -> LocationTable:
    """Return all locations, those of messages that were found elsewhere corrected."""
    if not audit.elsewhere:
        return audit.locations
    return audit.locations.moved(audit.elsewhere, audit.bare)
