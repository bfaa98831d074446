"""Costs of supervision on Thespian's bases: start, a crash, a kill -9, stop.

Run: ``python benchmarks/micro/thespian_bases.py [ROUNDS]``. Milliseconds of real time: they are of processes.
A round makes ``b`` of ``a, b, c`` under rest_for_one end; it is over when ``b`` and ``c`` are up again.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from thespian.actors import Actor, ActorSystem
from thespian.test import get_free_admin_port

from leveret.actors.thespian.base import AsyncioBase
from leveret.supervisors.on_thespian import ThespianSupervisor
from leveret.supervisors.spec import ChildSpec, SupervisorSpec

PROCESS_BASES = ("multiprocTCPBase", "multiprocUDPBase")
PATIENCE_S = 30.0


class Worker(Actor):  # type: ignore[misc]  # Thespian has no types
    def receiveMessage(self, message: Any, sender: Any) -> None:
        if message == "pid":
            self.send(sender, os.getpid())
        elif message == "boom":
            raise ValueError("boom")


SPEC = SupervisorSpec(
    "rest_for_one", 1_000_000, 1.0, tuple(ChildSpec(name, Worker) for name in "abc")
)


def open_system(base: str) -> ActorSystem:
    if base == "AsyncioBase":
        return ActorSystem(AsyncioBase(), transientUnique=True)
    quiet = {"version": 1, "root": {"level": "CRITICAL"}} if base in PROCESS_BASES else False
    capabilities = {"Admin Port": get_free_admin_port(), "Convention Address.IPv4": ""}
    return ActorSystem(base, capabilities, logDefs=quiet, transientUnique=True)


def round_s(supervisor: ThespianSupervisor, end: Callable[[Any, int], None]) -> float:
    before = {name: address for name, address, _ in supervisor.which_children()}
    pid = supervisor.system.ask(before["b"], "pid", PATIENCE_S)
    began_s = time.perf_counter()
    end(before["b"], pid)
    while True:
        now = {name: address for name, address, _ in supervisor.which_children()}
        if all(now[name] not in (None, "restarting", before[name]) for name in "bc"):
            return time.perf_counter() - began_s
        if time.perf_counter() - began_s > PATIENCE_S:
            raise TimeoutError(f"not up again after {PATIENCE_S} s")


def measure(base: str, rounds: int) -> None:
    system = open_system(base)
    try:
        began_s = time.perf_counter()
        supervisor = ThespianSupervisor.start(system, SPEC)
        show(base, "start of three", [time.perf_counter() - began_s])
        times_s = [
            round_s(supervisor, lambda to, _: system.tell(to, "boom")) for _ in range(rounds)
        ]
        show(base, "crash", times_s)
        if base in PROCESS_BASES:
            times_s = [
                round_s(supervisor, lambda _, pid: os.kill(pid, signal.SIGKILL))
                for _ in range(rounds)
            ]
            show(base, "kill -9", times_s)
        began_s = time.perf_counter()
        supervisor.stop()
        show(base, "stop of three", [time.perf_counter() - began_s])
    finally:
        system.shutdown()


def show(base: str, step: str, times_s: list[float]) -> None:
    median_ms, worst_ms = statistics.median(times_s) * 1e3, max(times_s) * 1e3
    print(f"{base:<18} {step:<15} median {median_ms:8.2f} ms   worst {worst_ms:8.2f} ms")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    for base in ("simpleSystemBase", "AsyncioBase", *PROCESS_BASES):
        measure(base, rounds)


if __name__ == "__main__":
    main()
