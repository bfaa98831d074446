"""CPU time of a process and its descendants, from ``/proc/PID/task/*/schedstat`` (ns, Linux)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path


def descendants(root: int) -> list[int]:
    """Return a process and its descendants."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children[parent].append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        found.append(process := waiting.pop())
        waiting += children[process]
    return found


def _parent(entry: Path) -> int | None:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has just ended
        return None


def used_ns(processes: Iterable[int]) -> int:
    """Return the CPU time of all threads of the processes; an ended process counts 0."""
    total = 0
    for process in processes:
        for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
            try:
                total += int(path.read_text().split()[0])
            except OSError:  # the thread has just ended
                continue
    return total


class Meter:
    """CPU used by processes between ``start`` and ``read``."""

    def __init__(self, roots: Iterable[int]) -> None:
        self._processes = [process for root in roots for process in descendants(root)]
        self._before_ns = 0

    def start(self) -> None:
        self._before_ns = used_ns(self._processes)

    def read_ns(self) -> int:
        return used_ns(self._processes) - self._before_ns
