"""The index of paged-out transients: an LMDB file that is never synced and wiped at every start.

::

    incarnation:u32 seq:u64 (big endian) -> file_no:u32 offset:u32 length:u32 msg_no:u64 size:u32
                                            expiry_ms:u64                         (little endian)

An *incarnation* is the number that the store gives to a queue until it is dropped. One value says the
place of the content and the queue's row. Pages live in the page cache of the system, not in this process.

One thread writes and one reads. Both may find the file unusable, which is an ``IndexLost``: then all that
is on disk is lost, and ``renew`` begins another. A write that fails for another reason, above all a full
disk, is an ``OSError`` and has changed nothing. (LMDB calls a full disk an I/O error.) A map that is full
is doubled.

*Entries* are the queue's own tuples (``core/entry.py``).
*Rows* are those of ``LmdbIndex``, so that both can be merged, with flags 0: not persistent.
"""

from __future__ import annotations

import errno
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import lmdb

from leveret.core.entry import EXPIRY_MS, MSG_NO, SEQ, SIZE, Entry
from leveret.core.errors import StoreError
from leveret.core.message import Message
from leveret.core.system.files import Files
from leveret.core.system.shortage import is_shortage
from leveret.msg_store.format.seq_range import SeqRange
from leveret.msg_store.index.lmdb_errors import grow, open_lmdb, shortage_no

Row: TypeAlias = tuple[int, int, int, int, int]  # seq, msg_no, size, expiry_ms, flags
Key: TypeAlias = tuple[int, int]  # incarnation, seq
Place: TypeAlias = tuple[int, int, int]  # file_no, offset, length
GotRows: TypeAlias = Callable[[list[Row]], None]
GotContents: TypeAlias = Callable[[dict[int, Message]], None]  # by seq

SEQ_END: Final = 1 << 64
NAME: Final = "index-%04x.lmdb"

_PREFIX: Final = "index"
_KEY: Final = struct.Struct(">IQ")
_VALUE: Final = struct.Struct("<IIIQIQ")
_PLACE: Final = struct.Struct("<III")
_ROW: Final = struct.Struct("<12xQIQ")
_TRANSIENT: Final = 0  # a row's flags
_place_in: Final[Callable[[bytes], Place]] = _PLACE.unpack_from
_BROKEN: Final = (
    lmdb.CorruptedError,
    lmdb.PanicError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
)
_T = TypeVar("_T")


class Limits(NamedTuple):
    """Constants of a transient store, in bytes."""

    file_bytes: int = 16 * 1024 * 1024  # a segment of this length is full; RabbitMQ's
    waiting_bytes: int = 64 * 1024 * 1024  # of contents that all queues together may have waiting
    map_bytes: int = 1 << 30  # the index's first map
    room_bytes: int = 16 * 1024 * 1024  # left free on the disk, so that keys can be deleted


LIMITS: Final = Limits()


class KeyRange(NamedTuple):
    """The keys of an incarnation within a range of seqs; those below ``low`` are deleted already."""

    incarnation: int
    seqs: SeqRange
    low: int


def row_of(entry: Entry) -> Row:
    """Return the row of an entry."""
    return entry[SEQ], entry[MSG_NO], entry[SIZE], entry[EXPIRY_MS], _TRANSIENT


class IndexLost(StoreError):  # noqa: N818
    """The index cannot be read any more."""


class TransientIndex:
    """The file; ``renew`` makes it, and until then every call raises ``IndexLost``.

    Args:
        files: removes the old file; LMDB itself reads and writes past them.
        map_bytes: how large it may become before the map is doubled.
    """

    def __init__(self, files: Files, folder: Path, map_bytes: int = LIMITS.map_bytes) -> None:
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
        self._unlink_all_but(self._lmdb)
        try:
            opened = open_lmdb(
                path, subdir=False, map_size=self._map_bytes, sync=False, metasync=False
            )
        except lmdb.Error as error:
            number = shortage_no(error) or errno.EIO
            raise OSError(number, f"{path} cannot be made: {error}") from error
        with self._reading:
            before, self._lmdb = self._lmdb, opened
            if before is not None:
                before.close()
        self._unlink_all_but(opened)

    def _unlink_all_but(self, current: Any) -> None:
        keep = None if current is None else Path(current.path()).name
        for name in self._files.names(self._folder):
            if name.startswith(_PREFIX) and name.removesuffix("-lock") != keep:
                self._files.unlink(self._folder / name)

    def write(self, contents: Sequence[tuple[int, Entry]], places: Iterable[Place]) -> None:
        """Add contents, each an entry of an incarnation, that lie at these places."""
        key, pack = _KEY.pack, _VALUE.pack
        items = [
            (
                key(incarnation, entry[SEQ]),
                pack(*place, entry[MSG_NO], entry[SIZE], entry[EXPIRY_MS]),
            )
            for (incarnation, entry), place in zip(contents, places, strict=True)
        ]

        def change(transaction: Any) -> None:
            with transaction.cursor() as cursor:
                cursor.putmulti(items)

        self._change(change)

    def delete(
        self, keys: Iterable[Key], ranges: Sequence[KeyRange], looks_max: int
    ) -> tuple[list[Place], list[KeyRange]]:
        """Delete keys, then those of ranges; return their places, and what is left of the last ranges.

        At most ``looks_max`` keys of the ranges are looked at, deleted or not.
        """

        def change(transaction: Any) -> tuple[list[Place], list[KeyRange]]:
            left, looks_left = list(ranges), looks_max
            with transaction.cursor() as cursor:
                values = [cursor.pop(_KEY.pack(*key)) for key in keys]
                places = [_place_in(value) for value in values if value is not None]
                while left and looks_left > 0:
                    low, looks = _delete_range(cursor, left[0], looks_left, places)
                    looks_left -= looks
                    left[:1] = [left[0]._replace(low=low)] if low < left[0].seqs.high else []
            return places, left

        return self._change(change)

    def move(self, keys: Sequence[Key], places: Sequence[Place]) -> None:
        """Note new places of contents, all of which are in the index."""

        def change(transaction: Any) -> None:
            for key, place in zip(keys, places, strict=True):
                name = _KEY.pack(*key)
                transaction.put(name, _PLACE.pack(*place) + transaction.get(name)[_PLACE.size :])

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
                number = shortage_no(error) or errno.EIO
                raise OSError(number, f"index of transients: {error}") from error

    def _grow(self) -> None:
        with self._reading:
            try:
                grow(self._lmdb, 2 * self._lmdb.info()["map_size"])
            except OSError as error:
                if is_shortage(error):
                    raise
                self._lmdb.close()
                self._lmdb = None
                raise IndexLost(f"index of transients: {error}") from error

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

    def rows(self, incarnation: int, low: int, high: int, limit: int) -> list[Row]:
        rows: list[Row] = []
        with self._read() as transaction, transaction.cursor() as cursor:
            if not cursor.set_range(_KEY.pack(incarnation, low)):
                return rows
            key_in, row_in = _KEY.unpack, _ROW.unpack
            for key, value in islice(cursor, limit):
                owner, seq = key_in(key)
                if owner != incarnation or seq >= high:
                    break
                msg_no, size, expiry_ms = row_in(value)
                rows.append((seq, msg_no, size, expiry_ms, _TRANSIENT))
        return rows

    def places(self, keys: Iterable[Key]) -> list[Place | None]:
        """Return where contents lie; None for each that is not in the index."""
        with self._read() as transaction:
            get, pack = transaction.get, _KEY.pack
            values = [get(pack(*key)) for key in keys]
            return [None if value is None else _place_in(value) for value in values]

    @contextmanager
    def _read(self) -> Iterator[Any]:
        with self._reading:
            try:
                with self._environment().begin() as transaction:
                    yield transaction
            except (lmdb.Error, struct.error) as error:
                number = shortage_no(error) if isinstance(error, lmdb.Error) else 0
                if number:
                    raise OSError(number, f"index of transients: {error}") from error
                raise IndexLost(f"index of transients: {error}") from error

    def close(self) -> None:
        with self._reading:
            if self._lmdb is not None:
                self._lmdb.close()
                self._lmdb = None


def _delete_range(
    cursor: Any, keys: KeyRange, looks_max: int, places: list[Place]
) -> tuple[int, int]:
    """Delete keys of a range, but look at so many at most; return where to go on, and at how many it looked."""
    incarnation, seqs, low = keys
    found = cursor.set_range(_KEY.pack(incarnation, low))
    for looks in range(1, looks_max + 1):
        owner, seq = _KEY.unpack(cursor.key()) if found else (0, 0)
        if owner != incarnation or seq >= seqs.high:
            return seqs.high, looks
        low = seqs.first_from(seq) if seqs.kept else seq
        if low > seq:
            found = cursor.set_range(_KEY.pack(incarnation, low))
            continue
        places.append(_place_in(cursor.value()))
        cursor.delete()  # and the cursor stands at the next
        found = bool(cursor.key())
    return low, looks_max
