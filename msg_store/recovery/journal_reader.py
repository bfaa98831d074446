"""The reader of a journal file after a crash: its good frames in order, its end, and its damage.

A flush is one frame, and the next begins after it was synced; so a crash can spoil the *last* frame of the
*last* file, which was not synced, and nothing else. Hence:

* Bad bytes with no good frame behind them, in the last file, are the torn **tail**: never confirmed.
* Bad bytes with a good frame behind them, or at the end of a file that was followed by another, are
  a **gap**: the disk lied about a sync. Frames behind a gap are read, since acks and publishes may be
  repeated or missing without harm to the others.
* Zeros up to the end are an end, not damage.

A good frame behind bad bytes counts only if its numbers go on, so that a stale one does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from leveret.msg_store.format.errors import Corrupt, ForeignFile
from leveret.msg_store.format.file_header import (
    EXTENDERS,
    HEADER_BYTES,
    JOURNAL_MAGIC,
    Extend,
    FileHeader,
    decode_header,
    extender,
    seed_of,
)
from leveret.msg_store.format.journal_frames import Frame, decode_frame, next_frame
from leveret.msg_store.format.journal_records import JournalRecord, decode_records
from leveret.msg_store.wal.journal import chain_start


@dataclass(frozen=True, slots=True)
class Damage:
    """Bad bytes of a file."""

    offset: int
    end: int
    reason: str


@dataclass(slots=True)
class JournalFile:
    """A journal file; the attributes are complete after ``frames`` has been read to its end."""

    data: bytes
    uuid: bytes
    header: FileHeader | None = None  # None if it is damaged
    gaps: list[Damage] = field(default_factory=list)  # bad bytes with good frames behind them
    tail: Damage | None = None  # bad bytes up to the end of the file, or to zeros there
    end: int = HEADER_BYTES  # where the good frames end
    next_lsn: int | None = None  # after the last record; None without a header and a frame
    used_bytes: int = 0  # its length without zeros at the end, taken ahead or never written
    is_foreign: bool = False  # it is another store's
    _extend: Extend | None = None
    _prev_crc: int | None = None
    _damage_of_header: str = ""

    def __post_init__(self) -> None:
        self.used_bytes = len(self.data.rstrip(b"\0"))
        try:
            header = decode_header(self.data, JOURNAL_MAGIC, self.uuid)
        except Corrupt as error:
            self.is_foreign = isinstance(error, ForeignFile)
            self._damage_of_header = str(error)
            return
        self.header, self.next_lsn = header, header.first_lsn
        self._extend = extender(header.crc_kind)
        self._prev_crc = chain_start(self.data[:HEADER_BYTES])

    def is_foreign_as(self, file_no: int) -> bool:
        """Tell whether the file belongs to another store, or under another number."""
        return self.is_foreign or (self.header is not None and self.header.number != file_no)

    @property
    def is_empty(self) -> bool:
        """The crash came while the header was written, so there is no record."""
        return self.header is None and self.used_bytes <= HEADER_BYTES

    def frames(self) -> Iterator[tuple[Frame, list[JournalRecord]]]:
        offset = HEADER_BYTES if self.header is not None else 0
        reason = self._damage_of_header
        while offset < len(self.data):
            if not reason:
                try:
                    found = self._good(offset)
                except Corrupt as error:
                    reason = str(error)
                    continue
            else:
                skipped = self._behind(offset)
                if skipped is None:
                    break
                at, found = skipped
                self.gaps.append(Damage(offset, at, reason))
                reason = ""
            frame, _ = found
            self._prev_crc, self.next_lsn = frame.crc, frame.next_lsn
            self.end = offset = frame.end
            yield found
        if offset < self.used_bytes:
            self.tail = Damage(offset, self.used_bytes, reason)

    def _good(self, offset: int) -> tuple[Frame, list[JournalRecord]]:
        extend = self._extend
        assert extend is not None, "the file's checksums are not known yet"
        frame = decode_frame(self.data, extend, seed_of(self.uuid), offset)
        if frame.prev_crc != self._prev_crc:
            raise Corrupt(f"frame at LSN {frame.first_lsn} does not follow the one before")
        return frame, list(decode_records(frame.payload, frame.n_records))

    def _behind(self, offset: int) -> tuple[int, tuple[Frame, list[JournalRecord]]] | None:
        """Find the first frame behind bad bytes whose numbers go on."""
        kinds = [self._extend] if self._extend else EXTENDERS.values()
        for extend in kinds:
            at = offset
            while (found := next_frame(self.data, extend, seed_of(self.uuid), at)) is not None:
                at, frame = found
                if frame.first_lsn < (self.next_lsn or 0):
                    continue
                try:
                    records = list(decode_records(frame.payload, frame.n_records))
                except Corrupt:
                    continue
                self._extend = extend
                return at, (frame, records)
        return None
