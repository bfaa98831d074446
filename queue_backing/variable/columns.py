"""Columns: the young end of Q4 in a long queue, a reference per message instead of an entry.

Messages that were published and not yet delivered have consecutive seqs, and mostly the same persistence
and no expiry. A reference takes eight bytes, which matters where a message stands in many queues; an entry
takes 120. Entries are made when the messages are wanted. Columns::

    messages     one by one
    flags        persistence in stretches: +count persistent ones, -count transient ones
    expiries_ms  one by one, from the first message that has one; None until then

All of them are exact ints or tuples of bytes: nothing for the garbage collector
(``docs/decisions/0003-messages-are-tuples.md``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice, repeat
from itertools import count as counter
from typing import TYPE_CHECKING, Any, Final

from leveret.core.entry import EXPIRY_MS, MESSAGE, NEVER_MS, body_of
from leveret.core.message import BODY

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.core.message import Message


NEVER: Final = repeat(NEVER_MS)
NO: Final = repeat(False)
YES: Final = repeat(True)


class Columns:
    """The columns.

    Attributes:
        end_seq: the seq after the youngest message's.
        messages: oldest first; only to be looked at.
    """

    __slots__ = ("_expiries_ms", "_flags", "end_seq", "messages")

    def __init__(self) -> None:
        self.end_seq = 0
        self.messages: deque[Message] = deque()
        self._flags: deque[int] = deque()
        self._expiries_ms: deque[int] | None = None

    def append(
        self, seq: int, messages: list[Message], persistent: bool, expiries_ms: list[int] | None
    ) -> None:
        """Append at least one message; ``seq`` follows the youngest message's without a gap."""
        if expiries_ms is not None and self._expiries_ms is None:
            self._expiries_ms = deque(repeat(NEVER_MS, len(self.messages)))
        if self._expiries_ms is not None:
            self._expiries_ms.extend(expiries_ms or repeat(NEVER_MS, len(messages)))
        self.messages.extend(messages)
        self.end_seq = seq + len(messages)
        length = len(messages) if persistent else -len(messages)
        flags = self._flags
        if flags and (flags[-1] > 0) is persistent:
            flags[-1] += length
        else:
            flags.append(length)

    def take(self, limit: int) -> Iterator[Entry]:
        """Remove the oldest messages, at most all, and return them as entries."""
        messages, expiries_ms = self.messages, self._expiries_ms
        first = self.end_seq - len(messages)
        pop = messages.popleft
        taken = [pop() for _ in range(limit)]
        if expiries_ms is not None:
            expiries_ms = deque([expiries_ms.popleft() for _ in range(limit)])
            if not messages:
                self._expiries_ms = None
        return _entries(first, taken, expiries_ms, self._take_flags(limit))

    def drop(self, limit: int) -> list[Message]:
        """Remove the oldest messages, at most all, and return them without entries."""
        pop = self.messages.popleft
        self._take_flags(limit)
        if self._expiries_ms is not None:
            for _ in range(limit):
                self._expiries_ms.popleft()
        return [pop() for _ in range(limit)]

    def _take_flags(self, limit: int) -> Iterable[bool]:
        flags = self._flags
        if abs(flags[0]) > limit:
            is_persistent = flags[0] > 0
            flags[0] -= limit if is_persistent else -limit
            return YES if is_persistent else NO
        stretches = []
        while limit:
            stretch = flags.popleft()
            length = min(abs(stretch), limit)
            if length < abs(stretch):
                flags.appendleft(stretch - length if stretch > 0 else stretch + length)
            stretches.append(repeat(stretch > 0, length))
            limit -= length
        return chain.from_iterable(stretches)

    def take_youngest(self, limit: int) -> list[Entry]:
        """Remove the youngest messages, transients all, and return them as entries, youngest first."""
        assert self._flags[-1] <= -limit, (
            "persistent messages have entries where they can be paged out"
        )
        messages, expiries_ms = self.messages, self._expiries_ms
        taken = [messages.pop() for _ in range(limit)]
        taken.reverse()
        if expiries_ms is not None:
            expiries_ms = deque([expiries_ms.pop() for _ in range(limit)])
            expiries_ms.reverse()
        self._flags[-1] += limit
        if not self._flags[-1]:
            self._flags.pop()
        self.end_seq -= limit
        entries = list(_entries(self.end_seq, taken, expiries_ms, repeat(False)))
        entries.reverse()
        return entries

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Append entries that ``take_youngest`` returned, now oldest first."""
        back = list(entries)
        expiries_ms = [entry[EXPIRY_MS] for entry in back]
        self.append(self.end_seq, [entry[MESSAGE] for entry in back], False, expiries_ms)

    def entries(self) -> Iterator[Entry]:
        """Yield entries, oldest first, and leave the messages where they are."""
        flags = chain.from_iterable(map(_flags_of, self._flags))
        first = self.end_seq - len(self.messages)
        return _entries(first, self.messages, self._expiries_ms, flags)

    def from_seq(self, seq: int) -> Iterator[Entry]:
        """Yield the entries with this seq and above."""
        return islice(self.entries(), max(0, seq - self.end_seq + len(self.messages)), None)

    def check(self) -> None:
        """Assert that the columns are equally long; for tests."""
        assert sum(map(abs, self._flags)) == len(self.messages)
        assert 0 not in self._flags
        assert self._expiries_ms is None or len(self._expiries_ms) == len(self.messages)


def _flags_of(stretch: int) -> Iterable[bool]:
    return repeat(stretch > 0, abs(stretch))


def _entries(
    first: int,
    messages: Iterable[Message],
    expiries_ms: Iterable[int] | None,
    flags: Iterable[bool],
) -> Iterator[Entry]:
    """Make entries of messages without a number in the store: they have their seqs'."""
    expiries_ms = NEVER if expiries_ms is None else expiries_ms
    return zip(
        counter(first),
        messages,
        expiries_ms,
        flags,
        counter(first),
        map(len, map(body_of, messages)),
        NO,
        NO,
        strict=False,
    )


def entries_of(
    first: int,
    messages: list[Message],
    persistent: bool,
    expiries_ms: list[int] | None,
    size_bytes: int | None,
    first_msg_no: int,
    has_index: bool,
) -> tuple[Any, int]:
    """Return the entries of a batch, to be gone through once, and the size of all bodies.

    Persistent messages of a queue with an index are on disk: position and content have been issued.
    """
    is_on_disk = persistent and has_index
    count = len(messages)
    if count == 1:
        if size_bytes is None:
            size_bytes = len(messages[0][BODY])
        expiry_ms = expiries_ms[0] if expiries_ms else NEVER_MS
        entry = (first, messages[0], expiry_ms, persistent, first_msg_no, size_bytes)
        return ((*entry, is_on_disk, is_on_disk),), size_bytes
    sizes: Iterable[int] = map(len, map(body_of, messages))
    if size_bytes is None:
        sizes = list(sizes)
        size_bytes = sum(sizes)
    flags = YES if is_on_disk else NO
    entries = zip(
        range(first, first + count),
        messages,
        expiries_ms or NEVER,
        YES if persistent else NO,
        range(first_msg_no, first_msg_no + count),
        sizes,
        flags,
        flags,
        strict=False,
    )
    return entries, size_bytes


NO_COLUMNS: Final = Columns()  # shared by queues that have none; always empty
