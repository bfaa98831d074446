"""A store with archived queues on virtual time, and a reader that follows its ``archive.json`` as others would.

The reader knows the segments and ``archive.json`` only: it walks from its last ``(segment, byte)`` to the watermark,
passes copies and bytes behind an end over, and notes each message. ``ArchiveRig.check_archive`` compares it with
the model: what the store has reported safe for an archived queue, and when.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from leveret.msg_store.archive import archive_file
from leveret.msg_store.archive.archive import Retention
from leveret.msg_store.archive.archive_file import ArchiveContents
from leveret.msg_store.archive_writer import ArchiveWriter
from leveret.msg_store.format.file_header import HEADER_BYTES, MOVED
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.journal_frames import DurablePosition
from leveret.msg_store.format.record import Record, queue_no_of, unpack_meta
from leveret.msg_store.reading.verify import Segment
from leveret.msg_store.recovery.report import Recovered
from leveret.msg_store.wal.group_commit import Report
from rigs.store.collector_rig import CollectorRig
from rigs.store.step_loop import StepLoop

Position = tuple[int, int]  # segment, byte


class ArchiveReader:
    """Follows one queue; ``seen`` and ``bodies`` are its messages in the order of the stream."""

    def __init__(self, folder: StorePaths, queue_no: int) -> None:
        self.folder = folder
        self.queue_no = queue_no
        self.at: Position = (0, 0)
        self.seen: list[int] = []
        self.bodies: list[bytes] = []
        self.is_behind = False  # segments were removed before they were read

    def read(self) -> None:
        """Read up to the watermark."""
        contents = archive_file.read(self.folder)
        if contents is None:
            return
        watermark = tuple(contents.watermark)
        assert watermark >= self.at or not self.seen, "the watermark has fallen"
        complete_from = [e.complete_from for e in contents.queues if self.queue_no in e.queue_nos]
        if self.seen and complete_from and complete_from[0] > self.at[0] + 1:
            self.is_behind = True
        for file_no in self.folder.rdq_nos():
            if self.at[0] <= file_no <= watermark[0]:
                for each in records_of(self.folder, contents, file_no, self.queue_no, self.at):
                    self.seen.append(each.msg_no)
                    self.bodies.append(each.body)
        self.at = max(self.at, (watermark[0], watermark[1]))


def records_of(
    folder: StorePaths,
    contents: ArchiveContents,
    file_no: int,
    queue_no: int,
    start: Position = (0, 0),
) -> Iterator[Record]:
    """Yield the records of a queue in a segment, below watermark and end; none of a copy."""
    first = start[1] if start[0] == file_no else 0
    with Segment(folder, file_no) as segment:
        if segment.header is not None and segment.header.flags & MOVED:
            return
        end = contents.ends.get(file_no, segment.size_bytes)
        if file_no == contents.watermark.segment:
            end = min(end, contents.watermark.byte)
        for offset, record in segment.records(max(first, HEADER_BYTES)):
            if offset + record.total_len > end:
                return
            if queue_no in map(queue_no_of, unpack_meta(record.meta).queue_nos):
                yield record


class ArchiveRig(CollectorRig):
    """Queue 1 is archived for ``age_ms``; others as a test says."""

    def __init__(self, rng: random.Random, age_ms: int | None = 1000, **more: Any) -> None:
        self.time_ms = 10_000
        self.policies: dict[int, Retention] = {1: Retention(age_ms)}
        self.promised: dict[
            int, int
        ] = {}  # messages safe in queue 1, with the time of their publish
        self.published_ms: dict[int, int] = {}
        self.reader: ArchiveReader | None = None
        super().__init__(rng, **more)
        self.reader = ArchiveReader(self.folder, 1)

    def now_ms(self) -> int:
        return self.time_ms

    def open(self, trusted: DurablePosition | None = None) -> Recovered:
        recovered = super().open(trusted)
        self.archive = self.core.archive
        self.loop = StepLoop(self.rng)
        thread = self.loop.line("leveret-read")
        self.writer = ArchiveWriter(self.core, self.folder, thread, self.loop)
        if self.reader is not None:
            self.reader.folder = self.folder
        self.tell_policies()
        return recovered

    def tell_policies(self) -> None:
        """Tell the store all policies, as the queues of a vhost do at its start."""
        for queue_no in (1, 2, 3):
            self.retain(queue_no, self.policies.get(queue_no))
        self.archive.policies_known((1, 2, 3))
        self.writer.look()
        self.loop.run()

    def retain(self, queue_no: int, retention: Retention | None) -> None:
        self.archive.set((queue_no,), f"q{queue_no}", retention, self.core.rdq.reached.file_no)
        self.writer.look()

    def publish_watermark(self) -> None:
        """Let the writer of ``archive.json`` do its work, and the reader read."""
        self.loop.run()
        if self.reader is not None:
            self.reader.read()

    def write(self, queue_nos: tuple[int, ...], count: int = 1, size: int = 20) -> list[int]:
        msg_nos = super().write(queue_nos, count, size)
        self.published_ms.update(dict.fromkeys(msg_nos, self.time_ms))
        return msg_nos

    def _note(self, report: Report) -> None:
        super()._note(report)
        for queue_no, first, count in report.safe:
            if queue_no == 1:
                safe = [self.rows[1, seq] for seq in range(first, first + count)]
                self.promised.update((no, self.published_ms[no]) for no in safe)

    def in_segments(self, queue_no: int) -> list[int]:
        """Return the messages of a queue that can be replayed now."""
        contents = archive_file.read(self.folder)
        assert contents is not None
        return [
            each.msg_no
            for file_no in self.folder.rdq_nos()
            if file_no <= contents.watermark.segment
            for each in records_of(self.folder, contents, file_no, queue_no)
        ]

    def check_archive(self) -> None:
        """Check that what was promised can be replayed, and that the reader saw each message once."""
        assert self.reader is not None
        self.publish_watermark()
        age_ms = self.policies[1].age_ms
        assert age_ms is not None
        young = {no for no, at_ms in self.promised.items() if at_ms + age_ms > self.time_ms}
        there = self.in_segments(1)
        assert young <= set(there), f"not to be replayed: {sorted(young - set(there))}"
        assert len(there) == len(set(there)), "a message stands in the stream twice"
        seen = self.reader.seen
        assert len(seen) == len(set(seen)), "the reader saw a message twice"
        if not self.reader.is_behind:
            assert self.promised.keys() <= set(seen), self.promised.keys() - set(seen)
