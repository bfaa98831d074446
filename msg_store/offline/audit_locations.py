"""All messages that somebody needs, as columns: 28 bytes each, so ten million fit into a small machine."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

from leveret.msg_store.format.rows import Location

UNKNOWN: Final = -1


class Places:
    """Messages ascending by number, with their places, and how many rows were found of each.

    Attributes:
        msg_nos, file_nos, offsets, lengths, sizes, counts: as in ``index_rows.Location``; parallel.
        rows: how many rows of queues name it, by ``count``.
    """

    def __init__(self) -> None:
        self.msg_nos = array("Q")
        self.file_nos = array("I")
        self.offsets = array("I")
        self.lengths = array("I")
        self.sizes = array("I")
        self.counts = array("I")
        self.rows = array("I")
        self._next = 0

    def __len__(self) -> int:
        return len(self.msg_nos)

    def add(self, msg_no: int, place: Location) -> None:
        """Add a message above all before."""
        file_no, offset, length, size, count = place
        self.msg_nos.append(msg_no)
        self.file_nos.append(file_no)
        self.offsets.append(offset)
        self.lengths.append(length)
        self.sizes.append(size)
        self.counts.append(count)
        self.rows.append(0)

    def find(self, msg_no: int) -> int:
        """Return where a message stands in the columns; ``UNKNOWN`` if it does not."""
        at = self._next  # rows of a queue mostly are in the order of their messages
        if at >= len(self.msg_nos) or self.msg_nos[at] != msg_no:
            at = bisect_left(self.msg_nos, msg_no)
            if at == len(self.msg_nos) or self.msg_nos[at] != msg_no:
                return UNKNOWN
        self._next = at + 1
        return at

    def count(self, msg_no: int) -> int:
        """Count a row; return where the message stands, ``UNKNOWN`` if it does not."""
        at = self.find(msg_no)
        if at != UNKNOWN:
            self.rows[at] += 1
        return at

    def place(self, at: int) -> Location:
        """Return a message's place."""
        return (
            self.file_nos[at],
            self.offsets[at],
            self.lengths[at],
            self.sizes[at],
            self.counts[at],
        )

    def moved(self, elsewhere: Mapping[int, Location], rows: Mapping[int, int]) -> Places:
        """Return columns in which some messages lie elsewhere.

        Args:
            elsewhere: where; messages that are not in the columns are added.
            rows: how many rows name those that are added.
        """
        result = Places()
        added = sorted((no for no in elsewhere if self.find(no) == UNKNOWN), reverse=True)
        for at, msg_no in enumerate(self.msg_nos):
            while added and added[-1] < msg_no:
                self._add_counted(result, added[-1], elsewhere[added[-1]], rows[added.pop()])
            place = elsewhere.get(msg_no, self.place(at))
            self._add_counted(result, msg_no, place, self.rows[at])
        for msg_no in reversed(added):
            self._add_counted(result, msg_no, elsewhere[msg_no], rows[msg_no])
        return result

    @staticmethod
    def _add_counted(places: Places, msg_no: int, place: Location, rows: int) -> None:
        places.add(msg_no, place)
        places.rows[-1] = rows

    def by_file(self) -> dict[int, array[int]]:
        """Return, for each segment, which messages lie there, in the order of the file."""
        files: dict[int, array[int]] = {}
        for at, file_no in enumerate(self.file_nos):
            if file_no not in files:
                files[file_no] = array("I")
            files[file_no].append(at)
        for file_no, those in files.items():
            files[file_no] = array("I", sorted(those, key=self.offsets.__getitem__))
        return dict(sorted(files.items()))
