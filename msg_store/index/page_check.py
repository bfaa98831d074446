"""The check of an index's pages, before LMDB opens it: a damaged page may end the process.

LMDB has no checksums and believes its pages: one of zeros ends the process, by an assertion or by a
pointer into nowhere. ``fault_of`` reads the file with ``pread``, follows the format of LMDB 0.9 from the
newer of the two meta pages down, and checks every number that LMDB would follow::

    page    pgno:u64 pad:u16 flags:u16 lower:u16 upper:u16       then a u16 for each node: where it is
            pgno:u64 pad:u16 flags:u16 pages:u32                 of an overflow run
    node    low:u16 high:u16 flags:u16 key_len:u16 key data      low, high: length of the data
            low:u16 middle:u16 high:u16 key_len:u16 key          in a branch: number of the page below
    tree    pad:u32 flags:u16 depth:u16 branches leaves overflows entries root: u64 each
    meta    a page's header, magic:u32 version:u32 address:u64 size:u64, two trees, last:u64 txn:u64

The first tree has the free pages by transaction, the second the named tables as nodes whose data is a
tree. Keys and values are not checked: LMDB survives any, and ``LmdbIndex`` reports impossible values. A
leaf of the large tables has nodes of one length without gaps, which is seen without a look at each of them.

An index that passes can be read, walked and written in this process. The tests hold the check to that:
they damage every page and flip bits, and let a process of its own read what passes. Turned down: letting
such a process read each index first, which costs more, finds no more, and cannot name the damage.

A page costs some microseconds and is read once, so an index of a million messages takes a quarter of
a second. Without the leaves of deep trees it is a twentieth of that: a start of the broker takes that
way with a large index that was closed in order (``location``).
"""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path
from struct import Struct, pack, unpack_from
from typing import Final, NamedTuple

_HEADER: Final = Struct("<QHHHH")
_NODE: Final = Struct("<HHHH")
_TREE: Final = Struct("<IHHQQQQQ")
_META: Final = Struct("<IIQQ48s48sQQ")
_FILL: Final = Struct("<HH")
_LOWER_AT: Final = 12  # in the header of a page of nodes
_PAGES_AT: Final = 12  # in the header of an overflow run
_NODE_BYTES: Final = range(_NODE.size)
_U32: Final = Struct("<I")
_U64: Final = Struct("<Q")

_MAGIC: Final = 0xBEEFC0DE
_BRANCH, _LEAF, _OVERFLOW, _META_PAGE = 1, 2, 4, 8  # flags of a page; others are never on disk
_BIG, _SUBTREE = 1, 2  # flags of a node
_INTEGER_KEYS: Final = 8  # flag of the tree of free pages
_EMPTY: Final = (1 << 64) - 1  # the root of a tree without entries
_DEPTH_MAX: Final = 32
_PAGE_BYTES_MIN: Final = 512
_PAGE_BYTES_MAX: Final = 65_536


class _Tree(NamedTuple):
    pad: int
    flags: int
    depth: int
    branches: int
    leaves: int
    overflows: int
    entries: int
    root: int


class _Wrong(Exception):  # noqa: N818  an answer, not an error
    """A page is damaged; the text names the damage."""


def fault_of(path: Path, leaves_bytes_max: float = math.inf) -> str:
    """Return the first damage of an index's pages; nothing if LMDB can follow them all.

    Meta pages that LMDB itself refuses are left to it.

    Args:
        path: the data file; a missing or empty file is not damaged.
        leaves_bytes_max: in a larger file, leaves of trees with more than one page are not read.

    Raises:
        OSError: the file cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        _Pages(descriptor, leaves_bytes_max).check()
    except _Wrong as wrong:
        return f"{path}: {wrong}"
    except OSError as error:  # mapped, it would end the process
        if error.errno != errno.EIO:
            raise
        return f"{path} cannot be read: {error}"
    finally:
        os.close(descriptor)
    return ""


class _Pages:
    def __init__(self, descriptor: int, leaves_bytes_max: float) -> None:
        self._descriptor = descriptor
        self._leaves_bytes_max = leaves_bytes_max
        self._has_leaves = True
        self._page_bytes = _PAGE_BYTES_MIN
        self._end = 0  # above all pages that are in use
        self._seen: set[int] = set()
        self._free: set[int] = set()
        self._filled: dict[tuple[int, int], bytes] = {}  # the first bytes of full leaves

    def check(self) -> None:
        found = self._newest()
        if found is None:
            return
        free, main, last = found
        self._end = last + 1
        used_bytes = self._end * self._page_bytes
        self._has_leaves = used_bytes <= self._leaves_bytes_max
        if os.fstat(self._descriptor).st_size < used_bytes:
            raise _Wrong(f"the file ends before page {last}")
        self._tree(free, is_free=True)
        self._tree(main)
        if (
            both := self._seen & self._free
        ):  # the root of an older transaction, or a number that is wrong
            raise _Wrong(f"page {min(both)} is in use and free")

    def _newest(self) -> tuple[_Tree, _Tree, int] | None:
        """Return the trees and the last page of the newest transaction; None if there is none."""
        newest, found = 0, None
        for number in range(2):
            data = os.pread(self._descriptor, _HEADER.size + _META.size, number * self._page_bytes)
            if len(data) < _HEADER.size + _META.size or not data[10] & _META_PAGE:
                return None
            magic, _, _, _, free, main, last, transaction = _META.unpack_from(data, _HEADER.size)
            trees = _Tree._make(_TREE.unpack(free)), _Tree._make(_TREE.unpack(main))
            page_bytes = trees[0].pad
            if magic != _MAGIC or not _PAGE_BYTES_MIN <= page_bytes <= _PAGE_BYTES_MAX:
                return None
            self._page_bytes = page_bytes
            if transaction > newest:
                newest, found = transaction, (*trees, last)
        return found

    # Trees.

    def _tree(self, tree: _Tree, is_free: bool = False, level: int = 0) -> None:
        if tree.root == _EMPTY:
            return
        if not 1 <= tree.depth <= _DEPTH_MAX or tree.flags & ~(_INTEGER_KEYS if is_free else 0):
            raise _Wrong(f"a tree of depth {tree.depth} with flags {tree.flags:#x}")
        pages = [tree.root]
        for depth in range(tree.depth, 0, -1):
            if depth == 1 and tree.depth > 1 and not (self._has_leaves or is_free):
                return
            below: list[int] = []
            for page_no in pages:
                if depth > 1:
                    below += self._branch(page_no, 1 if is_free else 2)
                else:
                    self._leaf(page_no, is_free, level)
            pages = below

    def _branch(self, page_no: int, nodes_min: int) -> list[int]:
        data = self._checked(page_no, _BRANCH)
        places = _places(data, page_no)
        if len(places) < nodes_min:
            raise _Wrong(f"branch page {page_no} has {len(places)} nodes")
        below = []
        for at in places:
            low, middle, high, key_len = _NODE.unpack_from(data, at)
            if at + _NODE.size + key_len > len(data):
                raise _Wrong(f"a key runs over the end of page {page_no}")
            below.append(low | middle << 16 | high << 32)
        return below

    def _leaf(self, page_no: int, is_free: bool, level: int) -> None:
        data = self._checked(page_no, _LEAF)
        if not is_free and self._is_even(data):
            return
        places = _places(data, page_no)
        for at in places:
            low, high, flags, key_len = _NODE.unpack_from(data, at)
            start, size = at + _NODE.size + key_len, low | high << 16
            end = start + (_U64.size if flags & _BIG else size)
            if flags & ~(_BIG | _SUBTREE) or not key_len or end > len(data):
                raise _Wrong(f"a node of page {page_no} has impossible lengths or flags")
            if flags & _BIG:
                content = self._run(_U64.unpack_from(data, start)[0], size, is_read=is_free)
            else:
                content = data[start:end]
            if is_free:
                self._free_list(content, page_no)
            if flags & _SUBTREE:
                self._subtree(content, page_no, level)

    def _subtree(self, content: bytes, page_no: int, level: int) -> None:
        if len(content) != _TREE.size or level:
            size = len(content)
            raise _Wrong(f"a node of page {page_no} has {size} bytes where a table should be")
        self._tree(_Tree._make(_TREE.unpack(content)), level=level + 1)

    def _free_list(self, content: bytes, page_no: int) -> None:
        """Look at numbers of free pages: how many, then each, descending; these are written to next."""
        if len(content) < _U64.size or len(content) % _U64.size:
            raise _Wrong(f"a list of free pages of {len(content)} bytes in page {page_no}")
        count, *numbers = unpack_from(f"<{len(content) // _U64.size}Q", content)
        if count > len(numbers):
            raise _Wrong(f"a list of {count} free pages has {len(numbers)}")
        numbers = numbers[:count]
        if numbers and (numbers[0] >= self._end or numbers[-1] < 2):  # 0 and 1 are the meta pages
            raise _Wrong(f"free pages from {numbers[-1]} to {numbers[0]} of {self._end}")
        if numbers != sorted(set(numbers), reverse=True):
            raise _Wrong(f"a list of free pages in page {page_no} is not in order")
        self._free.update(numbers)

    # Pages.

    def _checked(self, page_no: int, kind: int) -> bytes:
        """Return a page of nodes after checking its header."""
        data = self._read(page_no, 1)
        number, _, flags, lower, upper = _HEADER.unpack_from(data)
        if number != page_no or flags != kind:
            raise _Wrong(f"page {page_no} says it is {number} with flags {flags:#x}")
        if not _HEADER.size < lower <= upper <= len(data) - _NODE.size or lower % 2:
            raise _Wrong(f"page {page_no} is filled up to {lower} and from {upper}")
        return data

    def _is_even(self, data: bytes) -> bool:
        """Whether a leaf has plain nodes of one length, one behind the other up to the page's end."""
        lower, upper = _FILL.unpack_from(data, _LOWER_AT)
        count = (lower - _HEADER.size) // 2
        size, rest = divmod(len(data) - upper, count)
        first = data[upper : upper + _NODE.size]
        low, high, flags, key_len = _NODE.unpack(first)
        length = _NODE.size + key_len + (low | high << 16)
        if rest or flags or not key_len or length + length % 2 != size:
            return False
        filled = self._filled.get((count, size))
        if filled is None:  # by keys that grew
            grown = range(len(data) - size, upper - 1, -size)
            filled = self._filled[count, size] = pack(f"<{count}H", *grown)
        if data[_HEADER.size : lower] != filled:
            places = unpack_from(f"<{count}H", data, _HEADER.size)
            if sorted(places) != list(range(upper, len(data), size)):
                return False
        return all(data[upper + at :: size].count(first[at]) == count for at in _NODE_BYTES)

    def _run(self, page_no: int, size: int, is_read: bool) -> bytes:
        """Check the overflow pages of a node; return their contents if ``is_read``.

        A value that replaced a longer value keeps the pages of the longer one.
        """
        pages = (_HEADER.size + size - 1) // self._page_bytes + 1
        data = self._read(page_no, pages, pages if is_read else 1)
        number, _, flags, *_ = _HEADER.unpack_from(data)
        found = _U32.unpack_from(data, _PAGES_AT)[0]
        if number != page_no or flags != _OVERFLOW or not pages <= found <= self._end - page_no:
            raise _Wrong(f"page {page_no} says it is {number} with flags {flags:#x}, {found} long")
        others = range(page_no + 1, page_no + found)
        if not self._seen.isdisjoint(others):
            raise _Wrong(f"a page from {page_no} to {others.stop - 1} is referred to twice")
        self._seen.update(others)
        return data[_HEADER.size : _HEADER.size + size]

    def _read(self, page_no: int, pages: int, read: int = 1) -> bytes:
        if not 2 <= page_no <= self._end - pages:
            raise _Wrong(f"page {page_no} of {self._end} is referred to")
        if page_no in self._seen:
            raise _Wrong(f"page {page_no} is referred to twice")
        self._seen.add(page_no)
        data = os.pread(self._descriptor, read * self._page_bytes, page_no * self._page_bytes)
        if len(data) < read * self._page_bytes:
            raise _Wrong(f"page {page_no} is cut off")
        return data


def _places(data: bytes, page_no: int) -> tuple[int, ...]:
    """Return where the nodes of a page are."""
    lower, upper = _FILL.unpack_from(data, _LOWER_AT)
    places = unpack_from(f"<{(lower - _HEADER.size) // 2}H", data, _HEADER.size)
    if min(places) < upper or max(places) > len(data) - _NODE.size:
        raise _Wrong(f"nodes of page {page_no} lie from {min(places)} to {max(places)}")
    return places
