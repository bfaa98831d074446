"""Reading a segment's headers, to list its messages: the collector's first step.

Segments have no table of contents, and the index is by message, so the file itself is read. Only
headers are read where bodies are large. A header that is damaged, or wrong, names a message that the
index has at another place, and is passed over.

Which messages are needed is decided by the index. An answer may be old by the time it is used, which
does no harm: a message that was copied and has died since is garbage in the copy, and a message that
was left behind keeps its old segment from being removed.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from leveret.core.system.files import File
from leveret.msg_store.format import record
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import HEADER_BYTES, RDQ_MAGIC, decode_header
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.record import header_at, next_magic
from leveret.msg_store.format.rows import Index
from leveret.msg_store.threads.worker import Steps

TURN: Final = "turn"  # the point at which a job may be put aside
TURN_RECORDS: Final = 10_000
_BLOCK_BYTES: Final = 256 * 1024
_INDEX_ASKED_MAX: Final = 1_000  # messages per read transaction

NOT_NEEDED: Final = 0
NEEDED: Final = 1
ASK: Final = 2  # not in RAM: the index on disk knows


@dataclass(slots=True)
class Source:
    """A segment to be merged; the columns are parallel and in the order of the file."""

    file_no: int
    crc_kind: int = 0
    msg_nos: array[int] = field(default_factory=lambda: array("Q"))
    offsets: array[int] = field(default_factory=lambda: array("I"))
    lengths: array[int] = field(default_factory=lambda: array("I"))
    needed: bytearray = field(default_factory=bytearray)  # ``NOT_NEEDED``, ``NEEDED`` or ``ASK``

    def is_at(self, index: int, location: Sequence[int]) -> bool:
        """Tell whether a location, as far as a record's place goes, is that of a record here."""
        place = (self.file_no, self.offsets[index], self.lengths[index])
        return place == tuple(location[:3])

    def first_needed(self) -> int:
        """Return the lowest number of a needed message; a huge one when none is needed."""
        return min((no for no, is_it in zip(self.msg_nos, self.needed, strict=True) if is_it),
            default=1 << 64)  # fmt: skip

    def needed_bytes(self) -> int:
        return sum(n for n, is_it in zip(self.lengths, self.needed, strict=True) if is_it)


def scan(folder: StoreFolder, source: Source) -> Steps[None]:
    """Fill a source's columns from its file; ``Corrupt`` if its header, with the checksums' kind, is damaged."""
    with folder.files.open_read(folder.rdq_path(source.file_no)) as file:
        header = decode_header(file.pread(HEADER_BYTES, 0), RDQ_MAGIC, folder.uuid)
        source.crc_kind = header.crc_kind
        offset, end = HEADER_BYTES, file.size_bytes()
        while offset < end:
            before = len(source.msg_nos)
            while offset < end and len(source.msg_nos) - before < TURN_RECORDS:
                offset = _scan_block(file, offset, end, source)
            yield TURN
    source.needed = bytearray([ASK]) * len(source.msg_nos)


def _scan_block(file: File, start: int, end: int, source: Source) -> int:
    """Note the records whose headers lie in one block; return where the next block begins."""
    data = file.pread(_BLOCK_BYTES, start)
    if not data:
        return end  # shorter than it was: its last records are not found
    at, last = 0, len(data) - record.HEADER_BYTES
    add_no, add_offset = source.msg_nos.append, source.offsets.append
    add_length = source.lengths.append
    while at <= last:
        try:
            msg_no, length = header_at(data, at)
        except Corrupt:
            at = behind_damage(data, at)
            continue
        add_no(msg_no)
        add_offset(start + at)
        add_length(length)
        at += length
    return start + at if at else end


def behind_damage(data: bytes, at: int) -> int:
    """Return where the next record may begin: at the next magic, or behind the searched bytes."""
    found = next_magic(data, at)
    return found if found > at else max(at + 1, len(data) - record.HEADER_BYTES + 1)


def ask_index(index: Index, source: Source) -> Steps[None]:
    """Decide about the records that were left to the index on disk."""
    unknown = [at for at, state in enumerate(source.needed) if state == ASK]
    for start in range(0, len(unknown), _INDEX_ASKED_MAX):
        some = unknown[start : start + _INDEX_ASKED_MAX]
        known = index.locations([source.msg_nos[at] for at in some])
        for at in some:
            location = known.get(source.msg_nos[at])
            is_here = location is not None and source.is_at(at, location)
            source.needed[at] = NEEDED if is_here else NOT_NEEDED
        if (start // _INDEX_ASKED_MAX + 1) % (TURN_RECORDS // _INDEX_ASKED_MAX) == 0:
            yield TURN
