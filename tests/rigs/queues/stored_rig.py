"""Variable queues over a real store, step by step, on a faulty disk and virtual time.

The disk is in memory and so is the index; the transient store's index lies in a real folder. A test
runs the loop, or cuts the power between any two steps of any thread, and opens the store again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leveret.core.message import BODY, Message
from leveret.core.system.files import Files
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.drivers import StoreLimits
from leveret.msg_store.format.journal_frames import DurablePosition
from leveret.msg_store.format.rows import SEQ_END
from leveret.msg_store.gc.choose import ChoiceLimits
from leveret.msg_store.recovery.recovery import open_store
from leveret.msg_store.store import MsgStore
from leveret.queue_backing.api import Fetched
from leveret.queue_backing.index.stored import StoredIndex
from leveret.queue_backing.variable.invariants import check
from leveret.queue_backing.variable.limits import Limits
from leveret.queue_backing.variable.queue import VariableQueue
from rigs.disk.faulty_files import Fate, FaultyCalls
from rigs.disk.memory_disk import MemoryDisk
from rigs.queues.patient_queue import PatientQueue
from rigs.queues.variable_rig import UNBOUNDED, VariableRig, message
from rigs.store.live_store import files_at
from rigs.store.memory_index import MemoryIndexFiles
from rigs.store.step_loop import StepLoop, drivers_on

STORE = Path("/data/store")


class StoreBench:
    """One store through many starts."""

    def __init__(
        self,
        rng: random.Random,
        *,
        rdq_file_bytes: int = 1 << 26,
        journal_file_bytes: int = 1 << 26,
        checkpoint_rows: int = 1 << 30,
        room_bytes: int = 1 << 26,
    ) -> None:
        self.rng = rng
        self.disk = FaultyCalls(MemoryDisk(), rng)
        self.files = Files(self.disk)
        self.files.mkdir(STORE)
        self.location = MemoryIndexFiles()
        self.file_bytes = (rdq_file_bytes, journal_file_bytes)
        self.limits = StoreLimits(
            room_bytes,
            CheckpointLimits(rows=checkpoint_rows, idle_rows=checkpoint_rows),
            ChoiceLimits(file_bytes=rdq_file_bytes),
        )
        self.boot_epoch = 0
        self.errors: list[Exception] = []
        self.loop: StepLoop
        self.store: MsgStore
        self.open()

    def open(self, trusted: DurablePosition | None = None) -> None:
        self.boot_epoch += 1
        self.loop = StepLoop(self.rng)
        where = files_at(
            STORE,
            self.disk,
            ballast_bytes=0,
            rdq_file_bytes=self.file_bytes[0],
            journal_file_bytes=self.file_bytes[1],
            index_files=self.location,
            new_uuid=lambda: bytes(range(16)),
        )
        self.opened = open_store(where, self.boot_epoch, trusted)
        self.errors = []
        self.store = MsgStore(
            self.opened,
            self.loop,
            self.loop.clock.monotonic_s,
            self.errors.append,
            drivers_on(self.loop),
            self.limits,
        )

    def run(self, jumps: int = 3) -> None:
        """Let everything be done."""
        self.loop.run(jumps)

    def stop(self) -> None:
        """Stop in order."""
        stopped: list[str] = []
        self.store.stop(lambda: stopped.append("stopped"))
        self.loop.run()
        assert stopped == ["stopped"]

    def crash(self, cut: Callable[[FaultyCalls], None] = FaultyCalls.kill) -> None:
        """End the process in one way or another, and start again."""
        self.loop.kill()
        cut(self.disk)
        self.disk.heal()
        self.open()

    def restart(self) -> None:
        """Stop in order, and start again."""
        self.stop()
        self.open()

    def close(self) -> None:
        self.loop.kill()

    def rows(self, queue_no: int) -> list[tuple]:
        """Return all rows of a queue."""
        found: list[tuple] = []
        answers: list[tuple] = []
        low = 0
        while low < SEQ_END:
            self.store.client(queue_no).rows(low, 100, lambda *got: answers.append(got))
            self.run(jumps=0)
            rows, low = answers.pop()
            found += rows
        return found

    def idle_disk(self) -> None:
        """Have everything that was issued on the disk."""
        self.store.core.hurry()
        self.run()
        assert self.store.core.is_idle, self.store.core.delay_s()


class StoredQueue(VariableRig):
    """A queue over the store: ``VariableRig`` with a real index."""

    def __init__(
        self,
        bench: StoreBench,
        queue_no: int = 1,
        limits: Limits | None = None,
        target: float = float("inf"),
        mode: Any = "default",
        routed_as: int | None = None,
    ) -> None:
        self.bench = bench
        self.routed_as = routed_as
        self.queue_no = queue_no
        self.clock = bench.loop.clock
        self.limits = limits or Limits()
        self.reports = 0
        self.nacks: list[tuple[int, int]] = []
        self.failures: list[Exception] = []
        self.begin(is_new=True)
        self.queue.set_queue_mode(mode)
        self.set_target(target)

    def begin(self, is_new: bool = False) -> None:
        """Make the queue, with its messages in the store."""
        self.confirmed_runs: list[tuple[int, int]] = []
        client = self.bench.store.client(self.queue_no, is_new, self.routed_as)
        self.index = StoredIndex(client, self)  # type: ignore[assignment]
        self.queue = VariableQueue(self.index, self.bench.loop.clock, self.limits)
        self.queue.init(not is_new)

    def publish(
        self,
        messages: list[Message],
        persistent: bool = False,
        expiries: list[int] | None = None,
        is_straight: bool = False,
        **more: Any,
    ) -> tuple[int, bool]:
        first_msg_no = 0
        if persistent:
            first_msg_no = self.bench.store.write(messages, (self.queue_no,))
        publish = self.queue.publish_delivered if is_straight else self.queue.publish
        return publish(messages, persistent, expiries, first_msg_no=first_msg_no, **more)

    def settle(self, turns: int = 1_000) -> None:
        """Do all that the queue asks for, and all that the store does for it."""
        for _ in range(turns):
            self.bench.run(jumps=1)
            if not self.queue.needs_timeout():
                return
            self.queue.timeout()
        raise AssertionError("the queue does not come to rest")

    def take_confirmed(self) -> list[tuple[int, int]]:
        """Return the ``(first_seq, count)`` that became safe since the last time."""
        taken, self.confirmed_runs = self.confirmed_runs, []
        return taken

    # ``QueueOwner``.

    def confirmed(self, runs: list[tuple[int, int]]) -> None:
        self.reports += 1
        self.confirmed_runs += runs

    def resume(self) -> None:
        if not self.failures:  # a queue of a store that failed is ended, and hears no more
            self.queue.resume()

    def nacked(self, runs: list[tuple[int, int]]) -> None:
        self.nacks += runs

    def failed(self, error: Exception) -> None:
        self.failures.append(error)


def fetch_all(queue: StoredQueue) -> list[tuple[int, bytes]]:
    """Take everything, unacked; return seqs and bodies."""
    got: list[tuple[int, bytes]] = []
    for _ in range(500):
        queue.settle()
        fetched = queue.queue.fetch(7, UNBOUNDED, ack_required=True)
        got += zip(fetched.seqs, [each[BODY] for each in fetched.messages], strict=True)
        check(queue.queue)
        if not queue.queue.len():
            return got
    raise AssertionError("the queue does not come to its end")


def take(queue: StoredQueue, limit: int, ack_required: bool = True) -> Fetched:
    return PatientQueue(queue.queue, queue.settle).fetch(limit, UNBOUNDED, ack_required)


def bodies(numbers: range | list[int]) -> list[bytes]:
    return [message(9, n)[BODY] for n in numbers]


def publish(queue: StoredQueue, count: int, persistent: bool = True, first: int = 0) -> int:
    return queue.publish([message(9, n) for n in range(first, first + count)], persistent)[0]


def power_cut(disk: FaultyCalls) -> None:
    disk.power_cut(Fate.SCATTERED)
