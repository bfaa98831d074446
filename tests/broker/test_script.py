"""Scripts: generators that ask other actors and go on with their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import CallFailed
from leveret.broker.script import Ask, Script, Steps, Until
from leveret.testing.virtual_clock import VirtualClock


class Doubler(GenServer):
    """Doubles numbers; a word ends it."""

    def handle_call(self, request: Any, frm: object) -> object:
        if isinstance(request, str):
            raise RuntimeError(request)
        return request * 2


class Owner(GenServer):
    """Runs one script; what came of it goes into ``outcome``."""

    def init(self, make: Callable[[Owner], Steps], outcome: list[Any]) -> None:
        self.outcome = outcome
        self.seen: list[Any] = outcome
        Script(self, make(self), self._done, self._failed).resume()

    def _done(self, value: Any) -> None:
        self.outcome.append(("done", value))

    def _failed(self, problem: Exception) -> None:
        self.outcome.append(("failed", problem))

    def handle_cast(self, message: Any) -> None:
        self.outcome.append(("mail", message))


class Bench:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.runtime = Runtime(clock=self.clock)
        self.doubler = self.runtime.spawn(Doubler)
        self.outcome: list[Any] = []

    def run(self, make: Callable[[Owner], Steps]) -> Ref:
        owner = self.runtime.spawn(Owner, make, self.outcome)
        self.runtime.run_until_idle()
        return owner


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_script_goes_on_with_answers_and_returns_a_value(bench: Bench) -> None:
    def steps(owner: Owner) -> Steps:
        one = yield Ask(bench.doubler, 1)
        two = yield Ask(bench.doubler, one)
        return one, two

    bench.run(steps)

    assert bench.outcome == [("done", (2, 4))]


def test_a_script_without_a_wait_is_done_at_once(bench: Bench) -> None:
    def steps(owner: Owner) -> Steps:
        if bench is None:
            yield Ask(bench.doubler, 1)
        return "at once"

    bench.run(steps)

    assert bench.outcome == [("done", "at once")]


def test_the_owner_takes_mail_while_its_script_waits(bench: Bench) -> None:
    resumes: list[Callable[[Any], None]] = []

    def steps(owner: Owner) -> Steps:
        return (yield Until(resumes.append))

    owner = bench.run(steps)
    bench.runtime.send(owner, "hello")
    bench.runtime.run_until_idle()
    assert bench.outcome == [("mail", "hello")]
    resumes[0](7)

    assert bench.outcome == [("mail", "hello"), ("done", 7)]


@pytest.mark.parametrize("is_dead_before", [True, False])
def test_a_dead_server_is_an_answer(bench: Bench, is_dead_before: bool) -> None:
    def steps(owner: Owner) -> Steps:
        return (yield Ask(bench.doubler, "no number"))

    if is_dead_before:
        bench.runtime.exit(bench.doubler, "kill")
        bench.runtime.run_until_idle()
    bench.run(steps)

    assert bench.outcome[0][0] == "done"
    assert type(bench.outcome[0][1]) is CallFailed


def test_a_server_that_does_not_answer_in_time_is_an_answer(bench: Bench) -> None:
    def steps(owner: Owner) -> Steps:
        return (yield Ask(bench.doubler, 1, timeout_s=5.0))

    bench.runtime.suspend(bench.doubler)
    bench.run(steps)
    bench.clock.jump(4.9)
    assert bench.outcome == []
    bench.clock.jump(0.2)

    assert type(bench.outcome[0][1]) is CallFailed


def test_what_is_raised_goes_to_failed(bench: Bench) -> None:
    def steps(owner: Owner) -> Steps:
        yield Ask(bench.doubler, 1)
        raise ValueError("so it is")

    owner = bench.run(steps)

    assert [kind for kind, _ in bench.outcome] == ["failed"]
    assert owner.is_alive


def test_ten_thousand_answers_at_once_do_not_deepen_the_stack(bench: Bench) -> None:
    def steps(owner: Owner) -> Steps:
        count = 0
        for _ in range(10_000):
            count += yield Until(lambda resume: resume(1))
        return count

    bench.run(steps)

    assert bench.outcome == [("done", 10_000)]


def test_scripts_of_scripts_hand_their_values_up(bench: Bench) -> None:
    def inner(number: int) -> Steps:
        return (yield Ask(bench.doubler, number)) + 1

    def steps(owner: Owner) -> Steps:
        return (yield from inner(1)), (yield from inner(10))

    bench.run(steps)

    assert bench.outcome == [("done", (3, 21))]


def test_a_script_dies_with_its_owner(bench: Bench) -> None:
    resumes: list[Callable[[Any], None]] = []
    closed: list[bool] = []

    def steps(owner: Owner) -> Steps:
        try:
            yield Until(resumes.append)
        finally:
            closed.append(True)

    owner = bench.run(steps)
    bench.runtime.exit(owner, "kill")
    bench.runtime.run_until_idle()
    resumes.pop()("too late")

    assert bench.outcome == []
    assert closed == [True]
