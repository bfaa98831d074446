"""The store's machine with the collector in it: any step of it between any two of all others."""

from __future__ import annotations

import random

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.gc.choose import ChoiceLimits
from rigs.store.collector.collector_rig import CollectorRig
from rigs.store.store_machine import StoreMachine


class CollectorMachine(StoreMachine):
    @initialize(
        seed=st.integers(0, 1 << 32),
        rdq_file_bytes=st.sampled_from([200, 700]),
        small_files_max=st.sampled_from([1, 3, 100]),
        short_writes=st.sampled_from([0.0, 0.3]),
        rows=st.sampled_from([1, 4, 20]),
    )
    def make(
        self, seed: int, rdq_file_bytes: int, small_files_max: int, short_writes: float, rows: int
    ) -> None:
        self.rig = CollectorRig(
            random.Random(seed),
            rdq_file_bytes=rdq_file_bytes,
            limits=CheckpointLimits(rows),
            choice=ChoiceLimits(rdq_file_bytes, 3, small_files_max, 4),
        )
        self.late = []
        self.lasting = []
        self.short_writes = short_writes
        self.calm()

    @rule(steps=st.integers(1, 30))
    def look_and_step(self, steps: int) -> None:
        for _ in range(steps):
            self.recover_if_failed()
            self.rig.steps.look()
            self.rig.steps.step()

    @rule(steps=st.integers(1, 60))
    def all_step(self, steps: int) -> None:
        for _ in range(steps):
            self.recover_if_failed()
            if not self.rig.stepped():
                return

    @rule(count=st.integers(1, 8))
    def thin_out(self, count: int) -> None:
        """Leave garbage everywhere."""
        self.rig.ack(*self.rig.held[::2][-count:])

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        there = set(self.rig.folder.rdq_nos())  # one of a flush that fails goes again
        if numbers := sorted(there & self.rig.core.memtables.files.keys()):
            self.rig.pins.pin([data.draw(st.sampled_from(numbers))])

    @rule()
    def unpin(self) -> None:
        self.rig.pins.unpin(list(self.rig.pins))

    @invariant()
    def pinned_segments_stay(self) -> None:
        if hasattr(self, "rig"):
            assert set(self.rig.pins) <= set(self.rig.folder.rdq_nos())

    @invariant()
    def few_files_are_open(self) -> None:
        if hasattr(self, "rig"):
            assert len(self.rig.disk.open_files) <= 7, self.rig.disk.open_files

    @rule()
    def collect_all(self) -> None:
        """Without faults all garbage is removed, and nothing else."""
        self.rest()
        self.rig.disk.short_writes = self.rig.disk.interrupts = 0.0
        while self.rig.pins:
            self.unpin()
        self.rig.collect_all()
        if not self.late:
            self.rig.check()
        self.calm()
