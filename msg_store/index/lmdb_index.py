"""The index in LMDB: rows of queues and locations of messages as of the last checkpoint.

::

    table   key, big endian            value, little endian
    qidx    queue_no:u32 seq:u64       msg_no:u64 body_size:u32 expiry_ms:u64 flags:u8
    loc     msg_no:u64                 file:u32 offset:u32 total_len:u32 body_size:u32 log_count:u32
    files   file_no:u32                valid_bytes:u64 size_bytes:u64
    queues  queue_no:u32               next_seq:u64 next_deliver:u64 messages:u64 size_bytes:u64 clean:u8
    producers  queue_no:u32 id:1-255     epoch:u64 seq:u64 used_ms:u64
    meta    text                       ``version``, ``uuid``, ``checkpoint``, ``since`` (lsn:u64 file:u32 offset:u32, of
                                       the checkpoint with that LSN); with a crc32 in front

One thread writes, with a sync at the end of each transaction; any thread reads, a short transaction
per call, so that no page stays pinned. Keys grow, so pages fill up one after the other. The file
has the length of its map, mostly a hole. A read behind the end of a mapped file kills the process, so
a file that is too short is refused when it is opened.

LMDB has no checksums; ``page_check`` reads the pages before LMDB does. LMDB's own errors and impossible
values are ``IndexDamaged``: the caller condemns the index (a file beside it), and the next start
rebuilds it.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice, repeat, starmap
from pathlib import Path
from typing import Any, Final

import lmdb

from leveret.core.log.loggers import logger
from leveret.core.system.shortage import is_disk_full, is_shortage
from leveret.msg_store.format.kernel import location_items, row_items
from leveret.msg_store.format.kernel import locations as locations_of
from leveret.msg_store.format.kernel import rows as rows_of
from leveret.msg_store.format.rows import (
    Batch,
    Checkpoint,
    FileRow,
    IndexDamaged,
    IndexFull,
    IndexMissing,
    IndexRow,
    Location,
    Producers,
    QueueTerms,
)
from leveret.msg_store.index.lmdb_errors import check_addresses, grow, open_lmdb, store_errors, sync
from leveret.msg_store.memtable.seq_set import runs, runs_of, slices, stretches

log = logger(__name__)

FOLDER: Final = "store.lmdb"
DATA: Final = "data.mdb"
CONDEMNED: Final = "condemned"
VERSION: Final = 1
MAP_BYTES: Final = 1 << 28  # to begin with; doubled when full
READERS_MAX: Final = 126
LAG_MAX: Final = 30  # transactions; there is one per checkpoint, so this is half a minute and more

_QIDX_KEY: Final = struct.Struct(">IQ")
_QIDX: Final = struct.Struct("<QIQB")
_LOC_KEY: Final = struct.Struct(">Q")
_LOC: Final = struct.Struct("<IIIII")
_NO_KEY: Final = struct.Struct(">I")
_FILE: Final = struct.Struct("<QQ")
_QUEUE: Final = struct.Struct("<QQQQB")
_PRODUCER: Final = struct.Struct("<QQQ")
_CHECKPOINT: Final = struct.Struct("<QQIIB")
_SINCE: Final = struct.Struct("<QII")
_CRC: Final = struct.Struct("<I")
_SEQ_END: Final = 1 << 64
_NO_MAX: Final = (1 << 32) - 1
_AT_ONCE: Final = 1_024  # rows that are deleted in one step, in which no other thread runs


class LmdbIndex:
    """``rows.Index`` over an LMDB environment.

    Args:
        path: its folder; made if it is not there.
        uuid: the store's 16 bytes; an index of another store is refused.
        map_bytes: how large it may become before it must grow.
        is_readonly: neither the file nor its folder is written; no process may write it meanwhile.

    Raises:
        IndexDamaged: LMDB cannot open it, or it is another store's.
    """

    def __init__(
        self, path: Path, uuid: bytes, map_bytes: int = MAP_BYTES, is_readonly: bool = False
    ) -> None:
        self._path = path
        self._data = path / DATA
        self._is_readonly = is_readonly
        self.closed: Callable[[], None] = lambda: None  # called once, when it has been closed
        self._lock = threading.Lock()  # held by a read, and while the map grows
        if is_readonly and not _size_of(self._data):
            raise IndexMissing(f"{self._data} is missing")
        self._env = _opened(path, max(map_bytes, _size_of(self._data)), is_readonly)
        if is_readonly and not self._env.info()["last_txnid"]:
            self._env.close()
            raise IndexMissing(f"{self._data} was never written")
        self._has_map = True  # without it LMDB is of no use
        self._readers = Readers(path, self._env)
        try:
            with store_errors():
                self._check_length()
                tables = (b"qidx", b"loc", b"files", b"queues", b"meta")
                opened = [self._env.open_db(name) for name in tables]
                self._qidx, self._loc, self._files, self._queues, self._meta = opened
                self._producers = self._open_producers()
                if not is_readonly:
                    self._readers.check()
                self._check(uuid)
        except BaseException:
            self._env.close()
            raise

    def _open_producers(self) -> Any:
        """Return the table; None in an index of format 1 that is only read."""
        try:
            return self._env.open_db(b"producers", create=not self._is_readonly)
        except lmdb.NotFoundError:
            return None

    def _check_length(self) -> None:
        info, page_bytes = self._env.info(), self._env.stat()["psize"]
        size_bytes, used_bytes = _size_of(self._data), (info["last_pgno"] + 1) * page_bytes
        if size_bytes < used_bytes and info["last_txnid"] > 0:
            raise IndexDamaged(f"{self._data} has {size_bytes} bytes, {used_bytes} expected")
        if size_bytes < info["map_size"] and not self._is_readonly:
            os.truncate(self._data, info["map_size"])

    def _check(self, uuid: bytes) -> None:
        version, found = self._meta_of(b"version"), self._meta_of(b"uuid")
        if version is None and found is None and self._is_empty() and not self._is_readonly:
            self._make(uuid)
        elif version is None or found != uuid:
            raise IndexDamaged(f"{self._path} is not the index of this store")
        elif version[0] > VERSION:
            raise IndexDamaged(f"{self._path} has version {version[0]}, known are up to {VERSION}")

    def _is_empty(self) -> bool:
        with self._env.begin() as transaction:
            tables = (self._qidx, self._loc, self._files, self._queues)
            return not any(transaction.stat(table)["entries"] for table in tables)

    def _make(self, uuid: bytes) -> None:
        with self._env.begin(write=True, db=self._meta) as transaction:
            transaction.put(b"version", _sealed(bytes([VERSION])))
            transaction.put(b"uuid", _sealed(uuid))
        sync(self._path)
        sync(self._path.parent)

    # Reading.

    @contextmanager
    def _read(self, table: Any) -> Iterator[Any]:
        with self._lock, store_errors():
            self._check_map()
            with self._env.begin(db=table, buffers=False) as transaction:
                yield transaction

    def _check_map(self) -> None:
        if not self._has_map:
            raise OSError(errno.EIO, "the map of the index is lost", str(self._data))

    def rows(self, queue_no: int, low: int, high: int, limit: int) -> list[IndexRow]:
        if low >= high or limit <= 0:
            return []
        start = _QIDX_KEY.pack(queue_no, low)
        end = _QIDX_KEY.pack(queue_no, high) if high < _SEQ_END else _NO_KEY.pack(queue_no + 1)
        with self._read(self._qidx) as transaction, transaction.cursor() as cursor:
            if not cursor.set_range(start):
                return []
            found = _rows_in_a_row(cursor, queue_no, high, limit)
            if found is not None or not cursor.set_range(start):
                return found or []
            found = []
            for key, value in islice(cursor, limit):
                if key >= end:
                    break
                found.append((_QIDX_KEY.unpack(key)[1], *_QIDX.unpack(value)))
            return found

    def locations(self, msg_nos: Iterable[int]) -> dict[int, Location]:
        found: dict[int, Location] = {}
        with self._read(self._loc) as transaction, transaction.cursor() as cursor:
            for first, last in stretches(sorted(set(msg_nos))):
                places = _locations_in_a_row(cursor, first, last)
                if places is not None:
                    found.update(zip(range(first, last + 1), places, strict=True))
                    continue
                for msg_no in range(first, last + 1):
                    value = transaction.get(_LOC_KEY.pack(msg_no))
                    if value is not None:
                        found[msg_no] = _LOC.unpack(value)
        return found

    def scan_locations(self, low: int, limit: int) -> list[tuple[int, Location]]:
        with self._read(self._loc) as transaction, transaction.cursor() as cursor:
            if not cursor.set_range(_LOC_KEY.pack(low)):
                return []
            some = islice(cursor, limit)
            return [(_LOC_KEY.unpack(key)[0], _LOC.unpack(value)) for key, value in some]

    def packed_rows(self, after: bytes, limit: int) -> tuple[bytes, bytes]:
        """Return the first ``limit`` entries of ``qidx`` behind a key: their keys joined, and their values."""
        return self._packed(self._qidx, after, limit)

    def packed_locations(self, after: bytes, limit: int) -> tuple[bytes, bytes]:
        """Return the same of ``loc``."""
        return self._packed(self._loc, after, limit)

    def _packed(self, table: Any, after: bytes, limit: int) -> tuple[bytes, bytes]:
        start = after + b"\0"  # the next key that there can be
        with self._read(table) as transaction, transaction.cursor() as cursor:
            if not cursor.set_range(start):
                return b"", b""
            keys = b"".join(islice(cursor.iternext(keys=True, values=False), limit))
            cursor.set_range(start)
            return keys, b"".join(islice(cursor.iternext(keys=False, values=True), limit))

    def queue_nos(self) -> list[int]:
        """Return the numbers of queues with rows, ascending; costs a step per queue, not per row."""
        found: list[int] = []
        with self._read(self._qidx) as transaction, transaction.cursor() as cursor:
            is_found = cursor.first()
            while is_found:
                queue_no, _ = _QIDX_KEY.unpack(cursor.key())
                found.append(queue_no)
                is_found = queue_no < _NO_MAX and cursor.set_range(_NO_KEY.pack(queue_no + 1))
        return found

    def queues(self) -> dict[int, QueueTerms]:
        with self._read(self._queues) as transaction:
            return {_NO_KEY.unpack(k)[0]: _terms(v) for k, v in transaction.cursor()}

    def files(self) -> dict[int, FileRow]:
        with self._read(self._files) as transaction:
            items = transaction.cursor()
            return {_NO_KEY.unpack(k)[0]: FileRow(*_FILE.unpack(v)) for k, v in items}

    def producers(self) -> Producers:
        found: Producers = {}
        if self._producers is not None:
            with self._read(self._producers) as transaction:
                for key, value in transaction.cursor():
                    queue_no, producer = _NO_KEY.unpack_from(key)[0], key[_NO_KEY.size :]
                    found.setdefault(queue_no, {})[producer] = _PRODUCER.unpack(value)
        return found

    def checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint; None if the index is new."""
        with self._lock, store_errors():
            self._check_map()
            value = self._meta_of(b"checkpoint")
            if value is None:
                return None
            lsn, first_journal, boot_epoch, next_file_no, is_clean = _CHECKPOINT.unpack(value)
            since: tuple[int, int] | None = None
            if (value := self._meta_of(b"since")) is not None:
                of_lsn, file_no, offset = _SINCE.unpack(value)
                if of_lsn == lsn:  # an older version writes no ``since``
                    since = file_no, offset
            return Checkpoint(lsn, first_journal, boot_epoch, next_file_no, bool(is_clean), since)

    def _meta_of(self, key: bytes) -> bytes | None:
        with self._env.begin(db=self._meta) as transaction:
            value: bytes | None = transaction.get(key)
        return None if value is None else _unsealed(value)

    # Writing.

    def write(self, batch: Batch) -> None:
        """Write and sync a transaction, in a larger map if need be; one thread at a time."""
        with store_errors():
            self._readers.check()
        while True:
            try:
                with store_errors(self._path), self._env.begin(write=True) as transaction:
                    self._put(transaction, batch)
            except lmdb.MapFullError:
                self._grow()
            else:
                return

    def _put(self, transaction: Any, batch: Batch) -> None:
        with transaction.cursor(db=self._qidx) as cursor:
            for queue_no, acked in sorted(batch.acked.items()):
                for first, last in runs_of(acked):
                    _delete(cursor, first, last, partial(_QIDX_KEY.pack, queue_no))
            for queue_no, rows in sorted(batch.rows.items()):
                for some in slices(rows.values()):
                    cursor.putmulti(row_items(queue_no, some))
        gone = [msg_no for msg_no, location in batch.locations if location is None]
        with transaction.cursor(db=self._loc) as cursor:
            for first, last in runs(gone):
                _delete(cursor, first, last, _LOC_KEY.pack)
            for places in slices(batch.locations):
                cursor.putmulti(sorted(location_items(places)))
        self._put_small(transaction, batch)

    def _put_small(self, transaction: Any, batch: Batch) -> None:
        gone_queues: list[bytes] = []
        for table, layout, items in (
            (self._files, _FILE, batch.files.items()),
            (self._queues, _QUEUE, batch.queues),
        ):
            for number, fields in items:
                key = _NO_KEY.pack(number)
                if fields is None:
                    transaction.delete(key, db=table)
                    if table is self._queues:
                        gone_queues.append(key)
                else:
                    transaction.put(key, layout.pack(*fields), db=table)
        for (queue_no, producer), row in batch.producers.items():
            key = _NO_KEY.pack(queue_no) + producer
            if row is None:
                transaction.delete(key, db=self._producers)
            else:
                transaction.put(key, _PRODUCER.pack(*row), db=self._producers)
        with transaction.cursor(db=self._producers) as cursor:
            for prefix in gone_queues:
                while cursor.set_range(prefix) and cursor.key().startswith(prefix):
                    cursor.delete()
        if batch.checkpoint is not None:
            self._put_checkpoint(transaction, batch.checkpoint)

    def _put_checkpoint(self, transaction: Any, point: Checkpoint) -> None:
        transaction.put(b"checkpoint", _sealed(_CHECKPOINT.pack(*point[:-1])), db=self._meta)
        if point.since is None:
            transaction.delete(b"since", db=self._meta)
        else:
            value = _SINCE.pack(point.lsn, *point.since)
            transaction.put(b"since", _sealed(value), db=self._meta)

    def _grow(self) -> None:
        with self._lock:  # no transaction may be open in this process
            map_bytes = self._env.info()["map_size"] * 2
            check_addresses(map_bytes)  # the next start maps the whole file
            try:
                os.truncate(self._data, map_bytes)
            except OSError as error:
                if is_disk_full(error):
                    raise IndexFull(str(error)) from error
                raise
            try:
                grow(self._env, map_bytes)
            except OSError as error:
                self._has_map = is_shortage(error)
                raise

    def copy_to(self, folder: Path) -> None:
        """Write a copy of the last transaction into a new folder, free pages left out, not synced.

        No other thread may write meanwhile. Raises ``IndexFull``, or ``IndexDamaged`` if a page is damaged.
        """
        folder.mkdir(mode=0o700)
        target = folder / DATA
        try:
            self.compact_to(folder)
        except IndexDamaged:
            # Pages that nobody refers to are no damage, but a compact copy fails on them.
            target.unlink(missing_ok=True)
            with store_errors(folder):
                self._env.copy(os.fsencode(folder))
        target.chmod(0o600)

    @property
    def size_bytes(self) -> int:
        """The part of the file that was ever in use."""
        return (int(self._env.info()["last_pgno"]) + 1) * int(self._env.stat()["psize"])

    @property
    def live_bytes(self) -> int:
        """The pages in use now; the others are free."""
        known = (self._qidx, self._loc, self._files, self._queues, self._producers, self._meta)
        tables = [table for table in known if table is not None]
        with store_errors(), self._env.begin() as transaction:
            stats = [self._env.stat(), *(transaction.stat(table) for table in tables)]
        kinds = ("branch_pages", "leaf_pages", "overflow_pages")
        return sum(int(stat[kind]) for stat in stats for kind in kinds) * int(stats[0]["psize"])

    @property
    def entries(self) -> int:
        """How many rows and locations it has."""
        with store_errors(), self._env.begin() as transaction:
            return sum(transaction.stat(table)["entries"] for table in (self._qidx, self._loc))

    def compact_to(self, folder: Path) -> None:
        """Copy the pages in use into a new file in an empty folder, without a sync.

        Fails, as damage, if pages have been lost that nobody refers to; ``copy_to`` does not.
        """
        with store_errors(folder):
            self._env.copy(os.fsencode(folder), compact=True)
            (folder / DATA).chmod(0o600)

    def close(self) -> None:
        with self._lock:
            self._env.close()
        closed, self.closed = self.closed, lambda: None
        closed()


class Readers:
    """Readers of one environment in other processes: LMDB reuses no page that an open read transaction may see.

    So the index grows as long as a reader is open, and an LMDB file never shrinks. The slot of a killed reader
    is freed; a live one is logged, so that an operator can end it.
    """

    def __init__(self, path: Path, env: Any) -> None:
        self._path = path
        self._env = env
        self._logged: set[tuple[str, str]] = set()

    def check(self) -> None:
        """Free the slots of killed readers; log readers that are open for too long, each once."""
        self._env.reader_check()
        last = self._env.info()["last_txnid"]
        late = set()
        for line in self._env.readers().splitlines()[1:]:
            process, _, transaction = line.split()
            if transaction != "-" and last - int(transaction) >= LAG_MAX:
                late.add((process, transaction))
        for process, transaction in late - self._logged:
            text = "index grows as long as a reader is in it path=%s process=%s transactions=%d"
            log.warning(text, self._path, process, last - int(transaction))
        self._logged = late


def _opened(path: Path, map_bytes: int, is_readonly: bool) -> Any:
    options: dict[str, Any] = {"map_size": map_bytes, "max_dbs": 8, "max_readers": READERS_MAX}
    if is_readonly:
        options |= {"readonly": True, "lock": False, "create": False}
    else:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with store_errors():
        return open_lmdb(path, **options)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _rows_in_a_row(cursor: Any, queue_no: int, high: int, limit: int) -> list[IndexRow] | None:
    """Return ``limit`` rows from the cursor on if no seq is missing between them, else None.

    Values alone take half the time; with the last key in its place no key between is missing.
    """
    first = _QIDX_KEY.unpack(cursor.key())[1]
    if first + limit > high:
        return None
    values = list(islice(cursor.iternext(keys=False), limit))
    if cursor.key() != _QIDX_KEY.pack(queue_no, first + limit - 1):
        return None
    return rows_of(values, first)


def _locations_in_a_row(cursor: Any, first: int, last: int) -> list[Location] | None:
    """Return the locations of all messages from the first to the last, None if one is missing."""
    if not cursor.set_key(_LOC_KEY.pack(first)):
        return None
    values = list(islice(cursor.iternext(keys=False), last - first + 1))
    if cursor.key() != _LOC_KEY.pack(last):
        return None
    return locations_of(values)


def _delete(cursor: Any, first_no: int, last_no: int, key: Callable[[int], bytes]) -> None:
    """Delete the keys of a run of numbers that exist; finding each takes twice as long."""
    for low in range(first_no, last_no + 1, _AT_ONCE):
        high = min(low + _AT_ONCE - 1, last_no)
        first, last, count = key(low), key(high), high - low + 1
        if _are_all_found(cursor, first, last, count):
            cursor.set_key(first)
            deque(starmap(cursor.delete, repeat((), count)), 0)
        elif cursor.set_range(first):
            while first <= cursor.key() <= last:  # empty behind the end of the table
                cursor.delete()


def _are_all_found(cursor: Any, first: bytes, last: bytes, count: int) -> bool:
    """Tell whether so many keys go from the first to the last: then no number is missing."""
    if not cursor.set_key(first):
        return False
    deque(islice(cursor.iternext(keys=True, values=False), count), 0)
    return bool(cursor.key() == last)


def _terms(value: bytes) -> QueueTerms:
    next_seq, next_deliver, messages, size_bytes, is_clean = _QUEUE.unpack(value)
    return QueueTerms(next_seq, next_deliver, messages, size_bytes, bool(is_clean))


def _sealed(value: bytes) -> bytes:
    return _CRC.pack(zlib.crc32(value)) + value


def _unsealed(value: bytes) -> bytes:
    if len(value) < _CRC.size or _CRC.unpack_from(value)[0] != zlib.crc32(value[_CRC.size :]):
        raise IndexDamaged("a record of the index has a wrong checksum")
    return value[_CRC.size :]
