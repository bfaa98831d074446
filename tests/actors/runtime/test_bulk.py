"""Long work beside short: the bulk queue, turns that end early, drains that end in time."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.scheduler import DRAIN_MAILS, DRAIN_S, TURN_MAILS, WOKEN_MAX
from rigs.ticking_clock import TickingClock


class Notes(OtpActor):
    """Notes its name with each mail."""

    def init(self, notes: list[Any], name: str) -> None:
        self.notes = notes
        self.name = name

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        self.notes.append((self.name, message))


class Long(Notes):
    """Does its work in steps, a turn each."""

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        self.notes.append((self.name, message))
        if type(message) is int and message:
            self.runtime.again(self.ref, message - 1)


class Sleeper(Notes):
    """Wakes up once."""

    def init(self, notes: list[Any], name: str) -> None:
        super().init(notes, name)
        self.timer = self.start_bulk_timer(10.0, "time")


class Sorted(Long):
    """The same, with priorities."""

    def prioritise(self, message: Any) -> int:
        return 1 if type(message) is str else 0


@pytest.fixture
def clock() -> TickingClock:
    return TickingClock()


@pytest.fixture
def runtime(clock: TickingClock) -> Runtime:
    return Runtime(clock=clock)


@pytest.fixture
def notes() -> list[Any]:
    return []


@pytest.mark.parametrize("kind", [Long, Sorted])
def test_who_goes_on_again_lets_others_have_their_turns_between(
    runtime: Runtime, notes: list[Any], kind: type[Long]
) -> None:
    one, other = runtime.spawn(kind, notes, "one"), runtime.spawn(kind, notes, "other")
    for ref in (one, other):
        runtime.send(ref, 2)
    runtime.run_until_idle()

    assert notes == [(name, step) for step in (2, 1, 0) for name in ("one", "other")]


def test_mail_that_came_before_is_handled_before_the_rest(
    runtime: Runtime, notes: list[Any]
) -> None:
    ref = runtime.spawn(Long, notes, "long")
    for message in (1, "mail"):
        runtime.send(ref, message)
    runtime.run_until_idle()

    assert [message for _, message in notes] == [1, "mail", 0]


def test_short_work_does_not_wait_for_a_round_of_long_work(
    runtime: Runtime, clock: TickingClock, notes: list[Any]
) -> None:
    """A thousand actors with long work; a mail is answered within a drain of its arrival."""
    clock.tick_s = DRAIN_S
    for number in range(1_000):
        runtime.send_bulk(runtime.spawn(Long, notes, number), 10)
    while not notes:
        runtime.drain()
    short = runtime.spawn(Notes, notes, "short")

    for number in range(50):
        runtime.send(short, number)
        before = len(notes)
        while ("short", number) not in notes[before:]:
            runtime.drain()
        assert len(notes) - before < 10
    clock.tick_s = 0.0
    runtime.run_until_idle()

    assert len(notes) == 1_000 * 11 + 50


def test_a_long_turn_is_the_only_one_of_its_drain(
    runtime: Runtime, clock: TickingClock, notes: list[Any]
) -> None:
    for name in ("one", "other"):
        runtime.send_bulk(runtime.spawn(Long, notes, name), 2)
    clock.tick_s = 2 * DRAIN_S

    seen = []
    for _ in range(4):
        runtime.drain()
        seen.append(len(notes))

    assert seen == [1, 2, 3, 4]


def test_long_work_gets_its_part_of_every_drain(
    runtime: Runtime, clock: TickingClock, notes: list[Any]
) -> None:
    class Endless(OtpActor):
        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            self.post(self.ref, message)

    for _ in range(10):
        runtime.send(runtime.spawn(Endless), "on and on")
    runtime.send(runtime.spawn(Long, notes, "long"), 30)
    clock.tick_s = DRAIN_S

    for _ in range(2_000):
        runtime.drain()

    assert len(notes) == 31


def test_mail_in_great_numbers_waits_behind_other_mail(runtime: Runtime, notes: list[Any]) -> None:
    many = [runtime.spawn(Notes, notes, "many") for _ in range(100)]
    one = runtime.spawn(Notes, notes, "one")
    for ref in many:
        runtime.send_bulk(ref, "bulk")
        runtime.send(ref, "own")
        runtime.send_bulk(ref, "more")
    runtime.send(one, "mail")
    runtime.run_until_idle()

    assert notes[0] == ("one", "mail")
    assert notes[1:] == [("many", each) for _ in many for each in ("bulk", "own", "more")]


def test_who_has_more_mail_than_a_turn_holds_goes_behind_the_others(
    runtime: Runtime, notes: list[Any]
) -> None:
    busy, other = runtime.spawn(Notes, notes, "busy"), runtime.spawn(Notes, notes, "other")
    for _ in range(2 * TURN_MAILS + 1):
        runtime.send(busy, "mail")
    runtime.send(other, "mail")
    runtime.run_until_idle()

    assert [name for name, _ in notes].index("other") == TURN_MAILS
    assert len(notes) == 2 * TURN_MAILS + 2


def test_a_suspended_one_goes_on_when_it_is_resumed(runtime: Runtime, notes: list[Any]) -> None:
    class Stops(Long):
        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            super().handle_mail(message, sender)
            if message == 2:
                self.runtime.suspend(self.ref)

    ref = runtime.spawn(Stops, notes, "stops")
    runtime.send(ref, 2)
    runtime.run_until_idle()
    assert notes == [("stops", 2)]
    runtime.resume(ref)
    runtime.run_until_idle()

    assert notes == [("stops", 2), ("stops", 1), ("stops", 0)]


def test_again_from_outside_and_to_a_dead_actor(runtime: Runtime, notes: list[Any]) -> None:
    ref = runtime.spawn(Long, notes, "long")
    runtime.again(ref, 1)
    runtime.run_until_idle()
    runtime.exit(ref, "boom")
    runtime.run_until_idle()
    runtime.again(ref, "late")
    runtime.send_bulk(ref, "late")

    assert notes == [("long", 1), ("long", 0)]
    assert runtime.dead_letters == 2
    assert runtime.is_idle


def test_one_that_ends_with_more_to_do_leaves_nothing(runtime: Runtime, notes: list[Any]) -> None:
    class Ends(Long):
        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            super().handle_mail(message, sender)
            raise RuntimeError

    ref = runtime.spawn(Ends, notes, "ends")
    runtime.send(ref, 5)
    runtime.run_until_idle()

    assert (notes, ref.is_alive, runtime.dead_letters) == ([("ends", 5)], False, 1)


def test_a_round_is_over_when_all_have_had_a_turn_that_waited(
    runtime: Runtime, clock: TickingClock, notes: list[Any]
) -> None:
    """Also over many drains, and with other mail queued behind them meanwhile."""
    clock.tick_s = DRAIN_S  # a drain is a few turns
    refs = [runtime.spawn(Notes, notes, number) for number in range(50)]
    for ref in refs:
        runtime.send(ref, "first")
    runtime.after_round(lambda: notes.append("round"))
    while "round" not in notes:
        runtime.send(refs[0], "again")
        runtime.drain()

    at = notes.index("round")
    assert {name for name, _ in notes[:at]} == set(range(50))
    assert notes[:at].count((0, "again")) > 1
    assert notes[:at].count((1, "first")) == 1


def test_with_an_empty_run_queue_a_round_is_over_with_the_drain(
    runtime: Runtime, notes: list[Any]
) -> None:
    runtime.after_round(lambda: notes.append("round"))
    runtime.run_until_idle()

    assert notes == ["round"]


def test_rounds_end_in_the_order_in_which_they_began(runtime: Runtime, notes: list[Any]) -> None:
    for number in range(3):
        runtime.send(runtime.spawn(Notes, notes, number), "mail")
        runtime.after_round(lambda number=number: notes.append(number))
    runtime.run_until_idle()

    assert notes[3:] == [0, 1, 2]


class Waker(Notes):
    """Sends a mail to each of many."""

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        for number, each in enumerate(message):
            self.runtime.send(each, number)


@pytest.mark.parametrize("way", ["mail", "event", "call", "callback"])
def test_others_do_not_wait_for_all_that_one_turn_wakes(
    runtime: Runtime, notes: list[Any], way: str
) -> None:
    woken = [runtime.spawn(Notes, notes, number) for number in range(10 * WOKEN_MAX)]
    waker, other = runtime.spawn(Waker, notes, "waker"), runtime.spawn(Notes, notes, "other")

    def wake() -> None:
        for number, each in enumerate(woken):
            runtime.send(each, number)

    if way == "mail":
        runtime.send(waker, woken)
    elif way == "event":
        runtime.run_event(waker, lambda _: wake(), b"")
    elif way == "call":
        runtime.run_as(waker, wake)
    else:
        runtime.run_callback(wake)
    runtime.send(other, "mail")
    runtime.run_until_idle()

    assert notes.index(("other", "mail")) <= WOKEN_MAX + 1
    assert [note for note in notes if note[0] != "other"] == [
        (number, number) for number in range(len(woken))
    ]


def test_a_round_is_over_when_the_rest_of_it_waits_as_bulk(
    runtime: Runtime, notes: list[Any]
) -> None:
    woken = [runtime.spawn(Notes, notes, number) for number in range(10 * WOKEN_MAX)]
    for each in woken:
        runtime.send(each, "mail")
    runtime.after_round(lambda: notes.append("round"))
    runtime.send(runtime.spawn(Waker, notes, "waker"), woken)
    runtime.run_until_idle()

    assert "round" in notes


def test_timers_of_thousands_that_end_together_keep_nobody_waiting(
    runtime: Runtime, clock: TickingClock
) -> None:
    notes: list[Any] = []
    many = [runtime.spawn(Sleeper, notes, f"{number}") for number in range(1_000)]
    short = runtime.spawn(Notes, notes, "short")
    runtime.run_until_idle()
    while clock._run_next(10.0):
        pass  # nobody has a turn in between
    clock.tick_s = DRAIN_S
    runtime.send(short, "mail")
    runtime.run_until_idle()

    assert notes.index(("short", "mail")) < 10
    assert sorted(notes) == sorted(
        [("short", "mail"), *[(f"{number}", "time") for number in range(len(many))]]
    )


def test_mail_does_not_wait_with_a_bulk_timer(runtime: Runtime, clock: TickingClock) -> None:
    notes: list[Any] = []
    for number in range(1_000):
        runtime.spawn(Sleeper, notes, f"{number}")
    last = runtime.spawn(Sleeper, notes, "last")
    runtime.run_until_idle()
    while clock._run_next(10.0):
        pass  # nobody has a turn in between
    clock.tick_s = DRAIN_S
    runtime.send(last, "mail")
    runtime.run_until_idle()

    assert notes.index(("last", "mail")) < 10
    assert notes[-1] == ("last", "time")


def test_a_bulk_timer_that_waits_is_cancelled_or_ends_with_its_actor(
    runtime: Runtime, clock: TickingClock
) -> None:
    notes: list[Any] = []
    cancelled, dead = (runtime.spawn(Sleeper, notes, name) for name in ("cancelled", "dead"))
    runtime.run_until_idle()
    while clock._run_next(10.0):
        pass
    cancelled.cell.actor.timer.cancel()
    runtime.exit(dead, "kill")
    runtime.run_until_idle()

    assert notes == []


def test_what_long_work_wakes_one_by_one_waits_as_bulk_too(
    runtime: Runtime, notes: list[Any]
) -> None:
    woken = [runtime.spawn(Notes, notes, number) for number in range(2 * DRAIN_MAILS)]
    for each in woken:
        runtime.send_bulk(runtime.spawn(Waker, notes, "waker"), [each])
    runtime.drain()  # half of the wakers have had their turn
    runtime.send(runtime.spawn(Notes, notes, "other"), "mail")
    runtime.run_until_idle()

    assert notes.index(("other", "mail")) <= WOKEN_MAX + 1
    assert len(notes) == len(woken) + 1
