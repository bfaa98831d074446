"""Costs of an actor in a process of its own: start, messages, calls, bodies, the news of its end.

    python benchmarks/micro/processes.py

Wall-clock times of both processes together, and the processor time of the parent and of the process; medians of the
rounds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import statistics
import time
from collections import defaultdict
from typing import Any

from leveret.actors.gen_server import GenServer
from leveret.actors.processes.host import ProcessHost
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import Started

ROUNDS = 10
MAILS = 20_000
CALLS = 1_000
BODIES = 20
BODY = bytes(1_000_000)


class Peer(GenServer):
    def init(self) -> None:
        self.count = 0

    def handle_cast(self, message: Any) -> None:
        self.count += 1

    def handle_call(self, request: Any, frm: Any) -> tuple[int, float]:
        return self.count, time.process_time()


async def begin(runtime: Runtime) -> Ref:
    started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    runtime.start_link(None, ProcessHost, (Peer, ()), started.set_result)
    outcome = await started
    assert type(outcome) is Started, outcome
    return outcome.ref


class Meter:
    """Times of what is done with a process, by the name of it: wall clock, processor here, processor there."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.times_s: defaultdict[str, list[tuple[float, float, float]]] = defaultdict(list)

    async def measure(self, name: str, peer: Ref, count: int, work: Any) -> None:
        """Note the times of each of ``count`` things that ``work`` does, to the last one's end in the process."""
        _, there_s = await self.runtime.call(peer, None, None)
        wall_s, here_s = time.perf_counter(), time.process_time()
        await work()
        _, ended_s = await self.runtime.call(peer, None, None)
        times_s = time.perf_counter() - wall_s, time.process_time() - here_s, ended_s - there_s
        self.times_s[name].append(tuple(time_s / count for time_s in times_s))  # type: ignore[arg-type]  # three

    def note(self, name: str, began_s: float) -> None:
        self.times_s[name].append((time.perf_counter() - began_s, 0.0, 0.0))

    def show(self, name: str, unit: str, per_s: float) -> None:
        wall, here, there = (
            [time_s * per_s for time_s in times_s]
            for times_s in zip(*self.times_s[name], strict=True)
        )
        median = statistics.median
        line = f"{name:<28} {median(wall):8.1f} {unit}  worst {max(wall):8.1f}"
        if any(here):
            line += f"  processor {median(here):8.2f} + {median(there):.2f}"
        print(line)


async def main() -> None:
    runtime = Runtime()
    meter = Meter(runtime)
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        peer = await begin(runtime)
        meter.note("start until acknowledged", began_s)

        async def casts(peer: Ref = peer) -> None:
            body = bytes(100)
            for _ in range(MAILS // 100):
                for _ in range(100):
                    runtime.send(peer, body)
                await asyncio.sleep(0)

        async def calls(peer: Ref = peer) -> None:
            for _ in range(CALLS):
                await runtime.call(peer, None, None)

        async def bodies(peer: Ref = peer) -> None:
            for _ in range(BODIES):
                runtime.send(peer, BODY)
                await runtime.written(peer)

        await meter.measure("message of 100 bytes", peer, MAILS, casts)
        await meter.measure("call and reply", peer, CALLS, calls)
        await meter.measure("message of 1 MB", peer, BODIES, bodies)
        assert (await runtime.call(peer, None, None))[0] == MAILS + BODIES

        began_s = time.perf_counter()
        ending = asyncio.ensure_future(runtime.join(peer))
        os.kill(peer.cell.actor.os_pid, signal.SIGKILL)
        assert await ending == "noconnection"
        meter.note("kill -9 until noconnection", began_s)
    await runtime.shutdown()
    meter.show("start until acknowledged", "ms", 1e3)
    meter.show("message of 100 bytes", "us", 1e6)
    meter.show("call and reply", "us", 1e6)
    meter.show("message of 1 MB", "us", 1e6)
    meter.show("kill -9 until noconnection", "ms", 1e3)


if __name__ == "__main__":
    logging.getLogger("leveret").setLevel(logging.CRITICAL)  # processes are killed on purpose
    asyncio.run(main())
