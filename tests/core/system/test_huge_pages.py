"""Small objects in huge pages; each test has an interpreter of its own, since its arenas stay as they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("leveret.core.system._kernel_c")

pytestmark = pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="needs huge pages of Linux"
)

OBJECTS = """
import os
import re
import time
from pathlib import Path
from leveret.core.system import huge_pages
from leveret.core.system.machine import Machine

here = Machine()
early = [[] for _ in range(100_000)]
huge_pages.use_huge_pages()
time.sleep(0.3)  # the stock is full, and counts before as it does behind
before_bytes = here.used_bytes()
"""

BURST = """
objects = [[] for _ in range(1_000_000)]
"""

STEADY = """
objects = []
for _ in range(100):
    objects += [[] for _ in range(10_000)]
    time.sleep(0.02)  # three of these for each huge page, which is ready in a millisecond, or in 24 where the host is slow
"""

IN_CHILD = """
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

ADVISED = """
advised, at = 0, None
for line in Path("/proc/self/smaps").read_text().splitlines():
    if found := re.match("([0-9a-f]+)-([0-9a-f]+) ", line):
        at = range(*(int(each, 16) for each in found.groups()))
    elif line.startswith("VmFlags:") and "hg" in line.split():
        advised += sum(id(each) in at for each in objects[::1000])
print(advised)
"""

GIVEN_BACK = """
full_bytes = here.used_bytes()
del early, objects
print(full_bytes - before_bytes, here.used_bytes() - before_bytes)
"""

BLOCKED = """
status = {each.name: (each / "status").read_text() for each in Path("/proc/self/task").iterdir()}
del status[str(os.getpid())]
print(*(int(re.search(r"SigBlk:\\s*(\\w+)", each)[1], 16) for each in status.values()))
"""

BURSTS = """
def depth(left):
    return depth(left - 1) if left else 0

del early
for burst in range(21):
    depth(900)  # its frames take memory in the same way as arenas
    objects = [[] for _ in range(400_000)]
    del objects
    if burst == 0:
        time.sleep(0.3)  # the C library keeps what the first list had, and the stock is full again
        first_bytes = here.used_bytes()
print(here.used_bytes() - first_bytes)
"""


def run(program: str) -> list[int]:
    command = [sys.executable, "-c", OBJECTS + program]
    env = os.environ | {"LEVERET_KERNEL": "c"}
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return list(map(int, ran.stdout.split()))


def test_new_objects_lie_where_the_system_gives_huge_pages() -> None:
    (advised,) = run(STEADY + ADVISED)

    assert advised > 950, "of 1,000; the others have filled earlier arenas"


def test_memory_of_freed_objects_goes_back() -> None:
    taken, left = run(BURST + GIVEN_BACK)

    assert taken > 50_000_000
    assert left < 5_000_000


def test_bursts_with_calls_between_them_leave_nothing_between_arenas() -> None:
    (left,) = run(BURSTS)

    assert left < 5_000_000


def test_without_the_thread_that_fills_the_stock_objects_lie_in_small_pages() -> None:
    (advised,) = run(IN_CHILD + BURST + ADVISED)
    taken, left = run(IN_CHILD + BURST + GIVEN_BACK)

    assert advised < 150, "the stock, of 4 MiB, and earlier arenas"
    assert taken > 50_000_000
    assert left < 5_000_000


def test_the_thread_that_fills_the_stock_takes_no_signals() -> None:
    (blocked,) = run(BLOCKED)

    stoppable = {signal.SIGKILL, signal.SIGSTOP}
    assert all(blocked >> each - 1 & 1 for each in signal.valid_signals() - stoppable)
