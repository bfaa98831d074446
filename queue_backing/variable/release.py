"""Release: free entries that a queue has dropped, a slice a turn.

Freeing a million entries takes a good part of a second, and their contents on disk must be given up
as well. So large containers are put aside and freed by the timeouts that follow; small ones are freed at
once. None of the queue's counters includes them any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from leveret.core.entry import CONTENT_ON_DISK, INDEX_ON_DISK

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.queue_backing.index.api import QueueIndex

SLICE: Final = 10_000  # entries freed in one go, some milliseconds

NOTHING_ON_DISK: Final = "nothing"  # ack nothing: nothing is on disk, or the queue is deleted there
CONTENTS: Final = "contents"  # ack contents without a row; the rows were acked as ranges
ROWS_AND_CONTENTS: Final = "rows"  # ack all that is on disk


class Release:
    """Containers that wait to be freed.

    Args:
        index: acks rows and contents on disk; None as long as nothing can be on disk.
    """

    __slots__ = ("_aside", "index")

    def __init__(self, index: QueueIndex | None) -> None:
        self.index = index
        self._aside: list[tuple[deque[Entry] | dict[int, Entry], str]] = []

    def __bool__(self) -> bool:
        return bool(self._aside)

    def take(self, entries: deque[Entry] | dict[int, Entry], what: str) -> None:
        """Free a container that nothing else refers to: at once, or a slice a turn if it is large."""
        if len(entries) > SLICE:
            self._aside.append((entries, what))
        else:
            self._free(entries, what, len(entries))

    def do_some(self) -> None:
        entries, what = self._aside[-1]
        self._free(entries, what, min(SLICE, len(entries)))
        if not entries:
            self._aside.pop()

    def free_rows(self) -> None:
        for entries, what in self._aside:
            if what == ROWS_AND_CONTENTS:
                self._free(entries, what, len(entries))
        self._aside = [each for each in self._aside if each[0]]

    def abandon(self) -> None:
        """Leave the disk alone from now on: the queue has ended there."""
        self._aside = [(entries, NOTHING_ON_DISK) for entries, _ in self._aside]

    def _free(self, entries: deque[Entry] | dict[int, Entry], what: str, count: int) -> None:
        if isinstance(entries, dict):
            take_item = entries.popitem
            gone = [take_item()[1] for _ in range(count)]
        else:
            take: Callable[[], Entry] = entries.pop
            gone = [take() for _ in range(count)]
        if what == NOTHING_ON_DISK:
            return
        stored = [entry for entry in gone if entry[CONTENT_ON_DISK]]
        if what == CONTENTS:
            stored = [entry for entry in stored if not entry[INDEX_ON_DISK]]
        if stored:
            assert self.index is not None
            self.index.ack(stored)
