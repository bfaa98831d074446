"""Defects planted in a store at random places, and exactly what an audit must name because of them."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from leveret.core.system.files import Files
from leveret.msg_store.format.file_header import MOVED
from leveret.msg_store.format.folder import StorePaths, read_format
from leveret.msg_store.format.rows import SEQ_END, Batch, FileRow, IndexRow, Location, QueueTerms
from leveret.msg_store.index.lmdb_index import LmdbIndex
from leveret.msg_store.offline.defects import Defect, Kind
from leveret.msg_store.reading.verify import Segment

Named = Counter[tuple[Kind, int | str]]

PLANTED = (
    "drop_locations",
    "drop_entries",
    "miscount",
    "misplace",
    "spoil",
    "cut_off",
    "double",
    "missize",
    "missum_queues",
    "missum_segments",
)


def named(defects: list[Defect]) -> Named:
    return Counter((defect.kind, defect.where) for defect in defects)


class Planter:
    """Plants defects of each class in messages of which each gets one only; ``finish`` writes them.

    The index must be that of the store: a store that was stopped, or whose journals name none of these messages.

    Attributes:
        expected: what an audit must find.
        lost: the messages that nobody can read any more.
    """

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.expected: Named = Counter()
        self.lost: set[int] = set()
        self._rng = rng
        self._folder = StorePaths(Files(), path, read_format(Files(), path))
        self._index = LmdbIndex(path / "store.lmdb", self._folder.uuid)
        self._copies = {no for no in self._folder.rdq_nos() if self._is_copy(no)}
        self.locations = dict(self._index.scan_locations(0, 1 << 62))
        self.entries: dict[int, list[tuple[int, int]]] = {no: [] for no in self.locations}
        self._rows: dict[tuple[int, int], IndexRow] = {}
        for queue_no in self._index.queue_nos():
            for row in self._index.rows(queue_no, 0, SEQ_END, 1 << 62):
                self.entries[row[1]].append((queue_no, row[0]))
                self._rows[queue_no, row[0]] = row
        self._free = sorted(self.locations)
        rng.shuffle(self._free)
        self._changed: dict[int, Location | None] = {}
        self._acked: dict[int, set[int]] = {}
        self._resized: dict[int, dict[int, IndexRow]] = {}
        self._queues: dict[int, QueueTerms] = {}
        self._files: dict[int, FileRow] = {}

    def _is_copy(self, file_no: int) -> bool:
        with Segment(self._folder, file_no) as segment:
            return segment.header is not None and bool(segment.header.flags & MOVED)

    def _take(self, count: int) -> list[tuple[int, Location]]:
        taken, self._free = self._free[:count], self._free[count:]
        return [(msg_no, self.locations[msg_no]) for msg_no in taken]

    def drop_locations(self, count: int) -> None:
        """The index forgets messages."""
        for msg_no, _ in self._take(count):
            self._changed[msg_no] = None
            self.expected[Kind.MISSING_LOCATION, msg_no] += 1

    def drop_entries(self, count: int) -> None:
        """Queues forget messages."""
        for msg_no, location in self._take(count):
            queue_no, seq = self._rng.choice(self.entries[msg_no])
            self._acked.setdefault(queue_no, set()).add(seq)
            self.expected[Kind.WRONG_REFCOUNT, msg_no] += 1
            self.expected[Kind.WRONG_QUEUE_SUMS, queue_no] = 1
            if len(self.entries[msg_no]) == 1:
                self.expected[Kind.WRONG_SEGMENT_SUM, location[0]] = 1

    def miscount(self, count: int) -> None:
        for msg_no, location in self._take(count):
            other = self._rng.choice([0, location[4] + 1, location[4] + 7])
            self._changed[msg_no] = (*location[:4], other)
            self.expected[Kind.WRONG_REFCOUNT, msg_no] += 1

    def misplace(self, count: int) -> None:
        """Locations name other places: another message's, one inside a record, one behind the file, another segment."""
        others = list(self.locations.values())
        for msg_no, (file_no, offset, length, size, rows) in self._take(count):
            other = self._rng.choice(others)
            while other[:2] == (file_no, offset):
                other = self._rng.choice(others)
            self._changed[msg_no] = self._rng.choice(
                [
                    (*other[:4], rows),
                    (file_no, offset + self._rng.randrange(1, length), length, size, rows),
                    (file_no, 1 << 31, length, size, rows),
                    (max(self._folder.rdq_nos()) + 5, offset, length, size, rows),
                    (file_no, offset, length + 1, size, rows),
                    (file_no, offset, length, size + 1, rows),
                ]
            )
            self.expected[Kind.WRONG_LOCATION, msg_no] += 1

    def spoil(self, count: int) -> None:
        """A bit of each record flips, anywhere in it."""
        for msg_no, (file_no, offset, length, _, _) in self._take(count):
            with self._folder.rdq_path(file_no).open("r+b") as file:
                at = offset + self._rng.randrange(length)
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 1 << self._rng.randrange(8)]))
            self.expected[Kind.BAD_CHECKSUM, msg_no] += 1
            self.lost.add(msg_no)

    def cut_off(self, count: int) -> None:
        """Records are overwritten with whole ones of other messages, and lie nowhere any more."""
        taken = self._take(2 * count)
        for pair in zip(taken[:count], taken[count:], strict=True):
            (other_no, other), (msg_no, place) = sorted(pair, key=lambda each: each[1][2])
            if place[0] in self._copies or other[0] in self._copies:
                continue
            with self._folder.rdq_path(other[0]).open("rb") as file:
                file.seek(other[1])
                data = file.read(other[2])
            with self._folder.rdq_path(place[0]).open("r+b") as file:
                file.seek(place[1])
                file.write(data)
            self.expected[Kind.MISSING_RECORD, msg_no] += 1
            self.expected[Kind.DUPLICATE_ID, other_no] += 1
            self.lost.add(msg_no)

    def double(self, count: int) -> None:
        """Records are written once more at the end of a segment."""
        for msg_no, (file_no, offset, length, _, _) in self._take(count):
            target = self._rng.choice(self._folder.rdq_nos())
            with self._folder.rdq_path(file_no).open("rb") as file:
                file.seek(offset)
                data = file.read(length)
            with self._folder.rdq_path(target).open("ab") as file:
                file.write(data)
            if file_no not in self._copies and target not in self._copies:
                self.expected[Kind.DUPLICATE_ID, msg_no] += 1

    def missize(self, count: int) -> None:
        for msg_no, _ in self._take(count):
            queue_no, seq = self._rng.choice(self.entries[msg_no])
            row = self._rows[queue_no, seq]
            self._resized.setdefault(queue_no, {})[seq] = (*row[:2], row[2] + 1, *row[3:])
            self.expected[Kind.WRONG_SIZE, msg_no] += 1
            self.expected[Kind.WRONG_QUEUE_SUMS, queue_no] = 1

    def missum_queues(self, count: int) -> None:
        """Sums are too high by more than the other defects can make up for."""
        queues = self._index.queues()
        for queue_no in self._rng.sample(sorted(queues), min(count, len(queues))):
            terms = queues[queue_no]
            self._queues[queue_no] = terms._replace(messages=terms.messages + (1 << 30))
            self.expected[Kind.WRONG_QUEUE_SUMS, queue_no] = 1

    def missum_segments(self, count: int) -> None:
        files = self._index.files()
        for file_no in self._rng.sample(sorted(files), min(count, len(files))):
            row = files[file_no]
            self._files[file_no] = row._replace(valid_bytes=row.valid_bytes + (1 << 40))
            self.expected[Kind.WRONG_SEGMENT_SUM, file_no] = 1

    def finish(self) -> None:
        """Write the index."""
        self._index.write(
            Batch(
                rows=self._resized,
                acked=self._acked,
                locations=self._changed.items(),
                files=self._files,
                queues=self._queues.items(),
            )
        )
        self._index.close()
