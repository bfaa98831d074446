"""The end mark: how far the log was durable, in a file beside the journal, so that a journal cut short is noticed.

::

    twice, at 0 and at 512: header (``file_header``)
    lsn:u64 segment:u32 offset:u32 flags:u32 crc:u32                          little endian, 88 bytes in all

Where a journal ends, only the journal says: a file that was cut at the border of two frames, or is not there any more,
looks like one to which nothing was added. The mark says that all records below ``lsn`` were durable, and all bytes of
segments below ``segment``, ``offset``: a ``DurablePosition``.

It is only a lower bound. A start writes it anew, synced. Afterwards it is written in place a moment behind a flush, and
never synced (``end_marks``): so no flush waits for it, a kill leaves it at most that moment old, and a loss of
power perhaps older. It never says more than the disk had. The two halves take turns, so that a write that was cut off
leaves the other.

The flags say which files are there that a store may also do without: delivery counts, and ``archive.json``.

One thread at a time.
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
    """What a mark says."""

    boot_epoch: int  # of the start that wrote it
    durable: DurablePosition
    flags: int

    def missing(self, names: Collection[str]) -> list[str]:
        """Return the files that were there, and are not among those of the store's folder."""
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
        """Write a new file, synced, in place of the old one; files that are ``missed`` still are until ``forget``."""
        self._missed.update(missed)
        half = self._encoded(durable).ljust(SLOT_BYTES, b"\0")
        self._files.write_new(self._path, half + half)

    def write(self, durable: DurablePosition) -> None:
        """Write it in place, without a sync. One that was removed stays away: the next start says so."""
        self._put(self._encoded(durable))

    def forget(self, name: str) -> None:
        """Note, before a file is removed, that it is not missed."""
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
    """Return the mark of a store; None if it has none.

    Raises:
        Corrupt: neither half can be read, or it is another store's (``ForeignFile``).
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
