"""Mail, and mail sorted by priority for classes that have ``prioritise``.

Senders append to the one mailbox of any actor; the actor's turn sorts the mail into
levels, as gen_server2 does, so that other actors pay nothing. Within a level the order is that of
arrival, hence per pair of actors as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

# Message, and its sender or None. A timer knows its mail by identity, which mypyc takes from tuples of a fixed length.
Mail = tuple[Any, ...]

# Classes of mail seen so far, without ``absorb`` and with it.
PLAIN_MAILS: set[type] = {str, int, tuple}
MERGING_MAILS: set[type] = set()
_CLASSES_MAX: Final = 1_000


def absorbs(last: Any, message: Any) -> bool:
    """Let the last waiting mail, of any class, absorb ``message``; return whether it did."""
    kind = last.__class__
    merges = hasattr(kind, "absorb")
    known = MERGING_MAILS if merges else PLAIN_MAILS
    if len(known) < _CLASSES_MAX:
        known.add(kind)
    return merges and bool(last.absorb(message))


class Levels:
    """One deque per level that was ever used; a class has a handful of levels."""

    __slots__ = ("_falling", "_queues")

    def __init__(self) -> None:
        self._queues: dict[int, deque[Mail]] = {}
        self._falling: list[int] = []  # the levels, highest first

    def take(self, inbox: deque[Mail], prioritise: Callable[[Any], int]) -> None:
        """Sort everything that has arrived; a mail may be absorbed by the last of its level."""
        while inbox:
            mail = inbox.popleft()
            level = prioritise(mail[0])
            queue = self._queues.get(level)
            if queue is None:
                queue = self._queues[level] = deque()
                self._falling = sorted(self._queues, reverse=True)
            elif queue:
                last = queue[-1][0]
                if last.__class__ not in PLAIN_MAILS and absorbs(last, mail[0]):
                    continue
            queue.append(mail)

    def pop(self) -> Mail | None:
        """Return the oldest mail of the highest level that has one."""
        for level in self._falling:
            queue = self._queues[level]
            if queue:
                return queue.popleft()
        return None

    def remove(self, matches: Callable[[Mail], bool]) -> None:
        for queue in self._queues.values():
            for index, waiting in enumerate(queue):
                if matches(waiting):
                    del queue[index]
                    return

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __bool__(self) -> bool:
        return any(self._queues.values())

    def __iter__(self) -> Iterator[Mail]:
        for level in self._falling:
            yield from self._queues[level]
