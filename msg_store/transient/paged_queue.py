"""What one queue has given to the transient store and no job has carried out yet.

::

    page_out -> contents --take--> flying_contents --settle--> in the index
    add      -> rows (of contents above), added (of contents in the index) --> flying_rows
    ack      -> a content above vanishes; else gone --> flying_gone

*Flying* is what a job has taken; it stays here until the job is done, and goes back when it fails. A seq
is written at most once, so of two statements about it the later one always takes something away: what is
``gone`` never comes back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import islice
from typing import Final

from leveret.core.message import Message
from leveret.msg_store.transient.client import (
    EXPIRY_MS,
    MESSAGE,
    MSG_NO,
    SEQ,
    SIZE,
    Entry,
    GotRows,
    Row,
)
from leveret.msg_store.transient.index import Doomed, Key
from leveret.msg_store.transient.writer import Unwritten

CREDIT: Final = 4_000  # contents that a queue may have waiting
MORE_CREDIT: Final = 800  # it gets so many back when so many have been written


class RowsRead:
    """A read of rows on its way: what the index answers, under all that it may not know yet.

    Args:
        queue: whose; its statements go into ``added``, ``gone`` and ``doomed`` until the read is done.
        low: the first seq.
        high: behind the last one.
        limit: how many are wanted.
        then: gets them.
    """

    def __init__(self, queue: PagedQueue, low: int, high: int, limit: int, then: GotRows) -> None:
        self.queue = queue
        self.high = high
        self.limit = limit
        self.then = then
        self.added: dict[int, Row] = {}
        self.gone = {*queue.gone, *queue.flying_gone}
        self.doomed = list(queue.doomed)
        self._low = self._reached = low
        self._is_lost = False
        self._found: dict[int, Row] = {}
        for rows in (queue.flying_rows, queue.rows, queue.added):
            self.added.update(rows)

    def next_low(self) -> int:
        """Return where the index should be read from, past what is being deleted there."""
        low = self._reached
        for doomed in sorted(self.doomed, key=lambda each: each.low):
            if doomed.low <= low < doomed.high:
                low = doomed.high
        return min(low, self.high)

    def take(self, rows: list[Row], reached: int) -> list[Row] | None:
        """Take what the index has below ``reached``; return the result when that is enough."""
        if self._is_lost:
            rows, reached = [], self.high
        self._found.update((row[SEQ], row) for row in rows)
        self._reached = reached
        result = self.result()
        return result if len(result) == self.limit or reached >= self.high else None

    def lose(self) -> None:
        """Note that what the index says is not so any more."""
        self._is_lost = True
        self._found.clear()
        self.added = dict(self.queue.rows)

    def result(self) -> list[Row]:
        """Return the rows that are known so far."""
        low, reached = self._low, self._reached
        rows = self._found | {s: row for s, row in self.added.items() if low <= s < reached}
        left = [row for row in sorted(rows.values()) if row[SEQ] not in self.gone]
        for _, first, end, _ in self.doomed:
            del left[bisect_left(left, (first,)) : bisect_left(left, (end,))]
        return left[: self.limit]


class PagedQueue:
    """A queue, from its first content to ``drop_queue``.

    Args:
        queue_no: its owner's number for it.
        life: the store's; a queue that is dropped and begins anew gets another.
    """

    __slots__ = (
        "_handled",
        "added",
        "contents",
        "credit",
        "doomed",
        "flying_contents",
        "flying_gone",
        "flying_rows",
        "gone",
        "has_lost",
        "is_stored",
        "life",
        "queue_no",
        "reads",
        "rows",
    )

    def __init__(self, queue_no: int, life: int) -> None:
        self.queue_no = queue_no
        self.life = life
        self.contents: dict[int, Entry] = {}
        self.rows: dict[int, Row] = {}
        self.added: dict[int, Row] = {}
        self.gone: dict[int, None] = {}
        self.flying_contents: dict[int, Entry] = {}
        self.flying_rows: dict[int, Row] = {}
        self.flying_gone: dict[int, None] = {}
        self.doomed: list[Doomed] = []  # ranges that are being deleted from the index
        self.reads: list[RowsRead] = []
        self.credit = CREDIT
        self.is_stored = False  # something of it is in the index, or has been
        self.has_lost = False  # and the log says so
        self._handled = 0

    @property
    def is_on_disk(self) -> bool:
        """Something of it is in the index, or may get there before the next job."""
        return self.is_stored or bool(self.flying_contents)

    def message(self, seq: int) -> Message | None:
        """Return a content that is in RAM."""
        entry = self.contents.get(seq) or self.flying_contents.get(seq)
        message: Message | None = entry and entry[MESSAGE]
        return message

    # What the queue says.

    def page_out(self, entries: list[Entry]) -> None:
        """Take contents."""
        self.contents.update((entry[SEQ], entry) for entry in entries)
        self.credit -= len(entries)

    def add(self, entries: list[Entry]) -> None:
        """Add rows."""
        made = {
            entry[SEQ]: (entry[SEQ], entry[MSG_NO], entry[SIZE], entry[EXPIRY_MS], 0)
            for entry in entries
        }
        if not self.contents:
            self.added |= made
        else:
            for seq, row in made.items():
                (self.rows if seq in self.contents else self.added)[seq] = row
        for read in self.reads:
            read.added |= made

    def ack(self, seqs: list[int]) -> int:
        """Remove contents; return the bytes of those that need not be written now."""
        size_bytes = 0
        before = len(self.contents)
        if before:
            take = self.contents.pop
            taken = [(seq, take(seq, None)) for seq in seqs]
            size_bytes = size_of([entry for _, entry in taken if entry is not None])
            on_disk = [seq for seq, entry in taken if entry is None]
        else:
            on_disk = seqs
        if self.is_on_disk:
            self.gone.update(dict.fromkeys(on_disk))
        for rows in (self.rows, self.added):
            if rows:
                for seq in seqs:
                    rows.pop(seq, None)
        for read in self.reads:
            read.gone.update(seqs)
        self.handle(before - len(self.contents))
        return size_bytes

    def ack_range(self, low: int, high: int) -> tuple[Doomed | None, int]:
        """Remove rows; return what must be deleted from the index, and as ``ack``."""
        seqs: set[int] = set()
        for rows in (self.rows, self.added, self.flying_rows):
            seqs.update(_between(rows, low, high))
        size_bytes = self.ack(list(seqs)) if seqs else 0
        doomed = Doomed(self.life, low, high, rows_only=True)
        for read in self.reads:
            read.doomed.append(doomed)
        if not self.is_on_disk:
            return None, size_bytes
        self.doomed.append(doomed)
        return doomed, size_bytes

    def undoom(self, doomed: Doomed) -> None:
        """Note that a range, of which this may be the end, has been deleted."""
        for index, (_, low, high, _) in enumerate(self.doomed):
            if low <= doomed.low and high == doomed.high:
                del self.doomed[index]
                return

    # What jobs take, and what becomes of it.

    def take_writes(self, count_max: int, bytes_max: int) -> tuple[list[Unwritten], list[Key]]:
        """Take the first contents, at least one if any, and rows of contents in the index."""
        taken: list[Unwritten] = []
        life, rows = self.life, self.rows
        for seq, entry in islice(self.contents.items(), count_max):
            _, message, expiry_ms, _, msg_no, size, *_ = entry
            taken.append(Unwritten(life, seq, message, msg_no, size, expiry_ms, seq in rows))
            bytes_max -= size
            if bytes_max <= 0:
                break
        seqs = [each.seq for each in taken]
        self.flying_contents = {seq: self.contents.pop(seq) for seq in seqs}
        self.flying_rows = {seq: rows.pop(seq) for seq in seqs if seq in rows}
        added = list(islice(self.added, count_max))
        self.flying_rows.update((seq, self.added.pop(seq)) for seq in added)
        return taken, [(life, seq) for seq in added]

    def take_gone(self, count_max: int) -> list[Key]:
        """Take acks."""
        taken = list(islice(self.gone, count_max))
        for seq in taken:
            del self.gone[seq]
        self.flying_gone = dict.fromkeys(taken)
        taken.sort()
        return [(self.life, seq) for seq in taken]

    def land(self) -> int:
        """Note that the job is done; return the bytes that need not be kept in RAM any more."""
        size_bytes = size_of(self.flying_contents.values())
        self.is_stored = self.is_stored or bool(self.flying_contents)
        self.handle(len(self.flying_contents))
        self._clear_flying()
        return size_bytes

    def put_back(self) -> int:
        """Note that the job has failed; return the bytes that are not needed meanwhile."""
        flying = self.flying_contents
        dropped = {seq for seq in flying if seq in self.gone}
        size_bytes = size_of([flying.pop(seq) for seq in dropped])
        for seq in dropped:
            del self.gone[seq]
        rows = {seq: row for seq, row in self.flying_rows.items() if seq not in dropped}
        rows |= self.added
        self.contents = flying | self.contents
        self.rows |= {seq: row for seq, row in rows.items() if seq in self.contents}
        self.added = {
            seq: row
            for seq, row in rows.items()
            if seq not in self.contents and seq not in self.gone
        }
        self.gone |= self.flying_gone
        self.handle(len(dropped))
        self._clear_flying()
        return size_bytes

    def _clear_flying(self) -> None:
        self.flying_contents, self.flying_rows, self.flying_gone = {}, {}, {}

    def lose(self) -> None:
        """Forget what was in the index."""
        self.is_stored = False
        self.added, self.gone, self.doomed = {}, {}, []
        for read in self.reads:
            read.lose()

    def handle(self, count: int) -> None:
        """Count contents that do not wait any more; give credit back."""
        self._handled += count
        grants = self._handled // MORE_CREDIT
        self.credit += grants * MORE_CREDIT
        self._handled -= grants * MORE_CREDIT


def size_of(entries: Iterable[Entry]) -> int:
    """Return the bytes of the bodies of entries."""
    return sum([entry[SIZE] for entry in entries])


def _between(rows: dict[int, Row], low: int, high: int) -> list[int]:
    if high - low < len(rows):
        return [seq for seq in range(low, high) if seq in rows]
    return [seq for seq in rows if low <= seq < high]
