"""One queue's contents, waiting and on the disk, and its credit. Without I/O.

::

    page_out -> contents --take_contents--> in_flight --written--> positions
    ack      -> vanishes from whichever of the three has it

A content that a job has taken goes back when the job fails, unless it was acked. A seq is paged out at most
once, so an ack is final.

The positions of messages on the disk are kept by *block*, 256 seqs that begin at a multiple of 256: as a range while
the whole block is in rows that follow each other, which costs a byte of RAM per message; else in an array, with 0 for
a message that is not live, which costs four.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias

from leveret.core.entry import EXPIRY_MS, MESSAGE, MSG_NO, SEQ, SIZE, Entry
from leveret.core.message import Message
from leveret.msg_store.format.seq_range import SeqRange
from leveret.msg_store.transient.segment import TRANSIENT, Row

Places: TypeAlias = dict[int, int]  # positions by seq
Release: TypeAlias = Callable[[int, int, int], None]
"""Called with a position, with how many that follow it messages are not live any more, and with their bytes."""

CREDIT: Final = 4_000  # contents that a queue may have waiting
MORE_CREDIT: Final = 800  # it gets so many back when so many have been written

BLOCK: Final = 256
UNKNOWN: Final = -1  # bytes of messages of which the queue knows no size
_NONE: Final = array("I", bytes(4 * BLOCK))


class PagedQueue:
    """A queue, from its first content to ``drop_queue``.

    Attributes:
        contents: by seq, those that wait for a job.
        in_flight: those that a job has taken.
        blocks: positions of those on the disk, by the first seq of their block.
        bases: these seqs, ascending.
        deleting: ranges of which messages may still be in blocks, the first one from ``delete_from`` on.
        credit: how many contents it may page out now.
        has_lost: contents of it have been lost, and the log says so.
    """

    __slots__ = ("_release", "_written", "bases", "blocks", "contents", "credit", "delete_from", "deleting",
        "has_lost", "in_flight", "queue_no")  # fmt: skip

    def __init__(self, queue_no: int, release: Release) -> None:
        self.queue_no = queue_no
        self.contents: dict[int, Entry] = {}
        self.in_flight: dict[int, Entry] = {}
        self.blocks: dict[int, range | array[int]] = {}
        self.bases: list[int] = []
        self.deleting: list[SeqRange] = []
        self.delete_from = 0
        self.credit = CREDIT
        self.has_lost = False
        self._release = release
        self._written = 0  # since credit was given back

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

    def ack(self, entries: Sequence[Entry]) -> int:
        """Remove contents; return the bytes that need not be written any more."""
        size_bytes = 0
        if self.contents or self.in_flight:
            before = len(self.contents)
            in_ram = [
                self.contents.pop(entry[SEQ], None) or self.in_flight.pop(entry[SEQ], None)
                for entry in entries
            ]
            size_bytes = size_of([entry for entry in in_ram if entry is not None])
            entries = [entry for entry, found in zip(entries, in_ram, strict=True) if found is None]
            self.return_credit(before - len(self.contents))
        if self.blocks:
            self._remove_entries(entries)
        return size_bytes

    def _remove_entries(self, entries: Sequence[Entry]) -> None:
        seqs = [entry[SEQ] for entry in entries]
        for at, end in _runs(seqs):
            base, low = seqs[at] & -BLOCK, seqs[at] & BLOCK - 1
            if base in self.blocks:
                self._remove(base, low, low + end - at, size_of(entries[at:end]))

    def _remove(self, base: int, low: int, high: int, size_bytes: int) -> int:
        """Remove messages that follow each other within a block; return in how many pieces they were."""
        block = self.blocks[base]
        positions = block[low:high]
        first, count = positions[0], high - low
        if isinstance(positions, range) or (
            first and positions == array("I", range(first, first + count))
        ):
            self._release(first, count, size_bytes)
            pieces = 1
        else:
            live = [position for position in positions if position]
            for position in live:
                self._release(position, 1, size_bytes // count if size_bytes >= 0 else UNKNOWN)
            pieces = len(live)
        if count < BLOCK:
            if isinstance(block, range):
                block = self.blocks[base] = array("I", block)
            block[low:high] = _NONE[low:high]
            if block != _NONE:
                return pieces
        del self.blocks[base]
        del self.bases[bisect_left(self.bases, base)]
        return pieces

    def ack_range(self, seqs: SeqRange) -> int:
        """Remove the contents in RAM, and have ``delete`` remove the others; return bytes as ``ack``."""
        in_ram = [*_within(seqs, self.contents), *_within(seqs, self.in_flight)]
        before = len(self.contents)
        taken = [
            (self.contents if seq in self.contents else self.in_flight).pop(seq) for seq in in_ram
        ]
        self.return_credit(before - len(self.contents))
        if self.blocks:
            self._delete_later(seqs)
        return size_of(taken)

    def _delete_later(self, seqs: SeqRange) -> None:
        if not self.deleting:
            self.delete_from = seqs.low
        self.deleting.append(seqs)

    def delete(self, work: int) -> int:
        """Remove messages of the ranges, as far as so much work goes; return what of it is left."""
        while self.deleting and work > 0:
            seqs, low = self.deleting[0], self.delete_from
            at = bisect_left(self.bases, low & -BLOCK)
            base = self.bases[at] if at < len(self.bases) else seqs.high
            low, high = max(low, base), min(base + BLOCK, seqs.high)
            if low >= high:
                self.deleting.pop(0)
                self.delete_from = self.deleting[0].low if self.deleting else 0
                continue
            work -= self._delete(base, low, high, seqs)
            self.delete_from = high
        return work

    def _delete(self, base: int, low: int, high: int, seqs: SeqRange) -> int:
        """Remove those of a range within a block; return how much work it was."""
        kept = seqs.kept[bisect_left(seqs.kept, low) : bisect_left(seqs.kept, high)]
        work = 4 + len(kept)
        for end in (*kept, high):
            if low < end and base in self.blocks:
                work += self._remove(base, low - base, end - base, UNKNOWN)
            low = end + 1
        return work

    def detach(self) -> PagedQueue:
        """Give up all that is on the disk; return a queue that has it, and nothing else, to be deleted."""
        gone = PagedQueue(self.queue_no, self._release)
        gone.blocks, gone.bases = self.blocks, self.bases
        gone.deleting = [SeqRange(0, self.bases[-1] + BLOCK)] if self.bases else []
        self.blocks, self.bases, self.deleting = {}, [], []
        return gone

    # Reading.

    def rows(
        self, low: int, high: int, limit: int, known: dict[int, Row]
    ) -> tuple[list[Row], Places]:
        """Return the first rows of a range, or else those to read first, as far as ``known`` lacks them.

        ``known`` gets those of contents in RAM: they may have been written when the others have been read.
        """
        in_ram = self.in_flight | self.contents
        seqs = sorted([seq for seq in in_ram if low <= seq < high])
        waiting = seqs[:limit]
        known |= {seq: _row_of(in_ram[seq]) for seq in waiting}
        on_disk: Places = {}
        for base in islice(self.bases, bisect_left(self.bases, low & -BLOCK), None):
            if base >= high or len(on_disk) + bisect_left(waiting, base) >= limit:
                break
            first, end = max(low, base), min(high, base + BLOCK)
            on_disk |= _live(range(first, end), self.blocks[base][first - base : end - base])
        seqs = sorted([*waiting, *on_disk]) if waiting else [*on_disk]
        del seqs[limit:]
        missing = {seq: on_disk[seq] for seq in seqs if seq not in known}
        return ([] if missing else [known[seq] for seq in seqs]), missing

    def places(self, seqs: list[int]) -> Places:
        """Return the positions of contents on the disk."""
        found: Places = {}
        for at, end in _runs(seqs):
            base, low = seqs[at] & -BLOCK, seqs[at] & BLOCK - 1
            if base in self.blocks:
                found |= _live(seqs[at:end], self.blocks[base][low : low + end - at])
        return found

    def position(self, seq: int) -> int:
        """Return the position of a message; 0 if it is not on the disk."""
        block = self.blocks.get(seq & -BLOCK)
        return 0 if block is None else block[seq & BLOCK - 1]

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

    def written(self, entries: list[Entry], position: int) -> int:
        """Note that entries of a job are on the disk, from a position on; return how many bytes RAM need not keep."""
        taken, self.in_flight = self.in_flight, {}
        self.return_credit(len(taken))
        seqs = [entry[SEQ] for entry in entries]
        for at, end in _runs(seqs):
            self._place(seqs[at], range(position + at, position + end))
        if len(taken) < len(entries):  # some were acked meanwhile
            self._remove_entries([entry for entry in entries if entry[SEQ] not in taken])
        return size_of(taken.values())

    def _place(self, seq: int, positions: range) -> None:
        base, low = seq & -BLOCK, seq & BLOCK - 1
        block = self.blocks.get(base)
        if block is None:
            insort(self.bases, base)
        if len(positions) == BLOCK:
            self.blocks[base] = positions
            return
        if block is None:
            block = self.blocks[base] = _NONE[:]
        assert isinstance(block, array), "a seq is paged out once"
        block[low : low + len(positions)] = array("I", positions)

    def put_back(self) -> None:
        """Have the contents that are in flight written again: their job has failed."""
        self.contents = self.in_flight | self.contents
        self.in_flight = {}

    def return_credit(self, count: int) -> None:
        """Count contents that do not wait any more; give credit back, ``MORE_CREDIT`` at a time."""
        self._written += count
        grants = self._written // MORE_CREDIT
        self.credit += grants * MORE_CREDIT
        self._written -= grants * MORE_CREDIT


def size_of(entries: Iterable[Entry]) -> int:
    """Return the bytes of the bodies of entries."""
    return sum([entry[SIZE] for entry in entries])


def _row_of(entry: Entry) -> Row:
    return entry[SEQ], entry[MSG_NO], entry[SIZE], entry[EXPIRY_MS], TRANSIENT


def _live(seqs: Sequence[int], positions: range | array[int]) -> Places:
    """Return the positions of live rows."""
    if isinstance(positions, range) or 0 not in positions:
        return dict(zip(seqs, positions, strict=True))
    return {seq: position for seq, position in zip(seqs, positions, strict=True) if position}


def _runs(seqs: list[int]) -> Iterator[tuple[int, int]]:
    """Yield where seqs follow each other within a block: slices of the list."""
    at, count = 0, len(seqs)
    while at < count:
        first = seqs[at]
        end = min(at + BLOCK - (first & BLOCK - 1), count)
        length = end - at
        if seqs[end - 1] - first != length - 1 or seqs[at:end] != [*range(first, first + length)]:
            end = at + 1
            while end < count and seqs[end] == first + end - at and seqs[end] & BLOCK - 1:
                end += 1
        yield at, end
        at = end


def _within(seqs: SeqRange, entries: dict[int, Entry]) -> list[int]:
    low, high = seqs.low, seqs.high
    if high - low < len(entries):
        found = [seq for seq in range(low, high) if seq in entries]
    else:
        found = [seq for seq in entries if low <= seq < high]
    return [seq for seq in found if seq in seqs] if seqs.kept else found
