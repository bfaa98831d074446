"""RowWindow: the stretch of a queue's rows on disk that is in RAM because delta is being loaded.

A queue reads its delta range by range, one soon after the other. So more rows are read than the queue asked
for, and the next ranges are answered from the window. It is a stretch ``[low, high)`` of
seqs of which every row is known, and it stays true while it is in RAM, for the rows of a queue change
by the queue's own doing only: rows that are acked leave it, and new rows ``cut`` it off.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.core.entry import SEQ, seq_of

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.msg_store.format.seq_range import SeqRange

ROWS: Final = 2_048  # read at once, as many as Q3 takes at once

Answer: TypeAlias = (
    "Callable[[list[Entry], int], None]"  # rows, and the seq below which they are all
)
Ask: TypeAlias = Callable[[int, int, Answer], None]


class RowWindow:
    """The window of one queue on one kind of its rows.

    Args:
        ask: reads from a seq on so many rows, or fewer; it calls back in a later turn, with the rows as
            they are in that turn.
        resume: called when an answer has come that ``read`` did not have.
    """

    __slots__ = ("_ask", "_entries", "_gone", "_high", "_is_asking", "_low", "_resume", "_ticket",
        "_wanted")  # fmt: skip

    def __init__(self, ask: Ask, resume: Callable[[], None]) -> None:
        self._ask = ask
        self._resume = resume
        self._low = self._high = 0
        self._entries: list[Entry] = []  # ascending; also rows that were acked
        self._gone: set[int] = set()  # acked seqs, with or without a row here
        self._wanted = (0, 0, 0)
        self._is_asking = False
        self._ticket = 0  # of the awaited answer

    def read(self, low: int, high: int, limit: int) -> list[Entry] | None:
        """Return the first ``limit`` rows with ``low <= seq < high``; None: they are being read."""
        if not self._low <= low <= self._high:
            self._begin(low)
        found = self._find(low, high, limit)
        if found is None:
            self._wanted = (low, high, limit)
            if not self._is_asking:
                self._trim(low)
                self._ask_on()
        return found

    def ahead(self, low: int, high: int, limit: int) -> list[Entry]:
        """Return the first rows with ``low <= seq < high`` that are in RAM, and have more read.

        Args:
            low: where ``read`` will continue soon; if the window is at another place, nothing is done.
            high: the end of the range that will be read.
            limit: how many at most; if the window holds fewer, the rows behind it are asked for.
        """
        if not self._high and not self._is_asking:
            self._begin(low)  # there is no window yet
        if not self._low <= low <= self._high:
            return []
        some = self._between(low, high, limit)
        if len(some) < limit and self._high < high and not self._is_asking:
            self._wanted = (low, low, 0)
            self._trim(low)
            self._ask_on()
        return some

    def _begin(self, low: int) -> None:
        self._low = self._high = low
        self._entries, self._gone = [], set()
        self._is_asking = False
        self._ticket += 1

    def _find(self, low: int, high: int, limit: int) -> list[Entry] | None:
        found = self._between(low, high, limit)
        return found if len(found) >= limit or self._high >= high else None

    def _between(self, low: int, high: int, limit: int) -> list[Entry]:
        at, gone = self._at(low), self._gone
        some = self._entries[at : at + limit]
        if gone and not gone.isdisjoint(map(seq_of, some)):
            stretch = self._entries[at : self._at(high)]
            return [entry for entry in stretch if entry[SEQ] not in gone][:limit]
        if some and some[-1][SEQ] >= high:
            del some[bisect_left(some, high, key=seq_of) :]
        return some

    def _at(self, seq: int) -> int:
        return bisect_left(self._entries, seq, key=seq_of)

    def _trim(self, low: int) -> None:
        """Forget much that lies before a range that is asked for: it has been loaded."""
        if len(self._entries) < ROWS:
            return  # a walk that goes on from an earlier seq must not find the window gone each time
        del self._entries[: self._at(low)]
        self._gone = {seq for seq in self._gone if seq >= low}
        self._low = low

    def _ask_on(self) -> None:
        self._is_asking = True
        self._ticket += 1
        self._ask(self._high, ROWS, partial(self._came, self._ticket))

    def _came(self, ticket: int, entries: list[Entry], upto: int) -> None:
        if ticket != self._ticket:
            return  # the window began anew
        assert upto > self._high, "an answer that leads nowhere"
        self._is_asking = False
        self._high = upto
        self._entries += entries
        if self._find(*self._wanted) is None:
            self._ask_on()
        else:
            self._resume()

    def forget(self, seqs: Iterable[int]) -> None:
        entries, gone = self._entries, self._gone
        if entries:
            first, last = entries[0][SEQ], entries[-1][SEQ]
            gone.update([seq for seq in seqs if first <= seq <= last])
            if last in gone and gone.issuperset(map(seq_of, entries)):
                self._entries, self._gone = [], set()

    def forget_range(self, seqs: SeqRange) -> None:
        some = self._entries[self._at(seqs.low) : self._at(seqs.high)]
        self.forget([seq for seq in map(seq_of, some) if seq in seqs])

    def cut(self, seq: int) -> None:
        """End the window at this seq, from which on there are new rows."""
        if seq >= self._high:
            return
        del self._entries[self._at(seq) :]
        self._gone = {each for each in self._gone if each < seq}
        self._high = max(seq, self._low)
        if self._is_asking:
            self._ask_on()  # from the new end

    def close(self) -> None:
        """Let go of all rows; answers that are still on their way are ignored."""
        self._begin(0)
