"""Segments of paged-out transients: rows of a fixed width, and the contents behind them.

::

    header                  as of all segments (file_header.py)
    16,384 rows             seq:u64 msg_no:u64 size:u32 expiry_ms:u64 flags:u8 queue_no:u64
                            offset:u32 length:u32                                      little endian
    records                 the contents, in the layout of all segments (record.py)

A message's *position*, 32 bits, says which row of which file it has: ``file_no << 14 | row``. The queue keeps the
positions of its live messages (``paged_queue``), and nothing else says that they are live: an ack changes nothing
in the file. Rows are taken one after the other by all queues. Those that were never written are a
hole in the file, which takes no room.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from leveret.msg_store.format.file_header import HEADER_BYTES

Row: TypeAlias = tuple[int, ...]  # seq, msg_no, size, expiry_ms, flags
Fields: TypeAlias = tuple[int, ...]  # of a row in the file

ROW_BITS: Final = 14
ROWS: Final = 1 << ROW_BITS
FILE_NO_MAX: Final = (1 << 32 - ROW_BITS) - 1
FIELDS: Final = struct.Struct("<QQIQBQII")
ROW_BYTES: Final = FIELDS.size
ROW: Final = slice(5)  # the fields that are the queue's row
ROW_SIZE: Final = 2
QUEUE_NO: Final = 5
PLACE: Final = slice(6, 8)  # where the content lies
ROWS_AT: Final = HEADER_BYTES
RECORDS_AT: Final = ROWS_AT + ROWS * ROW_BYTES
OVERHEAD_BYTES: Final = 110  # of a message, beside its body: its row, header and meta
TRANSIENT: Final = 0  # the flags


class Segment:
    """What RAM holds of a segment.

    Attributes:
        end: where the next record goes.
        rows: how many have been written.
        live: how many of their messages are live.
        live_bytes: how long these are, roughly.
        scanned: how many of its rows have been scanned to write it anew.
    """

    __slots__ = ("end", "file_no", "live", "live_bytes", "rows", "scanned")

    def __init__(self, file_no: int) -> None:
        self.file_no = file_no
        self.end = RECORDS_AT
        self.rows = self.live = self.live_bytes = self.scanned = 0

    @property
    def size_bytes(self) -> int:
        """How much room it takes on the disk, but for the file system's blocks."""
        return HEADER_BYTES + self.rows * ROW_BYTES + self.end - RECORDS_AT

    @property
    def position(self) -> int:
        """The position of the next row."""
        return self.file_no << ROW_BITS | self.rows
