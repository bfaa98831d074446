"""The transient store against a model that keeps everything in dicts, in all orders of steps.

Whatever the disk does and however jobs and reads interleave: rows are those of the model in the turn in
which they are told, contents that the model has are found, nothing foreign is, and the accounts agree.
"""

from __future__ import annotations

import errno
import random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.core.message import Message
from leveret.msg_store.format.seq_range import SeqRange
from leveret.msg_store.transient import paging_core
from leveret.msg_store.transient.paging_core import Limits
from rigs.store.transient_rig import READER, WRITER, TransientRig, entry, message, row

queue_nos = st.integers(1, 3)
sizes = st.sampled_from([0, 5, 40, 300, 2_000])


class TransientMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.contents: dict[int, dict[int, tuple]] = {no: {} for no in (1, 2, 3)}  # seq -> entry
        self.next_seq = dict.fromkeys((1, 2, 3), 0)
        self.lives = dict.fromkeys((1, 2, 3), 0)
        self.ever: dict[int, dict[int, Message]] = {no: {} for no in (1, 2, 3)}
        self.refused: set[int] = set()
        self.texts = self.told = 0

    @initialize(
        seed=st.integers(0, 1 << 32),
        file_bytes=st.sampled_from([200, 600, 3_000]),
        waiting_bytes=st.sampled_from([500, 5_000, 1 << 20]),
        job_bytes=st.sampled_from([100, 1 << 20]),
        work=st.sampled_from([1, 3, 10_000]),
    )
    def start(
        self, seed: int, file_bytes: int, waiting_bytes: int, job_bytes: int, work: int
    ) -> None:
        self.before = paging_core.JOB_BYTES, paging_core.DELETE_WORK
        paging_core.JOB_BYTES, paging_core.DELETE_WORK = job_bytes, work  # type: ignore[misc]
        limits = Limits(file_bytes, waiting_bytes)
        self.rig = TransientRig(random.Random(seed), limits)
        self.rig.store._on_lost = self.lose
        self.rig.store._on_credit = self.refused.remove

    def lose(self, queue_no: int, seqs: list[int] | None) -> None:
        assert seqs is None, "no content was damaged"
        known = self.contents[queue_no]
        there = self.rig.store.contents(queue_no, list(known))
        gone = {seq for seq, found in zip(list(known), there, strict=True) if found is None}
        self.contents[queue_no] = {seq: each for seq, each in known.items() if seq not in gone}

    # Calls of queues.

    @rule(no=queue_nos, count=st.integers(1, 5), size=sizes, must=st.booleans(), skip=st.booleans(),
          expiry=st.integers(0, 9))  # fmt: skip
    def page_out(self, no: int, count: int, size: int, must: bool, skip: bool, expiry: int) -> None:
        first = self.next_seq[no] + 3 * skip
        entries = []
        for seq in range(first, first + count):
            content = message(f"t{self.texts}", size)
            self.texts += 1
            number = random.Random(self.texts).getrandbits(64)
            entries.append((seq, content, expiry, False, number, len(content[2]), False, False))
        taken = self.rig.store.page_out(no, entries[::-1] if skip else entries, must)
        assert taken == count or (not must and taken < count)
        if taken < count:
            self.refused.add(no)
        entries = (entries[::-1] if skip else entries)[:taken]
        self.contents[no].update((each[0], each) for each in entries)
        self.ever[no].update((each[0], each[1]) for each in entries)
        self.next_seq[no] = first + count

    def _some(self, data: st.DataObject, pool: list[int]) -> list[int]:
        return data.draw(st.lists(st.sampled_from(sorted(pool)), unique=True, min_size=1))

    @rule(no=queue_nos, data=st.data())
    def ack(self, no: int, data: st.DataObject) -> None:
        seqs = self._some(data, [*self.contents[no], 10_000])
        self.rig.store.ack(no, [self.contents[no].get(seq) or entry(seq) for seq in seqs])
        for seq in seqs:
            self.contents[no].pop(seq, None)

    @rule(no=queue_nos, low=st.integers(0, 60), length=st.integers(1, 40), data=st.data())
    def ack_range(self, no: int, low: int, length: int, data: st.DataObject) -> None:
        high = min(low + length, self.next_seq[no])
        if low < high:
            kept = data.draw(st.sets(st.sampled_from(range(max(0, low - 3), high + 3))))
            self.rig.store.ack_range(no, SeqRange(low, high, sorted(kept)))
            for seq in [seq for seq in self.contents[no] if low <= seq < high and seq not in kept]:
                del self.contents[no][seq]

    @rule(no=queue_nos)
    def drop_queue(self, no: int) -> None:
        self.rig.store.drop_queue(no)
        self.contents[no], self.ever[no] = {}, {}
        self.next_seq[no] = 0
        self.lives[no] += 1
        self.refused.discard(no)

    # Reads.

    @rule(no=queue_nos, low=st.integers(0, 60), length=st.integers(1, 80), limit=st.integers(1, 20))
    def ask_rows(self, no: int, low: int, length: int, limit: int) -> None:
        life = self.lives[no]

        def told(rows: list[Any]) -> None:
            assert self.lives[no] == life or not rows
            if self.lives[no] == life:
                seqs = sorted(seq for seq in self.contents[no] if low <= seq < low + length)
                assert rows == [row(self.contents[no][seq]) for seq in seqs[:limit]]
                self.told += 1

        self.rig.store.rows(no, low, low + length, limit, told)

    @rule(no=queue_nos, data=st.data())
    def ask_contents(self, no: int, data: st.DataObject) -> None:
        seqs = self._some(data, [*self.ever[no], 10_000])
        life, known = self.lives[no], set(self.contents[no])

        def told(found: dict[int, Message]) -> None:
            assert self.lives[no] == life or not found
            if self.lives[no] == life:
                needed = known.intersection(seqs, self.contents[no])
                assert needed <= found.keys() <= set(seqs)
                assert found.items() <= self.ever[no].items()
                self.told += 1

        self.rig.store.read(no, seqs, told)

    # Threads, time and faults.

    @rule(steps=st.integers(1, 6))
    def write_on(self, steps: int) -> None:
        for _ in range(steps):
            self.rig.step(WRITER)
            self.rig.turn()

    @rule(steps=st.integers(1, 3))
    def read_on(self, steps: int) -> None:
        for _ in range(steps):
            self.rig.step(READER)
            self.rig.turn()

    @rule(seconds=st.sampled_from([0.1, 0.3, 1.0]))
    def wait(self, seconds: float) -> None:
        self.rig.loop.clock.jump(seconds)
        self.rig.turn()

    @rule()
    def rest(self) -> None:
        self.rig.disk.heal()
        self.rig.settle()
        self.check_rest()

    @rule(point=st.sampled_from(["pwrite", "open", "unlink"]),
          number=st.sampled_from([errno.ENOSPC, errno.EIO]), times=st.integers(1, 4))  # fmt: skip
    def spoil_the_disk(self, point: str, number: int, times: int) -> None:
        error = OSError(number if point != "open" else errno.EMFILE, "trouble")
        self.rig.disk.fail(point, error, "*.rdq", times=times)

    @rule(share=st.sampled_from([0.0, 0.5]))
    def write_short(self, share: float) -> None:
        self.rig.disk.short_writes = self.rig.disk.interrupts = share

    @precondition(lambda self: self.told > 3)
    @rule(no=queue_nos)
    def lose_rows(self, no: int) -> None:
        """As if rows of the queue could not be read."""
        queue = self.rig.store._core.queues.get(no)
        if queue is not None and queue.blocks:
            self.rig.store._lose(queue)

    # Invariants.

    @invariant()
    def contents_in_ram_are_those_of_the_model(self) -> None:
        if not hasattr(self, "rig"):
            return
        assert self.rig.failed == []
        for no, known in self.contents.items():
            there = self.rig.store.contents(no, list(known))
            for found, each in zip(there, known.values(), strict=True):
                assert found is None or found is each[1]

    def check_rest(self) -> None:
        rig = self.rig
        assert self.refused == set(), "credit is owed"
        stats = rig.store.stats()
        assert stats.waiting_bytes == 0
        assert stats.live == sum(map(len, self.contents.values()))
        rig.check_usage()
        for queue in rig.store._core.queues.values():
            assert not queue.deleting
            assert all(map(any, queue.blocks.values())), "a block without a live message"
        for no, known in self.contents.items():
            assert [each[0] for each in rig.rows(no)] == sorted(known)
            assert rig.read(no, *known) == {seq: each[1] for seq, each in known.items()}
        file_bytes = rig.store._core._limits.file_bytes
        allowed = max(2 * stats.live_bytes, 2 * file_bytes) + 2 * file_bytes + 2_200 * 5 * 3
        assert stats.disk_bytes <= allowed

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        try:
            self.rest()
        finally:
            paging_core.JOB_BYTES, paging_core.DELETE_WORK = self.before  # type: ignore[misc]
            self.rig.close()


TestTransientMachine = TransientMachine.TestCase
TestTransientMachine.settings = settings(max_examples=60, stateful_step_count=40)
