"""Memory of free pools; each test has an interpreter of its own, since its arenas stay as they are."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from itertools import pairwise

import pytest

pytest.importorskip("leveret.core.system._kernel_c")

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux")
    or sys.version_info >= (3, 14)
    or mmap.PAGESIZE >= 16 * 1024,
    reason="needs Linux, a Python whose pools are known, and pages smaller than a pool",
)

PROGRAM = """
import gc
from leveret.core.system import free_pools, huge_pages
from leveret.core.system.machine import Machine

here = Machine()
huge_pages.use_huge_pages()
for _ in range({rounds}):
    before_bytes = here.used_bytes()
    objects = [[number] for number in range(1_000_000)]
    full_bytes = here.used_bytes()
    kept = objects[::{every}]
    del objects
    gc.collect()
    left = [here.used_bytes() - before_bytes]
    for _ in free_pools.give_back_in_steps():
        left.append(here.used_bytes() - before_bytes)
    left.append(here.used_bytes() - before_bytes)
    assert [each[0] for each in kept] == list(range(0, 1_000_000, {every}))
    again = [str(number) * 3 for number in range(500_000)]  # of another size
    assert all(each == str(number) * 3 for number, each in enumerate(again))
    same = [[number] for number in range(500_000)]
    assert all(each[0] == number for number, each in enumerate(same))
    del again, same, kept
print(full_bytes - before_bytes, *left)
"""


def run(rounds: int, every: int) -> list[int]:
    program = PROGRAM.format(rounds=rounds, every=every)
    env = os.environ | {"LEVERET_KERNEL": "c"}
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return list(map(int, ran.stdout.split()))


@pytest.mark.parametrize("rounds", [1, 3])
def test_pools_around_a_few_objects_go_back_in_steps(rounds: int) -> None:
    full, before, *left = run(rounds, every=5_000)

    assert before > 0.6 * full, "each arena holds an object, or most do"
    assert left[-1] < 0.35 * full
    assert max(most - least for most, least in pairwise([before, *left])) < 10_000_000


def test_arenas_in_use_keep_their_huge_pages() -> None:
    _, before, *left = run(1, every=200)

    assert before - left[-1] < 1_000_000
