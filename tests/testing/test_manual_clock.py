"""Time goes by itself, stands still, passes and is skipped.

Tests: testing/virtual_clock.py
"""

from __future__ import annotations

import asyncio

import pytest

from leveret.testing.manual_clock import PACING_S, ManualClock
from rigs.waiting import eventually

HOUR_S = 3600.0


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock(asyncio.get_running_loop())


async def test_timers_run_by_themselves_in_order(clock: ManualClock) -> None:
    ran: list[int] = []
    done = asyncio.Event()
    clock.call_later(0.002, done.set)
    for number in range(3):
        clock.call_later(0.001, ran.append, number)

    await done.wait()

    assert ran == [0, 1, 2]


async def test_a_clock_that_is_held_stands_still(clock: ManualClock) -> None:
    clock.hold()
    before = clock.monotonic_s(), clock.wall_s()
    loop = asyncio.get_running_loop()
    began_s = loop.time()

    await eventually(lambda: loop.time() > began_s)

    assert (clock.monotonic_s(), clock.wall_s()) == before


async def test_an_hour_passes_and_each_timer_sees_its_own_time(clock: ManualClock) -> None:
    clock.hold()
    start_s, wall_s = clock.monotonic_s(), clock.wall_s()
    seen: list[float] = []
    for delay_s in (HOUR_S, 60.0, HOUR_S + 1):
        clock.call_later(delay_s, lambda: seen.append(clock.monotonic_s() - start_s))

    await clock.advance(HOUR_S)

    assert seen == pytest.approx([60.0, HOUR_S])
    assert clock.monotonic_s() - start_s == pytest.approx(HOUR_S)
    assert clock.wall_s() - wall_s == pytest.approx(HOUR_S)


async def test_a_timer_made_by_a_timer_is_due_in_the_same_stretch(clock: ManualClock) -> None:
    ran: list[str] = []
    clock.call_later(10.0, lambda: clock.call_later(10.0, ran.append, "second"))

    await clock.advance(20.0)

    assert ran == ["second"]
    assert not clock.is_held


async def test_what_is_skipped_brings_no_timer_nearer(clock: ManualClock) -> None:
    clock.hold()
    ran: list[str] = []
    clock.call_later(10.0, ran.append, "x")
    start_s = clock.monotonic_s()

    clock.skip(HOUR_S)
    await clock.advance(9.0)

    assert ran == []
    assert clock.monotonic_s() - start_s == pytest.approx(HOUR_S + 9.0)
    await clock.advance(1.0)
    assert ran == ["x"]


async def test_the_brokers_own_pauses_end_while_time_stands_still(clock: ManualClock) -> None:
    before, during = asyncio.Event(), asyncio.Event()
    clock.call_later(0.001, before.set)
    clock.hold()
    clock.call_later(PACING_S / 10, during.set)
    clock.call_later(PACING_S * 2, pytest.fail)

    await before.wait()
    await during.wait()


async def test_a_clock_that_is_let_go_goes_on_from_where_it_stood(clock: ManualClock) -> None:
    clock.hold()
    await clock.advance(HOUR_S)
    stood_s = clock.monotonic_s()
    done = asyncio.Event()
    clock.call_later(PACING_S * 1.01, done.set)

    clock.release()

    await done.wait()
    assert 0 < clock.monotonic_s() - stood_s < HOUR_S


async def test_a_timer_taken_back_does_not_run(clock: ManualClock) -> None:
    timer = clock.call_later(1.0, pytest.fail)

    timer.cancel()

    await clock.advance(2.0)


async def test_the_wall_clock_can_jump_alone(clock: ManualClock) -> None:
    clock.hold()
    monotonic_s = clock.monotonic_s()

    clock.set_wall_s(1_000.0)

    assert (clock.wall_s(), clock.monotonic_s()) == (1_000.0, monotonic_s)
