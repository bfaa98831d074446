"""What guaranteed multicast between three processes does: confirmed broadcasts, their latency, and a member's death.

    python benchmarks/micro/ring.py [--asyncio] [--seconds S] [--bytes N] [--kills K] [--profile FOLDER]

Three nodes on one machine, linked by TCP over the loopback, each with one member of a group; the first has the records,
publishes and measures. A bar that is not reached is marked. ``cpu`` is the processor time of the three processes for
each message. Deaths: a member is killed with SIGKILL while the first publishes; the time runs from the moment at which
its node has noticed (``NodeDown``) to the report of the death, and to the confirm of a message published then.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from leveret.actors.gen_server import From, GenServer
from leveret.actors.links.node import Node, NodeDown
from leveret.actors.links.security import Security
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.gm import Callbacks, Group, MemberId, RingNode
from leveret.gm.node_links import node_links
from leveret.gm.requests import Broadcast, ConfirmedBroadcast
from leveret.gm.store_server import GroupStoreServer, LinkedGroupStore

SECRET = Security(b"a secret of a benchmark")
HOME, OTHERS = "one", ("two", "three")
WINDOW = 2_000  # confirmed broadcasts under way
BATCH = 50  # messages of one request
WITHIN_S = 30.0


class Log(Callbacks):
    """Counts messages, and tells of deaths."""

    def __init__(self) -> None:
        self.count = 0
        self.members: frozenset[MemberId] = frozenset()
        self.on_change: Callable[[], object] = lambda: None

    def joined(self, me: MemberId, members: frozenset[MemberId]) -> None:
        self.members = members

    def members_changed(self, births: frozenset[MemberId], deaths: frozenset[MemberId]) -> None:
        self.members = (self.members | births) - deaths
        self.on_change()

    def handle_msg(self, publisher: MemberId, message: bytes) -> None:
        self.count += 1


class Clerk(GenServer):
    """Tells the first process where this one listens, and its processor time."""

    def init(self, address: str) -> None:
        self.address = address

    def handle_call(self, request: Any, frm: From | None) -> Any:
        return self.address if request == "address" else time.process_time()


class Source(GenServer):
    """Publishes with so many confirmed broadcasts under way, until ``count`` are confirmed."""

    def init(self, actor: Ref, body: bytes, count: int, done: asyncio.Future[float]) -> None:
        self.actor, self.body, self.done = actor, body, done
        self.unsent = self.left = count
        for _ in range(min(WINDOW, count)):
            self.publish()

    def publish(self) -> None:
        self.unsent -= 1
        self.call(self.actor, ConfirmedBroadcast(self.body), self.confirmed, None)

    def confirmed(self, answer: Any) -> None:
        assert answer is True, answer
        self.left -= 1
        if self.unsent:
            self.publish()
        elif not self.left:
            self.done.set_result(time.perf_counter())


class Watcher(GenServer):
    """Notes when a node is lost."""

    def init(self, note: Callable[[], object]) -> None:
        self.note = note

    def handle_cast(self, message: Any) -> None:
        if isinstance(message, NodeDown):
            self.note()


class Ring:
    """The first process's view of the three."""

    def __init__(self, program: list[str]) -> None:
        self.runtime = Runtime(name=HOME)
        self.node = Node(self.runtime, SECRET)
        self.log = Log()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses: dict[str, str] = {}
        self._program = program

    async def begin(self) -> None:
        self.runtime.spawn(GroupStoreServer, name="records")
        self.addresses[HOME] = await self.node.listen("127.0.0.1:0")
        self.group = await Group.join("ring", self.log, ring_node(self.node))
        for name in OTHERS:
            await self.start(name)

    async def start(self, name: str) -> None:
        addresses = [each for other, each in self.addresses.items() if other != name]
        program = [*self._program, "--member", name, *addresses]
        self.processes[name] = subprocess.Popen(program)  # noqa: ASYNC220  # before the clock runs
        await self.node.connected(name, WITHIN_S)
        self.addresses[name] = await self.ask(name, "address")
        await until(lambda: any(each.node.startswith(f"{name}/") for each in self.log.members))

    async def ask(self, name: str, request: str) -> Any:
        clerk = None
        async with asyncio.timeout(WITHIN_S):
            while clerk is None:
                clerk = await self.node.whereis("clerk", name)
        return await self.runtime.call(clerk, request)

    async def cpu_s(self) -> float:
        others: list[float] = [await self.ask(name, "cpu") for name in OTHERS]
        return time.process_time() + sum(others)

    async def end(self) -> None:
        await self.node.close()
        await self.runtime.shutdown()
        for process in self.processes.values():
            process.wait(10)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110  # of another process, or told by a callback
            await asyncio.sleep(0.001)


def ring_node(node: Node) -> RingNode:
    return RingNode(node.runtime, LinkedGroupStore(node, "records", HOME), node_links(node))


async def member(name: str, addresses: list[str]) -> None:
    """Be one of the two other nodes."""
    runtime = Runtime(name=name)
    node = Node(runtime, SECRET)
    runtime.spawn(Clerk, await node.listen("127.0.0.1:0"), name="clerk")
    for address in addresses:
        node.dial(address)
    await until(lambda: len(node.nodes) == len(addresses))
    joined = asyncio.ensure_future(Group.join("ring", Log(), ring_node(node)))
    await runtime.join(node.server_of(HOME))
    joined.cancel()  # without the first process a join that is under way would wait for the records


async def confirmed(ring: Ring, body: bytes, count: int) -> None:
    """Publish with ``WINDOW`` confirmed broadcasts under way."""
    done: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    ring.runtime.spawn(Source, ring.group.actor, body, count, done)
    await done


async def confirmed_by_tasks(ring: Ring, body: bytes, count: int) -> None:
    """The same from tasks, each of which waits for its confirm."""

    async def publish(messages: int) -> None:
        for _ in range(messages):
            await ring.group.confirmed_broadcast(body)

    await asyncio.gather(*[publish(count // WINDOW) for _ in range(WINDOW)])


async def plain(ring: Ring, body: bytes, count: int) -> None:
    """Publish in batches, as fast as the ring takes them."""
    bodies = [body] * BATCH
    for _ in range(count // BATCH):
        await ring.runtime.call(ring.group.actor, Broadcast(bodies), None)
    await ring.group.confirmed_broadcast(b"last")


async def rate(
    ring: Ring, name: str, publish: Callable[[Ring, bytes, int], Awaitable[None]],
    bar: float, args: argparse.Namespace,
) -> None:  # fmt: skip
    count = WINDOW * 5
    for is_warm in (False, True):
        cpu_s, began_s = await ring.cpu_s(), time.perf_counter()
        await publish(ring, bytes(args.bytes), count)
        spent_s = time.perf_counter() - began_s
        cpu_s = await ring.cpu_s() - cpu_s
        if is_warm:
            show(name, count / spent_s, bar, "/s", f"   cpu {cpu_s / count * 1e6:5.1f} us")
        count = max(WINDOW, int(count / spent_s * args.seconds) // WINDOW * WINDOW)


async def latency(ring: Ring, args: argparse.Namespace) -> None:
    times_s = []
    until_s = time.perf_counter() + args.seconds
    while (began_s := time.perf_counter()) < until_s:
        await ring.group.confirmed_broadcast(bytes(args.bytes))
        times_s.append(time.perf_counter() - began_s)
    times_s.sort()
    show("one confirmed broadcast, median", statistics.median(times_s) * 1e3, -1, " ms")
    show("  the same, 99 of 100", times_s[len(times_s) * 99 // 100] * 1e3, 0, " ms")


async def death(ring: Ring, name: str, args: argparse.Namespace) -> tuple[float, float]:
    """Kill a member while messages are published; return the times to the report of its death, and to a confirm."""
    noticed: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    reported: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    watcher = ring.runtime.spawn(Watcher, lambda: noticed.set_result(time.perf_counter()))
    ring.node.watch_nodes(watcher)
    ring.log.on_change = lambda: reported.set_result(time.perf_counter())
    load = asyncio.ensure_future(confirmed(ring, bytes(args.bytes), 10 * WINDOW))
    await asyncio.sleep(0.05)
    ring.processes[name].send_signal(signal.SIGKILL)
    async with asyncio.timeout(WITHIN_S):
        began_s = await noticed
        await ring.group.confirmed_broadcast(b"after")
        confirmed_s = time.perf_counter()
        reported_s = await reported
        await load
    ring.log.on_change = lambda: None
    ring.runtime.exit(watcher, "kill")
    ring.processes.pop(name).wait()
    await ring.start(name)
    return reported_s - began_s, confirmed_s - began_s


async def here(program: list[str], args: argparse.Namespace) -> None:
    print(f"load {os.getloadavg()[0]:.1f}")
    ring = Ring(program)
    try:
        await ring.begin()
        await rate(ring, "confirmed broadcasts, by an actor", confirmed, 30_000, args)
        await rate(ring, "confirmed broadcasts, by tasks", confirmed_by_tasks, 0, args)
        await rate(ring, f"broadcasts, {BATCH} at once", plain, 0, args)
        await latency(ring, args)
        found = [await death(ring, OTHERS[number % 2], args) for number in range(args.kills)]
        if found:
            reported, healed = zip(*found, strict=True)
            show("death reported, slowest", max(reported) * 1e3, -300, " ms")
            show("confirms go on, slowest", max(healed) * 1e3, -300, " ms")
    finally:
        await ring.end()


def show(name: str, value: float, bar: float, unit: str, more: str = "") -> None:
    """Print a figure; a bar below 0 is an upper one."""
    missed = value > -bar if bar < 0 else value < bar
    text = f"   bar {abs(bar):,.0f}{unit}" + (" MISSED" if missed else "") if bar else ""
    shown = f"{value:12,.0f}" if value >= 100 else f"{value:12.2f}"
    print(f"{name:36}{shown}{unit}{more}{text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--asyncio", action="store_true", help="asyncio's own event loop")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each rate")
    parser.add_argument("--bytes", type=int, default=1024, help="of each message")
    parser.add_argument("--kills", type=int, default=6, help="members that are killed")
    parser.add_argument("--profile", type=Path, help="folder for the profiles of the processes")
    parser.add_argument("--member", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    factory = None
    if not args.asyncio:
        try:
            import uvloop

            factory = uvloop.new_event_loop
        except ImportError:
            print("uvloop is not installed: asyncio's event loop")
    program = [sys.executable, __file__] + ["--asyncio"] * args.asyncio
    if args.profile:
        program += ["--profile", str(args.profile)]
    profile = cProfile.Profile() if args.profile else None
    name = args.member[0] if args.member else HOME
    if profile:
        profile.enable()
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            if args.member:
                runner.run(member(name, args.member[1:]))
            else:
                runner.run(here(program, args))
    finally:
        if profile:
            profile.disable()
            profile.dump_stats(args.profile / f"{name}.prof")


if __name__ == "__main__":
    main()
