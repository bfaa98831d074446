"""Pins: segments that must stay although no message in them is needed, because a snapshot reads them.

A pin keeps a file from being unlinked and from being chosen by the collector; it keeps no message
alive. A file may be pinned several times. For the loop only; forgotten when the process ends, and every
reader that relies on a pin ends with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator


class Pins:
    """Counts the pins of each segment; ``freed`` is called when a file has lost its last pin."""

    def __init__(self, freed: Callable[[], None] | None = None) -> None:
        self.freed = freed
        self._counts: Counter[int] = Counter()

    def pin(self, file_nos: Iterable[int]) -> None:
        self._counts.update(file_nos)

    def unpin(self, file_nos: Iterable[int]) -> None:
        """Take a pin of each file back; ``ValueError``, and nothing is done, if one has none."""
        less = Counter(file_nos)
        wrong = [file_no for file_no, count in less.items() if count > self._counts[file_no]]
        if wrong:
            raise ValueError(f"segment {wrong[0]:08x} is not pinned so often")
        self._counts -= less  # drops those at zero
        if self.freed is not None and any(file_no not in self._counts for file_no in less):
            self.freed()

    def __contains__(self, file_no: object) -> bool:
        return file_no in self._counts

    def __iter__(self) -> Iterator[int]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)
