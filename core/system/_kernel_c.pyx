# cython: language_level=3, binding=False
"""Arenas in huge pages, what is free in them, and the emptying of objects.

Why is said in ``leveret/core/system/huge_pages.py``, ``free_pools.py`` and ``fields.py`` beside it.

Arenas, of 1 MiB in Python 3.11, are halves of huge pages. One goes back to the system by itself, as it does without
this module, wherever it has come from: an earlier arena needs no other way. The interpreter asks for memory of frames,
of 16 KiB, in the same way. Frames get none of a huge page: the arenas behind it would begin anywhere in one.

A thread that has no part in the interpreter, and so never waits for its lock, keeps huge pages in stock. It takes them
from blocks and touches each once. The interpreter's threads take them out; while there is none they take small pages.
They do not wait for the stock's lock either: a process that was forked meanwhile would find it taken for ever.
"""

from libc.stdint cimport uintptr_t
from libc.stdlib cimport realloc

cdef extern from *:
    """
    #include <pthread.h>
    #include <signal.h>
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
    unsigned int sleep(unsigned int) nogil
    ctypedef struct Pool "struct leveret_pool":
        unsigned int used "used.count"
        unsigned int arena_no, size_class, last_offset
    void *MAP_FAILED
    void *mmap(void *, size_t, int, int, int, long) nogil
    int munmap(void *, size_t) nogil
    int madvise(void *, size_t, int) nogil

    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_attr_t:
        pass
    ctypedef struct pthread_t:
        pass
    ctypedef struct sigset_t:
        pass
    const int SIG_SETMASK, PTHREAD_CREATE_DETACHED
    int pthread_mutex_init(pthread_mutex_t *, void *)
    int pthread_mutex_lock(pthread_mutex_t *) nogil
    int pthread_mutex_trylock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *) nogil
    int pthread_cond_init(pthread_cond_t *, void *)
    int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *) nogil
    int pthread_cond_signal(pthread_cond_t *)
    int pthread_attr_init(pthread_attr_t *)
    int pthread_attr_setstacksize(pthread_attr_t *, size_t)
    int pthread_attr_setdetachstate(pthread_attr_t *, int)
    int pthread_attr_destroy(pthread_attr_t *)
    int pthread_create(pthread_t *, pthread_attr_t *, void *(*)(void *) noexcept nogil, void *)
    int pthread_sigmask(int, sigset_t *, sigset_t *)
    int sigfillset(sigset_t *)

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
    STOCK = 2
    STACK_BYTES = 256 * 1024  # of the thread
    ARENA_BYTES = 1024 * 1024
    POOL_BYTES = 16 * 1024
    NO_CLASS = 0xffff  # the interpreter writes a pool of no size class anew before it takes a block from it
    CLASSES = 32  # of 16 to 512 bytes
    USED_POOLS_MAX = 16  # of 64: an arena that has more keeps its huge page
    ARENAS_PER_STEP = 8

cdef uintptr_t _half = 0  # of a huge page whose other half is an arena

cdef pthread_mutex_t _lock  # of the next three
cdef pthread_cond_t _wanted
cdef uintptr_t _stock[STOCK]
cdef int _stocked = 0
cdef bint _runs = False  # the thread

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


cdef void *_map(size_t size) noexcept nogil:
    cdef void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    return NULL if memory == MAP_FAILED else memory


cdef uintptr_t _map_aligned(size_t size, size_t alignment) noexcept nogil:
    """Map memory that begins at a multiple; 0: there is none. What is left over is below if possible, for the next."""
    cdef uintptr_t mapped = <uintptr_t>_map(size + alignment)
    cdef size_t before = alignment - mapped % alignment
    if not mapped:
        return 0
    munmap(<void *>mapped, before)
    if before < alignment:
        munmap(<void *>(mapped + before + size), alignment - before)
    return mapped + before


cdef void *_fill_stock(void *ignored) noexcept nogil:
    """Keep the stock full, in a thread of its own."""
    global _stocked
    cdef uintptr_t page = 0, end = 0
    while True:
        if page == end:
            page = _map_aligned(BLOCK, HUGE_PAGE)
            end = page + BLOCK if page else 0
            if not page:
                sleep(1)
                continue
            madvise(<void *>page, BLOCK, MADV_HUGEPAGE)
        (<volatile char *>page)[0] = 0
        pthread_mutex_lock(&_lock)
        _stock[_stocked] = page
        _stocked += 1
        while _stocked == STOCK:
            pthread_cond_wait(&_wanted, &_lock)
        pthread_mutex_unlock(&_lock)
        page += HUGE_PAGE


cdef uintptr_t _take_from_stock() noexcept:
    """Return a huge page; 0: there is none now."""
    global _stocked
    cdef uintptr_t page = 0
    if pthread_mutex_trylock(&_lock):
        return 0
    if _stocked:
        _stocked -= 1
        page = _stock[_stocked]
        pthread_cond_signal(&_wanted)
    pthread_mutex_unlock(&_lock)
    return page


cdef void *_alloc(void *ctx, size_t size) noexcept:
    global _half
    cdef uintptr_t arena = _half
    if size != ARENA_BYTES:
        return _map(size)
    if arena:
        _half = 0
    else:
        arena = _take_from_stock()
        if arena:
            _half = arena + ARENA_BYTES
        else:
            arena = _map_aligned(ARENA_BYTES, POOL_BYTES)
    if arena:
        _note(arena)
    return <void *>arena


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


cdef void _start_thread() noexcept:
    """Start the thread that fills the stock; where there is none, arenas have small pages."""
    cdef pthread_t thread
    cdef pthread_attr_t attributes
    cdef sigset_t all_signals, before
    pthread_attr_init(&attributes)
    pthread_attr_setstacksize(&attributes, STACK_BYTES)
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED)
    sigfillset(&all_signals)
    pthread_sigmask(SIG_SETMASK, &all_signals, &before)  # signals are for the interpreter's threads
    pthread_create(&thread, &attributes, _fill_stock, NULL)
    pthread_sigmask(SIG_SETMASK, &before, NULL)
    pthread_attr_destroy(&attributes)


def use_huge_pages():
    """Have the interpreter take its arenas in huge pages from now on."""
    global _runs
    cdef PyObjectArenaAllocator allocator
    if not _runs:
        _runs = True
        pthread_mutex_init(&_lock, NULL)
        pthread_cond_init(&_wanted, NULL)
        _start_thread()
    allocator.ctx, allocator.alloc, allocator.free = NULL, _alloc, _free
    PyObject_SetArenaAllocator(&allocator)


def clear_fields(emptied not None):
    """Let go of all that an object refers to; its attributes are gone, as after ``del``."""
    if Py_TYPE(emptied).tp_clear != NULL:
        Py_TYPE(emptied).tp_clear(emptied)
