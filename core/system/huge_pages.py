"""Huge pages for the interpreter's small objects; ``leveret serve`` only.

A message for one of 50,000 queues touches some 40 objects that lie anywhere in 600 MB. The processor has the addresses
of a few thousand pages at hand, which are 10 MB of small pages, and reads page tables for the others; of huge pages
(2 MiB) the same number are gigabytes. With 50,000 queues a message for one at random takes a third less CPU so
(``docs/decisions/0043-cold-queues.md``).

The interpreter keeps small objects in arenas of 1 MiB, which are too small for a huge page. The compiled kernel has
them taken from larger blocks, which the system is advised to give huge pages (``madvise``). It does that where
``/sys/kernel/mm/transparent_hugepage/enabled`` is ``madvise`` or ``always``. Without a compiled kernel nothing changes.

The first touch of a huge page waits until the system has zeroed it. That takes a quarter of a millisecond, or up to
24 ms in a virtual machine whose host gives the memory only then. So a thread of the kernel's own has two pages ready,
and touches the next when one is taken. Where the interpreter takes memory faster than that, its arenas have small
pages, of which each touch is short.

An arena that the interpreter frees goes back to the system at once, as before. Where the other half of its huge page
is in use, the system takes the memory when it is short of it, although it does not count as used by the process.

Turned down: ``MADV_COLLAPSE`` of the arenas once in a while, since it copies them; huge pages for the C library's heap
(larger blocks, such as bodies), since messages gained nothing, and free memory between blocks goes back in small pages;
``MADV_POPULATE_WRITE`` instead of a touch (meanwhile no other thread can map or free memory, and Linux before 5.14 does
not have it).
"""

from __future__ import annotations

from pathlib import Path

from leveret.core.compiled import compiled_kernel


def use_huge_pages() -> None:
    """Have the interpreter take its arenas in huge pages from now on, if there is a compiled kernel."""
    kernel = compiled_kernel("leveret.core.system", Path(__file__).parent)
    if kernel is not None:
        kernel.use_huge_pages()
