"""Requests of actors to AsyncioBase count in the order their messages were given out, not their threads'.

Each test holds a handler in its thread just before it asks, and lets a later one ask first.

Tests: actors/runtime/loop_bridge.py, actors/runtime/loop_thread.py,
    actors/thespian/actor_threads.py
"""

from __future__ import annotations

import asyncio
import io
import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from thespian.actors import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    ActorSystem,
    DeadEnvelope,
    ValidateSource,
)

from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import KILL
from leveret.actors.thespian import turn_order
from leveret.actors.thespian.actor_threads import ActorThread
from leveret.actors.thespian.base import AsyncioBase
from leveret.actors.thespian.turn_order import SLOW_TURNS, TurnOrder
from rigs.waiting import SOON_S, eventually, wait_until

CAPABILITY = "Colour"


class Wish:
    """A request to the system that a handler is to make, and a gate at which it waits before."""

    def __init__(self, what: str, *args: Any) -> None:
        self.what = what
        self.args = args
        self.reached = threading.Event()
        self.opened = threading.Event()

    @staticmethod
    def at_once(what: str, *args: Any) -> Wish:
        wish = Wish(what, *args)
        wish.opened.set()
        return wish


class Asker(Actor):
    """Makes requests to the system; keeps the dead letters and sources that it gets."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def receiveMessage(self, message: Any, sender: Any) -> None:
        if isinstance(message, Wish):
            message.reached.set()
            assert message.opened.wait(SOON_S)
            getattr(self, message.what)(*message.args)
        elif isinstance(message, DeadEnvelope):
            self.got.append(message.deadMessage)
        elif isinstance(message, ValidateSource):
            self.got.append("source")
        elif message == "got":
            self.send(sender, self.got)


@pytest.fixture
def system() -> Iterator[ActorSystem]:
    system = ActorSystem(AsyncioBase(capabilities={CAPABILITY: "none"}), transientUnique=True)
    yield system
    system.shutdown()


@pytest.fixture
def one_thread_system() -> Iterator[ActorSystem]:
    system = ActorSystem(AsyncioBase(capabilities={"Actor Threads": 1}), transientUnique=True)
    yield system
    system.shutdown()


@pytest.fixture
def dead(system: ActorSystem) -> ActorAddress:
    """The address of an actor that is dead."""
    actor = system.createActor(Asker)
    system.tell(actor, ActorExitRequest())
    wait_until(lambda: not actor.is_alive)
    return actor


def got(system: ActorSystem, actor: ActorAddress) -> list[Any]:
    """Return the messages that an actor has got when it has handled all of them."""
    answer: list[Any] = system.ask(actor, "got", SOON_S)
    return answer


def ask_late(system: ActorSystem, late: Wish, by: ActorAddress, *others: Any) -> None:
    """Let an actor's handler ask for something only when those of others are done, which came later."""
    system.tell(by, late)
    assert late.reached.wait(SOON_S)
    for actor, wish in others:
        system.tell(actor, wish)
        got(system, actor)
    late.opened.set()
    got(system, by)


def want_late(system: ActorSystem, by: ActorAddress, *others: tuple[ActorAddress, bool]) -> None:
    """Let an actor want dead letters, and others want them or give them up meanwhile."""
    wishes = [(actor, Wish.at_once("handleDeadLetters", wants)) for actor, wants in others]
    ask_late(system, Wish("handleDeadLetters"), by, *wishes)


def test_the_handler_of_dead_letters_is_who_was_told_last(
    system: ActorSystem, dead: ActorAddress
) -> None:
    first, second = system.createActor(Asker), system.createActor(Asker)

    want_late(system, first, (second, True))
    system.tell(dead, 1)
    assert (got(system, first), got(system, second)) == ([], [1])

    system.tell(second, ActorExitRequest())
    wait_until(lambda: not second.is_alive)
    system.tell(dead, 2)
    assert got(system, first) == []

    system.tell(first, Wish.at_once("handleDeadLetters"))
    got(system, first)
    system.tell(dead, 3)
    assert got(system, first) == [3]


def test_who_gave_dead_letters_up_does_not_make_way_for_who_was_told_before(
    system: ActorSystem, dead: ActorAddress
) -> None:
    first, second = system.createActor(Asker), system.createActor(Asker)

    want_late(system, first, (second, True), (second, False))
    system.tell(dead, 1)

    assert got(system, first) == got(system, second) == []


def test_who_gives_dead_letters_up_without_having_them_changes_nothing(
    system: ActorSystem, dead: ActorAddress
) -> None:
    first, second, third = (system.createActor(Asker) for _ in range(3))
    system.tell(third, Wish.at_once("handleDeadLetters"))
    got(system, third)

    want_late(system, first, (second, False), (third, False))
    system.tell(dead, 1)

    assert [got(system, actor) for actor in (first, second, third)] == [[1], [], []]


def test_who_gives_dead_letters_up_gets_none_that_came_meanwhile(
    system: ActorSystem, dead: ActorAddress
) -> None:
    handler = system.createActor(Asker)
    system.tell(handler, Wish.at_once("handleDeadLetters"))
    system.tell(handler, gives_up := Wish("handleDeadLetters", False))
    assert gives_up.reached.wait(SOON_S)

    system.tell(dead, 1)
    gives_up.opened.set()

    assert got(system, handler) == []


def test_dead_letters_that_came_meanwhile_go_to_who_took_over(
    system: ActorSystem, dead: ActorAddress
) -> None:
    handler, next_one = system.createActor(Asker), system.createActor(Asker)
    system.tell(handler, Wish.at_once("handleDeadLetters"))
    system.tell(handler, busy := Wish("updateCapability", CAPABILITY, "red"))
    assert busy.reached.wait(SOON_S)

    system.tell(dead, 1)
    system.tell(next_one, Wish.at_once("handleDeadLetters"))
    got(system, next_one)
    busy.opened.set()

    assert got(system, handler) == []
    assert got(system, next_one) == [1]


def test_a_killed_actor_does_not_become_the_handler_of_dead_letters(
    one_thread_system: ActorSystem,
) -> None:
    system = one_thread_system
    dead, handler, killed = (system.createActor(Asker) for _ in range(3))
    system.tell(dead, ActorExitRequest())
    system.tell(handler, Wish.at_once("handleDeadLetters"))
    system.tell(killed, late := Wish("handleDeadLetters"))
    assert late.reached.wait(SOON_S)

    system._systemBase.end(killed, KILL)
    wait_until(lambda: not killed.is_alive)
    late.opened.set()
    assert got(system, handler) == []  # by now the thread is through with the other
    system.tell(dead, 1)

    assert got(system, handler) == [1]


def test_the_source_authority_is_who_was_told_last(system: ActorSystem) -> None:
    first, second = system.createActor(Asker), system.createActor(Asker)

    ask_late(
        system,
        Wish("registerSourceAuthority"),
        first,
        (second, Wish.at_once("registerSourceAuthority")),
    )
    system.loadActorSource(io.BytesIO(b"anything"))

    wait_until(lambda: got(system, second) == ["source"])
    assert got(system, first) == []


def test_a_capability_has_the_value_of_who_was_told_last(system: ActorSystem) -> None:
    first, second = system.createActor(Asker), system.createActor(Asker)

    ask_late(
        system,
        Wish("updateCapability", CAPABILITY, "red"),
        first,
        (second, Wish.at_once("updateCapability", CAPABILITY, "blue")),
    )

    assert system._systemBase.capabilities[CAPABILITY] == "blue"


def test_each_capability_is_by_itself(system: ActorSystem) -> None:
    first, second = system.createActor(Asker), system.createActor(Asker)

    ask_late(
        system,
        Wish("updateCapability", CAPABILITY, "red"),
        first,
        (second, Wish.at_once("updateCapability", "Size", "small")),
    )

    assert system._systemBase.capabilities[CAPABILITY] == "red"


def test_what_the_program_sets_counts_after_what_is_under_way(system: ActorSystem) -> None:
    actor = system.createActor(Asker)
    system.tell(actor, late := Wish("updateCapability", CAPABILITY, "red"))
    assert late.reached.wait(SOON_S)

    system.updateCapability(CAPABILITY, "blue")
    late.opened.set()
    got(system, actor)

    assert system._systemBase.capabilities[CAPABILITY] == "blue"


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_the_latest_turn_counts(loop: asyncio.AbstractEventLoop) -> None:
    order = TurnOrder(loop)
    first, second = order.new_turn(Asker).number, order.new_turn(Asker).number

    assert order.is_latest("it", second)
    assert not order.is_latest("it", first)
    assert order.is_latest("it", second)
    assert order.is_latest("something else", first)


class Line:
    """Turns in threads; each notes when it begins."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.order = TurnOrder(loop)
        self.began: queue.SimpleQueue[str] = queue.SimpleQueue()

    def add(self, name: str, actor_class: type, work: Callable[[], object] = bool) -> None:
        turn = self.order.new_turn(actor_class)

        def take_turn() -> None:
            self.order.begin(turn)
            self.began.put(name)
            work()
            self.order.end(turn)

        self.order.queue(turn, threading.Thread(target=take_turn, daemon=True).start)

    def next_begun(self) -> str:
        return self.began.get(timeout=SOON_S)


async def test_the_program_gets_the_answers_of_a_turn_when_it_has_ended() -> None:
    line, gate = Line(asyncio.get_running_loop()), threading.Event()
    got: queue.SimpleQueue[int] = queue.SimpleQueue()

    line.order.answer(partial(got.put, 1))
    assert got.get_nowait() == 1
    line.add("first", First, lambda: gate.wait(SOON_S))
    line.next_begun()
    line.order.answer(partial(got.put, 2))
    line.order.answer(partial(got.put, 3))
    assert got.empty()  # the loop does not run meanwhile
    gate.set()

    assert [got.get(timeout=SOON_S), got.get(timeout=SOON_S)] == [2, 3]


async def test_the_program_gets_the_answers_of_a_turn_that_is_left_behind() -> None:
    line, gate = Line(asyncio.get_running_loop()), threading.Event()
    got: queue.SimpleQueue[int] = queue.SimpleQueue()
    line.add("first", First, lambda: gate.wait(SOON_S))
    line.next_begun()

    line.order.answer(partial(got.put, 1))
    await eventually(lambda: not got.empty())

    gate.set()


class First(Actor):
    pass


class Second(Actor):
    pass


def test_a_turn_begins_when_the_one_before_has_ended(loop: asyncio.AbstractEventLoop) -> None:
    line, gate = Line(loop), threading.Event()

    line.add("first", First, lambda: gate.wait(SOON_S))
    assert line.next_begun() == "first"
    line.add("second", Second)
    line.add("third", Second)
    assert line.began.empty()  # the loop does not run, hence patience does not run out
    gate.set()

    assert [line.next_begun(), line.next_begun()] == ["second", "third"]


async def test_a_turn_that_does_not_end_is_left_behind() -> None:
    line, gate = Line(asyncio.get_running_loop()), threading.Event()

    line.add("first", First, lambda: gate.wait(SOON_S))
    line.add("second", Second)
    await eventually(lambda: line.began.qsize() == 2)
    gate.set()

    assert [line.next_begun(), line.next_begun()] == ["first", "second"]


async def test_turns_of_a_slow_class_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_order, "PATIENCE", 1)
    line, gate = Line(asyncio.get_running_loop()), threading.Event()
    for _ in range(SLOW_TURNS):
        line.add("slow", First, lambda: gate.wait(SOON_S))
    line.add("other", Second)
    await eventually(lambda: line.began.qsize() == SLOW_TURNS + 1)

    # From here on the loop does not run: a wait would last for ever.
    line.add("slow again", First, lambda: gate.wait(SOON_S))
    line.add("at once", Second)

    begun = [line.next_begun() for _ in range(SLOW_TURNS + 3)]
    assert begun[SLOW_TURNS:] == ["other", "slow again", "at once"]
    gate.set()


async def test_a_class_that_is_quick_again_is_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line, gate = Line(asyncio.get_running_loop()), threading.Event()
    monkeypatch.setattr(turn_order, "QUICK_S", -1.0)  # all are slow
    for _ in range(2 * SLOW_TURNS):
        line.add("slow", First)
    monkeypatch.setattr(turn_order, "QUICK_S", SOON_S)
    for _ in range(2 * SLOW_TURNS):
        line.add("quick", First)
    await eventually(lambda: line.began.qsize() == 4 * SLOW_TURNS)

    line.add("first", First, lambda: gate.wait(SOON_S))
    line.add("second", Second)
    begun = [line.next_begun() for _ in range(4 * SLOW_TURNS + 1)]

    assert begun[-1] == "first"
    assert line.began.empty()
    gate.set()
    assert line.next_begun() == "second"


@pytest.fixture
def threads_are_late(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], None]]]:
    """Messages go to threads only when the test says so: the list has the functions that give them."""
    late: list[Callable[[], None]] = []
    do = ActorThread.do
    monkeypatch.setattr(ActorThread, "do", lambda self, job: late.append(partial(do, self, job)))
    yield late
    monkeypatch.undo()
    for give in late:
        give()


async def test_a_late_thread_keeps_the_next_actor_from_being_early(
    threads_are_late: list[Callable[[], None]],
) -> None:
    runtime = Runtime()
    system = ActorSystem(AsyncioBase(runtime=runtime), transientUnique=True)

    system.createActor(Asker)
    system.createActor(Asker)
    await asyncio.sleep(0)

    assert len(threads_are_late) == 1  # the other is made when this one is
    threads_are_late.pop()()
    await eventually(lambda: len(threads_are_late) == 1)
    threads_are_late.pop()()
    system.shutdown()

    def are_gone() -> bool:
        while threads_are_late:
            threads_are_late.pop(0)()
        return not runtime.actor_count

    await eventually(are_gone)


async def test_a_killed_actor_in_the_line_does_not_hold_up_the_end_of_the_system() -> None:
    runtime = Runtime()
    system = ActorSystem(AsyncioBase(runtime=runtime), transientUnique=True)
    blocked, killed, other = (system.createActor(Asker) for _ in range(3))
    system.tell(other, Wish.at_once("wakeupAfter", 1_000))
    await eventually(lambda: not other.cell.state)
    system.tell(blocked, gate := Wish("wakeupAfter", 1_000))
    system.tell(killed, "in the line")
    await eventually(gate.reached.is_set)

    system._systemBase.end(killed, KILL)
    await eventually(lambda: not killed.is_alive)
    system.shutdown()
    gate.opened.set()

    await eventually(lambda: not runtime.actor_count)
