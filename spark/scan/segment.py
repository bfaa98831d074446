"""Segments of a snapshot, mapped into memory; the layout of records is ``leveret.msg_store.format.record``'s.

Headers of many records are gathered and compared at once. A header that has another magic, number or length than the
locator says is *broken*: the record cannot be read.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import (
    HEADER_BYTES as FILE_HEADER_BYTES,
)
from leveret.msg_store.format.file_header import (
    RDQ_MAGIC,
    FileHeader,
    decode_header,
    seed_of,
)
from leveret.msg_store.format.kernel import checksums
from leveret.msg_store.format.record import HEADER_BYTES, MAGIC, next_magic, total_len_at
from leveret.spark.scan.gather import Numbers, contents, gather

HEADER: Final = np.dtype(
    [
        ("crc", "<u4"),
        ("total_len", "<u4"),
        ("msg_no", "<u8"),
        ("ts_ms", "<u8"),
        ("meta_len", "<u4"),
        ("body_len", "<u4"),
        ("flags", "<u2"),
        ("magic", "<u2"),
    ]
)
_CRC_BYTES: Final = 4


class Segment:
    """A segment file, open for reading.

    Args:
        path: its file.
        uuid: the store's 16 bytes.

    Raises:
        FileNotFoundError: it is missing.
        Corrupt: its header is damaged, or it is another store's.
    """

    def __init__(self, path: Path, uuid: bytes) -> None:
        with path.open("rb") as file:
            first = file.read(FILE_HEADER_BYTES)
            self.header: FileHeader = decode_header(first, RDQ_MAGIC, uuid)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.size_bytes = len(self._map)
        self.buffer = pa.py_buffer(self._map)
        self._seed = seed_of(uuid)

    def headers(self, offsets: Numbers) -> Any:
        """Return the record headers at ascending offsets, as a structured array; zeros where the file ends before."""
        found = np.zeros(len(offsets), HEADER)
        inside = offsets.astype(np.int64) + HEADER_BYTES <= self.size_bytes
        starts = offsets[inside].astype(np.int64)
        if len(starts):
            lengths = np.full(len(starts), HEADER_BYTES)
            found[inside] = contents(gather(self.buffer, starts, lengths)).view(HEADER)
        return found

    def sound(self, headers: Any, offsets: Numbers, lengths: Numbers, msg_nos: Numbers) -> Numbers:
        """Return for each header whether it is that of this message, and its record inside the file."""
        parts = headers["meta_len"].astype(np.int64) + headers["body_len"] + HEADER_BYTES
        is_sound: Numbers = (
            (headers["magic"] == MAGIC)
            & (headers["total_len"] == lengths)
            & (parts == lengths)
            & (headers["msg_no"] == msg_nos)
            & (offsets.astype(np.int64) + lengths <= self.size_bytes)
        )
        return is_sound

    def checked(self, headers: Any, offsets: Numbers) -> Numbers:
        """Return for each sound record whether its checksum is right."""
        begins = offsets.astype(np.int64) + _CRC_BYTES
        ends = offsets.astype(np.int64) + headers["total_len"]
        found = checksums(self._map, self.header.crc_kind, self._seed, begins, ends)
        is_right: Numbers = np.frombuffer(found, np.uint32) == headers["crc"]
        return is_right

    def walk(self, size_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield offset and length of every record in the file's first bytes, needed or not; damage is passed over."""
        offset, end = FILE_HEADER_BYTES, min(size_bytes, self.size_bytes)
        while offset < end:
            try:
                length = total_len_at(self.bytes_at(offset, HEADER_BYTES))
            except Corrupt:
                offset = self.next_magic(offset)
                continue
            if offset + length > end:
                offset = self.next_magic(offset)
                continue
            yield offset, length
            offset += length

    def bytes_at(self, offset: int, count: int) -> bytes:
        """Return bytes of the file; fewer at its end."""
        return self._map[offset : offset + count]

    def next_magic(self, offset: int) -> int:
        """Return where behind an offset a record may begin; the file's length if nowhere."""
        while offset < self.size_bytes:
            window = self._map[offset : offset + (1 << 20)]
            at = next_magic(window, 0)
            if at > 0:
                return offset + at
            offset += max(1, len(window) - HEADER_BYTES)
        return self.size_bytes

    def close(self) -> None:
        """Drop the map; arrays that still refer to it keep it alive."""
        del self.buffer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
