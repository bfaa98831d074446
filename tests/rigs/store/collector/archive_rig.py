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
from leveret.msg_store.archive.archive import Position, Retention
from leveret.msg_store.archive.archive_file import ArchiveContents
from leveret.msg_store.archive_writer import ArchiveWriter
from leveret.msg_store.format.file_header import HEADER_BYTES, MOVED
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.journal_frames import DurablePosition
from leveret.msg_store.format.record import Record, queue_no_of, unpack_meta
from leveret.msg_store.reading.verify import Segment
from leveret.msg_store.recovery.report import Recovered
from leveret.msg_store.wal.group_commit import Report
from rigs.store.collector.collector_rig import CollectorRig
from rigs.store.step_loop import StepLoop

NOWHERE = Position(0, 0)


class ArchiveReader:
    """Follows one queue; ``seen`` and ``bodies`` are its messages in the order of the stream."""

    def __init__(self, folder: StorePaths, queue_no: int) -> None:
        self.folder = folder
        self.queue_no = queue_no
        self.at = NOWHERE
        self.seen: list[int] = []
        self.bodies: list[bytes] = []
        self.is_behind = False  # segments were removed before they were read

    def read(self) -> None:
        """Read up to the watermark."""
        contents = archive_file.read(self.folder)
        if contents is None:
            return
        watermark = contents.watermark
        assert watermark >= self.at or not self.seen, "the watermark has fallen"
        for queue in contents.queues:
            if self.queue_no in queue.queue_nos and queue.freed is not None:
                self.is_behind |= queue.freed[:2] > self.at
        for file_no in self.folder.rdq_nos():
            if self.at[0] <= file_no <= watermark[0]:
                for each in records_of(self.folder, contents, file_no, self.queue_no, self.at):
                    self.seen.append(each.msg_no)
                    self.bodies.append(each.body)
        self.at = max(self.at, contents.watermark)


def records_of(
    folder: StorePaths,
    contents: ArchiveContents,
    file_no: int,
    queue_no: int,
    start: Position = NOWHERE,
) -> Iterator[Record]:
    """Yield the records of a queue in a segment, below watermark and end; none of a copy.

    They stand one behind the other, but for bytes that a crash has torn.
    """
    first = start[1] if start[0] == file_no else 0
    with Segment(folder, file_no) as segment:
        if segment.header is not None and segment.header.flags & MOVED:
            return
        end = min(contents.ends.get(file_no, segment.size_bytes), segment.size_bytes)
        if file_no == contents.watermark.segment:
            end = min(end, contents.watermark.byte)
        at = max(first, HEADER_BYTES)
        for offset, record in segment.records(at):
            if offset + record.total_len > end:
                break
            assert offset == at or is_torn(contents, file_no, at, offset)
            at = offset + record.total_len
            if queue_no in map(queue_no_of, unpack_meta(record.meta).queue_nos):
                yield record
        assert at >= end or is_torn(contents, file_no, at, end), (file_no, at, end, contents)


def is_torn(contents: ArchiveContents, file_no: int, low: int, high: int) -> bool:
    return any(a <= low and high <= b for a, b in contents.torn.get(file_no, ()))


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
        self.writer = ArchiveWriter(
            self.core, self.folder, thread, self.loop, "/", self.opened.mark
        )
        if self.reader is not None:
            self.reader.folder = self.folder
        self.tell_policies()
        return recovered

    def tell_policies(self) -> None:
        """Tell the store all policies, as the queues of a vhost do at its start."""
        for queue_no in (1, 2, 3):
            self.retain(queue_no, self.policies.get(queue_no))
        self.archive.policies_known((1, 2, 3))
        self.writer.update()
        self.loop.run()

    def retain(self, queue_no: int, retention: Retention | None) -> None:
        self.archive.set((queue_no,), f"q{queue_no}", retention, Position(*self.core.durable[1:]))
        self.writer.update()

    def work(self, steps_max: int = 100_000) -> int:
        """Let all parts go on, the writer of ``archive.json`` too: the collector may wait for it."""
        count = super().work(steps_max)
        while self.archive.published != self.archive.version and not self.archive.is_doubtful:
            self.loop.run()
            count += super().work(steps_max)
        return count

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
