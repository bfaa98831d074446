"""A body that grows is not moved: to copy 33 MiB to fresh pages takes 30 ms, and 100 ms on some virtual machines.

Tests: amqp/_kernel_c_content.pxi
"""

from __future__ import annotations

import ctypes
import resource
import sys
from collections.abc import Iterator

import pytest

from rigs.wire.amqp_streams import FRAME_MAX, frame, head, publish_method

MB = 1 << 20
PAGE_BYTES = resource.getpagesize()
compiled = pytest.importorskip("leveret.amqp._kernel_c")


@pytest.fixture
def _gap_in_the_heap() -> Iterator[None]:
    """Free 50 MiB in the middle of the C library's heap: ``malloc`` uses such a gap before it asks for pages."""
    library = ctypes.PyDLL(None)
    library.malloc.argtypes, library.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
    library.free.argtypes, library.free.restype = (ctypes.c_void_p,), None
    blocks = [library.malloc(64 * 1024) for _ in range(801)]
    for block in blocks[:-1]:
        library.free(block)
    yield
    library.free(blocks[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="counts the thread's page faults")
@pytest.mark.usefixtures("_gap_in_the_heap")
def test_no_read_touches_much_more_than_it_brings() -> None:
    size = 128 * MB
    scanner = compiled.Scanner(FRAME_MAX, size)
    scanner.scan(frame(1, 1, publish_method()) + frame(2, 1, head(size)))
    body = frame(3, 1, bytes(FRAME_MAX - 8))
    touched_bytes = []
    for _ in range(100 * MB // FRAME_MAX):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        scanner.scan(body)
        faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
        touched_bytes.append(faults * PAGE_BYTES)

    assert max(touched_bytes) < 8 * MB
