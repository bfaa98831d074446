from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leveret.actors.gen_server import NOREPLY, GenServer
from leveret.actors.runtime.inline import INLINE_MAILS, InlineTurn
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import LATER, CallExit, Crash
from leveret.core.errors import ActorError

Reasons = Callable[[Ref], list[object]]


class Backing(GenServer):
    def init(self, seen: list[Any], start: Any = None) -> Any:
        self.seen = seen
        return start

    def handle_call(self, request: Any, frm: Any) -> Any:
        self.seen.append(("call", request))
        return request(self) if callable(request) else request

    def handle_cast(self, message: Any) -> None:
        self.seen.append(message)
        if callable(message):
            message(self)

    def double(self, number: int) -> int:
        return number * 2


class Front(GenServer):
    """Passes its mail to its backing as requests, and tries to survive."""

    def init(self, backing: Ref, answers: list[Any]) -> None:
        self.backing = backing
        self.answers = answers

    def handle_cast(self, message: Any) -> None:
        try:
            self.answers.append(self.runtime.call_inline(self.backing, message))
        except Exception as error:  # noqa: BLE001  # what actor code might try
            self.answers.append(error)


@pytest.fixture
def pair(runtime: Runtime) -> tuple[Ref, Ref, list[Any], list[Any]]:
    seen: list[Any] = []
    answers: list[Any] = []
    backing = runtime.spawn(Backing, seen)
    return runtime.spawn(Front, backing, answers), backing, seen, answers


def fails(actor: Any) -> None:
    raise OSError("disk")


def test_both_forms_answer_before_they_return(runtime: Runtime) -> None:
    backing = runtime.spawn(Backing, [])

    assert runtime.call_inline(backing, 17) == 17
    turn, actor = InlineTurn(runtime.turns, backing), backing.cell.actor
    with turn:
        assert actor.double(17) == 34
    with turn:
        assert actor.double(18) == 36
    assert runtime.is_idle


def test_waiting_mail_is_handled_before_the_request(
    runtime: Runtime, pair: tuple[Ref, Ref, list[Any], list[Any]]
) -> None:
    front, backing, seen, answers = pair

    runtime.send(front, "request")
    runtime.send(backing, "mail 1")
    runtime.send(backing, "mail 2")
    runtime.run_until_idle()

    assert seen == ["mail 1", "mail 2", ("call", "request")]
    assert answers == ["request"]


def test_mail_beyond_the_budget_is_handled_after_the_request(runtime: Runtime) -> None:
    seen: list[Any] = []
    backing = runtime.spawn(Backing, seen)
    for number in range(INLINE_MAILS + 3):
        runtime.send(backing, number)

    runtime.call_inline(backing, "request")

    assert len(seen) == INLINE_MAILS + 1
    assert seen[-1] == ("call", "request")
    runtime.run_until_idle()
    assert seen[-3:] == [INLINE_MAILS, INLINE_MAILS + 1, INLINE_MAILS + 2]


def test_mail_the_request_causes_is_handled_later_in_a_turn(runtime: Runtime) -> None:
    seen: list[Any] = []
    backing = runtime.spawn(Backing, seen)

    runtime.call_inline(backing, lambda actor: actor.post(actor.ref, "later"))

    assert len(seen) == 1
    runtime.run_until_idle()
    assert seen[1:] == ["later"]


def test_a_failing_handler_ends_both_and_cannot_be_caught_by_the_caller(
    runtime: Runtime,
    pair: tuple[Ref, Ref, list[Any], list[Any]],
    reason_of: Reasons,
) -> None:
    front, backing, _, answers = pair
    reasons, front_reasons = reason_of(backing), reason_of(front)

    runtime.send(front, fails)
    runtime.run_until_idle()

    assert reasons == [Crash(OSError("disk"))]
    assert front_reasons == [(Crash(OSError("disk")), ("call", str(backing)))]
    assert answers == []


def test_waiting_mail_that_fails_is_the_callees_failure_as_well(
    runtime: Runtime, pair: tuple[Ref, Ref, list[Any], list[Any]], reason_of: Reasons
) -> None:
    _, backing, seen, _ = pair
    reasons = reason_of(backing)
    runtime.send(backing, fails)

    with pytest.raises(CallExit) as gone:
        runtime.call_inline(backing, "never handled")

    assert gone.value.reason == Crash(OSError("disk"))
    assert reasons == [Crash(OSError("disk"))]
    assert seen == [fails]


def test_a_method_that_fails_ends_the_callee(runtime: Runtime, reason_of: Reasons) -> None:
    backing = runtime.spawn(Backing, [])
    reasons = reason_of(backing)

    with pytest.raises(CallExit) as gone, InlineTurn(runtime.turns, backing):
        fails(backing.cell.actor)

    runtime.run_until_idle()
    assert reasons == [gone.value.reason] == [Crash(OSError("disk"))]


@pytest.mark.parametrize("how", ["dead", "doomed", "not acknowledged"])
def test_a_callee_that_is_not_there_is_call_exit(runtime: Runtime, how: str) -> None:
    backing = runtime.spawn(Backing, [], LATER if how == "not acknowledged" else None)
    if how != "not acknowledged":
        runtime.exit(backing, "boom")
    if how == "dead":
        runtime.run_until_idle()

    with pytest.raises(CallExit) as gone, InlineTurn(runtime.turns, backing):
        pytest.fail("it has a turn")

    assert gone.value.reason == ("boom" if how == "doomed" else "noproc")


def test_a_callee_may_be_called_once_its_late_start_is_acknowledged(runtime: Runtime) -> None:
    backing = runtime.spawn(Backing, [], LATER)
    runtime.acknowledge(backing.cell, None)

    assert runtime.call_inline(backing, 1) == 1


def test_an_actor_on_the_call_stack_is_refused(
    runtime: Runtime, pair: tuple[Ref, Ref, list[Any], list[Any]], reason_of: Reasons
) -> None:
    front, backing, _, _ = pair
    reasons = reason_of(backing)

    runtime.send(front, lambda actor: actor.runtime.call_inline(front, "upwards"))
    runtime.run_until_idle()

    crash = reasons[0]
    assert isinstance(crash, Crash)
    assert crash.kind is ActorError
    assert "call stack" in crash.text


def test_a_callee_that_stops_takes_the_caller_with_it(
    runtime: Runtime, pair: tuple[Ref, Ref, list[Any], list[Any]], reason_of: Reasons
) -> None:
    front, backing, _, _ = pair
    reasons = reason_of(front)

    runtime.send(front, lambda actor: actor.stop())
    runtime.run_until_idle()

    assert reasons == [("normal", ("call", str(backing)))]


def test_a_callee_that_stops_after_its_answer_does_not(
    runtime: Runtime, pair: tuple[Ref, Ref, list[Any], list[Any]], reason_of: Reasons
) -> None:
    front, backing, _, answers = pair
    reasons = reason_of(backing)

    def deleted(actor: Any) -> int:
        actor.stop_after("normal")
        return 17

    runtime.send(front, deleted)
    runtime.run_until_idle()

    assert answers == [17]
    assert reasons == ["normal"]
    assert front.is_alive


def test_an_inline_call_must_be_answered_at_once(runtime: Runtime) -> None:
    backing = runtime.spawn(Backing, [])

    with pytest.raises(ActorError, match="NOREPLY"):
        runtime.call_inline(backing, lambda actor: NOREPLY)
    assert backing.is_alive


def test_a_suspended_callee_answers_and_stays_suspended(runtime: Runtime) -> None:
    seen: list[Any] = []
    backing = runtime.spawn(Backing, seen)
    runtime.suspend(backing)
    runtime.send(backing, "mail")

    assert runtime.call_inline(backing, 1) == 1
    runtime.send(backing, "waits")
    runtime.run_until_idle()

    assert seen == ["mail", ("call", 1)]
    runtime.resume(backing)
    runtime.run_until_idle()
    assert seen[2:] == ["waits"]


def test_work_that_the_callee_has_left_for_later_stays_there(runtime: Runtime) -> None:
    seen: list[Any] = []
    backing = runtime.spawn(Backing, seen)

    def works(actor: Backing) -> None:
        actor.runtime.again(actor.ref, "rest")

    turn, actor = InlineTurn(runtime.turns, backing), backing.cell.actor
    with turn:
        works(actor)
    for number in range(3):
        with turn:
            assert actor.double(number) == 2 * number
    assert seen == []
    runtime.send(backing, "mail")
    with turn:
        assert seen == ["rest", "mail"]
    runtime.run_until_idle()
    assert seen == ["rest", "mail"]


def test_mail_behind_long_work_comes_before_the_call(runtime: Runtime) -> None:
    seen: list[Any] = []
    backing = runtime.spawn(Backing, seen)

    def works(actor: Backing) -> None:
        actor.runtime.again(actor.ref, "rest")

    runtime.send(backing, works)
    runtime.send(backing, works)
    runtime.send(backing, "mail")

    with InlineTurn(runtime.turns, backing):
        assert seen == [works, works, "mail"]
    runtime.run_until_idle()
    assert seen[3:] == ["rest", "rest"]


def test_a_callee_with_priorities_handles_its_mail_by_level(runtime: Runtime) -> None:
    class Sorted(Backing):
        def prioritise(self, message: Any) -> int:
            return message

    seen: list[Any] = []
    backing = runtime.spawn(Sorted, seen)
    for level in (1, 3, 2):
        runtime.send(backing, level)

    runtime.call_inline(backing, "request")

    assert seen == [3, 2, 1, ("call", "request")]


def test_coroutine_actors_cannot_be_called_inline(runtime: Runtime) -> None:
    class Slow(GenServer):
        async_handlers = True

    with pytest.raises(ActorError, match="coroutine"):
        runtime.call_inline(runtime.spawn(Slow), 1)


def test_keyboard_interrupt_in_the_callee_is_not_made_a_call_exit(runtime: Runtime) -> None:
    def interrupted(actor: Any) -> None:
        raise KeyboardInterrupt

    backing = runtime.spawn(Backing, [])

    with pytest.raises(KeyboardInterrupt):
        runtime.call_inline(backing, interrupted)
    assert not backing.is_alive
