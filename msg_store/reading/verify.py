"""Checking messages against the segments, and searching for messages that are not at their place."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final, Self

from leveret.core.limits import LARGE_BODY_BYTES
from leveret.core.message import Message
from leveret.core.system.files import File
from leveret.msg_store.format.errors import Corrupt, ForeignFile
from leveret.msg_store.format.file_header import (
    EXTENDERS,
    HEADER_BYTES,
    RDQ_MAGIC,
    Extend,
    FileHeader,
    decode_header,
    extender,
    seed_of,
)
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.kernel import checksums, decode_run
from leveret.msg_store.format.record import HEADER_BYTES as RECORD_HEADER_BYTES
from leveret.msg_store.format.record import (
    Place,
    Record,
    Want,
    decode_record,
    lengths_at,
    next_magic,
    record_of,
    total_len_at,
)
from leveret.msg_store.format.rows import Location

MISSING: Final = "is missing"  # at the end of a fault: the segment of a message is not there
SHORTER: Final = "is cut off before it"


class Segment:
    """A segment opened for checking; if its header is damaged, either kind of checksum will do."""

    def __init__(self, folder: StorePaths, file_no: int) -> None:
        self._file: File = folder.files.open_read(folder.rdq_path(file_no))
        self._seed = seed_of(folder.uuid)
        self.header: FileHeader | None = None
        self.damage, self.is_foreign = "", False
        try:
            self.header = decode_header(self._first_bytes(), RDQ_MAGIC, folder.uuid)
        except Corrupt as error:
            self.is_foreign = isinstance(error, ForeignFile)
            self.damage = str(error)
        else:
            if self.header.number != file_no:
                self.is_foreign = True
                self.damage = f"it is segment {self.header.number:08x} under another name"
        self._kinds = list(EXTENDERS) if self.header is None else [self.header.crc_kind]
        self._extends: list[Extend] = [extender(kind) for kind in self._kinds]
        self.size_bytes = self._file.size_bytes()

    def _first_bytes(self) -> bytes:
        try:
            return self._file.pread(HEADER_BYTES, 0)
        except OSError:
            self.close()
            raise

    def bytes_at(self, offset: int, count: int) -> bytes:
        return self._file.pread(count, offset)

    def read(self, offset: int, length: int, msg_no: int | None = None) -> Record:
        """Read the record that should fill these bytes; ``Corrupt`` as in ``decode``."""
        if length <= LARGE_BODY_BYTES or len(self._extends) > 1:
            return self.decode(self._file.pread(length, offset), length, msg_no)
        return _checked(self._read_apart(offset, length), length, msg_no)

    def _read_apart(self, offset: int, length: int) -> Record:
        """Read a large record, its body into bytes of its own: a copy would hold the interpreter's lock for long."""
        header = self._file.pread(RECORD_HEADER_BYTES, offset)
        total_len, meta_len, body_len = lengths_at(header)
        if total_len != length:
            raise _of_another_length(total_len, length)
        meta_at = offset + RECORD_HEADER_BYTES
        meta = self._file.pread(meta_len, meta_at)
        body = self._file.pread(body_len, meta_at + meta_len)
        return record_of(header, meta, body, self._extends[0], self._seed)

    def decode(self, data: bytes, length: int, msg_no: int | None = None, at: int = 0) -> Record:
        """Read the record that should fill ``length`` bytes from ``at`` in ``data``.

        Raises:
            Corrupt: it is damaged, of another length, or not that of message ``msg_no``.
        """
        return _checked(self._decoded(data, at), length, msg_no)

    def decode_run(
        self,
        data: bytes,
        start: int,
        msg_nos: list[int],
        places: list[Place],
        parts_of: Callable[[bytes], tuple[bytes, bytes]],
        messages: dict[int, Message],
    ) -> tuple[list[Want], int]:
        """Read many records out of bytes from ``start`` on; see ``kernel``."""
        if len(self._kinds) > 1:
            return list(zip(msg_nos, places, strict=True)), 0
        kind = self._kinds[0]
        return decode_run(data, start, msg_nos, places, kind, self._seed, parts_of, messages)

    def checksums(self, data: bytes, begins: array[int], ends: array[int]) -> list[array[int]]:
        """Return the checksums of many parts of ``data`` as in ``kernel``, by each kind that the segment may have."""
        return [array("I", checksums(data, kind, self._seed, begins, ends)) for kind in self._kinds]

    def _decoded(self, data: bytes, at: int) -> Record:
        for extend in self._extends[:-1]:
            try:
                return decode_record(data, extend, self._seed, at)
            except Corrupt:
                continue
        return decode_record(data, self._extends[-1], self._seed, at)

    def records(self, offset: int = HEADER_BYTES) -> Iterator[tuple[int, Record]]:
        """Yield place and contents of all good records from there, going on behind bad bytes."""
        while offset < self.size_bytes:
            length = self.length_at(offset)
            try:
                record = self.read(offset, length)
            except Corrupt:
                # A header that fits its record leads to the next one; else look for any.
                is_next = bool(length) and self.length_at(offset + length) > 0
                offset = offset + length if is_next else self._next(offset)
            else:
                yield offset, record
                offset += length

    def length_at(self, offset: int) -> int:
        """Return the length in the record header at ``offset``; 0 if there is none, or the file ends before."""
        try:
            length = total_len_at(self._file.pread(HEADER_BYTES, offset))
        except Corrupt:
            return 0
        return length if offset + length <= self.size_bytes else 0

    def _next(self, offset: int, window_bytes: int = 1 << 20) -> int:
        while offset < self.size_bytes:
            data = self._file.pread(window_bytes, offset)
            at = next_magic(data, 0)
            if at > 0:
                return offset + at
            offset += max(1, len(data) - HEADER_BYTES)
        return self.size_bytes

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _checked(record: Record, length: int, msg_no: int | None) -> Record:
    if record.total_len != length:
        raise _of_another_length(record.total_len, length)
    if msg_no not in (None, record.msg_no):
        raise Corrupt(f"message {record.msg_no:#x} lies where {msg_no:#x} should")
    return record


def _of_another_length(found: int, length: int) -> Corrupt:
    return Corrupt(f"a record of {found} bytes where one of {length} should be")


def check(folder: StorePaths, locations: dict[int, Location]) -> dict[int, str]:
    """Read every message where it should be; return the faults, by message number."""
    wrong: dict[int, str] = {}
    by_file: dict[int, list[int]] = {}
    for msg_no, location in locations.items():
        by_file.setdefault(location[0], []).append(msg_no)
    present = set(folder.rdq_nos())
    for file_no, msg_nos in sorted(by_file.items()):
        if file_no not in present:
            wrong |= dict.fromkeys(msg_nos, f"segment {file_no:08x} {MISSING}")
            continue
        with Segment(folder, file_no) as segment:
            for msg_no in sorted(msg_nos, key=lambda each: locations[each][1]):
                if why := _wrong_at(segment, msg_no, locations[msg_no]):
                    wrong[msg_no] = why
    return wrong


def _wrong_at(segment: Segment, msg_no: int, location: Location) -> str:
    file_no, offset, length, _, _ = location
    try:
        segment.read(offset, length, msg_no)
    except Corrupt as error:
        return f"{error}, segment {file_no:08x}, offset {offset}"
    return ""


def search(
    folder: StorePaths, msg_nos: Iterable[int], file_nos: Container[int] | None = None
) -> dict[int, Location]:
    """Look through these segments, or all, for messages; a later segment wins. Counts are not known."""
    wanted = set(msg_nos)
    found: dict[int, Location] = {}
    for file_no in folder.rdq_nos():
        if file_nos is not None and file_no not in file_nos:
            continue
        with Segment(folder, file_no) as segment:
            for offset, record in segment.records():
                if record.msg_no in wanted:
                    found[record.msg_no] = (file_no, offset, record.total_len, len(record.body), 0)
    return found
