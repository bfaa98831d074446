"""Everything an actor held goes with it, by reference counting alone: the collector is off.

Tests: actors/runtime/runtime.py
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import CallExit
from leveret.actors.service import Service, ServiceSpec
from leveret.testing.virtual_clock import VirtualClock

ACTORS = 1_000


class Message:
    """Something whose end can be watched, with room for a cycle."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


class Knot(GenServer):
    """Knows its neighbours, keeps messages, timers, monitors, calls under way, closures."""

    def init(self, others: list[Ref], message: Message) -> None:
        self.others = others
        self.message = message
        self.closure = lambda: self.message

    def tie(self, other: Ref) -> None:
        self.peer = other.cell.actor
        self.link(other)
        self.watch = self.monitor(other)
        self.timer = self.start_timer(1e6, Message(self))
        self.call(other, "no answer", lambda reply: self.message, None)

    def handle_call(self, request: Any, frm: Any) -> Any:
        self.asked = frm
        raise self.error(request)

    def error(self, request: Any) -> Exception:
        self.failure = ValueError(request, self)
        return self.failure


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def knots(runtime: Runtime) -> tuple[list[Ref], list[weakref.ref[Any]]]:
    refs: list[Ref] = []
    watched: list[weakref.ref[Any]] = []
    for _ in range(ACTORS):
        message = Message()
        refs.append(runtime.spawn(Knot, refs, message))
        watched += [weakref.ref(message), weakref.ref(refs[-1].cell.actor)]
    for one, two in itertools.pairwise([*refs, refs[0]]):
        one.cell.actor.tie(two)
        waiting = Message(one, two)
        runtime.suspend(one)
        runtime.send(one, waiting)
        watched.append(weakref.ref(waiting))
    return refs, watched


@pytest.mark.parametrize("reason", ["kill", "shutdown"])
def test_a_thousand_entangled_actors_leave_nothing_behind(
    runtime: Runtime, clock: VirtualClock, no_collector: None, reason: str
) -> None:
    refs, watched = knots(runtime)
    assert all(ref() is not None for ref in watched)

    runtime.exit(refs[0], reason)
    runtime.run_until_idle()

    assert runtime.actor_count == 0
    assert clock.pending_count == 0
    clock.jump(2e6)  # lets go of the cancelled timers
    assert [ref() for ref in watched if ref() is not None] == []


def test_crashes_leave_nothing_behind_either(
    runtime: Runtime, clock: VirtualClock, no_collector: None
) -> None:
    refs, watched = knots(runtime)
    reasons: list[object] = []
    runtime.watch(refs[0], reasons.append)
    for ref in refs:
        ref.cell.inbox.clear()
        runtime.resume(ref)
        runtime.send(ref, Message(ref))  # not known: a crash

    runtime.run_until_idle()

    assert runtime.actor_count == 0
    clock.jump(2e6)
    assert [ref() for ref in watched if ref() is not None] == []
    assert len(reasons) == 1


def test_a_failed_inline_call_leaves_nothing_behind(runtime: Runtime, no_collector: None) -> None:
    class Caller(GenServer):
        def init(self, callee: Ref) -> None:
            self.callee = callee

        def handle_cast(self, message: Any) -> None:
            self.kept = message
            self.runtime.call_inline(self.callee, message)

    callee = runtime.spawn(Knot, [], Message())
    caller = runtime.spawn(Caller, callee)
    message = Message(caller.cell.actor, callee.cell.actor)
    watched = [weakref.ref(message), *map(weakref.ref, message.parts)]
    runtime.send(caller, message)
    del message

    runtime.run_until_idle()

    assert runtime.actor_count == 0
    assert [ref() for ref in watched] == [None] * 3


async def test_services_and_calls_from_tasks_leave_nothing_behind(
    clock: VirtualClock, no_collector: None
) -> None:
    runtime = Runtime(clock=clock)
    watched: list[weakref.ref[Any]] = []

    async def body(service: Service, message: Message) -> None:
        service.kept = message  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    for _ in range(50):
        message = Message()
        ref = runtime.spawn(Service, ServiceSpec(body, (message,)))
        watched += [weakref.ref(message), weakref.ref(ref.cell.actor)]
    server = runtime.spawn(Knot, [], message)
    watched.append(weakref.ref(server.cell.actor))
    await clock.settle()
    with pytest.raises(CallExit):
        await runtime.call(server, Message())
    del message, ref

    await runtime.shutdown()
    await clock.settle()

    assert [ref() for ref in watched if ref() is not None] == []
