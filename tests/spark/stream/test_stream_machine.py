"""Any interleaving of a store that writes, acks, merges, frees and crashes with a stream that reads, stops and starts.

The model is the list of durable messages of the archived queue, in the order of the store. The stream must read each
of them once, in this order. It may fail with ``DataLoss`` only if a message it had not read is gone from the segments;
then the query begins anew at the earliest position.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from leveret.msg_store.archive.archive import Retention
from leveret.msg_store.format.file_header import MOVED
from leveret.msg_store.reading.verify import Segment
from leveret.spark.errors import DataLoss
from leveret.spark.stream.admission import Limit
from rigs.spark.archives import AGE_MS, ArchivedData, Stream, bodies, rows_between

LIMITS = [Limit(), Limit(1), Limit(3), Limit(None, 200), Limit(5, 900)]


class StreamMachine(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 1 << 32),
        file_bytes=st.sampled_from([300, 1_000, 5_000]),
        age_ms=st.sampled_from([1, AGE_MS]),
    )
    def make(self, seed: int, file_bytes: int, age_ms: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.draws = random.Random(seed)
        self.rig = ArchivedData(
            Path(self.folder.name) / "data", file_bytes=file_bytes, age_ms=age_ms
        )
        self.begin()

    def begin(self) -> None:
        """Begin a query without a checkpoint."""
        self.stream = Stream(self.rig.data, queue="q1")
        self.stream.start = self.stream.follower.initial()
        self.seen: list[bytes] | None = None  # None: nothing of this query yet

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.close()
            self.folder.cleanup()

    # The store.

    @rule(
        queue_nos=st.sampled_from([(1,), (2,), (1, 2), (3, 1)]),
        count=st.integers(1, 6),
        size=st.sampled_from([0, 50, 400]),
        is_flushed=st.booleans(),
    )
    def publish(self, queue_nos: tuple[int, ...], count: int, size: int, is_flushed: bool) -> None:
        self.rig.write(queue_nos, count, size)
        if is_flushed:
            self.rig.flush()

    @rule()
    def tell_the_watermark(self) -> None:
        self.rig.publish_watermark()

    @rule(share=st.sampled_from([2, 1]))
    def ack(self, share: int) -> None:
        self.rig.ack(self.rig.rows[::share])
        self.rig.flush()

    @rule(ms=st.sampled_from([1, AGE_MS // 2, AGE_MS]))
    def time_passes(self, ms: int) -> None:
        self.rig.now_ms += ms

    @rule()
    def collect(self) -> None:
        self.rig.collect()

    @rule()
    def crash(self) -> None:
        self.rig.crash(self.draws)

    @rule(is_archived=st.booleans())
    def policy_of_another_queue_changes(self, is_archived: bool) -> None:
        if is_archived:
            self.rig.retained[3] = Retention(AGE_MS)
        else:
            self.rig.retained.pop(3, None)
        self.rig.tell_policies()

    # The stream.

    @rule(limit=st.sampled_from(LIMITS))
    def read(self, limit: Limit) -> None:
        self.stream.limit = limit
        try:
            rows = self.stream.step()
        except DataLoss:
            assert self.is_lost(), "nothing was lost"
            self.begin()
            return
        if rows is not None:
            self.check(bodies(rows), rows, limit)

    def check(self, found: list[bytes], rows: list[dict[str, Any]], limit: Limit) -> None:
        written = self.rig.written.get(1, [])
        if self.seen is None and found:
            first = written.index(found[0])
            self.seen = written[:first]
            there = self.in_segments()
            assert not there & set(self.seen), "the query began behind the earliest message"
        if self.seen is not None:
            self.seen = self.seen + found
            assert self.seen == written[: len(self.seen)]
        if limit.rows is not None:
            assert len(rows) <= limit.rows
        if limit.size_bytes is not None and len(rows) > 1:
            assert sum(row["length"] for row in rows) <= limit.size_bytes

    @rule()
    def read_all(self) -> None:
        """Everything durable and published can be read, unless it is lost."""
        self.rig.flush()
        self.rig.publish_watermark()
        before = None
        while before is not self.stream.start:
            before = self.stream.start
            self.read(Limit())
        written = self.rig.written.get(1, [])
        missing = set(written[len(self.seen or []) :])
        assert not missing & self.in_segments()

    @rule()
    def stop_and_start(self) -> None:
        self.stream.restart()

    @rule(data=st.data())
    def a_batch_again(self, data: st.DataObject) -> None:
        if self.stream.batches:
            start, end, rows = data.draw(st.sampled_from(self.stream.batches))
            try:
                assert rows_between(self.stream.options, start, end) == rows
            except DataLoss:
                (offset,) = end.values()
                assert {int(no) for no in offset["ranges"]} - set(self.rig.segments)

    def is_lost(self) -> bool:
        unread = set(self.rig.written.get(1, [])[len(self.seen or []) :])
        return not unread <= self.in_segments()

    def in_segments(self) -> set[bytes]:
        """Return what can be read at positions of the stream."""
        found = set()
        for number in self.rig.segments:
            with Segment(self.rig.opened.folder, number) as segment:
                if segment.header is not None and not segment.header.flags & MOVED:
                    found.update(record.body for _, record in segment.records())
        return found


TestStream = StreamMachine.TestCase
TestStream.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


@pytest.mark.slow
class TestStreamForLong(StreamMachine.TestCase):
    settings = settings(max_examples=600, stateful_step_count=50, deadline=None)
