"""Costs of supervision: start, stop and memory of many children, restarts, queue supervisors.

    python benchmarks/micro/supervisors.py [CHILDREN]

CPU times are the minimum of the rounds; bytes are those of tracemalloc, per child above a plain
actor without a supervisor. Wanted of 50,000 children under one supervisor: started within a second,
stopped within a second, 2 KB each.
"""

from __future__ import annotations

import gc
import logging
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.runtime import Runtime
from leveret.supervisors.requests import StartChild
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from leveret.testing.virtual_clock import VirtualClock

ROUNDS = 7


class Worker(OtpActor):
    __slots__ = ()

    def init(self, *args: Any) -> None:
        pass

    def handle_mail(self, message: Any, sender: Any) -> None:
        raise RuntimeError(message)


TEMPLATE = SupervisorSpec(
    "simple_one_for_one", 10, 10.0, (ChildSpec("child", Worker, restart="temporary"),)
)
KEPT = SupervisorSpec("simple_one_for_one", 10**9, 10.0, (ChildSpec("child", Worker),))
PAIR = SupervisorSpec(
    "one_for_all",
    5,
    10.0,
    (ChildSpec("backing", Worker), ChildSpec("amqqueue", Worker, restart="intrinsic")),
)
QUEUES = SupervisorSpec(
    "simple_one_for_one",
    10,
    10.0,
    (ChildSpec("queue", Supervisor, restart="temporary", type="supervisor"),),
)


def with_children(count: int, spec: SupervisorSpec, args: tuple[Any, ...] = ()) -> Any:
    runtime = Runtime(clock=VirtualClock())
    supervisor = runtime.spawn(Supervisor, spec)
    request = StartChild(args)
    for _ in range(count):
        assert runtime.call_inline(supervisor, request)[0] == "ok"
    return runtime, supervisor


def named(count: int, restart: Any = "permanent") -> SupervisorSpec:
    children = (ChildSpec(n, Worker, restart=restart) for n in range(count))
    return SupervisorSpec(children=tuple(children))


def boot(spec: SupervisorSpec) -> Any:
    runtime = Runtime(clock=VirtualClock())
    return runtime, runtime.spawn(Supervisor, spec)


def add(specs: tuple[ChildSpec, ...]) -> Any:
    runtime, supervisor = boot(SupervisorSpec())
    for spec in specs:
        assert runtime.call_inline(supervisor, StartChild(spec))[0] == "ok"
    return runtime, supervisor


def end_each(runtime: Runtime, supervisor: Any) -> None:
    for child in list(supervisor.cell.actor.supervisor_core.members()):
        runtime.exit(child.ref, "shutdown")
    runtime.run_until_idle()
    assert runtime.actor_count == 1


def plain(count: int) -> Any:
    runtime = Runtime(clock=VirtualClock())
    for _ in range(count):
        runtime.spawn(Worker)
    return runtime


def stop(runtime: Runtime, supervisor: Any) -> None:
    runtime.exit(supervisor, "shutdown")
    runtime.run_until_idle()
    assert runtime.actor_count == 0


def crash(runtime: Runtime, supervisor: Any, count: int) -> None:
    for _ in range(count):
        (ref,) = supervisor.cell.actor.supervisor_core.children
        runtime.send(ref, "boom")
        runtime.run_until_idle()


def kill(runtime: Runtime, supervisor: Any, count: int) -> None:
    for _ in range(count):
        (ref,) = supervisor.cell.actor.supervisor_core.children
        runtime.exit(ref, "kill")
        runtime.run_until_idle()


def cpu_us(count: int, work: Callable[..., Any], prepare: Callable[[], tuple[Any, ...]]) -> float:
    best_s = float("inf")
    for _ in range(ROUNDS):
        args = prepare()
        gc.collect()
        before_s = time.process_time()
        kept = work(*args)
        best_s = min(best_s, time.process_time() - before_s)
        del kept, args
    return best_s / count * 1e6


def size_bytes(count: int, make: Callable[[], Any]) -> float:
    gc.collect()
    tracemalloc.start()
    kept = make()
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return size / count


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    logging.disable(logging.CRITICAL)
    rows = [
        ("start a plain actor", cpu_us(count, plain, lambda: (count,))),
        ("start_child", cpu_us(count, with_children, lambda: (count, TEMPLATE))),
        ("stop of all, per child", cpu_us(count, stop, lambda: with_children(count, TEMPLATE))),
        ("start of a named child, at boot", cpu_us(count, boot, lambda: (named(count),))),
        ("start of a named child, asked for", cpu_us(count, add, lambda: (named(count).children,))),
        ("stop of all, per named child", cpu_us(count, stop, lambda: boot(named(count)))),
        (
            "end of each named child",
            cpu_us(count, end_each, lambda: boot(named(count, "temporary"))),
        ),
        (
            "start of a queue supervisor with 2",
            cpu_us(count // 5, with_children, lambda: (count // 5, QUEUES, (PAIR,))),
        ),
        ("crash and restart", cpu_us(2000, crash, lambda: (*with_children(1, KEPT), 2000))),
        ("kill and restart", cpu_us(2000, kill, lambda: (*with_children(1, KEPT), 2000))),
    ]
    for name, figure in rows:
        print(f"{name:<36} {figure:8.2f} us CPU")
    actor = size_bytes(count, lambda: plain(count))
    child = size_bytes(count, lambda: with_children(count, TEMPLATE))
    specs = named(count)
    entry = size_bytes(count, lambda: boot(specs))
    queue = size_bytes(count // 5, lambda: with_children(count // 5, QUEUES, (PAIR,)))
    print(f"{'plain actor':<36} {actor:8.0f} bytes")
    print(f"{'dynamic child above it':<36} {child - actor:8.0f} bytes")
    print(f"{'named child above it, spec apart':<36} {entry - actor:8.0f} bytes")
    print(f"{'queue supervisor above its 3 actors':<36} {queue - 3 * actor:8.0f} bytes")


if __name__ == "__main__":
    main()
