"""The LMDB environment behind ``MetadataStore``: opening, checking, one transaction at a time.

One process has one environment per directory: two would break LMDB's locks. A second process is
kept out by the lock of the data directory (``leveret.server.process``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias
from zlib import crc32

import lmdb
import msgpack

from leveret.core.errors import StoreError
from leveret.core.system.files import (
    FILE_MODE,
    FOLDER_MODE,
    keep_lock_room,
    keep_room,
    make_folders,
    refuse_link,
)
from leveret.msg_store.index.page_check import fault_of

FORMAT: Final = 1
DATA: Final = "data.mdb"
LOCK: Final = "lock.mdb"
SPARE_BYTES: Final = 256 * 1024  # thirty starts, each with its pages in full, and more

FORMAT_KEY: Final = b"\x00format"
BOOT_KEY: Final = b"\x00boot_epoch"
QUEUE_KEY: Final = b"\x00queue_no"
NODE_KEY: Final = b"\x00node"

_META_BYTES: Final = 152  # the last 8: the number of the transaction that wrote the page
_PAGE_BYTES_AT: Final = 40  # in the first meta page
_DAMAGE: Final = (lmdb.InvalidError, lmdb.CorruptedError, lmdb.VersionMismatchError)

Change: TypeAlias = tuple[bytes, bytes | None]  # None deletes


class MetadataLostError(StoreError):
    """The metadata is missing, empty or damaged; the text names the file."""


class Environment:
    """The LMDB environment: opening, checking, one transaction at a time.

    Args:
        directory: the folder of the files.
        map_bytes: the initial size of the map.
        may_create: create missing or empty metadata.

    Attributes:
        last_transaction: the number of the last transaction; it grows with each commit.
    """

    _open: Final[set[tuple[int, int]]] = set()  # (device, inode) of directories in use
    _open_lock: Final = threading.Lock()

    def __init__(self, directory: Path, map_bytes: int, may_create: bool = True) -> None:
        self._directory = directory
        self._data = directory / DATA
        if not may_create:
            _check_there(self._data)
        self._check_files()
        self._lock = threading.Lock()
        self._claim: tuple[int, int] | None = self._take_claim()
        self._room_to = 0  # the disk space of the file's first so many bytes is taken
        self._is_lost = False  # LMDB is of no use after a failed write, or without its map
        try:
            _keep_lock_room(directory)
            self._lmdb = _opened(directory, map_size=map_bytes, mode=FILE_MODE)
        except BaseException:
            self._drop_claim()
            raise
        try:
            self._map_bytes: int = self._lmdb.info()["map_size"]
            self._check()
            self.last_transaction: int = self._lmdb.info()["last_txnid"]
            with suppress(StoreError):  # the reserve of an earlier start is good enough
                self._keep_reserve()
        except BaseException:
            self.close()
            raise

    def _take_claim(self) -> tuple[int, int]:
        try:
            make_folders(self._directory)
            stat = self._directory.stat()
        except OSError as error:
            raise StoreError(f"metadata directory cannot be made: {error}") from error
        claim = (stat.st_dev, stat.st_ino)
        with self._open_lock:
            if claim in self._open:
                raise StoreError(f"metadata in {self._directory} is open in this process already")
            self._open.add(claim)
        return claim

    def _drop_claim(self) -> None:
        with self._open_lock:
            if self._claim is not None:
                self._open.discard(self._claim)
        self._claim = None

    def _check_files(self) -> None:
        """Refuse links, and damaged pages, at which LMDB would end the process.

        Raises:
            MetadataLostError: a page is damaged.
            StoreError: a file is a link, or cannot be read.
        """
        try:
            for path in (self._data, self._directory / LOCK):
                refuse_link(path)
            check_pages(self._data)
        except OSError as error:
            raise StoreError(f"metadata cannot be opened: {error}") from error

    def _check(self) -> None:
        self._extend()
        if self._lmdb.stat()["entries"] == 0:
            self._make()
        check_format(self._lmdb, self._directory)

    def _extend(self) -> None:
        """Extend the file to the length of its map.

        Reading past the end of a mapped file kills the process, so a truncated file is refused (``check_pages``). The
        length recorded by LMDB alone is no criterion: LMDB does not write pages that one transaction both allocates
        and frees, so an intact file could be shorter. A (sparse) file of the map's length never is.
        """
        map_bytes = self._lmdb.info()["map_size"]
        if self._data.stat().st_size < map_bytes:
            os.truncate(self._data, map_bytes)

    def _make(self) -> None:
        first = {FORMAT_KEY: FORMAT, BOOT_KEY: 0, QUEUE_KEY: 0}
        self.commit([(key, packed(value)) for key, value in first.items()])
        # The names of new files are durable only when their directories are synced.
        sync(self._directory, self._directory.parent)

    def own(self, key: bytes) -> Any:
        with self._lock:
            return _own(self._live(), self._directory, key)

    def node(self) -> str:
        """Return the UUID of the node that wrote the metadata last; "" if no node did."""
        with self._lock:
            return node_of(self._live(), self._directory)

    def rows(self) -> list[tuple[bytes, bytes]]:
        with self._lock:
            return rows_of(self._live(), self._directory)

    def commit(self, changes: list[Change], may_use_reserve: bool = False) -> None:
        """Write and sync all in one transaction, or raise StoreError; a full map is enlarged.

        ``may_use_reserve``: the last of the disk is for these changes, as it is for deletions.
        """
        puts_bytes = sum(len(value) for _, value in changes if value is not None)
        with self._lock:
            try:
                self._live()
                while True:
                    if puts_bytes and not may_use_reserve:
                        self._keep_reserve(puts_bytes)
                    try:
                        self._write(changes)
                        return
                    except lmdb.MapFullError:
                        self._grow()
            except (lmdb.Error, OSError, MemoryError) as error:
                if isinstance(error, lmdb.PanicError):
                    self._is_lost = True
                text = str(error) or type(error).__name__
                raise StoreError(f"metadata cannot be written: {text}") from error

    def _keep_reserve(self, size_bytes: int = 0) -> None:
        """Have disk space behind the pages in use taken, so that starts and deletions find room on a full disk."""
        info, page_bytes = self._lmdb.info(), self._lmdb.stat()["psize"]
        need = (info["last_pgno"] + 1) * page_bytes + 2 * size_bytes + SPARE_BYTES
        if min(need, info["map_size"]) <= self._room_to:
            return
        room_to = min(need + SPARE_BYTES, info["map_size"])
        try:
            keep_room(self._data, room_to)
        except OSError as error:
            raise StoreError(f"metadata cannot be written: {error.strerror}") from error
        self._room_to = room_to

    def _live(self) -> Any:
        """Return LMDB's environment, opened anew if it is lost; where that fails, the next call tries again."""
        if self._is_lost:
            self._lmdb.close()
            self._lmdb = _opened(self._directory, map_size=self._map_bytes, mode=FILE_MODE)
            self._is_lost = False
        return self._lmdb

    def _grow(self) -> None:
        map_bytes = self._map_bytes * 2
        try:
            os.truncate(self._data, map_bytes)
            self._lmdb.set_mapsize(map_bytes)
        except (OSError, lmdb.Error) as error:
            self._is_lost = isinstance(error, lmdb.Error)  # LMDB has unmapped the file before
            raise StoreError(f"metadata cannot grow to {map_bytes} bytes: {error}") from error
        self._map_bytes = map_bytes

    def _write(self, changes: list[Change]) -> None:
        with self._lmdb.begin(write=True) as transaction:
            for key, value in changes:
                if value is None:
                    transaction.delete(key)
                elif key != QUEUE_KEY or _is_higher(value, transaction.get(key)):
                    transaction.put(key, value)
        self.last_transaction = self._lmdb.info()["last_txnid"]

    def copy_to(self, directory: Path) -> None:
        """Copy into a new directory, not synced; commits wait. StoreError: the write failed."""
        with self._lock:
            _copy(self._live(), directory)

    def close(self) -> None:
        """Unmap the file; the directory can be opened again."""
        if self._claim is not None:
            self._lmdb.close()
            self._drop_claim()


@contextmanager
def at_rest(directory: Path) -> Iterator[Any]:
    """Open an unused environment, without writing.

    Raises:
        StoreError: it is missing or damaged.
        OSError: the directory cannot be read.
    """
    data = directory / DATA
    _check_there(data)
    check_pages(data)
    size_bytes = data.stat().st_size
    environment = _opened(directory, map_size=size_bytes, readonly=True, lock=False, create=False)
    try:
        yield environment
    finally:
        environment.close()


def copy_at_rest(directory: Path, target: Path) -> None:
    """Copy an environment that no process has open into a new directory, without changing it.

    Raises:
        StoreError: the environment is missing or damaged, or reading or writing failed.
    """
    try:
        with at_rest(directory) as environment:
            _copy(environment, target)
    except OSError as error:
        raise StoreError(f"metadata in {directory} cannot be copied: {error}") from error


def _opened(directory: Path, **options: Any) -> Any:
    path, options = os.fsencode(directory), {"max_dbs": 0, "readahead": False, **options}
    try:
        try:
            # Bindings that support several LMDB versions would write the newest format.
            return lmdb.open(path, lib_version=0, **options)
        except TypeError:
            return lmdb.open(path, **options)  # bindings for the 0.9 format only
    except (lmdb.Error, OSError) as error:
        kind = MetadataLostError if isinstance(error, _DAMAGE) else StoreError
        raise kind(f"metadata in {directory} cannot be opened: {error}") from error


def _is_higher(number: bytes, before: bytes | None) -> bool:
    """Whether a counter goes up; two threads write it, and a delayed one must not take it back."""
    return before is None or bool(unpacked(number) > unpacked(before))


def _check_there(data: Path) -> None:
    """Raise MetadataLostError if the data file is missing or empty."""
    try:
        size_bytes = data.stat().st_size
    except FileNotFoundError as error:
        raise MetadataLostError(
            f"{data.parent} holds no metadata of Leveret: {data} is missing"
        ) from error
    if not size_bytes:
        raise MetadataLostError(f"{data.parent} holds no metadata of Leveret: {data} is empty")


def check_pages(data: Path) -> None:
    """Raise MetadataLostError if LMDB could not follow the pages of a data file, or would take an older state.

    LMDB begins with the newer of two meta pages, which commits write alternately.

    Raises:
        OSError: the file cannot be read.
    """
    if fault := fault_of(data):
        raise MetadataLostError(f"metadata is damaged: {fault}")
    try:
        with data.open("rb") as file:
            head = file.read(_META_BYTES)
            file.seek(int.from_bytes(head[_PAGE_BYTES_AT:][:4], "little"))
            other = file.read(_META_BYTES)
    except FileNotFoundError:
        return
    if len(other) == _META_BYTES:  # else LMDB refuses it
        txns = [int.from_bytes(each[-8:], "little") for each in (head, other)]
        if abs(txns[0] - txns[1]) > 1 or (txns[0] == txns[1] > 0):
            raise MetadataLostError(f"metadata is damaged: {data} begins with transactions {txns}")


def _found(environment: Any, directory: Path, key: bytes) -> Any:
    try:
        with environment.begin() as transaction:
            value = transaction.get(key)
    except lmdb.Error as error:
        raise MetadataLostError(f"metadata in {directory} is damaged: {error}") from error
    return None if value is None else unpacked(value)


def _own(environment: Any, directory: Path, key: bytes) -> Any:
    value = _found(environment, directory, key)
    if value is None:
        name = key[1:].decode()
        raise MetadataLostError(f"{directory} holds no metadata of Leveret: no {name!r} in it")
    return value


def _keep_lock_room(directory: Path) -> None:
    """Take the room of LMDB's lock file.

    Raises:
        StoreError: there is none.
    """
    try:
        keep_lock_room(directory / LOCK)
    except OSError as error:
        raise StoreError(f"metadata in {directory} cannot be opened: {error.strerror}") from error


def check_format(environment: Any, directory: Path) -> None:
    """Raise StoreError for an environment of another program, or of a later version."""
    found = _own(environment, directory, FORMAT_KEY)
    if found > FORMAT:
        raise StoreError(
            f"metadata in {directory} has format {found}, "
            f"this version of Leveret reads up to {FORMAT}"
        )


def node_of(environment: Any, directory: Path) -> str:
    """Return the UUID of the node that wrote the metadata last; "" if no node did."""
    return str(_found(environment, directory, NODE_KEY) or "")


def counters(environment: Any, directory: Path) -> tuple[int, int]:
    """Return the last boot epoch, and the last queue number that may be in use."""
    return _own(environment, directory, BOOT_KEY), _own(environment, directory, QUEUE_KEY)


def rows_of(environment: Any, directory: Path) -> list[tuple[bytes, bytes]]:
    """Return the key and the stored bytes of all rows; MetadataLostError: some cannot be found."""
    try:
        with environment.begin() as transaction, transaction.cursor() as cursor:
            found = list(cursor)
            entries = environment.stat()["entries"]
    except lmdb.Error as error:
        raise MetadataLostError(f"metadata in {directory} is damaged: {error}") from error
    if len(found) != entries:
        raise MetadataLostError(
            f"metadata in {directory} is damaged: {len(found)} of {entries} records are found"
        )
    return [(key, value) for key, value in found if key[0] != 0]


def _copy(environment: Any, target: Path) -> None:
    try:
        make_folders(target.parent)
        target.mkdir(FOLDER_MODE)
        environment.copy(os.fsencode(target), compact=True)
        (target / DATA).chmod(FILE_MODE)
    except (lmdb.Error, OSError) as error:
        raise StoreError(f"metadata cannot be copied: {error}") from error


def sync(*paths: Path) -> None:
    """Sync files and directories."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def packed(value: Any) -> bytes:
    """Return the stored form of a value: checksum and msgpack."""
    data: bytes = msgpack.packb(value, unicode_errors="surrogateescape")
    return crc32(data).to_bytes(4, "big") + data


def unpacked(value: bytes) -> Any:
    """Return the value of a stored form; StoreError: the checksum is wrong."""
    if len(value) < 4 or crc32(value[4:]) != int.from_bytes(value[:4], "big"):
        raise MetadataLostError(
            f"metadata record is damaged: checksum of {len(value)} bytes is wrong"
        )
    return msgpack.unpackb(value[4:], unicode_errors="surrogateescape", strict_map_key=False)
