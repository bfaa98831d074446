from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.core.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

NAME: ContextVar[str] = ContextVar("NAME")


class SteppedLoop:
    """An event loop's clock and timers, moved by hand; with the one timer that a clock sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.pending: list[SteppedTimer] = []

    def time(self) -> float:
        return self.now_s

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context
    ) -> SteppedTimer:
        timer = SteppedTimer(self, self.now_s + delay, callback)
        self.pending.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.pending and self.pending[0].due_s <= until_s:
            timer = self.pending.pop(0)
            self.now_s = max(self.now_s, timer.due_s)
            timer.callback()
        self.now_s = until_s


class SteppedTimer:
    def __init__(self, loop: SteppedLoop, due_s: float, callback: Callable[..., Any]) -> None:
        self.loop = loop
        self.due_s = due_s
        self.callback = callback

    def cancel(self) -> None:
        self.loop.pending.remove(self)


@pytest.fixture
def loop() -> SteppedLoop:
    return SteppedLoop()


@pytest.fixture
def clock(loop: SteppedLoop) -> SystemClock:
    return SystemClock(loop)


def test_calls_come_by_time_and_those_of_one_time_by_age(
    loop: SteppedLoop, clock: SystemClock
) -> None:
    seen: list[str] = []
    for delay_s, name in ((3.0, "late"), (1.0, "first"), (1.0, "second"), (2.0, "middle")):
        clock.call_later(delay_s, seen.append, name)

    loop.advance(1.0)
    assert seen == ["first", "second"]
    loop.advance(2.0)
    assert seen == ["first", "second", "middle", "late"]
    assert not loop.pending


def test_the_loop_has_one_timer_however_many_calls_there_are(
    loop: SteppedLoop, clock: SystemClock
) -> None:
    for delay_s in (5.0, 4.0, 6.0, 0.5, 7.0):
        clock.call_later(delay_s, list)
        assert len(loop.pending) == 1
    assert loop.pending[0].due_s == 100.5


def test_a_cancelled_call_is_not_made(loop: SteppedLoop, clock: SystemClock) -> None:
    seen: list[str] = []
    first = clock.call_later(1.0, seen.append, "first")
    clock.call_later(2.0, seen.append, "second")
    first.cancel()
    first.cancel()

    loop.advance(5.0)
    first.cancel()

    assert seen == ["second"]


def test_calls_can_be_kept_in_a_set(clock: SystemClock) -> None:
    first, second = (clock.call_later(1.0, print) for _ in range(2))
    kept = {first, second}
    kept.discard(first)

    assert kept == {second}


def test_the_loop_has_no_timer_when_all_calls_are_cancelled(
    loop: SteppedLoop, clock: SystemClock
) -> None:
    seen: list[str] = []
    for call in [clock.call_later(delay_s, list) for delay_s in (2.0, 1.0, 3.0)]:
        call.cancel()
    assert not loop.pending

    clock.call_later(1.0, seen.append, "new")
    loop.advance(1.0)
    assert seen == ["new"]


def test_calls_that_a_call_schedules_for_now_come_in_a_later_turn_of_the_loop(
    loop: SteppedLoop, clock: SystemClock
) -> None:
    seen: list[str] = []

    def call() -> None:
        seen.append("outer")
        clock.call_later(0.0, seen.append, "inner")

    clock.call_later(1.0, call)
    clock.call_later(1.0, seen.append, "neighbour")
    loop.now_s += 1.0
    loop.pending.pop(0).callback()

    assert seen == ["outer", "neighbour"]
    loop.advance(0.0)
    assert seen == ["outer", "neighbour", "inner"]


def test_a_call_may_schedule_the_only_one_that_is_left(
    loop: SteppedLoop, clock: SystemClock
) -> None:
    seen: list[str] = []
    clock.call_later(1.0, clock.call_later, 1.0, seen.append, "scheduled")

    loop.advance(2.0)

    assert seen == ["scheduled"]


def test_a_call_that_a_call_schedules_puts_off_no_earlier_one(
    loop: SteppedLoop, clock: SystemClock
) -> None:
    seen: list[str] = []
    clock.call_later(1.0, clock.call_later, 60.0, seen.append, "scheduled")
    clock.call_later(1.5, seen.append, "earlier")

    loop.advance(1.5)
    assert seen == ["earlier"]
    loop.advance(59.5)
    assert seen == ["earlier", "scheduled"]


def test_a_call_that_fails_keeps_no_other_from_being_made(
    loop: SteppedLoop, clock: SystemClock
) -> None:
    seen: list[str] = []
    clock.call_later(1.0, {}.__getitem__, "missing")
    clock.call_later(1.0, seen.append, "other")
    clock.call_later(2.0, seen.append, "later")

    with pytest.raises(KeyError):
        loop.advance(1.0)
    loop.advance(1.0)

    assert seen == ["other", "later"]


def test_cancelled_calls_are_forgotten_when_they_are_most(
    loop: SteppedLoop, clock: SystemClock
) -> None:
    seen: list[int] = []
    calls = [clock.call_later(1000.0 - number, seen.append, number) for number in range(1_000)]
    for call in calls[10:]:
        call.cancel()

    assert len(clock._calls) <= 20
    loop.advance(1000.0)
    assert seen == list(range(9, -1, -1))


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 3)), max_size=400
    )  # delay, whether the oldest pending call is cancelled, seconds that pass
)
def test_as_a_sorted_list_would_do_it(steps: list[tuple[int, bool, int]]) -> None:
    loop = SteppedLoop()
    clock = SystemClock(loop)
    seen: list[int] = []
    wanted: list[int] = []
    model: dict[int, float] = {}
    handles: dict[int, Any] = {}
    for number, (delay_s, is_cancel, passes_s) in enumerate(steps):
        handles[number] = clock.call_later(delay_s, seen.append, number)
        model[number] = loop.now_s + delay_s
        if is_cancel and model:
            oldest = next(iter(model))
            handles[oldest].cancel()
            del model[oldest]
        loop.advance(passes_s)
        due = sorted((at_s, each) for each, at_s in model.items() if at_s <= loop.now_s)
        wanted += [each for _, each in due]
        for _, each in due:
            del model[each]
    loop.advance(10.0)
    wanted += [each for _, each in sorted((at_s, each) for each, at_s in model.items())]
    assert seen == wanted


async def test_calls_run_in_the_context_in_which_the_clock_was_made() -> None:
    NAME.set("of the clock")
    clock = SystemClock(asyncio.get_running_loop())
    seen: list[str] = []
    called = asyncio.Event()

    def call() -> None:
        seen.append(NAME.get())
        called.set()

    NAME.set("of the caller")
    clock.call_later(0.0, call)
    await called.wait()

    assert seen == ["of the clock"]
