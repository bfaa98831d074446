"""The file of delivery counts: how often messages came back to queues with a delivery limit, and to quorum queues.

::

    header (``file_header``)
    crc:u32 queue_no:u32 seq:u64 count:u32            little endian, 20 bytes each

A record says the count of a message from then on, 0 that it has none any more; with ``ALL`` as its seq and count 0 that
no message of the queue has any. The last record holds. ``crc`` covers the 16 bytes behind it, seeded by the store.

Counts are not synced: a loss of power may lose the last ones, and then a message is delivered a few times more than its
limit says. A kill loses what had not been written for a moment. Reading ends at the first record that is not whole;
what follows is given up. The file is rewritten when most of it is outdated, and after every error.

One thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, TypeAlias

from leveret.core.log.loggers import logger
from leveret.core.system.files import File
from leveret.msg_store.format.errors import Corrupt, ForeignFile
from leveret.msg_store.format.file_header import (
    HEADER_BYTES,
    Extend,
    Identity,
    decode_header,
    extender,
    seed_of,
)
from leveret.msg_store.format.folder import StoreFolder, StorePaths

log = logger(__name__)

NAME: Final = "delivery_counts"
MAGIC: Final = b"LVCNT\r\n\0"
ALL: Final = (1 << 64) - 1
REWRITE_BYTES: Final = 1 << 20  # a smaller file may be outdated

Count: TypeAlias = tuple[int, int, int]  # queue_no, seq, count
Counts: TypeAlias = dict[int, dict[int, int]]  # by queue_no, by seq

_RECORD: Final = Struct("<IQI")
_CRC: Final = Struct("<I")
_BYTES: Final = _CRC.size + _RECORD.size


def fault_of(folder: StorePaths) -> str:
    """Return the damage of a store's file; "" if it has none, or is only cut off, as by a crash."""
    if NAME not in folder.files.names(folder.path):
        return ""
    data = folder.files.read(folder.path / NAME)
    try:
        header = decode_header(data, MAGIC, folder.uuid)
    except Corrupt as error:
        return f"{NAME}: {error}"
    extend, seed = extender(header.crc_kind), seed_of(header.uuid)
    bad_at = 0
    for at in range(HEADER_BYTES, len(data) - _BYTES + 1, _BYTES):
        fields = data[at + _CRC.size : at + _BYTES]
        if extend(seed, fields) != _CRC.unpack_from(data, at)[0]:
            bad_at = bad_at or at
        elif bad_at:
            return f"{NAME} is damaged from byte {bad_at} on: those counts begin at 0 again"
    return ""


class CountFile:
    """The counts of a store, and their file; it is made with the first count."""

    def __init__(self, folder: StoreFolder, identity: Identity, now_ms: Callable[[], int]) -> None:
        self._folder = folder
        self._identity = identity
        self._now_ms = now_ms
        self._path = folder.path / NAME
        self._counts: Counts = {}
        self._file: File | None = None  # open to append; None: to be rewritten, or none yet
        self._size_bytes = 0

    def read(self) -> Counts:
        """Return the counts; of a damaged file the counts before the damage. The next change rewrites the file."""
        try:
            self._read()
        except (Corrupt, ForeignFile, OSError) as error:
            log.warning("delivery counts not read file=%s error=%s", self._path, error)
        return {queue_no: dict(counts) for queue_no, counts in self._counts.items()}

    def _read(self) -> None:
        files = self._folder.files
        if NAME not in files.names(self._folder.path):
            return
        data = files.read(self._path)
        header = decode_header(data, MAGIC, self._folder.uuid)
        end = self._apply_all(data, extender(header.crc_kind), seed_of(header.uuid))
        if end == len(data) and header.crc_kind == self._identity.crc_kind:
            self._file, self._size_bytes = files.open_append(self._path), end

    def _apply_all(self, data: bytes, extend: Extend, seed: int) -> int:
        """Apply all records that are whole; return where they end."""
        at = HEADER_BYTES
        while at + _BYTES <= len(data):
            fields = data[at + _CRC.size : at + _BYTES]
            if extend(seed, fields) != _CRC.unpack_from(data, at)[0]:
                break
            self._apply(*_RECORD.unpack(fields))
            at += _BYTES
        return at

    def _apply(self, queue_no: int, seq: int, count: int) -> None:
        if count:
            self._counts.setdefault(queue_no, {})[seq] = count
        elif seq == ALL:
            self._counts.pop(queue_no, None)
        elif (counts := self._counts.get(queue_no)) is not None:
            counts.pop(seq, None)
            if not counts:
                del self._counts[queue_no]

    def write(self, changes: list[Count]) -> None:
        """Note changes; after an OSError the next call writes all of them."""
        for change in changes:
            self._apply(*change)
        live_bytes = sum(map(len, self._counts.values())) * _BYTES
        self._size_bytes += len(changes) * _BYTES
        is_outdated = self._size_bytes > REWRITE_BYTES and self._size_bytes > 4 * live_bytes
        file, self._file = self._file, None  # until it is written
        if file is None or is_outdated:
            if file is not None:
                file.close()
            file = self._rewrite()
        else:
            try:
                file.append([b"".join(self._encoded(changes))])
            except OSError:
                file.close()
                raise
        self._file = file

    def _rewrite(self) -> File:
        """Write the counts there are into a new file in the place of the old one."""
        header = self._identity.header(MAGIC, 0, self._now_ms())
        counts = (
            (queue_no, seq, count)
            for queue_no, counts in self._counts.items()
            for seq, count in counts.items()
        )
        data = header + b"".join(self._encoded(counts))
        self._folder.files.write_new(self._path, data)
        self._size_bytes = len(data)
        return self._folder.files.open_append(self._path)

    def _encoded(self, counts: Iterable[Count]) -> Iterable[bytes]:
        extend, seed = self._identity.extend, self._identity.seed
        for count in counts:
            fields = _RECORD.pack(*count)
            yield _CRC.pack(extend(seed, fields)) + fields

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
