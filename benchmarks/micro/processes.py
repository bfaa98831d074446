"""Costs of an actor in a process of its own: start, messages, calls, the news of its end.

    python benchmarks/micro/processes.py

Wall-clock times of both processes together; medians of the rounds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import statistics
import time
from typing import Any

from leveret.actors.gen_server import GenServer
from leveret.actors.processes.host import ProcessHost
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import Started

ROUNDS = 10
MAILS = 20_000


class Peer(GenServer):
    def init(self) -> None:
        self.count = 0

    def handle_cast(self, message: Any) -> None:
        self.count += 1

    def handle_call(self, request: Any, frm: Any) -> int:
        return self.count


async def begin(runtime: Runtime) -> Ref:
    started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    runtime.start_link(None, ProcessHost, (Peer, ()), started.set_result)
    outcome = await started
    assert type(outcome) is Started, outcome
    return outcome.ref


async def main() -> None:
    runtime = Runtime()
    starts_s, downs_s, casts_s, calls_s = [], [], [], []
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        peer = await begin(runtime)
        starts_s.append(time.perf_counter() - began_s)

        body = bytes(100)
        began_s = time.perf_counter()
        for _ in range(MAILS // 100):
            for _ in range(100):
                runtime.send(peer, body)
            await asyncio.sleep(0)
        assert await runtime.call(peer, None, None) == MAILS
        casts_s.append((time.perf_counter() - began_s) / MAILS)

        began_s = time.perf_counter()
        for _ in range(1_000):
            await runtime.call(peer, None)
        calls_s.append((time.perf_counter() - began_s) / 1_000)

        began_s = time.perf_counter()
        ending = asyncio.ensure_future(runtime.join(peer))
        os.kill(peer.cell.actor.os_pid, signal.SIGKILL)
        assert await ending == "noconnection"
        downs_s.append(time.perf_counter() - began_s)
    await runtime.shutdown()
    for name, times_s, unit, per_s in (
        ("start until acknowledged", starts_s, "ms", 1e3),
        ("message of 100 bytes", casts_s, "us", 1e6),
        ("call and reply", calls_s, "us", 1e6),
        ("kill -9 until noconnection", downs_s, "ms", 1e3),
    ):
        median, worst = statistics.median(times_s) * per_s, max(times_s) * per_s
        print(f"{name:<28} {median:8.1f} {unit}  worst {worst:8.1f}")


if __name__ == "__main__":
    logging.getLogger("leveret").setLevel(logging.CRITICAL)  # processes are killed on purpose
    asyncio.run(main())
