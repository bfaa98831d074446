"""A queue that is not durable gets its index when it must page first, and pages in steps while it is used."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.core.message import BODY
from leveret.queue_backing.actor import BackingActor, SetRamDurationTarget
from leveret.queue_backing.priority_queue import PriorityQueue
from leveret.queue_backing.proxy import BackingProxy
from leveret.queue_backing.variable.invariants import check
from leveret.queue_backing.variable.limits import DEFAULT_LIMITS, Limits
from leveret.queue_backing.variable.queue import (
    FEW,
    PAGED_BYTES_MIN,
    PAGED_MESSAGES_MIN,
    VariableQueue,
)
from leveret.queue_backing.variable.release import FREED_PER_TURN
from leveret.testing.virtual_clock import VirtualClock
from rigs.queues.fake_index import FakeIndex
from rigs.queues.patient_queue import PatientQueue
from rigs.queues.variable_rig import SMALL, UNBOUNDED, VariableRig, message

STEP = DEFAULT_LIMITS.step


class Pair:
    """A backing actor whose queue begins without an index."""

    backing: Any = None

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.runtime = Runtime(clock=self.clock)
        self.openings = 0
        self.queue = VariableQueue(None, self.clock, open_index=self.open_index)
        self.ref = self.runtime.spawn(BackingActor, lambda _: self.queue, self)
        self.proxy = BackingProxy(self.runtime.turns, self.ref)
        self.runtime.run_until_idle()

    def open_index(self) -> Any:
        self.openings += 1
        return FakeIndex()

    def idle(self) -> None:
        self.runtime.run_until_idle()

    def publish(self, first: int, count: int, size: int = 9) -> None:
        messages = [message(size, n) for n in range(first, first + count)]
        self.proxy.publish(messages, False, None, None, False, first)


def marks(bodies: list[bytes]) -> list[int]:
    return [int(body.rstrip(b".")) for body in bodies]


def drained(pair: Pair) -> list[int]:
    got: list[bytes] = []
    while fetched := pair.proxy.fetch(100, UNBOUNDED, False).messages:
        got += [each[BODY] for each in fetched]
        pair.idle()
    return marks(got)


def test_a_queue_that_is_made_lazy_goes_to_disk_with_all_it_has() -> None:
    pair = Pair()
    pair.publish(0, 3 * STEP)
    taken = pair.proxy.fetch(20, UNBOUNDED, True).seqs

    pair.proxy.set_queue_mode("lazy")
    pair.publish(3 * STEP, 10)
    pair.idle()

    assert pair.openings == 1
    assert pair.queue.len() == 3 * STEP - 10
    assert (pair.queue.mode, pair.queue.ram_count) == ("lazy", 0)
    assert len(pair.queue.pending.in_ram) + len(pair.queue.pending.on_disk) == 20
    check(pair.queue)
    assert pair.proxy.requeue(taken) == 20
    assert drained(pair) == list(range(3 * STEP + 10))


def test_it_goes_in_turns_and_is_used_meanwhile() -> None:
    pair = Pair()
    pair.publish(0, 4 * STEP)
    pair.proxy.set_queue_mode("lazy")
    counts: list[int] = []

    class Watching(GenServer):
        """Looks, and takes a message, whenever it has a turn."""

        def init(self) -> None:
            self.runtime.again(self.ref, "look")

        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            counts.append(pair.proxy.info()["messages_paged_out"])
            assert pair.proxy.fetch(1, UNBOUNDED, False).seqs == [len(counts) - 1]
            if len(counts) < 20:
                self.runtime.again(self.ref, "look")

    pair.runtime.spawn(Watching)
    pair.idle()

    # A step in the queue's turn, and one with its waiting mail before the inline call.
    assert max(after - before for before, after in pairwise(counts)) <= 2 * STEP
    assert counts[-1] > 3 * STEP
    assert drained(pair) == list(range(20, 4 * STEP))


def rig_in_ram(limits: Limits = SMALL) -> VariableRig:
    return VariableRig(limits, is_durable=False)


def test_what_is_consumed_while_it_goes_comes_in_order_and_once() -> None:
    rig = rig_in_ram()
    queue = rig.queue
    queue.publish([message(9, n) for n in range(40)], False)
    before = queue.fetch(5, UNBOUNDED, True).seqs
    queue.set_queue_mode("lazy")
    queue.timeout()

    assert queue.fetch(3, UNBOUNDED, True).seqs == [5, 6, 7]
    assert queue.requeue([2, *before[3:]]) == 3
    fetched = queue.fetch(5, UNBOUNDED, True)
    assert (fetched.seqs, fetched.redelivered) == ([2, 3, 4, 8, 9], 3)
    assert queue.ack([0, 1, 8]) == 3
    queue.timeout()
    check(queue)
    assert queue.info()["mode"] == "lazy"
    rig.settle()

    check(queue)
    assert (queue.mode, queue.ram_count) == ("lazy", 0)
    assert queue.depth() == 40 - 3
    assert sorted([*queue.pending.in_ram, *queue.pending.on_disk]) == [2, 3, 4, 5, 6, 7, 9]


@pytest.mark.parametrize("target", [2, 0, float("inf")])
def test_what_comes_back_from_before_finds_its_place(target: float) -> None:
    rig = rig_in_ram()
    queue = rig.queue
    queue.publish([message(9, n) for n in range(10)], False)
    queue.fetch(7, UNBOUNDED, True)
    queue.requeue([0, 1, 2, 3])
    assert queue.begin_paging()
    rig.set_target(target)
    rig.settle()
    rig.set_target(float("inf"))

    queue.requeue([4, 6])
    check(queue)
    queue.requeue([5])

    check(queue)
    got = PatientQueue(queue, rig.settle).fetch(20, UNBOUNDED, True)
    assert got.seqs == list(range(10))
    assert marks([each[BODY] for each in got.messages]) == list(range(10))
    assert got.redelivered == 7


@pytest.mark.parametrize(("size", "openings"), [(PAGED_BYTES_MIN // 9, 1), (10, 0)])
def test_memory_pressure_pages_what_is_worth_it(size: int, openings: int) -> None:
    pair = Pair()
    pair.publish(0, 10, size)

    pair.runtime.send(pair.ref, SetRamDurationTarget(float("inf")))
    pair.idle()
    assert pair.openings == 0
    for _ in range(2):
        pair.runtime.send(pair.ref, SetRamDurationTarget(0.0))
        pair.idle()

    assert pair.openings == openings
    assert pair.queue.ram_count == (0 if openings else 10)
    assert pair.proxy.info()["messages_paged_out"] == (10 if openings else 0)
    assert drained(pair) == list(range(10))


def test_very_many_messages_are_worth_paging_however_small_they_are() -> None:
    pair = Pair()
    pair.publish(0, PAGED_MESSAGES_MIN, 0)

    for _ in range(2):
        pair.runtime.send(pair.ref, SetRamDurationTarget(0.0))
        pair.idle()

    assert pair.openings == 1
    info = pair.proxy.info()
    assert (pair.queue.ram_count, info["messages_paged_out"]) == (0, PAGED_MESSAGES_MIN)
    assert len(pair.queue.paged.q3) <= DEFAULT_LIMITS.segment + DEFAULT_LIMITS.io_batch


def test_without_an_index_it_stays_in_ram_and_tries_again() -> None:
    rig = rig_in_ram()
    queue, index = rig.queue, rig.index
    rig.index = None  # type: ignore[assignment]
    queue.publish([message(9, n) for n in range(9)], False)

    queue.set_queue_mode("lazy")
    queue.resume()
    assert queue.info()["mode"] == "lazy"
    assert not queue.needs_timeout()
    assert "q4" not in queue.info()

    rig.index = index
    queue.set_queue_mode("lazy")
    rig.settle()
    assert (queue.info()["mode"], queue.info()["messages_paged_out"]) == ("lazy", 9)
    check(queue)


def test_priorities_without_an_index_stay_in_ram_whatever_the_mode() -> None:
    queue = PriorityQueue([VariableQueue() for _ in range(2)], lambda each: len(each[BODY]) % 2)
    queue.set_queue_mode("lazy")
    queue.set_ram_duration_target(0.0)
    messages = [message(9 + n % 2, n) for n in range(10)]

    assert queue.publish(messages, True) == (0, True)
    queue.resume()
    while queue.needs_timeout():
        queue.timeout()

    assert queue.info()["mode"] == "lazy"
    assert (queue.info()["messages_paged_out"], queue.info()["q4"]) == (0, 10)
    got = queue.fetch(5, UNBOUNDED, True).seqs + queue.fetch(5, UNBOUNDED, True).seqs
    assert got == [*range(0, 10, 2), *range(1, 10, 2)]
    assert queue.requeue(got) == 10
    assert queue.purge() == 10


def test_credit_that_runs_out_leaves_the_rest_in_the_columns() -> None:
    rig = rig_in_ram()
    queue = rig.queue
    expiries = list(range(1, 21))
    queue.publish([message(9, n) for n in range(20)], False, expiries)
    rig.index.grant(2)

    assert queue.begin_paging()
    rig.set_target(0)
    rig.settle()
    check(queue)
    assert (len(queue.columns.messages), len(queue.paged.q3)) == (18, 2)
    queue.publish([message(9, 20)] * 2, False, [21, 21], first_msg_no=20)
    assert len(queue.q1) == 2

    rig.index.grant(None)
    rig.settle()
    queue.resume()
    rig.settle()
    check(queue)
    assert queue.ram_count == 0
    seen: list[int] = []
    while not queue.is_empty():
        fetched = PatientQueue(queue, rig.settle).fetch(3, UNBOUNDED, True)
        queue.ackfold(lambda entry, _: seen.append(entry[2]), None, fetched.seqs)
    assert seen == [*expiries, 21, 21]


def test_a_purge_that_is_freed_in_slices_goes_on_when_it_begins_to_page() -> None:
    rig = rig_in_ram(DEFAULT_LIMITS)
    queue = rig.queue
    queue.publish([message(9)] * (2 * FREED_PER_TURN + 1), False)
    assert queue.purge() == 2 * FREED_PER_TURN + 1
    queue.publish([message(9)] * (FREED_PER_TURN + 1), False)
    queue.set_queue_mode("lazy")
    rig.settle()
    assert (queue.len(), queue.ram_count) == (FREED_PER_TURN + 1, 0)
    check(queue)

    queue.fetch(FREED_PER_TURN + 1, UNBOUNDED, True)
    queue.purge_acks()
    rig.settle()
    assert not queue.purge()
    rig.settle()
    assert not rig.index.contents


def test_single_messages_of_a_short_queue_have_entries_and_those_of_a_long_one_columns() -> None:
    queue = VariableQueue()

    for n in range(FEW + 50):
        queue.publish([message(9, n)], False)

    assert len(queue.q4) == FEW + 1
    assert len(queue.columns.messages) == 49
    check(queue)
    assert queue.fetch(FEW + 50, UNBOUNDED, True).seqs == list(range(FEW + 50))
