"""The first 64 bytes of every segment (.rdq) and journal file.

::

    magic:8s version:u16 flags:u16 number:u32 uuid:16s created_ms:u64
    boot_epoch:u32 crc_kind:u8 reserved:3x first_lsn:u64 reserved:4x crc32:u32       little endian

``crc32`` is zlib's over the 60 bytes before it, since the kind of all others is only known from here.
``boot_epoch`` is the start of the broker that made the file; its messages have numbers
``boot_epoch << 40 | counter``. ``first_lsn`` is 0 in a segment. Flag 1: written by the collector.

**Checksums.** The header names the kind (``docs/decisions/0008-crc32c.md``), so that a file is read with
the checksum it was written with, on any machine. CRC-32C is preferred, computed by the processor through
google-crc32c's C extension; where that is missing, zlib's CRC-32 is the fastest there is.

Every checksum starts from a **seed** made of the store's uuid. A client chooses the bytes of a
body and may send a perfect record; without the uuid it cannot send its checksum. So neither a body found by a
search through a damaged file nor a record of another store is taken for a record of this one.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from leveret.msg_store.format.errors import Corrupt, ForeignFile

with warnings.catch_warnings():
    # Without its C part the module warns that it is slow; then it is used to read only.
    warnings.simplefilter("ignore", RuntimeWarning)
    import google_crc32c

HEADER_BYTES: Final = 64
VERSION: Final = 1
RDQ_MAGIC: Final = b"LVRDQ\r\n\0"
JOURNAL_MAGIC: Final = b"LVJNL\r\n\0"
MOVED: Final = 1  # flag of a segment: made by the collector
REBUILT: Final = 1  # flag of a journal: the index was rebuilt before it was begun

EPOCH_SHIFT: Final = 40
EPOCH_MAX: Final = (1 << 24) - 1

_LAYOUT: Final = struct.Struct("<8sHHI16sQIB3xQ4x")
_CRC: Final = struct.Struct("<I")
_FLAGS: Final = MOVED

Extend: TypeAlias = Callable[[int, bytes], int]

CRC32: Final = 1
CRC32C: Final = 2


def _crc32(crc: int, data: bytes) -> int:
    return zlib.crc32(data, crc)


EXTENDERS: Final[dict[int, Extend]] = {CRC32C: google_crc32c.extend, CRC32: _crc32}

PREFERRED: Final = CRC32C if google_crc32c.implementation == "c" else CRC32


def extender(kind: int) -> Extend:
    """Return the function ``(checksum so far, bytes) -> checksum`` of a kind; ``Corrupt`` if there is none."""
    try:
        return EXTENDERS[kind]
    except KeyError:
        raise Corrupt(f"checksum kind {kind} is unknown") from None


def seed_of(uuid: bytes) -> int:
    """Return where the checksums of a store start."""
    return zlib.crc32(uuid)


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The fields of a header."""

    magic: bytes
    number: int
    uuid: bytes
    created_ms: int
    boot_epoch: int
    crc_kind: int
    first_lsn: int = 0
    flags: int = 0


def decode_header(data: bytes, magic: bytes, store_uuid: bytes | None = None) -> FileHeader:
    """Read a file's first bytes; the file of any store will do without ``store_uuid``.

    Raises:
        Corrupt: too short, damaged, another kind of file, or written by a newer version.
        ForeignFile: it is a file of another store.
    """
    if len(data) < HEADER_BYTES:
        raise Corrupt(f"file header of {len(data)} bytes, {HEADER_BYTES} expected")
    if zlib.crc32(data[: _LAYOUT.size]) != _CRC.unpack_from(data, _LAYOUT.size)[0]:
        raise Corrupt("checksum of the file header is wrong")
    found, version, flags, number, uuid, created_ms, epoch, crc_kind, first_lsn = (
        _LAYOUT.unpack_from(data)
    )
    if found != magic:
        raise Corrupt(f"file header begins with {found!r}, not {magic!r}")
    if version != VERSION or flags & ~_FLAGS:
        raise Corrupt(f"file has version {version} and flags {flags:#x}, known are {VERSION}, 1")
    extender(crc_kind)
    if epoch > EPOCH_MAX:
        raise Corrupt(f"file of boot epoch {epoch}, at most {EPOCH_MAX}")
    if store_uuid not in (None, uuid):
        kind = {RDQ_MAGIC: "segment", JOURNAL_MAGIC: "journal"}.get(magic, "file")
        raise ForeignFile(f"{kind} of another store, {uuid.hex()}")
    return FileHeader(found, number, uuid, created_ms, epoch, crc_kind, first_lsn, flags)


def uuid_of(data: bytes) -> bytes | None:
    """Return the UUID of the store from the first bytes of a segment or journal; None if they are damaged."""
    for magic in (JOURNAL_MAGIC, RDQ_MAGIC):
        try:
            return decode_header(data, magic).uuid
        except Corrupt:
            continue
    return None


@dataclass(frozen=True, slots=True)
class Identity:
    """The store's uuid, the start of the broker, and the kind of checksums it writes."""

    uuid: bytes
    boot_epoch: int
    crc_kind: int = PREFERRED

    @property
    def extend(self) -> Extend:
        return extender(self.crc_kind)

    @property
    def seed(self) -> int:
        return seed_of(self.uuid)

    @property
    def first_no(self) -> int:
        """The lowest number of messages, and of seqs after a crash, of this run."""
        return self.boot_epoch << EPOCH_SHIFT

    def header(
        self, magic: bytes, number: int, now_ms: int, first_lsn: int = 0, flags: int = 0
    ) -> bytes:
        """Return the header of a new file."""
        made = self.uuid, now_ms, self.boot_epoch, self.crc_kind
        fields = _LAYOUT.pack(magic, VERSION, flags, number, *made, first_lsn)
        return fields + _CRC.pack(zlib.crc32(fields))
