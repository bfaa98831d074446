"""How actors end, and who hears of it.

Tests: actors/actor.py, actors/runtime/ref.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.ref import DEAD_CELL, Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import Crash, Exit
from leveret.core.errors import ActorError
from leveret.testing.virtual_clock import VirtualClock

Reasons = Callable[[Ref], list[object]]


class Teller(OtpActor):
    def init(self, told: list[Any], end: Any = None) -> None:
        self.told = told
        self.end = end

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        message(self)

    def terminate(self, reason: object) -> None:
        self.told.append(reason)
        if self.end is not None:
            raise self.end


def raiser(error: BaseException) -> Callable[[Any], None]:
    def handler(actor: Any) -> None:
        raise error

    return handler


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), GeneratorExit()])
def test_an_exception_ends_the_actor_and_no_other(
    runtime: Runtime, reason_of: Reasons, error: BaseException
) -> None:
    told: list[Any] = []
    ref, other = runtime.spawn(Teller, told), runtime.spawn(Teller, [])
    reasons = reason_of(ref)

    runtime.send(ref, raiser(error))
    runtime.send(ref, raiser(AssertionError("handled although dead")))
    runtime.run_until_idle()

    assert reasons == told == [Crash(error)]
    assert other.is_alive
    assert runtime.dead_letters == 1


def test_keyboard_interrupt_reaches_the_loop_and_the_rest_goes_on(runtime: Runtime) -> None:
    told: list[Any] = []
    ref, other = runtime.spawn(Teller, []), runtime.spawn(Teller, told)
    runtime.send(ref, raiser(KeyboardInterrupt()))
    runtime.send(other, lambda actor: actor.stop("went on"))

    with pytest.raises(KeyboardInterrupt):
        runtime.run_until_idle()
    runtime.run_until_idle()

    assert not ref.is_alive
    assert told == ["went on"]


def test_terminate_does_not_run_after_a_kill(runtime: Runtime) -> None:
    told: list[Any] = []
    ref = runtime.spawn(Teller, told)

    runtime.exit(ref, "kill")
    runtime.run_until_idle()

    assert told == []
    assert not ref.is_alive


@pytest.mark.parametrize(
    ("end", "final"),
    [(OSError("disk"), Crash(OSError("disk"))), (None, "shutdown")],
)
def test_an_exception_in_terminate_becomes_the_reason(
    runtime: Runtime, reason_of: Reasons, end: Any, final: object
) -> None:
    told: list[Any] = []
    ref = runtime.spawn(Teller, told, end)
    reasons = reason_of(ref)

    runtime.exit(ref, "shutdown")
    runtime.run_until_idle()

    assert told == ["shutdown"]
    assert reasons == [final]


def test_stop_ends_the_actor_from_nested_calls(runtime: Runtime, reason_of: Reasons) -> None:
    ref = runtime.spawn(Teller, [])
    reasons = reason_of(ref)

    def handler(actor: Any) -> None:
        def deep() -> None:
            try:
                actor.stop(("shutdown", "deep"))
            except Exception as error:
                raise AssertionError("stop was caught") from error

        deep()

    runtime.send(ref, handler)
    runtime.run_until_idle()

    assert reasons == [("shutdown", "deep")]


def test_names_are_free_before_links_and_monitors_are_told(runtime: Runtime) -> None:
    found: list[Any] = []
    ref = runtime.spawn(Teller, [], name="store")
    runtime.register("alias", ref)

    def look(reason: object) -> None:
        found.append((runtime.whereis("store"), runtime.whereis("alias"), ref.is_alive))
        runtime.spawn(Teller, [], name="store")

    runtime.watch(ref, look)
    runtime.exit(ref, "kill")
    runtime.run_until_idle()

    assert found == [(None, None, False)]
    assert runtime.whereis("store") is not None


def test_a_name_belongs_to_one_live_actor(runtime: Runtime) -> None:
    one, two = runtime.spawn(Teller, []), runtime.spawn(Teller, [])
    runtime.register("name", one)

    with pytest.raises(ActorError, match="taken"):
        runtime.register("name", two)
    runtime.unregister("name")
    runtime.unregister("an unknown name")
    runtime.register("name", two)
    runtime.exit(one, "kill")
    runtime.run_until_idle()

    assert runtime.whereis("name") is two
    with pytest.raises(ActorError, match="dead"):
        runtime.register("other", one)


def test_mail_to_the_dead_is_counted_and_never_reaches_a_successor(
    runtime: Runtime, log_class: Any
) -> None:
    letters: list[Any] = []
    runtime.turns.on_dead_letter = lambda message, sender: letters.append((message, sender))
    first = runtime.spawn(log_class, [], name="queue")
    runtime.send(first, "waiting")
    runtime.exit(first, "kill")
    runtime.run_until_idle()
    seen: list[Any] = []
    second = runtime.spawn(log_class, seen, name="queue")

    runtime.send(first, "late", second)
    runtime.run_until_idle()

    assert seen == []
    assert letters == [("waiting", None), ("late", second)]
    assert runtime.dead_letters == 2


def test_timers_die_with_their_actor(runtime: Runtime, clock: VirtualClock, log_class: Any) -> None:
    ref = runtime.spawn(log_class, [])
    runtime.send(ref, lambda actor: [actor.start_timer(delay, "tick") for delay in (1, 2, 3)])
    runtime.run_until_idle()
    assert clock.pending_count == 3

    runtime.exit(ref, "kill")
    runtime.run_until_idle()

    assert clock.pending_count == 0


def test_a_dead_actor_keeps_no_attributes_slotted_ones_neither(runtime: Runtime) -> None:
    class Slotted(OtpActor):
        __slots__ = ("big", "never_set")

    class Open(Slotted):
        def init(self) -> None:
            self.big = "big"
            self.other = "big"

    ref = runtime.spawn(Open)
    actor = ref.cell.actor
    runtime.exit(ref, "kill")
    runtime.run_until_idle()

    assert vars(actor) == {}
    assert not hasattr(actor, "big")
    assert actor.ref is ref


def test_links_are_told_after_terminate_and_mail_it_sends_arrives_first(
    runtime: Runtime, log_class: Any
) -> None:
    seen: list[Any] = []
    other = runtime.spawn(log_class, seen)

    class Polite(OtpActor):
        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            self.stop("done")

        def terminate(self, reason: object) -> None:
            self.post(other, "goodbye")

    ref = runtime.spawn(Polite)
    runtime.link(ref, other)
    runtime.send(ref, "go")
    runtime.run_until_idle()

    assert seen == ["goodbye", Exit(ref, "done")]


def test_stop_after_lets_the_handler_finish(runtime: Runtime, reason_of: Reasons) -> None:
    order: list[str] = []
    ref = runtime.spawn(Teller, [])
    reasons = reason_of(ref)

    def handler(actor: Any) -> None:
        actor.stop_after("normal")
        order.append("rest")

    runtime.send(ref, handler)
    runtime.run_until_idle()

    assert order == ["rest"]
    assert reasons == ["normal"]


def test_a_dead_ref_says_so_and_stays_a_key(runtime: Runtime) -> None:
    ref = runtime.spawn(Teller, [], label="the queue")
    table = {ref: 1}
    assert "the queue" in repr(ref)

    runtime.exit(ref, "kill")
    runtime.run_until_idle()

    assert not ref.is_alive
    assert ref.cell is DEAD_CELL  # or every ref in a table would keep a cell
    assert table[ref] == 1
    assert "dead" in repr(ref)
    assert str(ref).startswith("(leveret/")
