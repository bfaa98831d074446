"""Locations of messages in columns: 28 bytes for each message of a store, so ten million fit into a small machine."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from leveret.msg_store.format.rows import Location

UNKNOWN: Final = -1


class Locations(NamedTuple):
    """Locations of messages in one segment, ascending by offset, in parallel columns as in ``rows.Location``."""

    msg_nos: array[int]
    offsets: array[int]
    lengths: array[int]
    sizes: array[int]


def picked(positions: Sequence[int], *columns: array[int]) -> Locations:
    """Return the entries of some columns at these positions."""
    return Locations(*(array(each.typecode, map(each.__getitem__, positions)) for each in columns))


class LocationTable:
    """Messages ascending by number, with their locations as in ``rows.Location``, in parallel columns."""

    def __init__(self) -> None:
        self.msg_nos = array("Q")
        self.file_nos = array("I")
        self.offsets = array("I")
        self.lengths = array("I")
        self.sizes = array("I")
        self.counts = array("I")
        self.rows = array("I")  # how many rows of queues name the message, by ``count``
        self._next = 0

    def __len__(self) -> int:
        return len(self.msg_nos)

    def add(self, msg_no: int, location: Location) -> None:
        """Add a message with a higher number than all before."""
        file_no, offset, length, size, count = location
        self.msg_nos.append(msg_no)
        self.file_nos.append(file_no)
        self.offsets.append(offset)
        self.lengths.append(length)
        self.sizes.append(size)
        self.counts.append(count)
        self.rows.append(0)

    def find(self, msg_no: int) -> int:
        """Return a message's position in the columns; ``UNKNOWN`` if it has none."""
        at = self._next  # rows of a queue mostly are in the order of their messages
        if at >= len(self.msg_nos) or self.msg_nos[at] != msg_no:
            at = bisect_left(self.msg_nos, msg_no)
            if at == len(self.msg_nos) or self.msg_nos[at] != msg_no:
                return UNKNOWN
        self._next = at + 1
        return at

    def count(self, msg_no: int) -> int:
        """Count a row; return the message's position, ``UNKNOWN`` if it has none."""
        at = self.find(msg_no)
        if at != UNKNOWN:
            self.rows[at] += 1
        return at

    def location(self, at: int) -> Location:
        file_no, offset, length = self.file_nos[at], self.offsets[at], self.lengths[at]
        return file_no, offset, length, self.sizes[at], self.counts[at]

    def at(self, positions: Sequence[int]) -> Locations:
        """Return the locations at some positions, which are in one segment."""
        return picked(positions, self.msg_nos, self.offsets, self.lengths, self.sizes)

    def by_file(self) -> dict[int, array[int]]:
        """Return the positions of each segment's messages, in the order of the file."""
        files: defaultdict[int, array[int]] = defaultdict(lambda: array("I"))
        for at, file_no in enumerate(self.file_nos):
            files[file_no].append(at)
        return {
            file_no: array("I", sorted(positions, key=self.offsets.__getitem__))
            for file_no, positions in sorted(files.items())
        }
