"""The model of the variable queue, with a real store on a faulty disk under the queue.

The assertions of ``test_queue_model`` hold here as well, at any interleaving of the store's threads. After a
crash the queue has every message that was confirmed and not acked, and no message that was never published
or was durably acked; all count as redelivered.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from leveret.queue_backing.variable.invariants import check
from leveret.queue_backing.variable.limits import Limits
from rigs.disk.faulty_files import Fate, FaultyCalls
from rigs.queues.stored_rig import StoreBench, StoredQueue
from rigs.queues.variable_machine import VariableQueueMachine, limits
from rigs.queues.variable_rig import message

file_bytes = st.sampled_from([150, 900, 1 << 26])
QUEUE_NO = 1


class StoredQueueMachine(VariableQueueMachine):
    @initialize(
        limits=limits,
        seed=st.integers(0, 1 << 32),
        files=st.tuples(file_bytes, file_bytes),
        checkpoint_rows=st.sampled_from([3, 20, 1 << 30]),
        room_bytes=st.sampled_from([3_000, 1 << 26]),
        mode=st.sampled_from(["default", "default", "lazy"]),
        ram=st.sampled_from([float("inf"), 0, 1, 3, 7]),
    )
    def start(
        self,
        limits: Limits,
        seed: int,
        files: tuple[int, int],
        checkpoint_rows: int,
        room_bytes: int,
        mode: Any,
        ram: float,
    ) -> None:
        self.bench = StoreBench(
            random.Random(seed),
            rdq_file_bytes=files[0],
            journal_file_bytes=files[1],
            checkpoint_rows=checkpoint_rows,
            room_bytes=room_bytes,
        )
        self.rig = StoredQueue(self.bench, QUEUE_NO, limits, ram, mode)
        self.mode = mode
        self.stored: set[int] = set()  # seqs that had a row at some time and may have one
        self.gone: set[int] = set()  # of them: acked, and the ack is on disk
        self.unsafe: set[int] = set()  # not confirmed when the queue that was owed it went

    def may_be_late(self) -> bool:
        return True

    # What a fake index did.

    @rule()
    def discard(self) -> None:
        number = self.bench.store.write([message(1)], (QUEUE_NO,))

        self.rig.queue.discard([message(1)], True, number)

    @rule(credit=st.none())
    def grant(self, credit: None) -> None:
        self.rig.queue.resume()

    @rule(jumps=st.integers(0, 1))
    def arrive(self, jumps: int) -> None:
        self.bench.run(jumps)

    @rule(steps=st.integers(1, 12))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.bench.loop.step()
        self.bench.loop.turn()

    @rule(
        code=st.sampled_from([errno.ENOSPC, errno.EDQUOT]),
        pattern=st.sampled_from(["*.rdq", "*.jnl"]),
        times=st.integers(1, 3),
    )
    def fill_disk(self, code: int, pattern: str, times: int) -> None:
        call = "writev" if pattern == "*.rdq" else "pwrite"
        self.bench.disk.fail(call, OSError(code, "full"), pattern, times=times)

    @rule()
    def sync(self) -> None:
        self.bench.disk.heal()
        self.bench.idle_disk()
        self._drain()
        assert not self.owed, "synced, but not confirmed"
        self._note_stored()
        self.gone = self.stored - self._held()
        self.unsafe = set()

    @rule()
    def settle(self) -> None:
        self.bench.disk.heal()
        self.rig.queue.resume()
        self.rig.settle()
        queue = self.rig.queue
        assert queue.ram_count + len(queue.pending.in_ram) <= queue.ram.target
        assert not queue.to_lazy

    def _held(self) -> set[int]:
        return {seq for seq in self.ready | self.unacked if self.known[seq][2]}

    def _note_stored(self) -> None:
        self.stored |= {seq for seq, (_, _, persistent) in self.known.items() if persistent}

    # Restarts.

    @rule()
    def restart(self) -> None:
        """Queue and store end in order."""
        self.bench.disk.heal()
        next_seq, watermark = self.next_seq, self.watermark
        survivors = self._held()
        self.rig.queue.terminate()
        self.bench.restart()
        self._begin(survivors)
        assert self.rig.queue.next_seq == next_seq
        self.next_seq, self.watermark = next_seq, watermark

    @rule()
    def begin_again(self) -> None:
        """The queue ends in order and begins again, while the store goes on."""
        self._drain()
        self.unsafe |= self.owed
        next_seq, watermark = self.next_seq, self.watermark
        self.rig.queue.terminate()
        self._begin(self._held())
        assert self.rig.queue.next_seq == next_seq
        self.next_seq, self.watermark = next_seq, watermark

    @rule(written=st.integers(0, 2))
    def kill_the_queue(self, written: int) -> None:
        """Crash the queue in the middle of its work; no seq is used twice."""
        used = self.next_seq
        self._drain()
        self.unsafe |= self.owed
        if written:
            self.bench.store.write([message(1)] * written, (QUEUE_NO,))
        self.bench.store.queue_down(QUEUE_NO)
        self._begin(self._held())
        assert self.rig.queue.next_seq >= used
        self.next_seq = self.watermark = self.rig.queue.next_seq

    @rule(rdq=st.sampled_from(Fate), journal=st.sampled_from(Fate), is_kill=st.booleans())
    def crash(self, rdq: Fate, journal: Fate, is_kill: bool) -> None:
        fates = {".rdq": rdq, ".jnl": journal}

        def cut(disk: FaultyCalls) -> None:
            if is_kill:
                disk.kill()
            else:
                disk.power_cut(lambda path: fates.get(path.suffix, rdq))

        self._recover(lambda: self.bench.crash(cut))

    @rule(pattern=st.sampled_from(["*.rdq", "*.jnl"]))
    def a_sync_fails(self, pattern: str) -> None:
        """The store fails, if it was about to sync anything, and is opened anew."""
        self.bench.disk.fail("fdatasync", OSError(errno.EIO, "gone"), pattern)
        self.bench.store.core.hurry()
        self.bench.run(jumps=0)
        self.bench.disk.heal()
        if self.bench.errors:
            assert len(self.rig.failures) == 1
            self.rig.failures.clear()
            self._recover(self._open_anew)

    def _open_anew(self) -> None:
        durable = self.bench.store.core.durable
        self.bench.store.kill()
        self.bench.run(jumps=0)
        self.bench.open(trusted=durable)

    def _recover(self, end: Callable[[], None]) -> None:
        self._drain()
        held = self._held()
        self._note_stored()
        used = self.next_seq
        end()
        assert not self.bench.opened.recovered.report.is_damage
        found = {row[0] for row in self.bench.rows(QUEUE_NO)}
        assert held - self.owed - self.unsafe <= found, "a confirmed message is lost"
        assert found <= self.stored - self.gone, "an ack was undone"
        self._begin(found)
        assert self.rig.queue.next_seq >= used, "a seq is used twice"
        self.stored, self.gone, self.unsafe = set(found), set(), set()
        self.known = {seq: each for seq, each in self.known.items() if seq in found}
        self.next_seq = self.watermark = self.rig.queue.next_seq

    def _begin(self, survivors: set[int]) -> None:
        self.rig.begin()
        self.rig.queue.set_queue_mode(self.mode)
        self.ready, self.unacked, self.owed = survivors, set(), set()
        self.delivered = self.put_back = 0

    # What holds always.

    def _nothing_leaks(self) -> None:
        client = self.bench.store.client(QUEUE_NO)
        if self.rig.queue.releasing:
            return
        held = [len(self.known[seq][0][2]) for seq in self._held()]
        assert (client.messages, client.size_bytes) == (len(held), sum(held))
        assert not self.rig.failures
        assert not self.bench.errors

    @invariant()
    def few_files_are_open(self) -> None:
        if hasattr(self, "bench"):
            assert len(self.bench.disk.open_files) <= 70

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        try:
            self._drain_all()
        finally:
            self.bench.close()

    def _drain_all(self) -> None:
        self.bench.disk.heal()
        for _ in range(10_000):
            if not self.ready:
                break
            self.fetch(3, 50, keep=True)
            self.rig.settle()
        assert not self.ready
        check(self.rig.queue)
        self.rig.queue.ack(sorted(self.unacked))
        self.rig.settle()
        self.bench.idle_disk()
        store = self.bench.store
        assert not self.bench.rows(QUEUE_NO)
        assert (
            not store.memtables.terms[QUEUE_NO].messages
            if QUEUE_NO in store.memtables.terms
            else True
        )
        assert not sum(state.valid_bytes for state in store.memtables.files.values())
        assert not store.core.holds.bodies
        assert not self.rig.queue.depth()


StoredQueueMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None
)
TestStoredQueue = StoredQueueMachine.TestCase


@pytest.mark.slow
class TestStoredQueueForLong(StoredQueueMachine.TestCase):
    settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
