"""Free memory of the C library's allocator (glibc), given back to the system.

Memory that is freed between two blocks in use still counts as used until its pages are given back. ``malloc_trim``
gives all of them back at once: that takes 0.1 s per GB, and as much again for a few million small pieces, cannot be
told to do less, and holds the allocator's lock, so in another thread it would stop the event loop as well.
``trim_in_steps`` therefore takes the free memory as blocks that it does not write to, gives back the pages inside each
of them (``madvise``), and frees them: some milliseconds of work at a time.

Turned down: a trim whenever so much has been freed, since bursts that follow one another would take a page fault
for each 4 KiB; ``malloc_trim`` after a part of the blocks, since each call walks through all that is free.
"""

from __future__ import annotations

import mmap
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEP_S: Final = 0.004
STEP_BYTES: Final = 32 * 1024 * 1024  # given back in some 4 ms
# A block's ends share pages with others, so a page of each stays, and large blocks come first. The smaller ones take
# the gaps between blocks in use. In a gap that is smaller still there may be no whole page.
BLOCK_BYTES: Final = tuple(size * 1024 for size in (1024, 256, 64, 32, 16, 8))
BLOCKS_PER_STEP: Final = 2_000  # taken, or given back
# Where free memory went back before, each block that is taken makes the process grow by the page with the block's
# head. A step by which the process grows by this share of the blocks is the last: there is little to give back.
GROWTH_SHARE: Final = 0.1

_ARENA_MAX: Final = -8  # M_ARENA_MAX of malloc.h
_Held: TypeAlias = "list[tuple[int, int]]"  # address and size of each block


class Heap(Protocol):
    """The allocator: functions of C."""

    def malloc(self, size_bytes: int, /) -> int | None: ...
    def free(self, block: int, /) -> object: ...
    def sbrk(self, more_bytes: int, /) -> int: ...
    def madvise(self, address: int, size_bytes: int, advice: int, /) -> object: ...
    def mallopt(self, parameter: int, value: int, /) -> object: ...


def share_arena() -> None:
    """Have all threads allocate from one arena; to be called before the first thread is started.

    By default threads have arenas of their own, up to eight per processor, and the free memory in these is not given
    back. Threads that open stores left some 15 MiB there in each.
    """
    heap = _glibc()
    if heap is not None:
        heap.mallopt(_ARENA_MAX, 1)


def trim_in_steps(used_bytes: Callable[[], int | None], heap: Heap | None = None) -> Iterator[None]:
    """Give free memory back, and yield after each step.

    Args:
        used_bytes: returns the resident memory of this process.
        heap: the C library's, if none is given.
    """
    heap = heap or _glibc()
    if heap is None:
        return
    held: _Held = []
    try:
        for size_bytes in BLOCK_BYTES:
            began_s = monotonic()
            yield from _take(heap, size_bytes, held, used_bytes)
            if monotonic() - began_s > STEP_S / 2:  # also if the allocator has only sorted pieces
                yield
        while held:
            _give_back(heap, held)
            yield
    finally:
        for block, _ in held:
            heap.free(block)


def _take(
    heap: Heap, size_bytes: int, held: _Held, used_bytes: Callable[[], int | None]
) -> Iterator[None]:
    """Take free blocks until none is left below the heap's end."""
    end = heap.sbrk(0)
    while True:
        before_bytes, before = used_bytes() or 0, len(held)
        until_s = monotonic() + STEP_S
        while len(held) - before < BLOCKS_PER_STEP and monotonic() < until_s:
            block = heap.malloc(size_bytes)
            if block is None:
                return
            if block + size_bytes > end:  # the heap has grown for it, or it is elsewhere
                heap.free(block)
                return
            held.append((block, size_bytes))
        yield
        growth_bytes = (used_bytes() or 0) - before_bytes
        if growth_bytes > GROWTH_SHARE * (len(held) - before) * size_bytes:
            return


def _give_back(heap: Heap, held: _Held) -> None:
    """Give back the pages of as many blocks as one step may take, and free the blocks."""
    page = mmap.PAGESIZE
    left_bytes, until_s = STEP_BYTES, monotonic() + STEP_S
    for _ in range(min(len(held), BLOCKS_PER_STEP)):
        block, size_bytes = held.pop()
        first, end = -(-block // page) * page, (block + size_bytes) // page * page
        heap.madvise(first, end - first, mmap.MADV_DONTNEED)
        heap.free(block)
        left_bytes -= size_bytes
        if left_bytes <= 0 or monotonic() >= until_s:
            return


class _Glibc:
    """The functions of glibc. All are short, so they keep the interpreter's lock."""

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415 - seldom needed

        library = ctypes.PyDLL(None)
        library.malloc_trim  # noqa: B018 - only glibc has it
        self.mallopt: Any = library.mallopt
        self.malloc, self.free, self.sbrk = library.malloc, library.free, library.sbrk
        self.madvise = library.madvise
        self.malloc.argtypes, self.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
        self.free.argtypes, self.free.restype = (ctypes.c_void_p,), None
        self.sbrk.argtypes, self.sbrk.restype = (ctypes.c_ssize_t,), ctypes.c_size_t
        self.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@cache
def _glibc() -> Heap | None:
    try:
        return _Glibc()
    except AttributeError:  # another C library
        return None
