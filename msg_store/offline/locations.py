"""The locations of all messages in columns: 28 bytes each, so ten million fit into a small machine."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

from leveret.msg_store.format.rows import Location
from leveret.msg_store.offline.segment_check import Locations

UNKNOWN: Final = -1


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

    def add(self, msg_no: int, location: Location, rows: int = 0) -> None:
        """Add a message with a higher number than all before."""
        file_no, offset, length, size, count = location
        self.msg_nos.append(msg_no)
        self.file_nos.append(file_no)
        self.offsets.append(offset)
        self.lengths.append(length)
        self.sizes.append(size)
        self.counts.append(count)
        self.rows.append(rows)

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

    def moved(self, elsewhere: Mapping[int, Location], rows: Mapping[int, int]) -> LocationTable:
        """Return a table with other locations for some messages; unknown ones are added, with their ``rows``."""
        result = LocationTable()
        added = sorted((no for no in elsewhere if self.find(no) == UNKNOWN), reverse=True)
        for at, msg_no in enumerate(self.msg_nos):
            while added and added[-1] < msg_no:
                result.add(added[-1], elsewhere[added[-1]], rows[added.pop()])
            result.add(msg_no, elsewhere.get(msg_no, self.location(at)), self.rows[at])
        for msg_no in reversed(added):
            result.add(msg_no, elsewhere[msg_no], rows[msg_no])
        return result

    def at(self, positions: array[int]) -> Locations:
        """Return the locations at some positions, which are in one segment."""
        columns = (self.msg_nos, self.offsets, self.lengths, self.sizes)
        return Locations(
            *(array(each.typecode, map(each.__getitem__, positions)) for each in columns)
        )

    def by_file(self) -> dict[int, array[int]]:
        """Return the positions of each segment's messages, in the order of the file."""
        files: dict[int, array[int]] = {}
        for at, file_no in enumerate(self.file_nos):
            if file_no not in files:
                files[file_no] = array("I")
            files[file_no].append(at)
        for file_no, positions in files.items():
            files[file_no] = array("I", sorted(positions, key=self.offsets.__getitem__))
        return dict(sorted(files.items()))
