"""One queue's contents and acks that wait for a job, and its credit. Without I/O.

::

    page_out -> contents --take_contents--> in_flight --job done--> in the index
    ack      -> a content above vanishes; else acks --take_acks--> acks_in_flight --job done--> forgotten

Contents and acks that a job has taken stay here until the job is done, and go back when it fails. A seq is
paged out at most once, so an ack is final.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final

from leveret.core.entry import MESSAGE, SEQ, SIZE, Entry
from leveret.core.message import Message
from leveret.msg_store.format.seq_range import SeqRange, rows_outside
from leveret.msg_store.transient.index import GotRows, Key, Row, row_of

CREDIT: Final = 4_000  # contents that a queue may have waiting
MORE_CREDIT: Final = 800  # it gets so many back when so many have been written


class RowsRead:
    """A read of rows in flight: the index's answer, overlaid with all that it may not know yet.

    Args:
        queue: the queue; its calls go into ``paged_out``, ``acked`` and ``deleted`` until the read is done.
    """

    def __init__(self, queue: PagedQueue, low: int, high: int, limit: int, then: GotRows) -> None:
        self.queue = queue
        self.high = high
        self.limit = limit
        self.then = then
        self.paged_out = queue.in_flight | queue.contents
        self.acked: set[int] = set()  # since it began, or before and forgotten by the queue
        self.deleted = list(queue.deleting)
        self._low = self._reached = low
        self._is_lost = False
        self._found: list[Row] = []  # rows of the index so far, ascending

    def next_low(self) -> int:
        """Return where to read the index from: behind the keys that are being deleted."""
        low = self._reached
        for seqs in sorted(self.deleted, key=attrgetter("low")):
            if seqs.low <= low < seqs.high:
                low = seqs.end_from(low)
        return min(low, self.high)

    def take(self, rows: list[Row]) -> list[Row] | None:
        """Take the index's next rows, ``limit`` if it has more; return the result when it is whole."""
        self._reached = self.high
        left: list[Row] = []
        if not self._is_lost:
            left = self._left(rows)
            if self._found:
                left = self._left(self._found) + left
            self._found = left
            if len(rows) == self.limit:
                self._reached = rows[-1][SEQ] + 1
        if self.paged_out:
            left = self._with_paged_out(left)
        result = left[: self.limit]
        return result if len(result) == self.limit or self._reached >= self.high else None

    def lose(self) -> None:
        """Forget the index's rows: it has been lost."""
        self._is_lost = True
        self._found.clear()
        self.paged_out = dict(self.queue.contents)

    def _with_paged_out(self, rows: list[Row]) -> list[Row]:
        low, reached, waiting = self._low, self._reached, self.paged_out
        others = self._left([row_of(waiting[s]) for s in sorted(waiting) if low <= s < reached])
        if not others:
            return rows
        both = {row[SEQ]: row for row in (*rows, *others)}
        return [both[seq] for seq in sorted(both)]

    def _left(self, rows: list[Row]) -> list[Row]:
        forgotten, waiting, in_flight = self.acked, self.queue.acks, self.queue.acks_in_flight
        left = [
            row
            for row in rows
            if (seq := row[SEQ]) not in forgotten and seq not in waiting and seq not in in_flight
        ]
        return rows_outside(left, self.deleted)


class PagedQueue:
    """A queue, from its first content to ``drop_queue``.

    Args:
        queue_no: its owner's number for it.
        incarnation: the store's; a queue that is dropped and pages out again gets another.

    Attributes:
        deleting: ranges that are being deleted from the index.
        reads: of rows, in flight.
        credit: how many contents it may page out now.
        is_stored: something of it is in the index, or has been.
        has_lost: contents of it have been lost, and the log says so.
    """

    __slots__ = ("_written", "acks", "acks_in_flight", "contents", "credit", "deleting", "has_lost",
        "in_flight", "incarnation", "is_stored", "queue_no", "reads")  # fmt: skip

    def __init__(self, queue_no: int, incarnation: int) -> None:
        self.queue_no = queue_no
        self.incarnation = incarnation
        self.contents: dict[int, Entry] = {}
        self.in_flight: dict[int, Entry] = {}
        self.acks: dict[int, None] = {}
        self.acks_in_flight: dict[int, None] = {}
        self.deleting: list[SeqRange] = []
        self.reads: list[RowsRead] = []
        self.credit = CREDIT
        self.is_stored = False
        self.has_lost = False
        self._written = 0  # since credit was given back

    @property
    def is_on_disk(self) -> bool:
        """Something of it is in the index, or may get there before the next job."""
        return self.is_stored or bool(self.in_flight)

    def messages(self, seqs: Sequence[int]) -> list[Message | None]:
        """Return the contents that are in RAM, None for others."""
        if not self.contents and not self.in_flight:
            return [None] * len(seqs)
        waiting, in_flight = self.contents.get, self.in_flight.get
        entries = [waiting(seq) or in_flight(seq) for seq in seqs]
        return [None if entry is None else entry[MESSAGE] for entry in entries]

    # Calls of the queue.

    def page_out(self, entries: Iterable[Entry]) -> None:
        new = {entry[SEQ]: entry for entry in entries}
        self.contents |= new
        self.credit -= len(new)
        for read in self.reads:
            read.paged_out |= new

    def ack(self, seqs: list[int]) -> int:
        """Remove contents; return the bytes that need not be written any more."""
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
            self.acks.update(dict.fromkeys(on_disk))
        for read in self.reads:
            read.acked.update(seqs)
        self.return_credit(before - len(self.contents))
        return size_bytes

    def ack_range(self, seqs: SeqRange) -> int:
        """Remove contents, and have those on disk deleted; return bytes as ``ack``."""
        in_ram = [*_within(seqs, self.contents), *_within(seqs, self.in_flight)]
        size_bytes = self.ack(in_ram) if in_ram else 0
        for read in self.reads:
            read.deleted.append(seqs)
        if self.is_on_disk:
            self.deleting.append(seqs)
        return size_bytes

    # Jobs.

    def take_contents(self, count_max: int, bytes_max: int) -> list[Entry]:
        """Take the first contents for a job, at least one if there is any."""
        taken: list[Entry] = []
        for entry in islice(self.contents.values(), count_max):
            taken.append(entry)
            bytes_max -= entry[SIZE]
            if bytes_max <= 0:
                break
        take = self.contents.pop
        self.in_flight = {seq: take(seq) for seq in [entry[SEQ] for entry in taken]}
        return taken

    def take_acks(self, count_max: int) -> list[Key]:
        """Take the keys of acked contents for a job."""
        if len(self.acks) <= count_max:
            self.acks_in_flight, self.acks = self.acks, {}
        else:
            self.acks_in_flight = dict.fromkeys(islice(self.acks, count_max))
            for seq in self.acks_in_flight:
                del self.acks[seq]
        return [(self.incarnation, seq) for seq in sorted(self.acks_in_flight)]

    def job_done(self) -> int:
        """Note that the job is done; return the bytes that need not be kept in RAM any more."""
        size_bytes = size_of(self.in_flight.values())
        self.is_stored = self.is_stored or bool(self.in_flight)
        self.return_credit(len(self.in_flight))
        for read in self.reads:
            read.acked.update(self.acks_in_flight)
        self.in_flight, self.acks_in_flight = {}, {}
        return size_bytes

    def job_failed(self) -> int:
        """Note that the job has failed; return the bytes that were acked meanwhile."""
        back = self.in_flight
        acked = [seq for seq in back if seq in self.acks]
        size_bytes = size_of([back.pop(seq) for seq in acked])
        for seq in acked:
            del self.acks[seq]
        for read in self.reads:
            read.acked.update(acked)
        self.contents = back | self.contents
        self.acks |= self.acks_in_flight
        self.return_credit(len(acked))
        self.in_flight, self.acks_in_flight = {}, {}
        return size_bytes

    def lose(self) -> None:
        """Forget all that was in the index."""
        self.is_stored = False
        self.acks, self.deleting = {}, []
        for read in self.reads:
            read.lose()

    def return_credit(self, count: int) -> None:
        """Count contents that do not wait any more; give credit back, ``MORE_CREDIT`` at a time."""
        self._written += count
        grants = self._written // MORE_CREDIT
        self.credit += grants * MORE_CREDIT
        self._written -= grants * MORE_CREDIT


def size_of(entries: Iterable[Entry]) -> int:
    """Return the bytes of the bodies of entries."""
    return sum([entry[SIZE] for entry in entries])


def _within(seqs: SeqRange, entries: dict[int, Entry]) -> list[int]:
    low, high = seqs.low, seqs.high
    if high - low < len(entries):
        found = [seq for seq in range(low, high) if seq in entries]
    else:
        found = [seq for seq in entries if low <= seq < high]
    return [seq for seq in found if seq in seqs] if seqs.kept else found
