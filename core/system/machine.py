"""The memory of the machine, and the memory that this process uses.

*Used* memory is what the system cannot reclaim without swapping: anonymous pages, resident or swapped out. Mapped
files, such as the stores' indexes, belong to the system's cache and are not counted; RabbitMQ counts all resident
pages. *Total* memory is the machine's, or the limit of the innermost control group (version 1 or 2). Without
``/proc``, as on macOS, both are unknown (None). A process without a descriptor left cannot ask: ``OSError``.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from leveret.core.system import free_pools, heap

_USED = re.compile(rb"^(?:RssAnon|VmSwap):\s+(\d+) kB$", re.MULTILINE)
_TOTAL = re.compile(rb"^MemTotal:\s+(\d+) kB$", re.MULTILINE)
_KIB: Final = 1024


class Machine:
    """The machine that this process runs on."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        self._cgroups = root / "sys/fs/cgroup"

    def used_bytes(self) -> int | None:
        """Return the memory used by this process; takes some tens of microseconds.

        Raises:
            OSError: it cannot be read now.
        """
        found = _USED.findall(_read(self._proc / "self/status"))
        return sum(map(int, found)) * _KIB if found else None

    def total_bytes(self) -> int | None:
        """Return the memory of the machine, or of the process's control groups.

        Raises:
            OSError: it cannot be read now.
        """
        found = _TOTAL.search(_read(self._proc / "meminfo"))
        if found is None:
            return None
        return min([int(found[1]) * _KIB, *self._group_limits()])

    def _group_limits(self) -> Iterator[int]:
        """Yield the limits of the process's control groups and of their parents."""
        for line in _read(self._proc / "self/cgroup").decode("utf-8", "replace").splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if number == "0" and not controllers:
                folder, name = self._cgroups, "memory.max"
            elif "memory" in controllers.split(","):
                folder, name = self._cgroups / "memory", "memory.limit_in_bytes"
            else:
                continue
            inner = folder / path.lstrip("/")
            for group in (inner, *inner.parents):
                limit = _read(group / name).strip()
                if limit.isdigit():  # else "max", or no limit here
                    yield int(limit)
                if group == folder:
                    break

    def collect_garbage(self) -> None:
        """Run a full garbage collection. Takes 0.3 s per million of objects, during which nothing else runs."""
        gc.collect()

    def give_back(self) -> None:
        """Return free memory of the allocator to the system (glibc); for threads other than the event loop's.

        Without this call, memory freed between two blocks in use still counts as used: of 1 GB in blocks of
        1 KiB nothing is returned when 95 % of the blocks, scattered, are freed. Takes 0.1 s per GB.
        """
        for _ in self.give_back_in_steps():
            pass

    def give_back_in_steps(self) -> Iterator[None]:
        """As ``give_back``, yielding between steps, none of which takes 10 ms."""
        with suppress(OSError, ImportError):  # no descriptor to load it: another time
            yield from free_pools.give_back_in_steps()
            yield from heap.trim_in_steps(self.used_bytes)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # no such group or system
        return b""
