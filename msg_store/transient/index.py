"""The index of paged-out transients: an LMDB file that is never synced and wiped at every start.

::

    life:u32 seq:u64 (big endian) -> file_no:u32 offset:u32 length:u32 msg_no:u64 size:u32
                                     expiry_ms:u64 is_row:u8                      (little endian)

A *life* is the number that the store gives to a queue until it is dropped. One row says both where the
content lies and what the queue's row is; ``is_row`` is set when the queue has added it. Pages live in the
page cache of the system, not in this process.

One thread writes and one reads. Both may find the file unusable, which is an ``IndexLost``: then all that
is on disk is lost, and ``renew`` begins another. What merely cannot be written now, above all because the
disk is full, is an ``OSError``, after which nothing of the call has happened. (LMDB calls a full disk an
I/O error.) A map that is full is doubled.
"""

from __future__ import annotations

import errno
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import lmdb

from leveret.core.errors import StoreError
from leveret.core.files import Files
from leveret.msg_store.transient.client import Row

NAME: Final = "index-%04x.lmdb"
MAP_BYTES: Final = 1 << 30
SEQ_END: Final = 1 << 64

_PREFIX: Final = "index"
_KEY: Final = struct.Struct(">IQ")
_VALUE: Final = struct.Struct("<IIIQIQB")
_IS_ROW: Final = _VALUE.size - 1
_SCANNED_MAX: Final = 20_000  # keys that are looked at in one read
_TRANSIENT: Final = 0  # a row's flags
_BROKEN: Final = (
    lmdb.CorruptedError,
    lmdb.PanicError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
)
_T = TypeVar("_T")


class IndexLost(StoreError):  # noqa: N818
    """The index cannot be read any more."""


class Place(NamedTuple):
    """Where a content lies, in bytes."""

    file_no: int
    offset: int
    length: int


class Doomed(NamedTuple):
    """Keys that go: those with ``low <= seq < high``, or of them only the ``rows_only``."""

    life: int
    low: int
    high: int
    rows_only: bool


class Deleted(NamedTuple):
    """What a ``delete`` has done.

    Attributes:
        places: of the contents that are gone.
        left: the ranges that are still to be deleted, the first of them perhaps in part.
    """

    places: list[Place]
    left: list[Doomed]


Content: TypeAlias = tuple[int, int, Place, int, int, int, bool]
"""``(life, seq, place, msg_no, size, expiry_ms, is_row)``"""
Key: TypeAlias = tuple[int, int]  # life, seq


class TransientIndex:
    """The file; ``renew`` makes it, and until then every call raises ``IndexLost``.

    Args:
        files: removes the old file; LMDB itself reads and writes past them.
        folder: where it lies, which exists.
        map_bytes: how large it may become before the map is doubled.
    """

    def __init__(self, files: Files, folder: Path, map_bytes: int = MAP_BYTES) -> None:
        self._files = files
        self._folder = folder
        self._map_bytes = map_bytes
        self._lmdb: Any = None
        self._number = 0
        self._reading = threading.Lock()  # held while a read or a change of the map goes on

    # The writer.

    def renew(self) -> None:
        """Begin with an empty file; readers find it from one read to the next.

        Raises:
            OSError: it cannot be made, and nothing has changed.
        """
        self._number += 1
        path = self._folder / (NAME % self._number)
        options: dict[str, Any] = {
            "subdir": False,
            "map_size": self._map_bytes,
            "mode": 0o600,
            "sync": False,
            "metasync": False,
            "readahead": True,  # as ``lmdb_index``
        }
        self._unlink_all_but(self._lmdb)
        try:
            try:
                opened = lmdb.open(str(path), lib_version=0, **options)
            except TypeError:  # bindings that know the 0.9 format only
                opened = lmdb.open(str(path), **options)
        except lmdb.Error as error:
            raise OSError(errno.EIO, f"{path} cannot be made: {error}") from error
        with self._reading:
            before, self._lmdb = self._lmdb, opened
            if before is not None:
                before.close()
        self._unlink_all_but(opened)

    def _unlink_all_but(self, kept: Any) -> None:
        keep = None if kept is None else Path(kept.path()).name
        for name in self._files.names(self._folder):
            if name.startswith(_PREFIX) and name.removesuffix("-lock") != keep:
                self._files.unlink(self._folder / name)

    def write(self, contents: Sequence[Content], rows: Iterable[Key]) -> None:
        """Add contents, and make rows of others that are there; those that are not are passed over."""
        pack, key = _VALUE.pack, _KEY.pack
        items = [
            (key(life, seq), pack(*place, msg_no, size, expiry_ms, is_row))
            for life, seq, place, msg_no, size, expiry_ms, is_row in contents
        ]

        def change(transaction: Any) -> None:
            with transaction.cursor() as cursor:
                cursor.putmulti(items)
            for row in rows:
                name = key(*row)
                value = transaction.get(name)
                if value is not None:
                    transaction.put(name, value[:_IS_ROW] + b"\1")

        self._change(change)

    def delete(self, keys: Iterable[Key], ranges: Sequence[Doomed], keys_max: int) -> Deleted:
        """Remove keys, then at most ``keys_max`` of what lies in ranges."""

        def change(transaction: Any) -> Deleted:
            places = []
            for life, seq in keys:
                value = transaction.pop(_KEY.pack(life, seq))
                if value is not None:
                    places.append(_place(value))
            left, budget = list(ranges), keys_max
            with transaction.cursor() as cursor:
                while left and budget > 0:
                    rest, looked_at = _delete_range(cursor, left[0], budget, places)
                    left[:1] = [] if rest is None else [rest]
                    budget -= looked_at + 1
            return Deleted(places, left)

        return self._change(change)

    def move(self, moves: Iterable[tuple[Key, Place]]) -> None:
        """Let contents, all of which are there, lie elsewhere."""

        def change(transaction: Any) -> None:
            for key, place in moves:
                name = _KEY.pack(*key)
                fields = _VALUE.unpack(transaction.get(name))
                transaction.put(name, _VALUE.pack(*place, *fields[3:]))

        self._change(change)

    def _change(self, change: Callable[[Any], _T]) -> _T:
        while True:
            try:
                with self._environment().begin(write=True) as transaction:
                    return change(transaction)
            except lmdb.MapFullError:
                self._grow()
            except _BROKEN as error:
                raise IndexLost(f"index of transients: {error}") from error
            except lmdb.Error as error:
                raise OSError(errno.EIO, f"index of transients: {error}") from error

    def _grow(self) -> None:
        with self._reading:
            try:
                self._lmdb.set_mapsize(2 * self._lmdb.info()["map_size"])
            except lmdb.Error as error:
                raise OSError(errno.ENOSPC, f"index of transients: {error}") from error

    def _environment(self) -> Any:
        if self._lmdb is None:
            raise IndexLost("there is no index of transients")
        return self._lmdb

    @property
    def used_bytes(self) -> int:
        """How long the file is; it never gets shorter, but ``renew`` begins another."""
        environment = self._environment()
        return int((environment.info()["last_pgno"] + 1) * environment.stat()["psize"])

    # Any thread.

    def rows(self, life: int, low: int, high: int, limit: int) -> tuple[list[Row], int]:
        """Return the first rows with ``low <= seq < high``.

        Returns:
            At most ``limit`` of them, ascending, and up to where (exclusive) they are all.
        """
        rows: list[Row] = []
        budget = _SCANNED_MAX
        with self._read() as transaction, transaction.cursor() as cursor:
            found = cursor.set_range(_KEY.pack(life, low))
            while found:
                owner, seq = _KEY.unpack(cursor.key())
                if owner != life or seq >= high:
                    return rows, high
                if len(rows) == limit or not budget:
                    return rows, seq
                budget -= 1
                _, _, _, msg_no, size, expiry_ms, is_row = _VALUE.unpack(cursor.value())
                if is_row:
                    rows.append((seq, msg_no, size, expiry_ms, _TRANSIENT))
                found = cursor.next()
        return rows, high

    def places(self, keys: Iterable[Key]) -> dict[Key, Place]:
        """Return where contents lie; those that are gone are missing."""
        with self._read() as transaction:
            get, pack = transaction.get, _KEY.pack
            values = [(key, get(pack(*key))) for key in keys]
        return {key: _place(value) for key, value in values if value is not None}

    @contextmanager
    def _read(self) -> Iterator[Any]:
        with self._reading:
            try:
                with self._environment().begin() as transaction:
                    yield transaction
            except lmdb.MemoryError as error:
                raise OSError(errno.ENOMEM, f"index of transients: {error}") from error
            except (lmdb.Error, struct.error) as error:
                raise IndexLost(f"index of transients: {error}") from error

    def close(self) -> None:
        """Let the file go."""
        with self._reading:
            if self._lmdb is not None:
                self._lmdb.close()
                self._lmdb = None


def _place(value: bytes) -> Place:
    return Place(*_VALUE.unpack(value)[:3])


def _delete_range(
    cursor: Any, doomed: Doomed, budget: int, places: list[Place]
) -> tuple[Doomed | None, int]:
    """Delete a range, as far as the budget goes.

    Returns:
        What is left of it, and how many keys were looked at.
    """
    looked_at = 0
    found = cursor.set_range(_KEY.pack(doomed.life, doomed.low))
    while found:
        life, seq = _KEY.unpack(cursor.key())
        if life != doomed.life or seq >= doomed.high:
            return None, looked_at
        if looked_at == budget:
            return doomed._replace(low=seq), looked_at
        looked_at += 1
        value = cursor.value()
        if doomed.rows_only and not value[_IS_ROW]:
            found = cursor.next()
        else:
            places.append(_place(value))
            cursor.delete()  # and the cursor stands at the next
            found = bool(cursor.key())
    return None, looked_at
