"""PendingAcks: messages that were handed out and are not acked yet."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

from leveret.core.entry import PERSISTENT, SIZE, seq_of
from leveret.core.segmented_dict import SEGMENT_KEYS, SegmentedDict, grown
from leveret.msg_store.format.kernel import bytes_of

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.core.segmented_dict import ByNumber

NOBODY: Final[dict[int, Entry]] = {}  # shared by queues that have none; always empty
SORT_MAX: Final = 20_000  # unacked messages that are sorted in one turn


class PendingAcks:
    """Two dicts by seq, made on first use; a ``SegmentedDict`` where very many are in RAM.

    Attributes:
        in_ram: messages with their content in RAM; RabbitMQ's RAM pending acks.
        on_disk: messages without; RabbitMQ's disk pending acks.
        size_bytes: the bodies of both.
        is_sorted: ``in_ram`` is in the order of seqs.
        last_seq: the seq that was added to ``in_ram`` last.
    """

    __slots__ = ("in_ram", "is_sorted", "last_seq", "on_disk", "size_bytes")

    def __init__(self) -> None:
        self.in_ram: ByNumber[Entry] = NOBODY
        self.on_disk = NOBODY
        self.size_bytes = 0
        self.is_sorted = True
        self.last_seq = -1

    def count(self) -> int:
        return len(self.in_ram) + len(self.on_disk)

    def seqs_from(self, low: int) -> list[int]:
        """Return the seqs that are not below ``low``, ascending."""
        is_below = self.is_sorted and self.last_seq < low
        if self.is_sorted and not self.on_disk:
            seqs = [] if is_below else list(self.in_ram)
        else:
            seqs = sorted(self.on_disk if is_below else chain(self.in_ram, self.on_disk))
        at = bisect_left(seqs, low)
        return seqs[at:] if at else seqs  # a copy of 500,000 seqs takes 10 ms

    def size_on_disk(self) -> int:
        """Return the bodies of the messages without content, from the smaller of the two dicts."""
        if len(self.on_disk) <= len(self.in_ram):
            return bytes_of(self.on_disk.values())
        return self.size_bytes - bytes_of(self.in_ram.values())

    def entries(self) -> Iterator[Entry]:
        return chain(self.in_ram.values(), self.on_disk.values())

    def persistent_sizes(self) -> list[int]:
        return [entry[SIZE] for entry in self.entries() if entry[PERSISTENT]]

    def add(self, seqs: list[int] | range, entries: Iterable[Entry], size_bytes: int) -> None:
        """Add entries with content, at least one; ``seqs`` are their seqs, ascending."""
        in_ram = self.in_ram
        if not in_ram:
            if in_ram is NOBODY or type(in_ram) is SegmentedDict:
                in_ram = self.in_ram = {}
            self.is_sorted = True
        elif seqs[0] < self.last_seq:
            self.is_sorted = False
        self.last_seq = seqs[-1]
        in_ram.update(zip(seqs, entries, strict=False))
        self.size_bytes += size_bytes
        if len(in_ram) > SEGMENT_KEYS:
            self.in_ram = grown(in_ram)

    def add_one(self, seq: int, entry: Entry, size_bytes: int) -> None:
        in_ram = self.in_ram
        if not in_ram:
            if in_ram is NOBODY or type(in_ram) is SegmentedDict:
                in_ram = self.in_ram = {}
            self.is_sorted = True
        elif seq < self.last_seq:
            self.is_sorted = False
        self.last_seq = seq
        in_ram[seq] = entry
        self.size_bytes += size_bytes
        if len(in_ram) > SEGMENT_KEYS:
            self.in_ram = grown(in_ram)

    def add_on_disk(self, entries: list[Entry], size_bytes: int) -> None:
        if self.on_disk is NOBODY:
            self.on_disk = {}
        self.on_disk.update(zip(map(seq_of, entries), entries, strict=True))
        self.size_bytes += size_bytes

    def take(self, seqs: list[int]) -> list[Entry]:
        """Remove messages and return them in the order of ``seqs``; unknown seqs are passed over.

        Messages with content come first.
        """
        in_ram = self.in_ram
        before = len(in_ram)
        found: list[Any] = list(map(in_ram.pop, seqs, repeat(None))) if in_ram else []
        if before - len(in_ram) < len(seqs):
            found = [entry for entry in found if entry is not None]
            if self.on_disk:
                maybe = map(self.on_disk.pop, seqs, repeat(None))
                found += [entry for entry in maybe if entry is not None]
        self.size_bytes -= bytes_of(found)
        return found

    def take_youngest(self, limit: int) -> list[Entry]:
        """Remove messages with content, the youngest first, so that these can be paged out.

        Where very many are unacked and some were redelivered, the last handed out stand for the youngest.
        """
        in_ram = self.in_ram
        if not self.is_sorted and 0 < len(in_ram) <= SORT_MAX:
            in_ram = self.in_ram = dict(sorted(in_ram.items()))
            self.is_sorted, self.last_seq = True, next(reversed(in_ram))
        take = in_ram.popitem
        return [take()[1] for _ in range(min(limit, len(in_ram)))]

    def put_back(self, entries: list[Entry]) -> None:
        """Put back the last entries that ``take_youngest`` returned."""
        back = entries[::-1]
        self.in_ram.update(zip(map(seq_of, back), back, strict=True))

    def clear(self) -> None:
        self.in_ram, self.on_disk = NOBODY, NOBODY
        self.size_bytes = 0
