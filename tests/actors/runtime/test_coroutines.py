"""Coroutines that actors run, their results and their ends.

Tests: actors/runtime/tasks.py
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leveret.actors.actor import OtpActor
from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import CallExit, Crash, Started, StartFailed
from leveret.actors.service import Service, ServiceSpec
from leveret.testing.virtual_clock import VirtualClock


class Slow(GenServer):
    async_handlers = True

    def init(self, seen: list[Any], gate: asyncio.Event) -> None:
        self.seen = seen
        self.gate = gate

    async def handle_call(self, request: Any, frm: Any) -> Any:
        await self.gate.wait()
        return ("slow", request)

    async def handle_cast(self, message: Any) -> None:
        seen = self.seen  # the actor is empty when it has died
        seen.append(("begin", message))
        try:
            await self.gate.wait()
        finally:
            seen.append(("end", message))
        if message == "boom":
            raise OSError("boom")


async def test_mail_waits_while_a_coroutine_handler_runs(clock: VirtualClock) -> None:
    runtime = Runtime(clock=clock)
    gate, seen = asyncio.Event(), []
    ref = runtime.spawn(Slow, seen, gate)

    runtime.send(ref, 1)
    runtime.send(ref, 2)
    await clock.settle()
    assert seen == [("begin", 1)]
    gate.set()
    await clock.settle()

    assert seen == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]
    assert await runtime.call(ref, "x") == ("slow", "x")
    await runtime.shutdown()


async def test_exit_signals_do_not_wait_for_a_coroutine_handler(clock: VirtualClock) -> None:
    runtime = Runtime(clock=clock)
    seen: list[Any] = []
    ref = runtime.spawn(Slow, seen, asyncio.Event())
    reasons: list[object] = []
    runtime.watch(ref, reasons.append)
    runtime.send(ref, 1)
    await clock.settle()

    runtime.exit(ref, "enough")
    await clock.settle()

    assert reasons == ["enough"]
    assert seen == [("begin", 1), ("end", 1)]
    await runtime.shutdown()


async def test_a_coroutine_handler_that_fails_ends_its_actor(clock: VirtualClock) -> None:
    runtime = Runtime(clock=clock)
    gate = asyncio.Event()
    gate.set()
    ref = runtime.spawn(Slow, [], gate)
    reasons: list[object] = []
    runtime.watch(ref, reasons.append)

    runtime.send(ref, "boom")
    await clock.settle()

    assert reasons == [Crash(OSError("boom"))]
    await runtime.shutdown()


def test_a_coroutine_handler_without_a_loop_is_a_crash(runtime: Runtime) -> None:
    ref = runtime.spawn(Slow, [], None)
    reasons: list[Any] = []
    runtime.watch(ref, reasons.append)

    runtime.send(ref, 1)
    runtime.run_until_idle()

    assert "need an event loop" in reasons[0].text


async def returns(service: Service) -> None:
    await asyncio.sleep(0)


async def fails(service: Service) -> None:
    raise LookupError("x")


async def cancels_itself(service: Service) -> None:
    raise asyncio.CancelledError


async def stops(service: Service) -> None:
    service.stop(("shutdown", "said so"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (returns, "normal"),
        (fails, Crash(LookupError("x"))),
        (cancels_itself, "shutdown"),
        (stops, ("shutdown", "said so")),
    ],
)
async def test_a_service_ends_as_its_coroutine_ends(
    clock: VirtualClock, body: Any, reason: object
) -> None:
    runtime = Runtime(clock=clock)
    ref = runtime.spawn(Service, ServiceSpec(body))
    reasons: list[object] = []
    runtime.watch(ref, reasons.append)
    await clock.settle()

    assert reasons == [reason]
    await runtime.shutdown()


async def test_a_service_that_says_when_it_is_ready(clock: VirtualClock) -> None:
    runtime = Runtime(clock=clock)
    gate = asyncio.Event()
    results: list[object] = []

    async def body(service: Service, value: int) -> None:
        await gate.wait()
        service.ready(value)
        service.ready("once is enough")
        await asyncio.Event().wait()

    spec = ServiceSpec(body, (17,), waits_for_ready=True)
    ref = runtime.start_link(None, Service, (spec,), results.append)
    await clock.settle()
    assert results == []
    gate.set()
    await clock.settle()

    assert results == [Started(ref, 17)]
    await runtime.shutdown()
    assert not ref.is_alive


async def test_a_service_that_ends_before_it_is_ready_has_failed_to_start(
    clock: VirtualClock,
) -> None:
    runtime = Runtime(clock=clock)
    results: list[object] = []

    spec = ServiceSpec(returns, waits_for_ready=True)
    runtime.start_link(None, Service, (spec,), results.append)
    await clock.settle()

    assert results == [StartFailed("normal")]
    await runtime.shutdown()


@pytest.mark.parametrize("reason", ["shutdown", "other"])
async def test_an_exit_signal_cancels_the_body_and_waits_for_it(
    clock: VirtualClock, reason: str
) -> None:
    runtime = Runtime(clock=clock)
    order: list[object] = []

    async def body(service: Service) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            order.append("cleaned up")

    ref = runtime.spawn(Service, ServiceSpec(body))
    runtime.watch(ref, order.append)
    await clock.settle()
    other = runtime.spawn(OtpActor)
    runtime.exit(ref, "normal", other)
    await clock.settle()
    assert order == []
    runtime.exit(ref, reason, other)
    await clock.settle()

    assert order == ["cleaned up", reason]
    assert clock.pending_count == 0
    await runtime.shutdown()


async def test_a_body_that_swallows_its_cancellation_is_abandoned_and_reported(
    clock: VirtualClock, caplog: Any
) -> None:
    runtime = Runtime(clock=clock)
    gate = asyncio.Event()

    async def body(service: Service) -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    spec = ServiceSpec(body, stop_timeout_s=3.0)
    ref = runtime.spawn(Service, spec, label="stubborn")
    reasons: list[object] = []
    runtime.watch(ref, reasons.append)
    await clock.settle()

    runtime.exit(ref, "shutdown")
    await clock.advance(2.9)
    assert ref.is_alive
    await clock.advance(0.2)

    assert reasons == ["shutdown"]
    assert runtime.abandoned_tasks == 1
    assert "swallowed its cancellation label=stubborn" in caplog.text
    gate.set()
    await clock.settle()
    await runtime.shutdown()


async def test_a_killed_service_takes_its_coroutine_along(clock: VirtualClock) -> None:
    runtime = Runtime(clock=clock)
    order: list[str] = []

    async def body(service: Service) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            order.append("cancelled")

    ref = runtime.spawn(Service, ServiceSpec(body))
    await clock.settle()
    runtime.exit(ref, "kill")
    await clock.settle()

    assert not ref.is_alive
    assert order == ["cancelled"]
    await runtime.shutdown()


class Keeper(OtpActor):
    """Starts a child, traps exits, and stops only when told by its own rules."""

    trap_exits = True

    def init(self, seen: list[Any], child: Any) -> None:
        self.seen = seen
        self.child = self.runtime.start_link(self.ref, *child, lambda result: None)

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        self.seen.append(message)
        if sender is self.parent:
            self.exit(self.child, "shutdown")
        elif sender is self.child:
            self.stop("shutdown")


async def test_shutdown_ends_roots_in_order_and_leaves_the_loop_as_it_was() -> None:
    before = asyncio.all_tasks()
    runtime = Runtime()
    seen: list[Any] = []
    reasons: list[object] = []

    async def body(service: Service) -> None:
        await asyncio.Event().wait()

    keeper = runtime.spawn(Keeper, seen, (Service, (ServiceSpec(body),)))
    runtime.watch(keeper, reasons.append)
    runtime.send(keeper, "mail")
    await asyncio.sleep(0)

    await runtime.shutdown()

    assert reasons == ["shutdown"]
    assert runtime.actor_count == 0
    assert asyncio.all_tasks() == before
    runtime.send(keeper, "late")
    assert runtime.is_idle


async def test_shutdown_kills_who_does_not_end_in_time() -> None:
    runtime = Runtime()

    class Deaf(OtpActor):
        trap_exits = True

        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            """Ignore everything."""

    reasons: list[object] = []
    runtime.watch(runtime.spawn(Deaf), reasons.append)

    await runtime.shutdown(timeout_s=0.01)

    assert reasons == ["killed"]


async def test_join_waits_for_the_end(clock: VirtualClock) -> None:
    runtime = Runtime(clock=clock)
    ref = runtime.spawn(OtpActor)
    waiting = asyncio.create_task(runtime.join(ref))
    await clock.settle()
    runtime.exit(ref, "bye")

    assert await waiting == "bye"
    assert await runtime.join(ref) == "noproc"
    await runtime.shutdown()


async def test_other_threads_send_through_one_door() -> None:
    runtime = Runtime()
    got: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    class Gets(OtpActor):
        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            got.set_result(message)

    ref = runtime.spawn(Gets)
    await asyncio.to_thread(runtime.send_threadsafe, ref, "from a thread")

    assert await got == "from a thread"
    await runtime.shutdown()


async def test_nothing_starts_after_shutdown() -> None:
    runtime = Runtime()
    await runtime.shutdown()

    with pytest.raises(Exception, match="shut down"):
        runtime.spawn(OtpActor)
    with pytest.raises(CallExit):
        await runtime.call(runtime_ref(), 1)


def runtime_ref() -> Ref:
    runtime = Runtime(clock=VirtualClock())
    ref = runtime.spawn(OtpActor)
    runtime.exit(ref, "kill")
    runtime.run_until_idle()
    return ref
