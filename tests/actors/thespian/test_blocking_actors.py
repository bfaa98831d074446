"""Plain Thespian actors on AsyncioBase run in threads: they may block, and nothing else changes.

Tests: actors/thespian/hosted_actor.py
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from thespian.actors import (
    Actor,
    ActorExitRequest,
    ActorSystem,
    ChildActorExited,
    PoisonMessage,
    WakeupMessage,
)

from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import KILL, StartError
from leveret.actors.thespian.base import AsyncioBase
from leveret.core.errors import ActorError
from rigs.waiting import SOON_S, eventually, wait_until


class Gate:
    """A gate at which a handler blocks."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def pass_through(self) -> None:
        self.reached.set()
        assert self.opened.wait(SOON_S)


class Waiter(Actor):
    """Blocks at a gate in a message, and answers then; answers the rest at once."""

    def receiveMessage(self, message: Any, sender: Any) -> None:
        if isinstance(message, Gate):
            self.send(sender, "at the gate")
            message.pass_through()
            self.send(sender, "through the gate")
        elif message == "boom":
            raise ValueError(message)
        elif message == "leave":
            raise SystemExit
        elif message == "thread":
            self.send(sender, threading.get_ident())
        elif not isinstance(message, ActorExitRequest):
            self.send(sender, message)


class Database(Actor):
    """sqlite3 refuses every other thread."""

    def __init__(self) -> None:
        self.rows = sqlite3.connect(":memory:")
        self.rows.execute("create table kept (value)")

    def receiveMessage(self, message: Any, sender: Any) -> None:
        if isinstance(message, ActorExitRequest):
            self.rows.close()
        else:
            self.rows.execute("insert into kept values (?)", (message,))
            self.send(sender, self.rows.execute("select value from kept").fetchall())


class Busy(Actor):
    """Does all that a handler can do, in an order that its asker is told."""

    asker: Any = None

    def receiveMessage(self, message: Any, sender: Any) -> None:
        if message == "go":
            self.asker = sender
            self.send(sender, 1)
            child = self.createActor(Waiter)
            self.send(child, 2)
            self.send(child, 3)
            self.wakeupAfter(timedelta(seconds=0.001), "later")
            self.send(child, ActorExitRequest())
            self.send(sender, 4)
        elif isinstance(message, int):
            self.send(self.asker, message)
        elif isinstance(message, ChildActorExited | WakeupMessage):
            self.send(self.asker, type(message))


class Unmakeable(Actor):
    def __init__(self) -> None:
        raise OSError("cannot be made")


class Leaves(Actor):
    def __init__(self) -> None:
        raise SystemExit


class Parent(Actor):
    def receiveMessage(self, message: Any, sender: Any) -> None:
        if message == "create":
            self.asker = sender
            self.child = self.createActor(Unmakeable)
        elif isinstance(message, ChildActorExited):
            self.send(self.asker, message.childAddress is self.child)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


def open_system(**capabilities: Any) -> ActorSystem:
    return ActorSystem(AsyncioBase(capabilities=capabilities), transientUnique=True)


@pytest.fixture
def system() -> Iterator[ActorSystem]:
    system = open_system()
    yield system
    system.shutdown()


def answers(system: ActorSystem, count: int) -> list[Any]:
    return [system.listen(SOON_S) for _ in range(count)]


def test_a_handler_that_blocks_keeps_no_other_actor_waiting(
    system: ActorSystem, gate: Gate
) -> None:
    blocked, other = system.createActor(Waiter), system.createActor(Waiter)

    assert system.ask(blocked, gate, SOON_S) == "at the gate"
    system.tell(blocked, "after it")
    assert system.ask(other, "meanwhile", SOON_S) == "meanwhile"
    gate.opened.set()

    assert answers(system, 2) == ["through the gate", "after it"]


def test_a_hundred_actors_block_at_once(system: ActorSystem) -> None:
    gates = [Gate() for _ in range(100)]
    actors = [system.createActor(Waiter) for _ in gates]

    for actor, gate in zip(actors, gates, strict=True):
        system.tell(actor, gate)

    assert all(gate.reached.wait(SOON_S) for gate in gates)
    for gate in gates:
        gate.opened.set()


def test_what_a_handler_does_is_done_in_its_order(system: ActorSystem) -> None:
    system.tell(system.createActor(Busy), "go")
    seen = answers(system, 6)

    assert [answer for answer in seen if answer in (1, 4)] == [1, 4]
    assert [answer for answer in seen if answer in (2, 3, ChildActorExited)] == [
        2,
        3,
        ChildActorExited,
    ]
    assert WakeupMessage in seen


def test_messages_are_handled_in_the_order_they_were_sent(system: ActorSystem) -> None:
    actor = system.createActor(Waiter)

    for number in range(200):
        system.tell(actor, number)

    assert answers(system, 200) == list(range(200))


def test_an_actor_has_one_thread_for_life(system: ActorSystem) -> None:
    database = system.createActor(Database)
    waiters = [system.createActor(Waiter) for _ in range(3)]

    assert system.ask(database, 1, SOON_S) == [(1,)]
    assert system.ask(database, 2, SOON_S) == [(1,), (2,)]
    threads = [[system.ask(waiter, "thread", SOON_S) for waiter in waiters] for _ in range(3)]
    assert threads[0] == threads[1] == threads[2]
    assert len(set(threads[0])) == 3


def test_actors_share_threads_when_there_are_more_of_them_than_threads(gate: Gate) -> None:
    system = open_system(**{"Actor Threads": 2})
    actors = [system.createActor(Waiter) for _ in range(4)]

    threads = [system.ask(actor, "thread", SOON_S) for actor in actors]
    assert [threads.count(thread) for thread in threads] == [2, 2, 2, 2]
    system.tell(actors[0], ActorExitRequest())
    wait_until(lambda: not actors[0].is_alive)

    assert system.ask(system.createActor(Waiter), "thread", SOON_S) == threads[0]
    system.shutdown()


def test_without_threads_actors_run_on_the_loop() -> None:
    system = open_system(**{"Actor Threads": 0})

    threads = {system.ask(system.createActor(Waiter), "thread", SOON_S) for _ in range(3)}

    assert len(threads) == 1
    system.shutdown()


@pytest.mark.parametrize("threads", [-1, "many", None])
def test_what_is_no_number_of_threads_is_refused(threads: Any) -> None:
    with pytest.raises(ActorError, match="must be an integer from 0 on"):
        open_system(**{"Actor Threads": threads})


def test_a_handler_that_fails_is_tried_again_and_then_poison(system: ActorSystem) -> None:
    actor = system.createActor(Waiter)

    poison = system.ask(actor, "boom", SOON_S)

    assert isinstance(poison, PoisonMessage)
    assert "ValueError: boom" in poison.details
    assert system.ask(actor, 1, SOON_S) == 1


def test_what_no_handler_should_raise_ends_the_actor_alone(system: ActorSystem) -> None:
    actor, other = system.createActor(Waiter), system.createActor(Waiter)

    system.tell(actor, "leave")

    wait_until(lambda: not actor.is_alive)
    assert system.ask(other, 1, SOON_S) == 1


def test_who_creates_what_cannot_be_made_is_told(system: ActorSystem) -> None:
    assert system.ask(system.createActor(Parent), "create", SOON_S) is True

    with pytest.raises(OSError, match="cannot be made"):
        system.createActor(Unmakeable)
    with pytest.raises(StartError, match="SystemExit"):
        system.createActor(Leaves)


def test_a_killed_actor_is_not_heard_any_more(gate: Gate) -> None:
    system = open_system(**{"Actor Threads": 1})
    actor = system.createActor(Waiter)
    system.ask(actor, gate, SOON_S)

    system._systemBase.end(actor, KILL)
    wait_until(lambda: not actor.is_alive)
    gate.opened.set()
    next_in_the_thread = system.createActor(Waiter)

    assert system.ask(next_in_the_thread, "first", SOON_S) == "first"
    system.shutdown()


async def test_a_shutdown_does_not_wait_for_ever_for_a_handler(gate: Gate) -> None:
    runtime = Runtime()
    system = ActorSystem(AsyncioBase(runtime=runtime), transientUnique=True)
    actor = system.createActor(Waiter)
    system.tell(actor, gate)
    await eventually(gate.reached.is_set)

    await runtime.shutdown(timeout_s=0.02)

    assert runtime.actor_count == 0
    assert not gate.opened.is_set()
    system.shutdown()


def test_the_threads_end_with_the_system() -> None:
    before = set(threading.enumerate())
    system = open_system()
    for _ in range(3):
        system.createActor(Waiter)
    assert len(set(threading.enumerate()) - before) == 4

    system.shutdown()

    wait_until(lambda: not set(threading.enumerate()) - before)


def test_an_actor_may_create_what_shares_its_thread_by_way_of_the_system() -> None:
    system = open_system(**{"Actor Threads": 1})

    class Creates(Actor):
        def receiveMessage(self, message: Any, sender: Any) -> None:
            if message == "create":
                self.send(sender, system.createActor(Waiter))

    created = system.ask(system.createActor(Creates), "create", SOON_S)

    assert system.ask(created, "hello", SOON_S) == "hello"
    system.shutdown()


def test_an_actor_may_ask_and_end_its_own_system() -> None:
    system = open_system()

    class Asks(Actor):
        def receiveMessage(self, message: Any, sender: Any) -> None:
            if message == "ask":
                with system.private() as private:
                    self.send(sender, private.ask(private.createActor(Waiter), "hello", SOON_S))
            elif message == "end":
                system._systemBase.shutdown()

    actor = system.createActor(Asks)

    assert system.ask(actor, "ask", SOON_S) == "hello"
    system.tell(actor, "end")
    wait_until(lambda: not actor.is_alive)
    system.shutdown()
