"""Any interleaving of a store that writes, acks, merges, frees and crashes with a stream that reads, stops and starts.

The model is the list of durable messages of each archived queue, in the order of the store. A stream that must miss
nothing reads each of them once, in this order, from the first on behind which none is gone. It may fail with
``DataLoss`` only if a message it had not read is gone from the segments; then a query begins anew at the earliest
position. A stream that tolerates losses reads all that are there, and passes over none but those that are gone.
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
        queue_nos=st.sampled_from([(1,), (1, 2)]),
        is_strict=st.booleans(),
    )
    def make(
        self,
        seed: int,
        file_bytes: int,
        age_ms: int,
        queue_nos: tuple[int, ...] = (1,),
        is_strict: bool = True,
    ) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.draws = random.Random(seed)
        self.rig = ArchivedData(
            Path(self.folder.name) / "data", file_bytes=file_bytes, age_ms=age_ms
        )
        self.queue_nos, self.is_strict = queue_nos, is_strict
        if 2 in queue_nos:
            self.rig.retained[2] = Retention(AGE_MS)
            self.rig.tell_policies()
        self.begin()

    def begin(self) -> None:
        """Begin a query without a checkpoint."""
        names = ",".join(f"q{no}" for no in self.queue_nos)
        fails = str(self.is_strict).lower()
        self.stream = Stream(self.rig.data, queue=names, failOnDataLoss=fails)
        self.stream.start = self.stream.follower.initial()
        self.passed = {no: self.gone_at_first(no) if self.is_strict else 0 for no in self.queue_nos}

    def gone_at_first(self, queue_no: int) -> int:
        """Return how many messages of a queue there are up to the last one that is gone."""
        written, there = self.written(queue_no), self.in_segments()
        return max((at + 1 for at, body in enumerate(written) if body not in there), default=0)

    def written(self, queue_no: int) -> list[bytes]:
        return self.rig.written.get(queue_no, [])

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

    @rule(ms=st.sampled_from([1, AGE_MS]))
    def retention_ends(self, ms: int) -> None:
        """Have the messages of some flushes settled, and what is old enough freed."""
        for queue_nos in ((1, 2), (1,), (3, 1)):
            self.publish(queue_nos, 2, 400, is_flushed=True)
        self.ack(1)
        self.time_passes(ms)
        self.collect()

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
            assert self.is_strict, "a stream that tolerates losses has failed"
            assert self.is_lost(), "nothing was lost"
            self.begin()
            return
        if rows is not None:
            self.check(rows, limit)

    def check(self, rows: list[dict[str, Any]], limit: Limit) -> None:
        for queue_no in self.queue_nos:
            for body in bodies(rows, f"q{queue_no}"):
                place = self.written(queue_no).index(body, self.passed[queue_no])
                self.pass_over(queue_no, place)
                self.passed[queue_no] = place + 1
        if len({(row["segment"], row["offset"]) for row in rows}) <= 1:
            return  # a message is taken whole
        if limit.rows is not None:
            assert len(rows) <= limit.rows
        if limit.size_bytes is not None:
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
        for queue_no in self.queue_nos:
            self.pass_over(queue_no, len(self.written(queue_no)))

    def pass_over(self, queue_no: int, end: int) -> None:
        """Check messages of a queue that are not read, up to this one."""
        skipped = self.written(queue_no)[self.passed[queue_no] : end]
        assert not self.is_strict or not skipped, "messages were skipped, and nothing was said"
        assert not self.in_segments() & set(skipped), "messages that are there were skipped"

    @rule()
    def another_query(self) -> None:
        self.begin()

    @rule()
    def stop_and_start(self) -> None:
        self.stream.restart()

    @rule(data=st.data())
    def a_batch_again(self, data: st.DataObject) -> None:
        if self.stream.batches:
            start, end, rows = data.draw(st.sampled_from(self.stream.batches))
            try:
                again = rows_between(self.stream.options, start, end)
                assert again == [row for row in rows if row["segment"] in self.rig.segments]
            except DataLoss:
                (offset,) = end.values()
                assert {int(no) for no in offset["ranges"]} - set(self.rig.segments)

    def is_lost(self) -> bool:
        unread = {body for no in self.queue_nos for body in self.written(no)[self.passed[no] :]}
        return not unread <= self.in_segments()

    def in_segments(self) -> set[bytes]:
        """Return what can be read at positions of the stream."""
        found = set()
        for number in self.rig.segments:
            with Segment(self.rig.opened.folder, number) as segment:
                if segment.header is not None and not segment.header.flags & MOVED:
                    found.update(record.body for _, record in segment.records())
        return found


def test_a_gap_before_the_query_begins() -> None:
    machine = StreamMachine()
    machine.make(seed=53221, file_bytes=300, age_ms=1)
    machine.policy_of_another_queue_changes(is_archived=True)
    machine.publish(queue_nos=(3, 1), count=5, size=0, is_flushed=False)
    machine.publish(queue_nos=(1, 2), count=6, size=400, is_flushed=True)
    machine.time_passes(ms=1)
    machine.collect()
    machine.read_all()
    machine.teardown()


TestStream = StreamMachine.TestCase
TestStream.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


@pytest.mark.slow
class TestStreamForLong(StreamMachine.TestCase):
    settings = settings(max_examples=600, stateful_step_count=50, deadline=None)
