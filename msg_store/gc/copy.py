"""Copying the live messages of some segments into a new one: the collector's second step.

::

    sources  -- needed records, piece by piece -->  %08x.rdt  -- renamed -->  %08x.rdq
                checked in the copy, synced                      the name synced

A piece of few runs of records that touch each other is copied inside the kernel; one of many small runs
is read, joined and written, which is one call for each and not one for every run.

Sources are only read, so readers do not notice. The copy has a number above all, and its header marks it
as a copy. Until a MOVE record is durable no row refers to it, and a crash leaves a file without
owner, which the next start removes: as a draft by its name, as a segment because nothing in it is
needed.

Every record is checked **in the copy**, for then the checksum vouches for the bytes that readers will
get. A record that is wrong is compared with its source:

* The source is good: the copy is wrong, and is given up.
* The source is as bad: the bytes are set aside in the quarantine, and copied as they are, for the
  queue must still find out that this message cannot be read. The collector removes no rows, and a
  segment that had to stay for one bad record would stay for ever.

All records of a file share the kind of checksum that its header names, so sources of another kind are
left out.

The copy is synced every ``SYNC_BYTES``: one sync of 64 MiB at the end would hold up the journal's.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leveret.core.log.loggers import logger
from leveret.core.system.files import File
from leveret.msg_store.format import record
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import (
    HEADER_BYTES,
    MOVED,
    RDQ_MAGIC,
    Extend,
    Identity,
    extender,
    seed_of,
)
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.record import header_at
from leveret.msg_store.gc.scan import TURN, Source
from leveret.msg_store.memtable.memtables import Relocation
from leveret.msg_store.threads.worker import Steps

log = logger(__name__)

PIECE_BYTES: Final = 1024 * 1024
SYNC_BYTES: Final = 4 * 1024 * 1024  # then other jobs of the disk have a turn
ROOM_BYTES: Final = 16 * 1024 * 1024  # left free on the disk, for flushes
KERNEL_RUNS_MAX: Final = 16  # more of them are read and written at once
CRC_BYTES: Final = 4
_DRAFT: Final = ".rdt"


@dataclass(slots=True)
class Piece:
    """Needed records of a source that lie close together; a run is of records that touch each other."""

    source: Source
    records: list[int] = field(default_factory=list)  # indices into the source's columns
    runs: list[tuple[int, int]] = field(default_factory=list)  # offset and length, ascending

    @property
    def offset(self) -> int:
        return self.runs[0][0]

    @property
    def end(self) -> int:
        return sum(self.runs[-1])

    @property
    def length(self) -> int:
        return sum(length for _, length in self.runs)


@dataclass(slots=True)
class Copy:
    """A segment in the making."""

    file_no: int
    sources: list[Source]  # in the order of their messages once ``copy`` has run
    boot_epoch: int
    created_ms: int
    size_bytes: int = 0  # its length when it is done; 0 when nothing was left to copy
    reading: int = 0  # the source in hand
    damaged: list[int] = field(default_factory=list)  # messages whose bytes were bad already


def needs_room(sources: Sequence[Source]) -> int:
    """Return how many bytes must be free to copy these."""
    return sum(source.needed_bytes() for source in sources) + HEADER_BYTES + ROOM_BYTES


def copy(folder: StoreFolder, wanted: Copy) -> Steps[None]:
    """Make the new segment; yields the points that are reached. After an ``OSError``, ``discard`` it."""
    wanted.sources = sorted((each for each in wanted.sources if each.needed_bytes()),
        key=Source.first_needed)  # fmt: skip
    if not wanted.sources:
        return
    need = needs_room(wanted.sources)
    if folder.files.free_bytes(folder.rdq) < need:
        raise OSError(errno.ENOSPC, f"the collector needs {need} bytes free", str(folder.rdq))
    kind = wanted.sources[0].crc_kind
    identity = Identity(folder.uuid, wanted.boot_epoch, kind)
    header = identity.header(RDQ_MAGIC, wanted.file_no, wanted.created_ms, flags=MOVED)
    path, draft = folder.rdq_path(wanted.file_no), draft_path(folder, wanted.file_no)
    with folder.files.create_copy(draft) as target:
        yield "created"
        target.append([header])
        wanted.size_bytes = HEADER_BYTES
        yield from _copy_sources(folder, wanted, target)
        target.fsync()
    yield "synced"
    folder.files.rename(draft, path)
    yield "renamed"
    folder.files.fsync_dir(folder.rdq)
    yield "name synced"


def discard(folder: StoreFolder, file_no: int) -> Steps[None]:
    """Remove a copy that no row refers to, finished or not.

    Files that cannot be removed are left to the next start.
    """
    try:
        names = folder.files.names(folder.rdq)
        for path in (draft_path(folder, file_no), folder.rdq_path(file_no)):
            if path.name in names:
                folder.files.unlink(path)
                yield "discarded"
    except OSError as error:
        log.error("copy not removed segment=%08x error=%s", file_no, error)


def unlink(folder: StoreFolder, file_nos: Sequence[int], gone: list[int]) -> Steps[None]:
    """Remove segments; ``gone`` gets the number of each removed segment.

    The names need not be synced: no row refers to a file that comes back after a power cut, and the
    next start removes it.
    """
    for file_no in file_nos:
        try:
            folder.files.unlink(folder.rdq_path(file_no))
        except FileNotFoundError:
            log.warning("segment was gone already segment=%08x", file_no)
        gone.append(file_no)
        yield "unlinked"


def draft_path(folder: StoreFolder, file_no: int) -> Path:
    """Return where a copy lies before it is whole."""
    return folder.rdq_path(file_no).with_suffix(_DRAFT)


def _copy_sources(folder: StoreFolder, wanted: Copy, target: File) -> Steps[None]:
    unsynced = 0
    for source in wanted.sources:
        wanted.reading = source.file_no
        with folder.files.open_read(folder.rdq_path(source.file_no)) as file:
            for piece in pieces(source):
                for count in _copy_piece(file, piece, target):
                    unsynced += count
                    if unsynced >= SYNC_BYTES:
                        target.fdatasync()
                        unsynced = 0
                        yield TURN
                _check(folder, wanted, target, file, piece)
                wanted.size_bytes += piece.length
                yield "copied"


def _copy_piece(file: File, piece: Piece, target: File) -> Iterator[int]:
    """Append a piece to the target; yields the number of bytes after each write."""
    if len(piece.runs) > KERNEL_RUNS_MAX:
        start = piece.offset
        data = file.pread(piece.end - start, start)
        if len(data) < piece.end - start:
            raise EOFError(f"{file.path} ends {piece.end - start - len(data)} bytes too early")
        target.append([b"".join([data[at - start : at - start + n] for at, n in piece.runs])])
        yield piece.length
        return
    for offset, length in piece.runs:
        for begin in range(0, length, PIECE_BYTES):  # one, unless a record is larger
            count = min(PIECE_BYTES, length - begin)
            target.append_from(file, offset + begin, count)
            yield count


def pieces(source: Source) -> Iterator[Piece]:
    """Yield the needed records of a source in the order of the file."""
    piece = Piece(source)
    end = -1
    for at, is_needed in enumerate(source.needed):
        if not is_needed:
            continue
        offset, length = source.offsets[at], source.lengths[at]
        if piece.records and offset + length - piece.offset > PIECE_BYTES:
            yield piece
            piece, end = Piece(source), -1
        piece.records.append(at)
        if offset == end:
            run_offset, run_length = piece.runs[-1]
            piece.runs[-1] = (run_offset, run_length + length)
        else:
            piece.runs.append((offset, length))
        end = offset + length
    if piece.records:
        yield piece


def relocations(made: Copy) -> Iterator[Relocation]:
    """Yield where each message of the copy lay and lies, in the order of the copy."""
    offset = HEADER_BYTES
    for source in made.sources:
        columns = zip(source.msg_nos, source.lengths, source.needed, strict=True)
        for msg_no, length, is_needed in columns:
            if is_needed:
                yield Relocation(msg_no, source.file_no, made.file_no, offset, length)
                offset += length


def _check(folder: StoreFolder, wanted: Copy, target: File, file: File, piece: Piece) -> None:
    """Check a piece that was just copied to the end of the target."""
    source, start, data = piece.source, wanted.size_bytes, b""
    seed, extend = seed_of(folder.uuid), extender(source.crc_kind)
    if piece.length <= PIECE_BYTES:
        data = target.pread(piece.length, start)
    offset = 0
    for at in piece.records:
        msg_no, length = source.msg_nos[at], source.lengths[at]
        is_good = (
            _is_good(data, offset, msg_no, length, extend, seed)
            if data
            else _is_good_in(target, start + offset, msg_no, length, extend, seed)
        )
        if not is_good:
            if _is_good_in(file, source.offsets[at], msg_no, length, extend, seed):
                why = f"message {msg_no:#x} changed on the way"
                raise OSError(errno.EIO, why, str(target.path))
            _set_aside(folder, file, source, at)
            wanted.damaged.append(msg_no)
        offset += length


def _is_good(data: bytes, offset: int, msg_no: int, length: int, extend: Extend, seed: int) -> bool:
    try:
        if header_at(data, offset) != (msg_no, length):
            return False
    except Corrupt:
        return False
    body_at = offset + CRC_BYTES
    crc = int.from_bytes(data[offset:body_at], "little")
    return extend(seed, data[body_at : offset + length]) == crc


def _is_good_in(
    file: File, offset: int, msg_no: int, length: int, extend: Extend, seed: int
) -> bool:
    """Check a record in a file, whatever its length, with little memory."""
    head = file.pread(record.HEADER_BYTES, offset)
    try:
        if header_at(head) != (msg_no, length):
            return False
    except Corrupt:
        return False
    crc = extend(seed, head[CRC_BYTES:])
    for begin in range(record.HEADER_BYTES, length, PIECE_BYTES):
        crc = extend(crc, file.pread(min(PIECE_BYTES, length - begin), offset + begin))
    return crc == int.from_bytes(head[:CRC_BYTES], "little")


def _set_aside(folder: StoreFolder, file: File, source: Source, at: int) -> None:
    offset, msg_no = source.offsets[at], source.msg_nos[at]
    name = folder.set_aside(file.path, file.pread(source.lengths[at], offset), offset)
    log.error("damaged message copied as it is msg_no=%#x set_aside=%s", msg_no, name)
