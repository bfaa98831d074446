"""The check of rows at a start: a row whose message cannot be read is removed, and reported."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.journal_frames import DurablePosition
from leveret.msg_store.format.rows import SEQ_END, Index, Location
from leveret.msg_store.memtable.memtables import Memtables
from leveret.msg_store.reading.verify import MISSING, SHORTER, Segment, check, search
from leveret.msg_store.recovery.replay import Replay, pages
from leveret.msg_store.recovery.report import RecoveryReport

Key: TypeAlias = tuple[int, int]  # queue_no, seq

_LOOKUPS_AT_ONCE = 2_000
_BEHIND = "follows a dropped message of its producer"


class RowCheck:
    """Removes rows without a readable message from replayed memtables."""

    def __init__(
        self,
        folder: StoreFolder,
        memtables: Memtables,
        index: Index,
        report: RecoveryReport,
        replay: Replay,
        durable: DurablePosition,
    ) -> None:
        self._folder = folder
        self._memtables = memtables
        self._index = index
        self._report = report
        self._replay = replay
        self._durable = durable
        self._dropped: set[tuple[int, int, int]] = set()  # segment, offset, length

    def check_journal(self) -> None:
        """Read the messages of all rows and moves that came from the journal."""
        rows = self._memtables.active.rows.values()
        msg_nos = {row[1] for each in rows for row in each.values()} | self._replay.moved
        locations = {no: location for no in msg_nos if (location := self._memtables.location(no))}
        if wrong := check(self._folder, locations):
            self._judge(wrong, locations, self._journal_rows(wrong))

    def _journal_rows(self, wrong: dict[int, str]) -> dict[Key, int]:
        return {
            (queue_no, row[0]): row[1]
            for queue_no, rows in self._memtables.active.rows.items()
            for row in rows.values()
            if row[1] in wrong
        }

    def check_index(self, ends: dict[int, int]) -> None:
        """Find the rows of the index whose messages lie behind the end of their segment (0: the segment is missing)."""
        locations: dict[int, Location] = {}
        keys: dict[Key, int] = {}
        for queue_no in self._index.queues():
            rows = self._live_rows(queue_no)
            while some := list(islice(rows, _LOOKUPS_AT_ONCE)):
                view = self._memtables.read_view()
                msg_nos = [msg_no for _, msg_no in some]
                found = view.locations(msg_nos, self._index.locations(msg_nos))
                for seq, msg_no in some:
                    at = found.get(msg_no)
                    if at is not None and at[0] in ends and _end(at) > ends[at[0]]:
                        locations[msg_no] = at
                        keys[queue_no, seq] = msg_no
        wrong = {
            no: f"segment {at[0]:08x} {SHORTER if ends[at[0]] else MISSING}"
            for no, at in locations.items()
        }
        if wrong:
            self._judge(wrong, locations, keys)

    def _live_rows(self, queue_no: int) -> Iterator[Key]:
        """Yield ``(seq, msg_no)`` of a queue's rows in the index that were not acked since."""
        acked = self._memtables.active.acked.get(queue_no, ())
        for row in pages(self._index, queue_no, 0, SEQ_END):
            if row[0] not in acked:
                yield row[0], row[1]

    def _judge(
        self, wrong: dict[int, str], locations: dict[int, Location], keys: dict[Key, int]
    ) -> None:
        """Search for unreadable messages; remove the rows of messages that are not found."""
        young = self._replay.young_rows()
        durable = {
            msg_no
            for key, msg_no in keys.items()
            if key not in young
            or self._durable.covers(locations[msg_no][0], _end(locations[msg_no]))
        }
        durable |= wrong.keys() & self._replay.moved
        if durable or self._report.gaps:
            found = search(self._folder, wrong)
            for msg_no, location in found.items():
                self._memtables.found(msg_no, location)
            self._report.found += sorted(found)
            wrong = {no: why for no, why in wrong.items() if no not in found}
        for msg_no in sorted(durable & wrong.keys()):
            self._set_aside(locations[msg_no])
        for (queue_no, seq), msg_no in keys.items():
            if msg_no in wrong:
                entry = (queue_no, seq, msg_no, wrong[msg_no])
                was_durable = (queue_no, seq) not in young or msg_no in durable
                (self._report.lost if was_durable else self._report.dropped).append(entry)
                if not was_durable:
                    self._dropped.add(locations[msg_no][:3])
                self._memtables.acked(queue_no, [(seq, msg_no)])
        dropped = {(queue_no, seq) for queue_no, seq, _, _ in self._report.dropped}
        for queue_no, seq, msg_no in self._replay.roll_back(dropped) if dropped else ():
            self._report.dropped.append((queue_no, seq, msg_no, _BEHIND))
            self._memtables.acked(queue_no, [(seq, msg_no)])
        self._replay.finish()

    def torn(self) -> dict[int, list[tuple[int, int]]]:
        """Return, by segment, the ranges of bytes in which dropped messages should lie."""
        ranges: dict[int, list[tuple[int, int]]] = {}
        for file_no, offset, length in sorted(self._dropped):
            here = ranges.setdefault(file_no, [])
            if here and here[-1][1] == offset:
                here[-1] = here[-1][0], offset + length
            else:
                here.append((offset, offset + length))
        return ranges

    def _set_aside(self, location: Location) -> None:
        file_no, offset, length, _, _ = location
        if file_no not in self._folder.rdq_nos():
            return
        with Segment(self._folder, file_no) as segment:
            data = segment.bytes_at(offset, length)
        if data:
            path = self._folder.rdq_path(file_no)
            self._report.set_aside.append(self._folder.set_aside(path, data, offset))


def _end(location: Location) -> int:
    return location[1] + location[2]
