"""The backing actor: housekeeping is done in turns of its own.

Tests: queue_backing/proxy.py
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.scheduler import DRAIN_S
from leveret.actors.runtime.signals import SHUTDOWN
from leveret.queue_backing.actor import (
    BackingActor,
    BackingOwner,
    ReportRamDuration,
    SetRamDurationTarget,
)
from leveret.queue_backing.memory_monitor import MemoryMonitor
from leveret.queue_backing.proxy import BackingProxy
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.queue_backing.variable.release import FREED_PER_TURN
from leveret.testing.virtual_clock import VirtualClock
from rigs.queues.fake_index import FakeIndex
from rigs.queues.open_queue import OpenQueue


class Entry:
    """What an amqqueue's entry is to its backing actor."""

    backing: Ref | None = None


def test_queues_that_free_many_messages_take_turns() -> None:
    freed: list[OpenQueue] = []

    class Noting(OpenQueue):
        def timeout(self) -> None:
            freed.append(self)
            super().timeout()

    runtime = Runtime(clock=VirtualClock())
    refs = [runtime.spawn(BackingActor, lambda _: Noting(), Entry()) for _ in range(2)]
    messages = [(b"", b"", b"x")] * (4 * FREED_PER_TURN)
    for ref in refs:
        queue = BackingProxy(runtime.turns, ref)
        queue.publish(messages, False)
        queue.purge()
    runtime.run_until_idle()

    one, two = freed[:2]
    assert one is not two
    assert freed == [one, two] * (len(freed) // 2)
    assert len(freed) >= 8


class Owner:
    """A backing actor over a queue that can page, on virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.runtime = Runtime(clock=self.clock)
        self.memory = MemoryMonitor()

        def make(owner: BackingOwner) -> VariableQueue:
            owner.use_memory_monitor(self.memory)
            self.queue = VariableQueue(FakeIndex(), self.clock)  # type: ignore[arg-type]
            return self.queue

        self.ref = self.runtime.spawn(BackingActor, make, Entry())
        self.proxy = BackingProxy(self.runtime.turns, self.ref)
        self.clock.jump(1.0)

    def publish(self) -> None:
        self.proxy.publish(MESSAGES, False)
        self.runtime.run_until_idle()

    def report(self) -> int:
        """Have those report who are in use; return how many."""
        asked = self.memory.take_active()
        for ref in asked:
            self.runtime.send(ref, ReportRamDuration())
        self.runtime.run_until_idle()
        return len(asked)


MESSAGES = [(b"", b"", b"x")] * 10_000


def test_a_used_queue_reports_until_its_rates_have_faded() -> None:
    owner = Owner()
    assert owner.report() == 0

    owner.publish()
    owner.clock.jump(5.0)
    assert owner.report() == 1
    assert list(owner.memory.active) == [owner.ref]
    owner.clock.jump(600.0)
    assert owner.report() == 1
    assert owner.report() == 0

    owner.proxy.fetch(1, 1, False)
    assert owner.report() == 1


def test_a_queue_pages_to_its_target_in_turns_of_bounded_work() -> None:
    owner = Owner()
    owner.publish()
    seen: list[int] = []

    class Watching(GenServer):
        """Looks whenever it has a turn."""

        def init(self) -> None:
            self.runtime.again(self.ref, "look")

        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            seen.append(owner.queue.ram_count)
            if seen[-1]:
                self.runtime.again(self.ref, "look")

    owner.runtime.spawn(Watching)
    owner.runtime.send(owner.ref, SetRamDurationTarget(0.0))
    owner.runtime.run_until_idle()

    assert seen[0] > 0
    assert seen[-1] == 0
    assert max(a - b for a, b in pairwise(seen)) <= owner.queue.paged.limits.step
    assert owner.queue.len() == len(MESSAGES)


def test_a_queue_that_ends_is_removed_from_the_monitor() -> None:
    owner = Owner()
    owner.publish()
    owner.clock.jump(5.0)
    owner.report()
    assert owner.memory.count == 1

    owner.runtime.exit(owner.ref, "shutdown")
    owner.runtime.run_until_idle()

    assert owner.memory.count == 0
    owner.report()
    assert owner.memory.count == 0


class WorkClock(VirtualClock):
    """A clock that goes on while work is done."""

    worked_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.worked_s


def test_queues_that_end_together_are_freed_within_the_budget_of_a_drain() -> None:
    clock = WorkClock()
    turns: list[int] = []

    class Slow(OpenQueue):
        """Frees a slice in twice the time that a drain gives to long work."""

        def timeout(self) -> None:
            turns.append(runtime.turns.scheduler.drains)
            super().timeout()
            clock.worked_s += 2 * DRAIN_S

    runtime = Runtime(clock=clock)
    refs = [runtime.spawn(BackingActor, lambda _: Slow(), Entry()) for _ in range(10)]
    for ref in refs:
        BackingProxy(runtime.turns, ref).publish([(b"", b"", b"x")] * (2 * FREED_PER_TURN), False)
    for ref in refs:
        runtime.exit(ref, SHUTDOWN)
    runtime.run_until_idle()
    clock.jump(1.0)

    assert len(turns) == 20
    assert len(set(turns)) == 20
    assert not list(runtime.cells())


def test_long_work_of_others_waits_for_one_queue_of_the_many_that_a_client_leaves() -> None:
    """All are freed on the account of that client."""
    clock = WorkClock()
    turns: list[int] = []

    class Slow(OpenQueue):
        def timeout(self) -> None:
            turns.append(1)
            super().timeout()
            clock.worked_s += DRAIN_S / 10

    class Other(GenServer):
        def handle_cast(self, message: Any) -> None:
            waited.append(len(turns) - before)

    waited: list[int] = []
    runtime = Runtime(clock=clock)
    refs = [runtime.spawn(BackingActor, lambda _: Slow(), Entry()) for _ in range(100)]
    for ref in refs:
        ref.cell.account = refs[0].cell.account
        BackingProxy(runtime.turns, ref).publish([(b"", b"", b"x")] * (2 * FREED_PER_TURN), False)
    for ref in refs:
        runtime.exit(ref, SHUTDOWN)
    runtime.turns.scheduler.drain()
    before = len(turns)
    runtime.send_bulk(runtime.spawn(Other), None)
    runtime.run_until_idle()

    assert waited[0] <= 2
    assert len(turns) == 200
