# cython: language_level=3, binding=False
"""Arenas in huge pages, what is free in them, and the emptying of objects.

Why is said in ``leveret/core/system/huge_pages.py``, ``free_pools.py`` and ``fields.py`` beside it.

Arenas, of 1 MiB in Python 3.11, come from blocks that begin where a huge page does. One goes back to the system by
itself, as it does without this module, wherever it has come from: an earlier arena needs no other way. The interpreter
asks for memory of frames, of 16 KiB, in the same way. Frames get none of a block: the arenas behind it would begin
anywhere in a huge page, and the rest at the block's end, too small for an arena, would stay.
"""

from libc.stdint cimport uintptr_t
from libc.stdlib cimport realloc

cdef extern from *:
    """
    #include <sys/mman.h>
    #include <unistd.h>
    /* The head of a pool (Objects/obmalloc.c; since 3.12 Include/internal/pycore_obmalloc.h), if this Python is one of
       those whose pools are known to be like this. On other systems than Linux the advice has another meaning. */
    struct leveret_pool {
        union { unsigned char *padding; unsigned int count; } used;
        unsigned char *free_block;
        struct leveret_pool *next, *previous;
        unsigned int arena_no, size_class, next_offset, last_offset;
    };
    #if defined(__linux__) && defined(WITH_PYMALLOC) && !defined(Py_GIL_DISABLED) && SIZEOF_VOID_P == 8 \\
        && PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000
    #define KNOWS_POOLS 1
    #else
    #define KNOWS_POOLS 0
    #endif
    #ifndef MADV_HUGEPAGE
    #define MADV_HUGEPAGE -1  /* only Linux has it; other systems refuse the advice */
    #endif
    #ifndef KERNEL_SOURCE_HASH
    #define KERNEL_SOURCE_HASH ""
    #endif
    """
    const char *KERNEL_SOURCE_HASH
    const int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MADV_HUGEPAGE, MADV_DONTNEED, KNOWS_POOLS
    int getpagesize()
    ctypedef struct Pool "struct leveret_pool":
        unsigned int used "used.count"
        unsigned int arena_no, size_class, last_offset
    void *MAP_FAILED
    void *mmap(void *, size_t, int, int, int, long)
    int munmap(void *, size_t)
    int madvise(void *, size_t, int)

cdef extern from "Python.h":
    ctypedef struct PyObjectArenaAllocator:
        void *ctx
        void *(*alloc)(void *, size_t) noexcept
        void (*free)(void *, void *, size_t) noexcept
    void PyObject_SetArenaAllocator(PyObjectArenaAllocator *)
    ctypedef struct PyTypeObject:
        int (*tp_clear)(object) except -1
    PyTypeObject *Py_TYPE(object)

SOURCE_HASH = KERNEL_SOURCE_HASH.decode("ascii")

cdef enum:
    HUGE_PAGE = 2 * 1024 * 1024
    BLOCK = 16 * HUGE_PAGE
    ARENA_BYTES = 1024 * 1024
    POOL_BYTES = 16 * 1024
    NO_CLASS = 0xffff  # the interpreter writes a pool of no size class anew before it takes a block from it
    CLASSES = 32  # of 16 to 512 bytes
    USED_POOLS_MAX = 16  # of 64: an arena that has more keeps its huge page
    ARENAS_PER_STEP = 8

cdef uintptr_t _next = 0  # the part of a block from which no arena has been taken
cdef uintptr_t _end = 0


cdef uintptr_t *_arenas = NULL  # those in use
cdef size_t _count = 0
cdef size_t _room = 0


cdef void _note(uintptr_t arena) noexcept:
    global _arenas, _room, _count
    cdef void *grown
    if _count == _room:
        grown = realloc(_arenas, 2 * (_room + 32) * sizeof(uintptr_t))
        if grown == NULL:
            return  # its free pools stay
        _arenas, _room = <uintptr_t *>grown, 2 * (_room + 32)
    _arenas[_count] = arena
    _count += 1


cdef void _forget(uintptr_t arena) noexcept:
    global _count
    cdef size_t at
    for at in range(_count):
        if _arenas[at] == arena:
            _count -= 1
            _arenas[at] = _arenas[_count]
            return


cdef void *_map(size_t size) noexcept:
    cdef void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    return NULL if memory == MAP_FAILED else memory


cdef void *_alloc(void *ctx, size_t size) noexcept:
    global _next, _end
    cdef uintptr_t mapped, before
    if size != ARENA_BYTES:
        return _map(size)
    if _next == _end:
        mapped = <uintptr_t>_map(BLOCK + HUGE_PAGE)
        if not mapped:
            return _map(size)
        before = -mapped % HUGE_PAGE
        if before:
            munmap(<void *>mapped, before)
        _next = mapped + before
        _end = _next + BLOCK
        munmap(<void *>_end, HUGE_PAGE - before)
        madvise(<void *>_next, BLOCK, MADV_HUGEPAGE)
    _next += ARENA_BYTES
    _note(_next - ARENA_BYTES)
    return <void *>(_next - ARENA_BYTES)


cdef void _free(void *ctx, void *arena, size_t size) noexcept:
    _forget(<uintptr_t>arena)
    munmap(arena, size)


cdef bint _is_mostly_free(uintptr_t arena) noexcept:
    """Return whether few pools are in use; false as well if one is not as pools are known to be."""
    cdef Pool *pool
    cdef size_t at
    cdef int used = 0
    for at in range(0, ARENA_BYTES, POOL_BYTES):
        pool = <Pool *>(arena + at)
        if pool.last_offset == 0:
            break  # there was none yet, here or behind
        if pool.arena_no != (<Pool *>arena).arena_no:
            return False
        if pool.size_class == NO_CLASS:
            if pool.used:
                return False
        elif pool.size_class >= CLASSES or pool.last_offset != POOL_BYTES - 16 * (pool.size_class + 1):
            return False
        used += pool.used != 0
    return used <= USED_POOLS_MAX


def give_back_free_pools(size_t first):
    """Give memory of free pools back, in a few arenas; return the number of the next one, 0 when there is none.

    The head of a pool, of 48 bytes, stays, and so does its page. ``first`` is the number of an arena, from 0 on.
    """
    cdef size_t page = getpagesize(), last, number, at
    cdef Pool *pool
    if not KNOWS_POOLS or page >= POOL_BYTES:
        return 0
    last = min(_count, first + ARENAS_PER_STEP)
    for number in range(first, last):
        if not _is_mostly_free(_arenas[number]):
            continue
        for at in range(0, ARENA_BYTES, POOL_BYTES):
            pool = <Pool *>(_arenas[number] + at)
            if pool.last_offset == 0:
                break
            if not pool.used and pool.size_class != NO_CLASS:
                pool.size_class = NO_CLASS
                madvise(<char *>pool + page, POOL_BYTES - page, MADV_DONTNEED)
    return last if last < _count else 0


def use_huge_pages():
    """Have the interpreter take its arenas in huge pages from now on."""
    cdef PyObjectArenaAllocator allocator
    allocator.ctx, allocator.alloc, allocator.free = NULL, _alloc, _free
    PyObject_SetArenaAllocator(&allocator)


def clear_fields(emptied not None):
    """Let go of all that an object refers to; its attributes are gone, as after ``del``."""
    if Py_TYPE(emptied).tp_clear != NULL:
        Py_TYPE(emptied).tp_clear(emptied)
