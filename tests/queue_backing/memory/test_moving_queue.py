"""MovingQueue: from memory to a queue that can page, in turns, while it is used; see the contract, too."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.core.message import BODY
from leveret.queue_backing.actor import BackingActor, BackingOwner, SetRamDurationTarget
from leveret.queue_backing.api import BackingQueue
from leveret.queue_backing.memory.moving_queue import STEP, MovingQueue
from leveret.queue_backing.memory.queue import PAGED_BYTES_MIN, RELEASE_SLICE, MemoryQueue
from leveret.queue_backing.proxy import BackingProxy
from leveret.queue_backing.variable.invariants import check
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.queue_backing.variable.state import Limits
from leveret.testing.virtual_clock import VirtualClock
from rigs.fake_index import FakeIndex
from rigs.patient_queue import PatientQueue
from rigs.variable_rig import UNBOUNDED, VariableRig, message

SMALL = Limits(segment=4, io_batch=1, step=3, read_max=4, slack=0)


class Pair:
    """A backing actor whose queue begins in memory."""

    backing: Any = None

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.runtime = Runtime(clock=self.clock)
        self.front = VariableQueue(FakeIndex(), self.clock)  # type: ignore[arg-type]
        self.moves = 0

        def make(owner: BackingOwner) -> BackingQueue:
            def moved(queue: BackingQueue) -> BackingQueue:
                return queue.finish() if isinstance(queue, MovingQueue) else queue

            def move(queue: BackingQueue) -> BackingQueue:
                if not isinstance(queue, MemoryQueue):
                    return queue
                self.moves += 1
                return MovingQueue(queue, self.front, lambda: owner.replace_queue(moved))

            return MemoryQueue(lambda: owner.replace_queue(move))

        self.ref = self.runtime.spawn(BackingActor, make, self)
        self.queue = BackingProxy(self.runtime, self.ref)
        self.runtime.run_until_idle()

    def idle(self) -> None:
        self.runtime.run_until_idle()

    def publish(self, first: int, count: int, size: int = 9) -> None:
        self.queue.publish([message(size, n) for n in range(first, first + count)], False)


def marks(bodies: list[bytes]) -> list[int]:
    return [int(body.rstrip(b".")) for body in bodies]


def drained(pair: Pair) -> list[int]:
    got: list[bytes] = []
    while fetched := pair.queue.fetch(100, UNBOUNDED, False).messages:
        got += [each[BODY] for each in fetched]
        pair.idle()
    return marks(got)


def test_a_queue_that_is_made_lazy_goes_to_disk_with_all_it_has() -> None:
    pair = Pair()
    pair.publish(0, 3 * STEP)
    taken = pair.queue.fetch(20, UNBOUNDED, True).seqs

    pair.queue.set_queue_mode("lazy")
    pair.publish(3 * STEP, 10)
    pair.idle()

    assert pair.front.len() == 3 * STEP - 10
    assert (pair.front.mode, pair.front.ram_count, len(pair.front.rpa)) == ("lazy", 0, 20)
    check(pair.front)
    assert pair.queue.requeue(taken) == 20
    assert drained(pair) == list(range(3 * STEP + 10))


def test_it_goes_in_turns_and_is_used_meanwhile() -> None:
    pair = Pair()
    pair.publish(0, 4 * STEP)
    pair.queue.set_queue_mode("lazy")
    counts: list[int] = []

    class Watching(GenServer):
        """Looks, and takes a message, whenever it has a turn."""

        def init(self) -> None:
            self.runtime.again(self.ref, "look")

        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            counts.append(pair.front.len())
            assert pair.queue.fetch(1, UNBOUNDED, False).seqs == [len(counts) - 1]
            if len(counts) < 20:
                self.runtime.again(self.ref, "look")

    pair.runtime.spawn(Watching)
    pair.idle()

    # A slice in the queue's turn, and one with its waiting mail before the inline call.
    assert max(after - before for before, after in pairwise(counts)) <= 2 * STEP
    assert counts[-1] > 3 * STEP
    assert drained(pair) == list(range(20, 4 * STEP))


def test_what_is_consumed_while_it_goes_comes_in_order_and_once() -> None:
    memory, clock = MemoryQueue(), VirtualClock()
    memory.mode = "lazy"
    memory.publish([message(9, n) for n in range(40)], False)
    before = memory.fetch(5, UNBOUNDED, True).seqs
    done: list[bool] = []
    front = VariableQueue(FakeIndex(), clock, SMALL)  # type: ignore[arg-type]
    queue = MovingQueue(memory, front, lambda: done.append(True))
    queue._move(10)

    assert queue.fetch(3, UNBOUNDED, True).seqs == [5, 6, 7]
    assert queue.requeue([2, *before[3:]]) == 3
    fetched = queue.fetch(5, UNBOUNDED, True)
    assert (fetched.seqs, fetched.redelivered) == ([2, 3, 4, 8, 9], 3)
    assert queue.ack([0, 1, 8]) == 3
    queue._move(10)
    assert not done
    assert queue.finish() is front
    assert done == [True]
    check(front)
    assert front.depth() == 40 - 3
    assert sorted([*front.rpa, *front.dpa]) == [2, 3, 4, 5, 6, 7, 9]


@pytest.mark.parametrize("target", [2, 0, float("inf")])
def test_what_was_put_back_goes_over_before_what_is_unacked_between_it(target: float) -> None:
    rig = VariableRig(SMALL, target)
    memory = MemoryQueue()
    queue = MovingQueue(memory, rig.queue, lambda: None)
    memory.publish([message(9, n) for n in range(10)], False)
    memory.fetch(7, UNBOUNDED, True)
    queue.requeue([0, 1, 2, 3])
    queue._move(4)
    rig.settle()
    rig.set_target(float("inf"))

    queue.requeue([4, 6])
    queue._move(2)
    queue.requeue([5])

    check(rig.queue)
    patient = PatientQueue(queue, rig.settle)
    got = patient.fetch(20, UNBOUNDED, True)
    assert got.seqs == list(range(10))
    assert marks([each[BODY] for each in got.messages]) == list(range(10))
    assert got.redelivered == 7


@pytest.mark.parametrize(("size", "moves"), [(PAGED_BYTES_MIN // 9, 1), (10, 0)])
def test_memory_pressure_pages_what_is_worth_it(size: int, moves: int) -> None:
    pair = Pair()
    pair.publish(0, 10, size)

    pair.runtime.send(pair.ref, SetRamDurationTarget(float("inf")))
    pair.idle()
    assert pair.moves == 0
    for _ in range(2):  # the first is a queue in memory's to hear
        pair.runtime.send(pair.ref, SetRamDurationTarget(0.0))
        pair.idle()

    assert pair.moves == moves
    assert pair.front.len() == (10 if moves else 0)
    assert pair.front.ram_count == 0
    assert drained(pair) == list(range(10))


def test_a_large_purge_while_it_goes_is_freed_in_slices() -> None:
    memory = MemoryQueue()
    memory.publish([message(9)] * (2 * RELEASE_SLICE + 1), False)
    done: list[bool] = []
    front = VariableQueue(FakeIndex(), VirtualClock())  # type: ignore[arg-type]
    queue = MovingQueue(memory, front, lambda: done.append(True))
    assert queue.purge() == 2 * RELEASE_SLICE + 1

    turns = 0
    while queue.needs_timeout() is not None:
        assert not done
        queue.timeout()
        turns += 1

    assert turns >= 3
    assert done == [True]
