"""The machine of store and collector with archived queues, on virtual time, and a reader that follows the watermark.

Queue 1 is archived by age, queue 2 by bytes now and then. ``ArchiveRig.check_archive`` checks what can be replayed.
"""

from __future__ import annotations

import random

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from leveret.msg_store.archive.archive import Retention
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.gc.choose import ChoiceLimits
from rigs.store.collector.archive_rig import ArchiveRig
from rigs.store.collector.collector_machine import CollectorMachine


class ArchiveMachine(CollectorMachine):
    rig: ArchiveRig

    @initialize(
        seed=st.integers(0, 1 << 32),
        rdq_file_bytes=st.sampled_from([200, 700]),
        small_files_max=st.sampled_from([1, 3, 100]),
        short_writes=st.sampled_from([0.0, 0.3]),
        rows=st.sampled_from([1, 4, 20]),
        inline_bytes_max=st.sampled_from([0, 150]),
    )
    def make(
        self,
        seed: int,
        rdq_file_bytes: int,
        small_files_max: int,
        short_writes: float,
        rows: int,
        inline_bytes_max: int,
    ) -> None:
        self.rig = ArchiveRig(
            random.Random(seed),
            rdq_file_bytes=rdq_file_bytes,
            limits=CheckpointLimits(rows),
            choice=ChoiceLimits(rdq_file_bytes, 3, small_files_max, 4),
            inline_bytes_max=inline_bytes_max,
        )
        self.late = []
        self.lasting = []
        self.short_writes = short_writes
        self.calm()

    @rule(ms=st.sampled_from([1, 100, 400, 1000]))
    def time_passes(self, ms: int) -> None:
        self.rig.time_ms += ms

    @rule(count=st.integers(1, 5), queue_nos=st.sampled_from([(1,), (1, 2), (3, 1)]))
    def publish_and_ack_at_once(self, count: int, queue_nos: tuple[int, ...]) -> None:
        """Most messages of a queue whose consumers keep up are acked before their flush."""
        before = set(self.rig.rows)
        self.rig.publish(queue_nos, count, 50)
        self.rig.ack(*sorted(self.rig.rows.keys() - before))

    @rule(size_bytes=st.sampled_from([None, 100, 1000]))
    def a_policy_changes(self, size_bytes: int | None) -> None:
        if size_bytes is None:
            self.rig.policies.pop(2, None)
        else:
            self.rig.policies[2] = Retention(None, size_bytes)
        self.rig.retain(2, self.rig.policies.get(2))

    @rule()
    def look_at_the_archive(self) -> None:
        if not self.rig.disk.has_faults and not self.rig.jobs:
            self.rig.publish_watermark()

    @rule()
    def rest(self) -> None:
        super().rest()
        self.rig.disk.short_writes = self.rig.disk.interrupts = 0.0
        self.rig.check_archive()
        self.calm()

    @rule()
    def everything_ends(self) -> None:
        """Behind its retention everything is freed at last."""
        self.collect_all()
        self.rig.check_archive()
        self.rig.time_ms += 1000
        self.a_policy_changes(None)
        self.rig.disk.short_writes = self.rig.disk.interrupts = 0.0
        self.rig.ack(*self.rig.held)
        self.rest()
        self.rig.disk.short_writes = self.rig.disk.interrupts = 0.0
        self.rig.collect_all()
        if not self.late:
            assert not self.rig.core.memtables.removable()
        self.calm()

    @invariant()
    def few_files_are_open(self) -> None:
        if hasattr(self, "rig"):
            assert len(self.rig.disk.open_files) <= 9, self.rig.disk.open_files
