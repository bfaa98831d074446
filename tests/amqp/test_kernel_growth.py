"""A body that grows is not moved: to copy 33 MiB to fresh pages takes 30 ms, and 100 ms on some virtual machines.

Tests: amqp/_kernel_c_content.pxi
"""

from __future__ import annotations

import ctypes
import resource
import struct
import sys
from collections.abc import Iterator

import pytest

from leveret.amqp import methods as m

MB = 1 << 20
PAGE_BYTES = resource.getpagesize()
compiled = pytest.importorskip("leveret.amqp._kernel_c")


@pytest.fixture
def _gap_in_the_heap() -> Iterator[None]:
    """Leave 50 MiB free between blocks of the C library's heap, where it may place what it else maps."""
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
    scanner = compiled.Scanner(131_072, size)
    head = struct.pack(">HHQH", 60, 0, size, 0)
    scanner.scan(
        m.method_frame(1, m.encode(m.BasicPublish("", "q")))
        + struct.pack(">BHI", 2, 1, len(head)) + head + b"\xce"
    )  # fmt: skip
    body = struct.pack(">BHI", 3, 1, 131_064) + bytes(131_064) + b"\xce"
    touched_bytes = []
    for _ in range(100 * MB // 131_064):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        scanner.scan(body)
        faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
        touched_bytes.append(faults * PAGE_BYTES)

    assert max(touched_bytes) < 8 * MB
