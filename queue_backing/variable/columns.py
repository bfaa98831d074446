"""Columns: messages of a queue that nobody has asked for yet, in columns instead of entries.

What was published and not handed out has consecutive seqs, and mostly the same persistence and no expiry.
So one reference per message is enough, eight bytes for a message that stands in many queues, where an
entry takes 120. Entries are made when the messages are wanted. Columns::

    messages     one by one
    flags        persistence in stretches: +count persistent ones, -count transient ones
    expiries_ms  one by one, from the first message that has one; None until then

All of them are exact ints or tuples of bytes: nothing for the garbage collector
(``docs/decisions/0003-messages-are-tuples.md``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain, repeat
from typing import TYPE_CHECKING

from leveret.queue_backing.status import NEVER_MS

if TYPE_CHECKING:
    from leveret.core.message import Message
    from leveret.queue_backing.status import Entry


class Columns:
    """The columns.

    Attributes:
        messages: oldest first; only to be looked at.
    """

    __slots__ = ("_expiries_ms", "_flags", "messages")

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self._flags: deque[int] = deque()
        self._expiries_ms: deque[int] | None = None

    def append(
        self, messages: list[Message], persistent: bool, expiries_ms: list[int] | None
    ) -> None:
        """Take a batch of at least one message in."""
        if expiries_ms is not None and self._expiries_ms is None:
            self._expiries_ms = deque(repeat(NEVER_MS, len(self.messages)))
        if self._expiries_ms is not None:
            self._expiries_ms.extend(expiries_ms or repeat(NEVER_MS, len(messages)))
        self.messages.extend(messages)
        count = len(messages) if persistent else -len(messages)
        flags = self._flags
        if flags and (flags[-1] > 0) is persistent:
            flags[-1] += count
        else:
            flags.append(count)

    def take(self, count: int, end_seq: int) -> Iterable[Entry]:
        """Take the oldest messages out, as entries.

        Args:
            count: how many, at most all.
            end_seq: the seq that follows the youngest one's.
        """
        messages = self.messages
        first = end_seq - len(messages)
        flags = self._take_flags(count)
        expiries_ms: Iterable[int] = repeat(NEVER_MS)
        if self._expiries_ms is not None:
            pop_ms = self._expiries_ms.popleft
            expiries_ms = [pop_ms() for _ in range(count)]
        if count < len(messages):
            pop = messages.popleft
            taken = [pop() for _ in range(count)]
        else:
            taken = list(messages)
            messages.clear()
            self._expiries_ms = None
        return zip(range(first, first + count), taken, expiries_ms, flags, strict=False)

    def _take_flags(self, count: int) -> Iterable[bool]:
        flags = self._flags
        if abs(flags[0]) > count:
            is_persistent = flags[0] > 0
            flags[0] -= count if is_persistent else -count
            return repeat(is_persistent, count)
        stretches = []
        while count:
            stretch = flags.popleft()
            length = min(abs(stretch), count)
            if length < abs(stretch):
                flags.appendleft(stretch - length if stretch > 0 else stretch + length)
            stretches.append(repeat(stretch > 0, length))
            count -= length
        return chain.from_iterable(stretches)

    def check(self) -> None:
        """Assert that the columns are equally long; for tests."""
        assert sum(map(abs, self._flags)) == len(self.messages)
        assert 0 not in self._flags
        assert self._expiries_ms is None or len(self._expiries_ms) == len(self.messages)
