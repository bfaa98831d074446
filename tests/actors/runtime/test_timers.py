from __future__ import annotations

from typing import Any

import pytest

from leveret.actors.actor import TIMER, OtpActor
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.testing.virtual_clock import VirtualClock


class Alarm(OtpActor):
    def init(self, seen: list[Any]) -> None:
        self.seen = seen

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        if callable(message):
            message(self)
        else:
            self.seen.append((message, sender is TIMER))


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def alarm(runtime: Runtime, seen: list[Any]) -> Any:
    return runtime.spawn(Alarm, seen).cell.actor


def test_a_timer_mails_its_actor_when_its_time_has_come(
    clock: VirtualClock, alarm: Any, seen: list[Any]
) -> None:
    timer = alarm.start_timer(2.0, "tick")

    clock.jump(1.9)
    assert seen == []
    assert timer.is_pending
    clock.jump(0.1)

    assert seen == [("tick", True)]
    assert not timer.is_pending
    assert alarm.ref.cell.timers is None


def test_timers_of_one_moment_keep_their_order(
    clock: VirtualClock, alarm: Any, seen: list[Any]
) -> None:
    for number in range(5):
        alarm.start_timer(1.0, number)
    clock.jump(1.0)

    assert seen == [(number, True) for number in range(5)]


def test_a_cancelled_timer_never_fires(clock: VirtualClock, alarm: Any, seen: list[Any]) -> None:
    timer = alarm.start_timer(1.0, "tick")
    timer.cancel()
    timer.cancel()
    clock.jump(2.0)

    assert seen == []
    assert clock.pending_count == 0
    assert alarm.ref.cell.timers is None


def test_a_timer_that_fired_can_be_cancelled_until_its_mail_is_handled(
    runtime: Runtime, clock: VirtualClock, alarm: Any, seen: list[Any]
) -> None:
    runtime.suspend(alarm.ref)
    timer, other = alarm.start_timer(1.0, "same"), alarm.start_timer(1.0, "same")
    clock.jump(1.0)
    assert alarm.ref.cell.mail_count() == 2

    timer.cancel()
    runtime.resume(alarm.ref)
    runtime.run_until_idle()
    other.cancel()

    assert seen == [("same", True)]


def test_the_same_holds_for_mail_sorted_by_priority(runtime: Runtime, clock: VirtualClock) -> None:
    seen: list[Any] = []

    class Sorted(Alarm):
        def prioritise(self, message: Any) -> int:
            return 9 if callable(message) else 0

    actor = runtime.spawn(Sorted, seen).cell.actor
    runtime.suspend(actor.ref)
    timer = actor.start_timer(1.0, "tick")
    clock.jump(1.0)
    runtime.send(actor.ref, lambda actor: timer.cancel())
    runtime.resume(actor.ref)
    runtime.run_until_idle()

    assert seen == []


def test_virtual_time_jumps_from_timer_to_timer() -> None:
    clock = VirtualClock(wall_s=1000.0)
    times: list[float] = []

    def again() -> None:
        times.append(clock.monotonic_s())
        if len(times) < 3:
            clock.call_later(0.5, again)

    clock.call_later(1.0, again)
    clock.jump(10.0)

    assert times == [1.0, 1.5, 2.0]
    assert clock.monotonic_s() == 10.0
    assert clock.wall_s() == 1010.0
    clock.set_wall_s(5.0)
    assert clock.wall_s() == 5.0
    assert clock.monotonic_s() == 10.0


async def test_advance_lets_actors_and_tasks_come_to_rest_after_each_timer(
    clock: VirtualClock,
) -> None:
    import asyncio

    runtime = Runtime(clock=clock)
    times: list[Any] = []

    async def note(number: int) -> None:
        await asyncio.sleep(0)
        times.append((number, clock.monotonic_s()))

    class Notes(OtpActor):
        async_handlers = True

        def init(self) -> None:
            for number in (1, 2, 3):
                self.start_timer(number, number)

        def handle_mail(self, message: Any, sender: Ref | None) -> Any:
            return note(message)

    runtime.spawn(Notes)
    await clock.advance(2.5)
    assert times == [(1, 1.0), (2, 2.0)]
    await clock.advance(2.5)
    assert times == [(1, 1.0), (2, 2.0), (3, 3.0)]
    await runtime.shutdown()
