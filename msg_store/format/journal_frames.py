"""Journal frames: what one group commit adds to the journal, as one piece that is whole or not there.

::

    magic:4s payload_len:u32 n_records:u32 first_lsn:u64 prev_crc:u32
    durable_lsn:u64 durable_file:u32 durable_offset:u32 crc:u32    payload         little endian

* ``crc`` covers the header before it and the payload.
* ``prev_crc`` is the crc of the frame before, or of the file's header: a frame that stands behind
  another by accident (a region reused, writes out of order) does not chain and is not taken for
  the next one.
* ``first_lsn`` is the number of its first record; the next frame goes on at first_lsn + n_records.
* ``durable_*`` is the **durable position** when the frame was made: all records below that LSN, and all bytes of
  segments below that place, had been synced (inline bytes in their frames). Records below a durable position must
  be there; only those above the last one may be missing after a crash, and they were not confirmed.

``n_records`` may be 0: such a frame only moves the durable position.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import Extend

MAGIC: Final = b"LVJ1"
PAYLOAD_BYTES_MAX: Final = 1 << 26

_FIELDS: Final = struct.Struct("<4sIIQIQII")
_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _FIELDS.size + _CRC.size


class DurablePosition(NamedTuple):
    """How far the log was durable: LSNs below, files before, and bytes below in ``file_no``."""

    lsn: int
    file_no: int
    offset: int

    def covers(self, file_no: int, end: int) -> bool:
        """Tell whether a place in the segments that ends at ``end`` had been synced."""
        return (file_no, end) <= (self.file_no, self.offset)


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as read; ``end`` is the offset behind it."""

    first_lsn: int
    n_records: int
    prev_crc: int
    crc: int
    durable: DurablePosition
    payload: bytes
    end: int

    @property
    def next_lsn(self) -> int:
        return self.first_lsn + self.n_records


def encode_frame(
    records: list[bytes],
    first_lsn: int,
    prev_crc: int,
    durable: DurablePosition,
    extend: Extend,
    seed: int,
) -> tuple[bytes, int]:
    """Return the frame's bytes and its crc."""
    payload = b"".join(records)
    fields = _FIELDS.pack(MAGIC, len(payload), len(records), first_lsn, prev_crc, *durable)
    crc = extend(extend(seed, fields), payload)
    return b"".join((fields, _CRC.pack(crc), payload)), crc


def decode_frame(data: bytes, extend: Extend, seed: int, offset: int = 0) -> Frame:
    """Read the frame at ``offset``; ``Corrupt`` if it is torn or its checksum wrong. The caller checks the chain."""
    if offset < 0 or len(data) - offset < HEADER_BYTES:
        raise Corrupt("the journal ends inside a frame header")
    magic, length, n_records, first_lsn, prev_crc, *durable = _FIELDS.unpack_from(data, offset)
    if magic != MAGIC:
        raise Corrupt(f"magic of a frame is {magic!r}, not {MAGIC!r}")
    start = offset + HEADER_BYTES
    end = start + length
    if length > PAYLOAD_BYTES_MAX or end > len(data):
        raise Corrupt(f"the journal ends inside a frame of {length} bytes")
    (crc,) = _CRC.unpack_from(data, offset + _FIELDS.size)
    payload = data[start:end]
    if extend(extend(seed, data[offset : offset + _FIELDS.size]), payload) != crc:
        raise Corrupt(f"checksum of the frame at LSN {first_lsn} is wrong")
    return Frame(first_lsn, n_records, prev_crc, crc, DurablePosition(*durable), payload, end)


def next_frame(data: bytes, extend: Extend, seed: int, offset: int) -> tuple[int, Frame] | None:
    """Return place and contents of the first good frame behind ``offset``."""
    at = data.find(MAGIC, offset + 1)
    while at >= 0:
        try:
            return at, decode_frame(data, extend, seed, at)
        except Corrupt:
            at = data.find(MAGIC, at + 1)
    return None
