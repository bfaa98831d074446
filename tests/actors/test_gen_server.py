"""GenServers: calls, casts, and their ends.

Tests: actors/runtime/calls.py
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leveret.actors.gen_server import NOREPLY, GenServer
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import CallExit, CallFailed, Crash, Down, Exit
from leveret.testing.virtual_clock import VirtualClock


class Server(GenServer):
    trap_exits = True

    def init(self, seen: list[Any]) -> None:
        self.seen = seen
        self.waiting: list[Any] = []

    def handle_call(self, request: Any, frm: Any) -> Any:
        if request == "later":
            self.waiting.append(frm)
            return NOREPLY
        if request == "casts first":
            self.post(frm.to, "cast sent before the reply")
        return request(self) if callable(request) else ("reply", request)

    def handle_cast(self, message: Any) -> None:
        if message == "answer":
            self.reply(self.waiting.pop(), "finally")
        elif callable(message):
            message(self)
        else:
            self.seen.append(("cast", message))

    def handle_info(self, message: Any) -> None:
        self.seen.append(("info", message))


class Client(Server):
    trap_exits = False


def ask(server: Ref, request: Any, answers: list[Any], timeout_s: float | None = 5.0) -> Any:
    return lambda actor: actor.call(server, request, answers.append, timeout_s)


def test_casts_calls_and_infos_are_told_apart(runtime: Runtime, clock: VirtualClock) -> None:
    seen: list[Any] = []
    answers: list[Any] = []
    server, client = runtime.spawn(Server, seen), runtime.spawn(Client, [])
    runtime.send(server, 1)
    runtime.send(server, lambda actor: actor.start_timer(1.0, 2))
    runtime.exit(server, "x", client)
    runtime.send(client, ask(server, 3, answers))
    runtime.run_until_idle()
    clock.jump(1.0)
    monitor = runtime.monitor(server, client)
    runtime.exit(client, "kill")
    runtime.run_until_idle()

    assert seen == [
        ("cast", 1),
        ("info", Exit(client, "x")),
        ("info", 2),
        ("info", Down(monitor, client, "killed")),
    ]
    assert answers == [("reply", 3)]


def test_a_reply_may_come_later(runtime: Runtime) -> None:
    answers: list[Any] = []
    server, client = runtime.spawn(Server, []), runtime.spawn(Client, [])

    runtime.send(client, ask(server, "later", answers))
    runtime.run_until_idle()
    assert answers == []
    runtime.send(server, "answer")
    runtime.run_until_idle()

    assert answers == ["finally"]


def test_the_reply_comes_after_what_the_server_sent_before_it(runtime: Runtime) -> None:
    seen: list[Any] = []
    server, client = runtime.spawn(Server, []), runtime.spawn(Client, seen)

    runtime.send(client, ask(server, "casts first", seen))
    runtime.run_until_idle()

    assert seen == [("cast", "cast sent before the reply"), ("reply", "casts first")]


def test_a_dead_server_is_an_immediate_failure(runtime: Runtime, clock: VirtualClock) -> None:
    answers: list[Any] = []
    server, client = runtime.spawn(Server, []), runtime.spawn(Client, [])
    runtime.exit(server, "kill")
    runtime.run_until_idle()

    runtime.send(client, ask(server, 1, answers))
    runtime.run_until_idle()

    assert answers == [CallFailed("noproc")]
    assert clock.pending_count == 0


def test_a_server_that_dies_fails_the_call_with_its_reason(
    runtime: Runtime, clock: VirtualClock
) -> None:
    answers: list[Any] = []
    server, client = runtime.spawn(Server, []), runtime.spawn(Client, [])

    runtime.send(client, ask(server, lambda actor: 1 / 0, answers))
    runtime.run_until_idle()

    assert answers == [CallFailed(Crash(ZeroDivisionError("division by zero")))]
    assert client.is_alive
    assert clock.pending_count == 0
    assert client.cell.monitors is None


def test_a_call_times_out_and_its_late_reply_is_dropped(
    runtime: Runtime, clock: VirtualClock
) -> None:
    answers: list[Any] = []
    seen: list[Any] = []
    server, client = runtime.spawn(Server, []), runtime.spawn(Client, seen)
    runtime.send(client, ask(server, "later", answers, 3.0))

    clock.jump(2.9)
    assert answers == []
    clock.jump(0.2)
    assert answers == [CallFailed("timeout")]
    runtime.send(server, "answer")
    runtime.run_until_idle()

    assert answers == [CallFailed("timeout")]
    assert seen == []
    assert server.cell.watchers is None


def test_a_call_without_a_timeout_waits(runtime: Runtime, clock: VirtualClock) -> None:
    answers: list[Any] = []
    server, client = runtime.spawn(Server, []), runtime.spawn(Client, [])
    runtime.send(client, ask(server, "later", answers, None))

    clock.jump(1e9)
    runtime.send(server, "answer")
    runtime.run_until_idle()

    assert answers == ["finally"]


def test_several_calls_are_told_apart(runtime: Runtime) -> None:
    answers: list[Any] = []
    server, client = runtime.spawn(Server, []), runtime.spawn(Client, [])
    runtime.send(client, ask(server, "later", answers))
    runtime.send(client, ask(server, "now", answers))
    runtime.run_until_idle()
    runtime.send(server, "answer")
    runtime.run_until_idle()

    assert answers == [("reply", "now"), "finally"]


def test_a_continuation_that_fails_ends_the_caller(runtime: Runtime) -> None:
    server, client = runtime.spawn(Server, []), runtime.spawn(Client, [])
    reasons: list[Any] = []
    runtime.watch(client, reasons.append)

    runtime.send(client, lambda actor: actor.call(server, 1, lambda reply: 1 / 0))
    runtime.run_until_idle()

    assert [reason.kind for reason in reasons] == [ZeroDivisionError]
    assert server.is_alive


def test_a_server_that_traps_exits_ends_with_its_parent_all_the_same(
    runtime: Runtime, log_class: Any
) -> None:
    seen: list[Any] = []
    reasons: list[object] = []
    parent = runtime.spawn(log_class, [])
    server = runtime.start_link(parent, Server, (seen,), lambda result: None)
    runtime.watch(server, reasons.append)

    runtime.exit(server, "shutdown", parent)
    runtime.run_until_idle()

    assert reasons == ["shutdown"]
    assert seen == []


def test_an_unknown_request_ends_the_server(runtime: Runtime) -> None:
    answers: list[Any] = []
    server, client = runtime.spawn(GenServer), runtime.spawn(Client, [])

    runtime.send(client, ask(server, "what", answers))
    runtime.run_until_idle()

    assert answers[0].reason.kind is TypeError


async def test_tasks_call_with_await() -> None:
    runtime = Runtime()
    server = runtime.spawn(Server, [])

    assert await runtime.call(server, 1) == ("reply", 1)
    waiting = asyncio.create_task(runtime.call(server, "later"))
    await asyncio.sleep(0)
    runtime.send(server, "answer")
    assert await waiting == "finally"
    assert server.cell.watchers is None
    await runtime.shutdown()


async def test_a_task_sees_a_dead_server_and_a_timeout_as_call_exit(clock: VirtualClock) -> None:
    runtime = Runtime(clock=clock)
    server = runtime.spawn(Server, [])

    async def call(request: Any) -> object:
        try:
            return await runtime.call(server, request, 2.0)
        except CallExit as gone:
            return gone.reason

    waiting = asyncio.create_task(call("later"))
    await clock.advance(2.0)
    assert await waiting == "timeout"
    runtime.send(server, "answer")
    await clock.settle()
    assert await call(lambda actor: actor.stop("tired")) == "tired"
    assert await call(1) == "noproc"
    assert clock.pending_count == 0
    await runtime.shutdown()


async def test_a_task_that_is_cancelled_leaves_no_monitor(clock: VirtualClock) -> None:
    runtime = Runtime(clock=clock)
    server = runtime.spawn(Server, [])
    task = asyncio.create_task(runtime.call(server, "later"))
    await asyncio.sleep(0)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert server.cell.watchers is None
    assert clock.pending_count == 0
    await runtime.shutdown()
