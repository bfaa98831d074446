# cython: language_level=3, binding=False
"""Arenas in huge pages, and the emptying of objects.

Why is said in ``leveret/core/system/huge_pages.py`` and ``fields.py`` beside it.

Arenas, of 1 MiB in Python 3.11, come from blocks that begin where a huge page does. One goes back to the system by
itself, as it does without this module, wherever it has come from: an earlier arena needs no other way.
"""

from libc.stdint cimport uintptr_t

cdef extern from *:
    """
    #include <sys/mman.h>
    #ifndef MADV_HUGEPAGE
    #define MADV_HUGEPAGE -1  /* only Linux has it; other systems refuse the advice */
    #endif
    #ifndef KERNEL_SOURCE_HASH
    #define KERNEL_SOURCE_HASH ""
    #endif
    """
    const char *KERNEL_SOURCE_HASH
    const int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MADV_HUGEPAGE
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

cdef uintptr_t _next = 0  # the part of a block from which no arena has been taken
cdef uintptr_t _end = 0


cdef void *_map(size_t size) noexcept:
    cdef void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    return NULL if memory == MAP_FAILED else memory


cdef void *_alloc(void *ctx, size_t size) noexcept:
    global _next, _end
    cdef uintptr_t mapped, before
    if _end - _next < size:
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
    _next += size
    return <void *>(_next - size)


cdef void _free(void *ctx, void *arena, size_t size) noexcept:
    munmap(arena, size)


def use_huge_pages():
    """Have the interpreter take its arenas in huge pages from now on."""
    cdef PyObjectArenaAllocator allocator
    allocator.ctx, allocator.alloc, allocator.free = NULL, _alloc, _free
    PyObject_SetArenaAllocator(&allocator)


def clear_fields(emptied not None):
    """Let go of all that an object refers to; its attributes are gone, as after ``del``."""
    if Py_TYPE(emptied).tp_clear != NULL:
        Py_TYPE(emptied).tp_clear(emptied)
