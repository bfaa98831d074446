"""Costs of the actor runtime: hops, bursts, fan-out, starts, calls, bytes per actor.

Run: ``python benchmarks/micro/actors.py``. Times are CPU microseconds, the best of several rounds.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import platform
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

from leveret.actors.actor import OtpActor
from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.inline import InlineTurn
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.testing.virtual_clock import VirtualClock

ROUNDS = 7


class Player(OtpActor):
    def init(self, hops: int) -> None:
        self.hops = hops

    def handle_mail(self, message: object, sender: Ref | None) -> None:
        if self.hops:
            self.hops -= 1
            assert sender is not None
            self.runtime.send(sender, message, self.ref)


class Sink(OtpActor):
    def handle_mail(self, message: object, sender: Ref | None) -> None:
        pass


class Server(GenServer):
    def handle_call(self, request: object, frm: object) -> object:
        return request

    def handle_cast(self, message: object) -> None:
        pass

    def fetch(self, count: int) -> int:
        return count


class Caller(GenServer):
    def init(self, server: Ref, count: int) -> None:
        self.server = server
        self.left = count
        self.again(None)

    def again(self, reply: object) -> None:
        if self.left:
            self.left -= 1
            self.call(self.server, 1, self.again)


def runtime() -> Runtime:
    return Runtime(clock=VirtualClock())


def best(name: str, count: int, work: Callable[[], Callable[[], object]]) -> None:
    figures = []
    for _ in range(ROUNDS):
        run = work()
        gc.collect()
        begin = time.process_time()
        run()
        figures.append((time.process_time() - begin) / count * 1e6)
    print(f"{name:<48}{min(figures):8.3f} us")


def ping_pong(count: int) -> Callable[[], object]:
    rt = runtime()
    one, two = rt.spawn(Player, count // 2), rt.spawn(Player, count // 2)
    rt.send(one, "ball", two)
    return rt.run_until_idle


def burst(count: int, actor_class: type) -> Callable[[], object]:
    rt = runtime()
    sink = rt.spawn(actor_class)

    def run() -> None:
        send = rt.send
        for _ in range(count):
            send(sink, "mail")
        rt.run_until_idle()

    return run


def fan_out(count: int) -> Callable[[], object]:
    rt = runtime()
    sinks = [rt.spawn(Sink) for _ in range(count)]
    for sink in sinks:
        rt.send(sink, "first")
    rt.run_until_idle()

    def run() -> None:
        for sink in sinks:
            rt.send(sink, "mail")
        rt.run_until_idle()

    return run


def pairs(count: int, hops: int) -> Callable[[], object]:
    rt = runtime()
    for _ in range(count):
        one, two = rt.spawn(Player, hops // 2), rt.spawn(Player, hops // 2)
        rt.send(one, "ball", two)
    return rt.run_until_idle


def starts(count: int) -> Callable[[], object]:
    rt = runtime()

    def run() -> None:
        for _ in range(count):
            rt.spawn(Sink)

    return run


def kills(count: int) -> Callable[[], object]:
    rt = runtime()
    refs = [rt.spawn(Sink) for _ in range(count)]

    def run() -> None:
        for ref in refs:
            rt.exit(ref, "kill")
        rt.run_until_idle()

    return run


def inline(count: int, form: str) -> Callable[[], object]:
    rt = runtime()
    server = rt.spawn(Server)

    def call() -> None:
        call_inline = rt.call_inline
        for _ in range(count):
            call_inline(server, 1)

    def turn() -> None:
        turn, actor = InlineTurn(rt.turns, server), server.cell.actor
        for _ in range(count):
            with turn:
                actor.fetch(1)

    return call if form == "call" else turn


def turns(count: int) -> Callable[[], object]:
    rt = runtime()
    sink = rt.spawn(Server)
    fetch = rt.spawn(Server).cell.actor.fetch

    def run() -> None:
        run_as = rt.run_as
        for _ in range(count):
            run_as(sink, fetch, 1)

    return run


def calls(count: int) -> Callable[[], object]:
    rt = runtime()
    rt.spawn(Caller, rt.spawn(Server), count)
    return rt.run_until_idle


class Coroutines(OtpActor):
    async_handlers = True

    async def handle_mail(self, message: object, sender: Ref | None) -> None:
        if message == "last":
            self.stop()


async def outside(count: int) -> None:
    rt = Runtime()
    server = rt.spawn(Server)
    for _ in range(count):
        await rt.call(server, 1)
    await rt.shutdown()


async def handlers(count: int) -> None:
    rt = Runtime()
    actor = rt.spawn(Coroutines)
    for _ in range(count):
        rt.send(actor, "mail")
    rt.send(actor, "last")
    await rt.join(actor)
    await rt.shutdown()


def memory(count: int, prepare: Callable[[Runtime, Ref], None]) -> float:
    rt = runtime()
    rt.spawn(Sink)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    refs = [rt.spawn(Sink) for _ in range(count)]
    for ref in refs:
        prepare(rt, ref)
    rt.run_until_idle()
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / count


def main() -> None:
    logging.disable()
    print(f"Python {platform.python_version()} on {platform.machine()}")
    best("ping-pong hop", 200_000, lambda: ping_pong(200_000))
    best("burst to an OtpActor, send and handle", 100_000, lambda: burst(100_000, Sink))
    best("burst to a GenServer (cast)", 100_000, lambda: burst(100_000, Server))
    best("fan-out to 50,000 actors, per hop", 50_000, lambda: fan_out(50_000))
    best("25,000 pairs talking at once, per hop", 250_000, lambda: pairs(25_000, 10))
    best("call_inline, empty mailbox", 100_000, lambda: inline(100_000, "call"))
    best("inline turn, empty mailbox", 100_000, lambda: inline(100_000, "turn"))
    best("run_as", 100_000, lambda: turns(100_000))
    best("gen_server call, monitor and timer, round trip", 20_000, lambda: calls(20_000))
    best("call from a task", 20_000, lambda: partial(asyncio.run, outside(20_000)))
    best("async def handler", 20_000, lambda: partial(asyncio.run, handlers(20_000)))
    best("spawn", 20_000, lambda: starts(20_000))
    best("kill", 20_000, lambda: kills(20_000))
    print(f"{'bytes per fresh actor':<48}{memory(50_000, lambda rt, ref: None):8.0f}")
    mailed = memory(20_000, lambda rt, ref: rt.send(ref, "mail"))
    print(f"{'bytes per actor with an empty live mailbox':<48}{mailed:8.0f}")


if __name__ == "__main__":
    main()
