"""Free memory goes back to the system in parts, none of which takes long."""

from __future__ import annotations

import mmap
import subprocess
import sys
from itertools import pairwise

import pytest

from leveret.core.system import heap
from leveret.core.system.heap import BLOCKS_PER_STEP, STEP_BYTES, trim_in_steps
from leveret.core.system.machine import Machine

MIB = 1 << 20
START = 1 << 32
TOTAL_BYTES = 2 << 30


class FakeHeap:
    """An allocator whose free memory is in pieces of one size, and all of it resident.

    Attributes:
        given_back: bytes, by each call.
    """

    def __init__(self, piece_bytes: int, pieces: int) -> None:
        self._piece_bytes = piece_bytes
        self._sizes = dict[int, int]()
        self._next = START
        self.free_bytes = piece_bytes * pieces
        self.growth = 0.0  # of what is taken
        self.used_bytes = self.free_bytes
        self.calls = 0
        self.given_back = list[int]()

    def malloc(self, size_bytes: int) -> int:
        self.calls += 1
        if self._piece_bytes < size_bytes or self.free_bytes < size_bytes:
            self._sizes[2 * sys.maxsize] = 0
            return 2 * sys.maxsize
        self._next += size_bytes
        self._sizes[self._next] = size_bytes
        self.free_bytes -= size_bytes
        self.used_bytes += int(self.growth * size_bytes)
        return self._next

    def free(self, block: int) -> None:
        self.calls += 1
        self._sizes.pop(block)

    def sbrk(self, more_bytes: int) -> int:
        assert not more_bytes
        return sys.maxsize

    def madvise(self, address: int, size_bytes: int, advice: int) -> None:
        self.calls += 1
        assert advice == mmap.MADV_DONTNEED
        assert address % mmap.PAGESIZE == size_bytes % mmap.PAGESIZE == 0
        assert size_bytes <= self._sizes[address], "the rest is of others"
        self.given_back.append(size_bytes)
        self.used_bytes -= size_bytes

    def mallopt(self, parameter: int, value: int) -> None:
        raise AssertionError((parameter, value))

    @property
    def held(self) -> int:
        return len(self._sizes)


@pytest.mark.parametrize("piece_bytes", [TOTAL_BYTES, 16 * 1024])
def test_gigabytes_go_back_in_parts(piece_bytes: int) -> None:
    """At once they take 0.1 s per GB."""
    fake = FakeHeap(piece_bytes, TOTAL_BYTES // piece_bytes)
    most_calls = most_bytes = calls = 0
    used_bytes = fake.used_bytes
    for _ in trim_in_steps(lambda: fake.used_bytes, fake):
        most_calls = max(most_calls, fake.calls - calls)
        most_bytes = max(most_bytes, used_bytes - fake.used_bytes)
        calls, used_bytes = fake.calls, fake.used_bytes

    assert sum(fake.given_back) > 0.99 * TOTAL_BYTES
    assert most_bytes <= STEP_BYTES
    assert most_calls <= 2 * BLOCKS_PER_STEP + 2 * len(heap.BLOCK_BYTES)
    assert not fake.held


def test_a_step_ends_in_time_however_long_the_allocator_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeHeap(TOTAL_BYTES, 1)
    monkeypatch.setattr(heap, "monotonic", lambda: fake.calls * heap.STEP_S / 10)
    most_calls = calls = 0
    for _ in trim_in_steps(lambda: fake.used_bytes, fake):
        most_calls, calls = max(most_calls, fake.calls - calls), fake.calls

    assert sum(fake.given_back) > 0.99 * TOTAL_BYTES
    assert most_calls <= 30  # the last blocks that are taken, and a step of giving back


def test_memory_that_was_given_back_before_is_not_taken() -> None:
    """Its pages would be touched for nothing."""
    fake = FakeHeap(TOTAL_BYTES, 1)
    fake.growth = 2 * heap.GROWTH_SHARE
    for _ in trim_in_steps(lambda: fake.used_bytes, fake):
        pass

    assert fake.calls <= 3 * len(heap.BLOCK_BYTES) * BLOCKS_PER_STEP  # taken, given back, freed
    assert not fake.held


def test_what_is_held_is_freed_when_the_broker_stops_in_between() -> None:
    fake = FakeHeap(TOTAL_BYTES, 1)
    steps = trim_in_steps(lambda: fake.used_bytes, fake)
    next(steps)
    assert fake.held
    steps.close()  # type: ignore[attr-defined]

    assert not fake.held


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc and /proc")
def test_free_memory_between_blocks_in_use_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "STEP_BYTES", 4 * MIB)
    here = Machine()
    here.give_back()
    blocks = [bytes(1_000) for _ in range(64 * 1024)]
    full_bytes = here.used_bytes() or 0
    kept = blocks[::100]
    del blocks
    left = [here.used_bytes() or 0 for _ in here.give_back_in_steps()]

    assert full_bytes - left[-1] > 48 * MIB
    assert max(before - after for before, after in pairwise(left)) <= 8 * MIB
    assert all(block == bytes(1_000) for block in kept)


THREADS_THAT_TAKE_MEMORY = """
import threading
from leveret.core.system import heap
from leveret.core.system.machine import Machine

heap.share_arena()
bytes(31 << 20)  # as serve does: from now on 62 MiB may stay free at an arena's end
here = Machine()
before_bytes = here.used_bytes()
for _ in range(4):
    begun, may_end = threading.Barrier(5), threading.Event()
    def take() -> None:
        [bytes(1_000) for _ in range(12_000)]
        begun.wait()
        may_end.wait()
    threads = [threading.Thread(target=take) for _ in range(4)]
    for each in threads:
        each.start()
    begun.wait()
    may_end.set()
    for each in threads:
        each.join()
here.give_back()
print(here.used_bytes() - before_bytes)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc and /proc")
def test_memory_that_threads_have_freed_goes_back() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", THREADS_THAT_TAKE_MEMORY], capture_output=True, text=True, check=True
    )

    assert int(ran.stdout) < 8 * MIB
