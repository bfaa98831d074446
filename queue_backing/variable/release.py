"""Release: free entries that a queue has dropped, a slice a turn.

Freeing a million entries takes a good part of a second, so does freeing a few GiB of bodies, and their contents on
disk must be given up as well. So containers are put aside and freed by the timeouts that follow. Only the smallest are
freed at once, since all levels of a priority queue may be purged in one turn. None of the queue's counters includes
them any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leveret.core.entry import CONTENT_ON_DISK, INDEX_ON_DISK, MESSAGE, SIZE
from leveret.core.message import BODY

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.core.segmented_dict import ByNumber
    from leveret.queue_backing.index.api import QueueIndex

FREED_PER_TURN: Final = 10_000  # entries freed in one go, some milliseconds
# Of their bodies in RAM; the system takes 70 us to take back a MiB.
FREED_BYTES_PER_TURN: Final = 32 * 1024 * 1024
FREED_AT_ONCE: Final = 32  # entries of a container; 255 levels of four parts each are 32,640

NOTHING_ON_DISK: Final = "nothing"  # ack nothing: nothing is on disk, or the queue is deleted there
CONTENTS: Final = "contents"  # ack contents without a row; the rows were acked as ranges
_PARTS_OF_A_MESSAGE: Final = 3  # an entry has more

Container: TypeAlias = "deque[Entry] | ByNumber[Entry] | list[Entry]"


class Release:
    """Containers that wait to be freed.

    Args:
        index: acks contents on disk; None as long as nothing can be on disk.
    """

    __slots__ = ("_aside", "index")

    def __init__(self, index: QueueIndex | None) -> None:
        self.index = index
        self._aside: list[tuple[Container, str]] = []

    def __bool__(self) -> bool:
        return bool(self._aside)

    def take(self, entries: Container, what: str) -> None:
        """Free a container that nothing else refers to: a few entries at once, more in the next turns."""
        self._aside.append((entries, what))
        if len(entries) <= FREED_AT_ONCE:
            self.do_some()

    def do_some(self) -> None:
        entries, what = self._aside[-1]
        self._free(entries, what)
        if not entries:
            self._aside.pop()

    def abandon(self) -> None:
        """Leave the disk alone from now on: the queue has ended there."""
        self._aside = [(entries, NOTHING_ON_DISK) for entries, _ in self._aside]

    def _free(self, entries: Container, what: str) -> None:
        gone: list[Entry] = []
        size_bytes = 0
        take = _taking(entries)
        while entries and len(gone) < FREED_PER_TURN and size_bytes < FREED_BYTES_PER_TURN:
            entry = take()
            gone.append(entry)
            size_bytes += _bytes_in_ram(entry)
        if what == NOTHING_ON_DISK:
            return
        stored = [entry for entry in gone if entry[CONTENT_ON_DISK] and not entry[INDEX_ON_DISK]]
        if stored:
            assert self.index is not None
            self.index.ack(stored)


def _taking(entries: Container) -> Callable[[], Entry]:
    """Return what removes and returns one entry of a container."""
    if isinstance(entries, MutableMapping):
        return lambda: entries.popitem()[1]
    return entries.pop


def _bytes_in_ram(entry: tuple[Any, ...]) -> int:
    """Return the size of the body that an entry, or a message of a column, holds."""
    if len(entry) == _PARTS_OF_A_MESSAGE:
        return len(entry[BODY])
    return 0 if entry[MESSAGE] is None else int(entry[SIZE])
