"""Any interleaving of queues, flush, errors and crashes, against the model of the rig.

Hypothesis chooses every step: an operation, the next point of either job, a full or slow disk, a kill
or a power cut with any fate for each file. ``StoreRig.compare`` checks after each recovery.
"""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.msg_store.group_commit import Due
from leveret.testing.faulty_files import Fate
from store_rig import StoreRig

queues = st.sampled_from([(1,), (2,), (1, 2), (3, 1, 2)])
FULL = [errno.ENOSPC, errno.EDQUOT]


class StoreMachine(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 1 << 32),
        rdq_file_bytes=st.sampled_from([100, 700, 5000, 1 << 26]),
        journal_file_bytes=st.sampled_from([100, 700, 5000, 1 << 26]),
        short_writes=st.sampled_from([0.0, 0.3]),
    )
    def make(
        self, seed: int, rdq_file_bytes: int, journal_file_bytes: int, short_writes: float
    ) -> None:
        self.rig = StoreRig(
            random.Random(seed),
            rdq_file_bytes=rdq_file_bytes,
            journal_file_bytes=journal_file_bytes,
        )
        self.late: list[tuple[int, list[int]]] = []
        self.short_writes = short_writes
        self.calm()

    def calm(self) -> None:
        self.rig.disk.short_writes = self.rig.disk.interrupts = self.short_writes

    @rule(queue_nos=queues, count=st.integers(1, 6), size=st.sampled_from([6, 50, 700]))
    def publish(self, queue_nos: tuple[int, ...], count: int, size: int) -> None:
        self.rig.publish(queue_nos, count, size)

    @rule(queue_nos=queues, count=st.integers(1, 3))
    def write(self, queue_nos: tuple[int, ...], count: int) -> None:
        msg_nos = self.rig.write(queue_nos, count)
        self.late += [(queue_no, msg_nos) for queue_no in queue_nos]

    @rule(which=st.integers(0, 30))
    def accept(self, which: int) -> None:
        if self.late:
            self.rig.accept(*self.late.pop(which % len(self.late)))

    @rule(queue_no=st.integers(1, 3))
    def queue_down(self, queue_no: int) -> None:
        self.rig.core.queue_down(queue_no)
        self.late = [each for each in self.late if each[0] != queue_no]

    @rule(data=st.data(), count=st.integers(1, 8))
    def ack(self, data: st.DataObject, count: int) -> None:
        held = self.rig.held
        if held:
            first = data.draw(st.integers(0, len(held) - 1))
            self.rig.ack(*held[first : first + count])

    @rule()
    def start(self) -> None:
        if not self.rig.jobs:
            self.rig.start()

    @rule(names=st.lists(st.sampled_from(["rdq", "journal"]), min_size=1, max_size=8))
    def step(self, names: list[str]) -> None:
        for name in names:
            self.rig.step(name)
        self.recover_if_failed()

    @rule()
    def finish(self) -> None:
        self.rig.finish_flush()
        self.recover_if_failed()

    @rule(queue_nos=queues, count=st.integers(1, 6))
    def publish_and_flush(self, queue_nos: tuple[int, ...], count: int) -> None:
        self.publish(queue_nos, count, 50)
        self.finish()
        self.start()
        self.finish()

    @rule()
    def switch_journal(self) -> None:
        self.rig.core.switch_journal()

    @rule(
        code=st.sampled_from([*FULL, errno.EIO]),
        point=st.sampled_from(["writev", "fdatasync", "fsync", "open", "fsync_dir"]),
        pattern=st.sampled_from(["*.rdq", "*.jnl", "*"]),
        times=st.integers(1, 3),
    )
    def fail(self, code: int, point: str, pattern: str, times: int) -> None:
        if self.rig.jobs:
            self.rig.disk.fail(point, OSError(code, "injected"), pattern, times=times)

    def recover_if_failed(self) -> None:
        if self.rig.core.error is not None:
            self.rig.disk.heal()
            self.recover(lambda disk: disk.kill(), is_failed=True)

    @rule(rdq=st.sampled_from(Fate), journal=st.sampled_from(Fate))
    def power_cut(self, rdq: Fate, journal: Fate) -> None:
        fates = {".rdq": rdq, ".jnl": journal}
        self.recover(lambda disk: disk.power_cut(lambda path: fates.get(path.suffix, rdq)))

    @rule()
    def kill(self) -> None:
        self.rig.disk.heal()
        self.recover(lambda disk: disk.kill())

    def recover(self, cut, is_failed: bool = False) -> None:
        mark = self.rig.core.mark if is_failed else None
        self.rig.crash(cut, mark)
        self.late = []
        self.calm()

    @rule()
    def rest(self) -> None:
        """Without faults all work ends, and everything held is safe."""
        self.rig.finish_flush()
        self.recover_if_failed()
        self.rig.disk.heal()
        self.rig.run()
        assert self.rig.core.is_idle
        assert self.rig.core.due() is Due.NEVER
        assert set(self.rig.held) <= self.rig.safe
        self.calm()

    @invariant()
    def references_are_those_of_the_model(self) -> None:
        if not hasattr(self, "rig"):
            return
        references = self.rig.core.references
        expected: dict[int, int] = {}
        for key in self.rig.held:
            expected[self.rig.rows[key]] = expected.get(self.rig.rows[key], 0) + 1
        for _, msg_nos in self.late:
            for msg_no in msg_nos:
                expected[msg_no] = expected.get(msg_no, 0) + 1
        assert references.counts == expected
        placed = references.locations.keys()
        assert placed.isdisjoint(references.bodies)
        assert placed | references.bodies.keys() == expected.keys()
        sums: dict[int, int] = {}
        for file_no, _, length, _ in references.locations.values():
            sums[file_no] = sums.get(file_no, 0) + length
        assert {no: size for no, size in references.valid_bytes.items() if size} == sums

    @invariant()
    def few_files_are_open(self) -> None:
        if hasattr(self, "rig"):
            assert len(self.rig.disk.open_files) <= 3, self.rig.disk.open_files

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.disk.heal()
            self.recover(lambda disk: disk.power_cut(Fate.SCATTERED))


TestStore = pytest.mark.filterwarnings("error")(StoreMachine.TestCase)
TestStore.settings = settings(max_examples=100, stateful_step_count=40)


@pytest.mark.slow
class TestStoreForLong(StoreMachine.TestCase):
    settings = settings(max_examples=800, stateful_step_count=60)
