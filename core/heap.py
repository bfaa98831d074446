"""Free memory of the C library's allocator (glibc), given back to the system.

Memory that is freed between two blocks in use still counts as used until ``malloc_trim`` is called. That takes 0.1 s
per GB, cannot be told to do less, and holds the allocator's lock, so in another thread it would stop the event loop
as well. ``trim_in_steps`` therefore takes most of the free memory first, in blocks that it does not write to, and
frees them again ``STEP_BYTES`` at a time, with a call of ``malloc_trim`` after each.

Turned down: a trim whenever so much has been freed, since bursts that follow one another would take a page fault
for each 4 KiB; blocks that are returned one by one with ``madvise``, since small ones cost more than the trim.
"""

from __future__ import annotations

from array import array
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEP_BYTES: Final = (
    64 * 1024 * 1024
)  # given back in some 10 ms, in 45 when the rest is a million small pieces
# The allocator maps each block of 128 KiB or more, so larger ones would not come from the heap. The second size takes
# the gaps between blocks in use that are too small for the first.
BLOCK_BYTES: Final = (120 * 1024, 8 * 1024)
BLOCKS_PER_STEP: Final = 10_000  # taken in some 5 ms
# Where free memory went back before, each block that is taken makes the process grow by the page with the block's
# head. A step by which the process grows by this share of the blocks is the last: there is little to give back.
GROWTH_SHARE: Final = 0.1

_ARENA_MAX: Final = -8  # M_ARENA_MAX of malloc.h


class Heap(Protocol):
    """The allocator: functions of C."""

    def malloc(self, size_bytes: int, /) -> int | None: ...
    def free(self, block: int, /) -> object: ...
    def sbrk(self, more_bytes: int, /) -> int: ...
    def malloc_trim(self, kept_bytes: int, /) -> object: ...
    def mallopt(self, parameter: int, value: int, /) -> object: ...


def share_arena() -> None:
    """Have all threads allocate from one arena; to be called before the first thread is started.

    By default threads have arenas of their own, up to eight per processor, and ``malloc_trim`` does not give back the
    free memory at the end of these. Threads that open stores left some 15 MiB there in each.
    """
    heap = _glibc()
    if heap is not None:
        heap.mallopt(_ARENA_MAX, 1)


def trim() -> None:
    """Give all free memory back at once."""
    heap = _glibc()
    if heap is not None:
        heap.malloc_trim(0)


def trim_in_steps(used_bytes: Callable[[], int | None], heap: Heap | None = None) -> Iterator[None]:
    """Give free memory back, and yield after each step.

    Args:
        used_bytes: returns the resident memory of this process.
        heap: the C library's, if none is given.
    """
    heap = heap or _glibc()
    if heap is None:
        return
    held = array("Q")
    sizes: list[tuple[int, int]] = []  # of blocks, and how many are held
    try:
        for size_bytes in BLOCK_BYTES:
            before = len(held)
            yield from _take(heap, size_bytes, held, used_bytes)
            sizes.append((size_bytes, len(held) - before))
        heap.malloc_trim(0)
        yield
        for size_bytes, count in reversed(sizes):
            at_once = STEP_BYTES // size_bytes
            for left in range(count, 0, -at_once):
                _free(heap, held, min(left, at_once))
                heap.malloc_trim(0)
                yield
    finally:
        _free(heap, held, len(held))


def _take(
    heap: Heap, size_bytes: int, held: array[int], used_bytes: Callable[[], int | None]
) -> Iterator[None]:
    """Take free blocks until none is left below the heap's end."""
    end = heap.sbrk(0)
    while True:
        before_bytes = used_bytes() or 0
        for _ in range(BLOCKS_PER_STEP):
            block = heap.malloc(size_bytes)
            if block is None:
                return
            if block + size_bytes > end:  # the heap has grown for it, or it is elsewhere
                heap.free(block)
                return
            held.append(block)
        yield
        growth_bytes = (used_bytes() or 0) - before_bytes
        if growth_bytes > GROWTH_SHARE * BLOCKS_PER_STEP * size_bytes:
            return


def _free(heap: Heap, held: array[int], count: int) -> None:
    for _ in range(count):
        heap.free(held.pop())


class _Glibc:
    """The functions of glibc. The short ones keep the interpreter's lock."""

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415 - seldom needed

        library, short = ctypes.CDLL(None), ctypes.PyDLL(None)
        self.malloc_trim: Any = library.malloc_trim
        self.mallopt: Any = library.mallopt
        self.malloc, self.free, self.sbrk = short.malloc, short.free, short.sbrk
        self.malloc.argtypes, self.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
        self.free.argtypes, self.free.restype = (ctypes.c_void_p,), None
        self.sbrk.argtypes, self.sbrk.restype = (ctypes.c_ssize_t,), ctypes.c_size_t


@cache
def _glibc() -> Heap | None:
    try:
        return _Glibc()
    except AttributeError:  # another C library
        return None
