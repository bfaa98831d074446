"""All records of a segment in columns, with their checksums compared: for readers that need every record of a store.

The walk follows the lengths in the headers. Where no header is, or a record with a wrong checksum is not followed by
one, the walk looks for the next header, as ``verify.Segment.records`` does; blocks that the disk refuses to read are
passed over. A segment is read in windows, and the kernel compares the checksums of a window at once: no object per
record.
"""

from __future__ import annotations

from array import array
from operator import eq
from typing import Final

from leveret.msg_store.format.file_header import HEADER_BYTES as FILE_HEADER_BYTES
from leveret.msg_store.format.record import FLAGS, HEADER, HEADER_BYTES, MAGIC, next_magic
from leveret.msg_store.reading.verify import Segment

WINDOW_BYTES: Final = 1 << 22
BLOCK_BYTES: Final = 4_096  # the least that a disk refuses to read
_CRC_BYTES: Final = 4


class RecordTable:
    """Records in the order of their file, in parallel columns.

    Attributes:
        good: for each record 1 if its checksum is right, else 0; the other columns of a bad record may be wrong.
    """

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.lengths = array("I")
        self.msg_nos = array("Q")
        self.body_sizes = array("I")
        self.good = bytearray()

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def good_bytes(self) -> int:
        """The bytes of all good records."""
        return sum(
            length for length, is_good in zip(self.lengths, self.good, strict=True) if is_good
        )


def read_table(segment: Segment) -> RecordTable:
    """Read all records of a segment that can be read."""
    table, offset = RecordTable(), FILE_HEADER_BYTES
    while offset < segment.size_bytes:
        offset = _read_window(segment, offset, table)
    return table


def _read_window(segment: Segment, start: int, table: RecordTable) -> int:
    """Add the records from ``start`` on that end inside one window; return where to go on."""
    data, end = _readable(segment, start, WINDOW_BYTES), segment.size_bytes
    first, at, is_cut = len(table), 0, False
    crcs, begins, ends = array("I"), array("q"), array("q")
    unpack = HEADER.unpack_from
    while at + HEADER_BYTES <= len(data):
        crc, total_len, msg_no, _, meta_len, body_len, flags, magic = unpack(data, at)
        is_header = magic == MAGIC and total_len == HEADER_BYTES + meta_len + body_len
        if not is_header or flags & ~FLAGS or start + at + total_len > end:
            break
        if at + total_len > len(data):
            if at:
                is_cut = True  # the next window begins with it
                break
            data = _readable(segment, start, total_len)
            if len(data) < total_len:
                break
        crcs.append(crc)
        begins.append(at + _CRC_BYTES)
        ends.append(at + total_len)
        table.offsets.append(start + at)
        table.lengths.append(total_len)
        table.msg_nos.append(msg_no)
        table.body_sizes.append(body_len)
        at += total_len
    else:
        is_cut = bool(at) and start + len(data) < end
    table.good += _compared(segment, data, crcs, begins, ends)
    is_last_bad = len(table) > first and not table.good[-1]
    if is_cut and (not is_last_bad or _is_header(segment, start + at)):
        return start + at
    return _next_header(segment, table.offsets[-1] if is_last_bad else start + at)


def _readable(segment: Segment, start: int, count: int) -> bytes:
    """Return the bytes from ``start`` up to the first block that cannot be read."""
    try:
        return segment.bytes_at(start, count)
    except OSError:
        pass  # block by block, then
    parts, end = [], start + count
    while start < end:
        stop = min(end, start // BLOCK_BYTES * BLOCK_BYTES + BLOCK_BYTES)
        try:
            parts.append(segment.bytes_at(start, stop - start))
        except OSError:
            break
        start = stop
    return b"".join(parts)


def _is_header(segment: Segment, offset: int) -> bool:
    try:
        return segment.length_at(offset) > 0
    except OSError:
        return False


def _next_header(segment: Segment, offset: int) -> int:
    """Return where behind ``offset`` a record may begin; the end of the file if nowhere."""
    before = 0
    while offset < segment.size_bytes:
        count = min(WINDOW_BYTES, segment.size_bytes - offset)
        data = _readable(segment, offset, count)
        at = next_magic(data, before)
        if at >= 0:
            return offset + at
        before = -1  # from now on also at ``offset`` itself
        if len(data) == count:
            offset += max(1, count - HEADER_BYTES)
        else:
            offset = (offset + len(data)) // BLOCK_BYTES * BLOCK_BYTES + BLOCK_BYTES
    return segment.size_bytes


def _compared(
    segment: Segment, data: bytes, crcs: array[int], begins: array[int], ends: array[int]
) -> bytearray:
    good = bytearray(len(crcs))
    for found in segment.checksums(data, begins, ends):
        for at, is_right in enumerate(map(eq, found, crcs)):
            if is_right:
                good[at] = 1
    return good
