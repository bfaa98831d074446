"""Copying what is needed of some segments into a new one: the collector's second step.

::

    sources  -- runs of needed records that touch each other, inside the kernel -->  %08x.rdt
             checked there, synced piece by piece, renamed to .rdq, the name synced

Sources are only read, so readers do not notice. The copy has a number above all, and its header says
that it is one. Until a MOVE record is durable no row refers to it, and a crash leaves a file without
owner, which the next start removes: as a draft by its name, as a segment because nothing in it is
needed.

Every record is checked **in the copy**, for then the checksum vouches for the bytes that readers will
be sent to. One that is wrong is compared with its source:

* The source is good: the copy went wrong, and is given up.
* The source is as bad: the bytes are set aside in the quarantine, and copied as they are, for the
  queue must still find out that this message cannot be read. It is not for the collector to settle
  rows, and a segment that had to stay for one bad record would stay for ever.

All records of a file share the kind of checksum that its header names, so sources of another kind are
left out.

The copy is synced every ``SYNC_BYTES``: one sync of 64 MiB at the end would hold up the journal's.
"""

from __future__ import annotations

import errno
import logging
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leveret.core.files import File
from leveret.msg_store import record
from leveret.msg_store.checksum import extender, seed_of
from leveret.msg_store.collector_scan import TURN, Source
from leveret.msg_store.errors import Corrupt
from leveret.msg_store.file_header import HEADER_BYTES, MOVED, RDQ_MAGIC, FileHeader
from leveret.msg_store.folder import StoreFolder
from leveret.msg_store.record import header_at

log = logging.getLogger(__name__)

PIECE_BYTES: Final = 1024 * 1024
SYNC_BYTES: Final = 4 * 1024 * 1024  # and then it is somebody else's turn
ROOM_BYTES: Final = 16 * 1024 * 1024  # left free on the disk, for those who cannot wait
_DRAFT: Final = ".rdt"


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of one source that touch each other: ``count`` from ``first``, in bytes ``length``."""

    source: Source
    first: int
    count: int
    offset: int
    length: int


@dataclass(slots=True)
class Copy:
    """A segment in the making.

    Attributes:
        file_no: its number, above all others.
        sources: of whom it is made; in the order of their messages once ``copy`` has run.
        boot_epoch: for its header.
        created_ms: likewise.
        size_bytes: its length when it is done; 0 when nothing was left to copy.
        damaged: messages whose bytes were bad already.
    """

    file_no: int
    sources: list[Source]
    boot_epoch: int
    created_ms: int
    size_bytes: int = 0
    damaged: list[int] = field(default_factory=list)


def needs_room(sources: Sequence[Source]) -> int:
    """Return how many bytes must be free to copy these."""
    return sum(source.needed_bytes() for source in sources) + HEADER_BYTES + ROOM_BYTES


def same_kind(sources: Sequence[Source]) -> list[Source]:
    """Return those with the first one's kind of checksum."""
    return [source for source in sources if source.crc_kind == sources[0].crc_kind]


def copy(folder: StoreFolder, wanted: Copy) -> Iterator[str]:
    """Make the new segment; yields the name of each point that has been reached.

    Raises:
        OSError: it could not be made. Nothing refers to what there is of it; ``discard`` it.
    """
    wanted.sources.sort(key=Source.first_needed)
    need = needs_room(wanted.sources)
    if folder.files.free_bytes(folder.rdq) < need:
        raise OSError(errno.ENOSPC, f"the collector needs {need} bytes free", str(folder.rdq))
    kind = wanted.sources[0].crc_kind
    header = FileHeader(RDQ_MAGIC, wanted.file_no, folder.uuid, wanted.created_ms,
        wanted.boot_epoch, kind, flags=MOVED)  # fmt: skip
    path, draft = folder.rdq_path(wanted.file_no), draft_path(folder, wanted.file_no)
    with folder.files.create_copy(draft) as target:
        yield "created"
        target.append([header.encode()])
        wanted.size_bytes = HEADER_BYTES
        yield from _copy_sources(folder, wanted, target)
        target.fsync()
    yield "synced"
    folder.files.rename(draft, path)
    yield "renamed"
    folder.files.fsync_dir(folder.rdq)
    yield "name synced"


def discard(folder: StoreFolder, file_no: int) -> None:
    """Remove what there is of a copy that nothing refers to, finished or not."""
    names = folder.files.names(folder.rdq)
    for path in (draft_path(folder, file_no), folder.rdq_path(file_no)):
        if path.name in names:
            folder.files.unlink(path)


def draft_path(folder: StoreFolder, file_no: int) -> Path:
    """Return where a copy lies before it is whole."""
    return folder.rdq_path(file_no).with_suffix(_DRAFT)


def _copy_sources(folder: StoreFolder, wanted: Copy, target: File) -> Iterator[str]:
    unsynced = 0
    for source in wanted.sources:
        with folder.files.open_read(folder.rdq_path(source.file_no)) as file:
            for piece in pieces(source):
                for start in range(0, piece.length, PIECE_BYTES):  # one, unless a record is larger
                    count = min(PIECE_BYTES, piece.length - start)
                    target.append_from(file, piece.offset + start, count)
                    unsynced += count
                    if unsynced >= SYNC_BYTES:
                        target.fdatasync()
                        unsynced = 0
                        yield TURN
                _check(folder, wanted, target, file, piece)
                wanted.size_bytes += piece.length
                yield "copied"


def pieces(source: Source) -> Iterator[Piece]:
    """Yield what is needed of a source in the order of the file, in pieces to be copied at once."""
    first = count = length = 0
    offset = end = -1
    for at, is_needed in enumerate(source.needed):
        if not is_needed:
            continue
        is_next = source.offsets[at] == end and length + source.lengths[at] <= PIECE_BYTES
        if count and not is_next:
            yield Piece(source, first, count, offset, length)
            count = length = 0
        if not count:
            first, offset = at, source.offsets[at]
        count += 1
        length += source.lengths[at]
        end = source.offsets[at] + source.lengths[at]
    if count:
        yield Piece(source, first, count, offset, length)


def places(wanted: Copy) -> tuple[array[int], array[int]]:
    """Return where each record of the copy begins and how long it is, in the order of the copy."""
    offsets, lengths = array("I"), array("I")
    offset = HEADER_BYTES
    for source in wanted.sources:
        for length, is_needed in zip(source.lengths, source.needed, strict=True):
            if is_needed:
                offsets.append(offset)
                lengths.append(length)
                offset += length
    return offsets, lengths


def _check(folder: StoreFolder, wanted: Copy, target: File, file: File, piece: Piece) -> None:
    """Check a piece that was just copied to the end of the target."""
    source, data = piece.source, b""
    if piece.length <= PIECE_BYTES:
        data = target.pread(piece.length, wanted.size_bytes)
    for at in range(piece.first, piece.first + piece.count):
        length, msg_no = source.lengths[at], source.msg_nos[at]
        start = source.offsets[at] - piece.offset
        part = data[start : start + length]
        if part and _is_good(part, msg_no, length, source.crc_kind, folder):
            continue
        if not part and _is_good_in(target, wanted.size_bytes + start, source, at, folder):
            continue
        if _is_good_in(file, source.offsets[at], source, at, folder):
            raise OSError(errno.EIO, f"message {msg_no:#x} changed on the way", str(target.path))
        _set_aside(folder, file, source, at)
        wanted.damaged.append(msg_no)


def _is_good(data: bytes, msg_no: int, length: int, kind: int, folder: StoreFolder) -> bool:
    try:
        found = header_at(data)
    except Corrupt:
        return False
    crc = extender(kind)(seed_of(folder.uuid), data[4:])
    return found == (msg_no, length) and crc == int.from_bytes(data[:4], "little")


def _is_good_in(file: File, offset: int, source: Source, at: int, folder: StoreFolder) -> bool:
    """Check a record in a file, whatever its length, with little memory."""
    msg_no, length = source.msg_nos[at], source.lengths[at]
    extend, crc = extender(source.crc_kind), seed_of(folder.uuid)
    head = file.pread(record.HEADER_BYTES, offset)
    try:
        if header_at(head) != (msg_no, length):
            return False
    except Corrupt:
        return False
    crc = extend(crc, head[4:])
    for start in range(record.HEADER_BYTES, length, PIECE_BYTES):
        crc = extend(crc, file.pread(min(PIECE_BYTES, length - start), offset + start))
    return crc == int.from_bytes(head[:4], "little")


def _set_aside(folder: StoreFolder, file: File, source: Source, at: int) -> None:
    offset, msg_no = source.offsets[at], source.msg_nos[at]
    name = folder.set_aside(file.path, file.pread(source.lengths[at], offset), offset)
    log.error("damaged message copied as it is msg_no=%#x set_aside=%s", msg_no, name)
