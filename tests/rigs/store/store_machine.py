"""Any interleaving of queues, flush, errors and crashes, against the model of the rig.

Hypothesis chooses every step: an operation, the next point of a flush or of the index's jobs, a full or
slow disk, a copy of the collector's, a kill or a power cut with any fate for each file. Files and
memtables are tiny. ``StoreRig.compare`` checks after each recovery.
"""

from __future__ import annotations

import errno
import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.core.message import BODY
from leveret.core.system.shortage import SHORTAGES
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.format.rows import IndexFull
from rigs.disk.faulty_files import FOR_EVER, Fate, Fault
from rigs.store.store_rig import StoreRig

queues = st.sampled_from([(1,), (2,), (1, 2), (3, 1, 2)])
POINTS = [
    "open", "writev", "pwrite", "fdatasync", "fsync", "fsync_dir", "truncate", "allocate", "unlink",
]  # fmt: skip
SYNCS = {
    "fdatasync",
    "fsync",
}  # after one that has failed a store may have failed, whatever the number
shortages = st.sampled_from(sorted(SHORTAGES))


class StoreMachine(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 1 << 32),
        rdq_file_bytes=st.sampled_from([100, 700, 5000, 1 << 26]),
        journal_file_bytes=st.sampled_from([100, 700, 5000, 1 << 26]),
        short_writes=st.sampled_from([0.0, 0.3]),
        rows=st.sampled_from([1, 4, 20, 100_000]),
        journal_bytes=st.sampled_from([100, 1000, 1 << 25]),
        inline_bytes_max=st.sampled_from([0, 150, 1 << 14]),
        journal_ahead_bytes=st.sampled_from([0, 64, 2000]),
    )
    def make(
        self,
        seed: int,
        rdq_file_bytes: int,
        journal_file_bytes: int,
        short_writes: float,
        rows: int,
        journal_bytes: int,
        inline_bytes_max: int,
        journal_ahead_bytes: int,
    ) -> None:
        self.rig = StoreRig(
            random.Random(seed),
            rdq_file_bytes=rdq_file_bytes,
            journal_file_bytes=journal_file_bytes,
            limits=CheckpointLimits(rows, journal_bytes),
            inline_bytes_max=inline_bytes_max,
            journal_ahead_bytes=journal_ahead_bytes,
        )
        self.rig.has_producers = True
        self.late: list[tuple[int, list[int]]] = []
        self.lasting: list[Fault] = []
        self.may_fail = False
        self.short_writes = short_writes
        self.calm()

    def calm(self) -> None:
        self.lasting.clear()
        self.may_fail = False
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

    @rule(younger=st.integers(0, 8))
    def start(self, younger: int = 0) -> None:
        if not self.rig.jobs:
            self.rig.start(younger)

    @rule(
        names=st.lists(st.sampled_from(["rdq", "journal", "read", "write"]), min_size=1, max_size=8)
    )
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

    @rule(data=st.data(), queue_no=st.integers(1, 3))
    def ack_range(self, data: st.DataObject, queue_no: int) -> None:
        seqs = [seq for no, seq in self.rig.held if no == queue_no]
        if seqs:
            low = data.draw(st.sampled_from(seqs))
            high = low + data.draw(st.integers(1, 30))
            kept = data.draw(st.sets(st.sampled_from(seqs)))
            self.rig.ack_range(queue_no, low, min(high, seqs[-1] + 1), sorted(kept))

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        if self.rig.disk.has_faults or self.rig.location.index.has_read_faults:
            return
        live = sorted(set(self.rig.found().values()))
        if live:
            first = data.draw(st.integers(0, len(live) - 1))
            self.rig.move(live[first : first + 4])

    @rule()
    def collect(self) -> None:
        if not self.rig.disk.has_faults:
            self.rig.collect()

    @rule()
    def request_checkpoint(self) -> None:
        self.rig.checkpointer.request()

    @rule()
    def checkpoint(self) -> None:
        self.finish()
        if not self.lasting:
            self.rig.checkpoint()
            self.recover_if_failed()

    @rule(times=st.integers(1, 3), code=shortages)
    def a_shortage_of_the_index(self, times: int, code: int) -> None:
        is_full = code == errno.ENOSPC
        error = IndexFull("injected") if is_full else OSError(code, "injected")
        self.rig.location.index.fail(error, times)

    @rule(times=st.integers(1, 3), code=shortages)
    def the_index_cannot_be_read(self, times: int, code: int) -> None:
        self.rig.location.index.fail_reads(OSError(code, "injected"), times)

    @rule()
    def stop(self) -> None:
        self.rest()
        if not self.late:
            recovered = self.rig.stop()
            assert recovered.is_clean
            self.rig.compare()

    @rule(
        code=shortages | st.just(errno.EIO),
        point=st.sampled_from(POINTS),
        pattern=st.sampled_from(["*.rdq", "*.jnl", "*"]),
        times=st.integers(1, 3),
    )
    def fail(self, code: int, point: str, pattern: str, times: int) -> None:
        if self.rig.jobs:
            self.begin(code, point, pattern, times)

    def begin(self, code: int, point: str, pattern: str, times: int) -> Fault:
        self.may_fail |= code == errno.EIO or point in SYNCS
        return self.rig.disk.fail(point, OSError(code, "injected"), pattern, times=times)

    @rule(code=shortages, point=st.sampled_from(POINTS), pattern=st.sampled_from(["*.rdq", "*"]))
    def a_fault_begins(self, code: int, point: str, pattern: str) -> None:
        self.lasting.append(self.begin(code, point, pattern, FOR_EVER))

    @rule(which=st.integers(0, 30))
    def a_fault_ends(self, which: int) -> None:
        if self.lasting:
            self.lasting.pop(which % len(self.lasting)).end()

    def recover_if_failed(self) -> None:
        error = self.rig.core.error
        if error is not None:
            assert self.may_fail, f"no shortage is final, but {error}"
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

    @rule()
    def lose_the_index(self) -> None:
        self.rig.disk.heal()
        self.rig.crash_without_index()
        self.late = []
        self.calm()

    def recover(self, cut, is_failed: bool = False) -> None:
        durable = self.rig.core.durable if is_failed else None
        self.rig.location.index.heal()
        self.rig.crash(cut, durable)
        self.late = []
        self.calm()

    @rule()
    def rest(self) -> None:
        """Without faults all work ends, and everything held is safe."""
        self.rig.finish_flush()
        self.recover_if_failed()
        self.rig.disk.heal()
        self.lasting.clear()
        self.rig.location.index.heal()
        self.rig.run()
        assert self.rig.core.is_idle
        assert self.rig.core.delay_s() is None
        assert set(self.rig.held) <= self.rig.safe
        assert self.rig.found() == {key: self.rig.rows[key] for key in self.rig.held}
        self.rig.check_tables(self.rig.found())
        holds = self.rig.core.holds
        awaited = {msg_no for _, msg_nos in self.late for msg_no in msg_nos}
        assert holds.counts.keys() <= awaited
        assert holds.bodies.keys() <= awaited
        assert holds.locations.keys() <= awaited
        self.calm()

    @invariant()
    def bodies_are_counted_in_bytes(self) -> None:
        if hasattr(self, "rig") and self.rig.core.error is None:
            holds = self.rig.core.holds
            in_ram = [len(message[BODY]) for message, _ in holds.bodies.values()]
            assert holds.body_bytes == sum(in_ram)

    @invariant()
    def few_files_are_open(self) -> None:
        if hasattr(self, "rig"):
            assert len(self.rig.disk.open_files) <= 3, self.rig.disk.open_files

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.disk.heal()
            self.recover(lambda disk: disk.power_cut(Fate.SCATTERED))
