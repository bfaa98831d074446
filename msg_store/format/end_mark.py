"""The end mark: a file beside the journal with the end of the durable log, so that a start notices a cut journal.

::

    twice, at 0 and at 512: header (``file_header``)
    lsn:u64 segment:u32 offset:u32 flags:u32 crc:u32                          little endian, 88 bytes in all

The journal itself does not show that its end is missing: a file that was cut between two frames, or deleted, looks like
a journal without later records. The mark says that all records below ``lsn`` were durable, and all bytes of segments
below ``segment``, ``offset``: a ``DurablePosition``.

The mark is a lower bound. A start writes a new file and syncs it. Afterwards the mark is written in place shortly after
a flush, without a sync (``end_marks``), so no flush waits for it. After a kill it is a fraction of a second old, after
a loss of power perhaps more; it never claims more than was durable. Writes alternate between the two halves, so one
half survives a torn write.

The flags name the optional files that the store has: delivery counts, and ``archive.json``.

Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import (
    HEADER_BYTES,
    Identity,
    decode_header,
    extender,
    seed_of,
)
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.journal_frames import DurablePosition

NAME: Final = "end"
MAGIC: Final = b"LVEND\r\n\0"
SLOT_BYTES: Final = 512  # a sector: a loss of power does not tear it
FLAGS: Final = {"delivery_counts": 1, "archive.json": 2}

_FIELDS: Final = Struct("<QIII")
_CRC: Final = Struct("<I")
_BYTES: Final = HEADER_BYTES + _FIELDS.size + _CRC.size


class EndMark(NamedTuple):
    """The contents of a mark."""

    boot_epoch: int  # of the start that wrote it
    durable: DurablePosition
    flags: int

    def missing(self, names: Collection[str]) -> list[str]:
        """Return the optional files that the store had and that are not among these names."""
        return [name for name, flag in FLAGS.items() if self.flags & flag and name not in names]


class EndMarkFile:
    """The writer of an open store's mark. ``begin`` first."""

    def __init__(self, folder: StorePaths, identity: Identity, now_ms: int) -> None:
        self._files = folder.files
        self._path = folder.path / NAME
        self._header = identity.header(MAGIC, 0, now_ms)
        self._extend, self._seed = identity.extend, identity.seed
        self._turn = 0
        self._durable = DurablePosition(0, 0, 0)
        self._missed: set[str] = set()

    def begin(self, durable: DurablePosition, missed: Iterable[str] = ()) -> None:
        """Write a new file and sync it. Files that are ``missed`` stay named in the mark until ``forget``."""
        self._missed.update(missed)
        half = self._encoded(durable).ljust(SLOT_BYTES, b"\0")
        self._files.write_new(self._path, half + half)

    def write(self, durable: DurablePosition) -> None:
        """Write the mark in place, without a sync. A removed file is not made again: the next start reports it."""
        self._put(self._encoded(durable))

    def forget(self, name: str) -> None:
        """Take a file out of the flags, before the store removes it."""
        self._missed.discard(name)
        self._put(self._encoded(self._durable, name))

    def _put(self, data: bytes) -> None:
        self._turn ^= SLOT_BYTES
        with suppress(FileNotFoundError), self._files.open_write(self._path) as file:
            file.write_at(data, self._turn)

    def _encoded(self, durable: DurablePosition, without: str = "") -> bytes:
        self._durable = durable
        there = self._missed.union(self._files.names(self._path.parent)) - {without}
        flags = sum(flag for name, flag in FLAGS.items() if name in there)
        data = self._header + _FIELDS.pack(*durable, flags)
        return data + _CRC.pack(self._extend(self._seed, data))


def read_mark(folder: StorePaths) -> EndMark | None:
    """Return the mark of a store; None if the store has no mark.

    Raises:
        Corrupt: neither half can be read, or the mark is another store's (``ForeignFile``).
    """
    if NAME not in folder.files.names(folder.path):
        return None
    data = folder.files.read(folder.path / NAME)
    found: list[EndMark] = []
    error: Corrupt | None = None
    for at in (0, SLOT_BYTES):
        try:
            found.append(_decoded(data[at : at + _BYTES], folder.uuid))
        except Corrupt as caught:
            error = error or caught
    if not found:
        raise error or Corrupt("it is empty")
    return max(found, key=lambda each: each.durable)


def _decoded(data: bytes, uuid: bytes) -> EndMark:
    header = decode_header(data, MAGIC, uuid)
    if len(data) < _BYTES:
        raise Corrupt(f"a mark of {len(data)} bytes, {_BYTES} expected")
    end = _BYTES - _CRC.size
    if extender(header.crc_kind)(seed_of(uuid), data[:end]) != _CRC.unpack_from(data, end)[0]:
        raise Corrupt("checksum of the mark is wrong")
    *durable, flags = _FIELDS.unpack_from(data, HEADER_BYTES)
    return EndMark(header.boot_epoch, DurablePosition(*durable), flags)
