"""The rows and locations of an offline store as the index packs them, for readers that decode many at once.

A program that turns millions of entries into columns must not make an object of each. So it gets pages of joined keys
and joined values, in the layouts of ``index.lmdb_index``:

::

    rows        queue_no:u32 seq:u64 big endian    msg_no:u64 body_size:u32 expiry_ms:u64 flags:u8
    locations   msg_no:u64 big endian              file:u32 offset:u32 total_len:u32 body_size:u32 log_count:u32

Pages ascend by key. A store that a crash has left has changes above its index; they are laid over it, as a start would
do. That costs an object per entry, some microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from leveret.msg_store.format.journal_records import PERSISTENT
from leveret.msg_store.format.kernel import location_items, row_items
from leveret.msg_store.format.rows import IndexDamaged
from leveret.msg_store.offline.inspection import PAGE_ROWS, Inspection

ROW_KEY_BYTES: Final = 12
ROW_VALUE_BYTES: Final = 21
LOCATION_KEY_BYTES: Final = 8
LOCATION_VALUE_BYTES: Final = 20
PAGE_ENTRIES: Final = 100_000

_Page: TypeAlias = tuple[bytes, bytes]


class Packed(NamedTuple):
    """A page of entries: keys one behind the other, and as many values."""

    keys: bytes
    values: bytes


def packed_rows(store: Inspection) -> Iterator[Packed]:
    """Yield all rows of all queues, by queue and seq.

    Raises:
        IndexDamaged: an entry has another length than the store writes.
    """
    sizes = ROW_KEY_BYTES, ROW_VALUE_BYTES
    if (lmdb := store.lmdb) is not None and store.recovered.memtables.active.is_empty:
        yield from _pages(lmdb.packed_rows, *sizes)
        return
    for queue_no in store.queue_nos():
        rows = iter(store.rows(queue_no))
        while some := list(islice(rows, PAGE_ROWS)):
            yield _joined(row_items(queue_no, some))


def lost_rows(store: Inspection) -> Packed:
    """Return the rows that a start would remove because their messages, which were durable, cannot be read."""
    items: list[tuple[bytes, bytes]] = []
    for queue_no, seq, msg_no, _ in store.report.lost:
        known = store.index.rows(queue_no, seq, seq + 1, 1)
        items += row_items(queue_no, known or [(seq, msg_no, 0, 0, PERSISTENT)])
    return _joined(items)


def packed_locations(store: Inspection) -> Iterator[Packed]:
    """Yield the locations of all messages, by number; raises as ``packed_rows``."""
    sizes = LOCATION_KEY_BYTES, LOCATION_VALUE_BYTES
    if (lmdb := store.lmdb) is not None and store.recovered.memtables.active.is_empty:
        yield from _pages(lmdb.packed_locations, *sizes)
        return
    locations = iter(store.locations())
    while some := list(islice(locations, PAGE_ROWS)):
        yield _joined(location_items(some))


def _pages(
    read: Callable[[bytes, int], _Page], key_bytes: int, value_bytes: int
) -> Iterator[Packed]:
    after = b""
    while True:
        keys, values = read(after, PAGE_ENTRIES)
        count = len(keys) // key_bytes
        if len(keys) != count * key_bytes or len(values) != count * value_bytes:
            raise IndexDamaged("an entry of the index has another length than the store writes")
        if not count:
            return
        yield Packed(keys, values)
        after = keys[-key_bytes:]


def _joined(items: Iterable[tuple[bytes, bytes]]) -> Packed:
    both = list(items)
    return Packed(b"".join([key for key, _ in both]), b"".join([value for _, value in both]))
