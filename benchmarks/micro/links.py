"""Costs of the links between two nodes: small mails, bodies, calls.

    python benchmarks/micro/links.py [--unix] [--asyncio] [--seconds S]

Two processes on one machine, linked by TCP over the loopback (or a Unix socket); the event loop is uvloop's, if there
is one. Rates are those of the receiver; a bar that is not reached is marked. Behind it is the processor time of the
sender and the receiver, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

from leveret.actors.gen_server import From, GenServer
from leveret.actors.links.node import Node
from leveret.actors.links.security import Security
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime

SECRET = Security(b"a secret of a benchmark")
BATCH = 100
CALLS = 3_000


class Source(GenServer):
    """Sends batches to whoever asks, a batch per turn, as long as the receiver keeps up."""

    def init(self, node: Node) -> None:
        self.node = node

    def handle_call(self, request: Any, frm: From | None) -> Any:
        return time.process_time()

    def handle_cast(self, message: Any) -> None:
        sink, batch, size, count = message
        body = bytes(size)
        for _ in range(batch):
            self.post(sink, body)
        if count > batch and sink.is_alive:
            self.node.when_written(self.ref, sink, (sink, batch, size, count - batch))


class Sink(GenServer):
    """Counts what comes, and tells when it was enough."""

    def init(self, count: int, done: asyncio.Future[float]) -> None:
        self.left = count
        self.done = done

    def handle_cast(self, message: Any) -> None:
        self.left -= 1
        if not self.left:
            self.done.set_result(time.perf_counter())


async def there(address: str) -> None:
    runtime = Runtime(name="there")
    node = Node(runtime, SECRET)
    runtime.spawn(Source, node, name="source")
    node.dial(address)
    await node.connected("here")
    await node.runtime.join(node.server_of("here"))


class Rate(NamedTuple):
    """Messages per second, and processor time of sender and receiver for each."""

    per_s: float
    sender_s: float
    receiver_s: float


async def measure(node: Node, source: Ref, batch: int, size: int, count: int) -> Rate:
    call = node.runtime.call
    done: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    sink = node.runtime.spawn(Sink, count, done)
    sender_s, receiver_s = await call(source, 1, None), time.process_time()
    began_s = time.perf_counter()
    node.runtime.send(source, (sink, batch, size, count))
    per_s = count / (await done - began_s)
    receiver_s = (time.process_time() - receiver_s) / count
    sender_s = (await call(source, 1, None) - sender_s) / count
    node.runtime.exit(sink, "kill")
    return Rate(per_s, sender_s, receiver_s)


async def here(address: str, program: list[str], seconds: float) -> None:
    node = Node(Runtime(name="here"), SECRET)
    address = await node.listen(address)
    process = subprocess.Popen([*program, "--there", address])  # noqa: ASYNC220  # before the clock runs
    try:
        await node.connected("there", 30)
        source = None
        while source is None:
            source = await node.whereis("source", "there")
        print(f"load {os.getloadavg()[0]:.1f}")
        for name, batch, size, bar, unit in (
            ("mails of 100 bytes, batches of 100", BATCH, 100, 300_000, 1.0),
            ("mails of 100 bytes, one by one", 1, 100, 0, 1.0),
            ("bodies of 64 KiB, MB", 8, 65_536, 400, 65_536 / 1e6),
            ("bodies of 16 MiB, MB", 1, 16 * 1024 * 1024, 0, 16 * 1.048576),
        ):
            count = max(batch, int(3_000_000 / (size + 300)) // batch * batch)
            first = await measure(node, source, batch, size, count)
            count = max(batch, int(first.per_s * seconds) // batch * batch)
            found = await measure(node, source, batch, size, count)
            times = f"   {found.sender_s * 1e6:8.2f} {found.receiver_s * 1e6:8.2f} us"
            show(name, found.per_s * unit, bar, "/s", times)
        times_s = []
        for _ in range(CALLS):
            began_s = time.perf_counter()
            await node.runtime.call(source, 1)
            times_s.append(time.perf_counter() - began_s)
        show("call and reply, median", statistics.median(times_s) * 1e6, -150, " us")
    finally:
        await node.close()
        await node.runtime.shutdown()
        process.wait(10)


def show(name: str, value: float, bar: float, unit: str, more: str = "") -> None:
    """Print a figure; a bar below 0 is an upper one."""
    missed = value > -bar if bar < 0 else value < bar
    text = f"   bar {abs(bar):,.0f}{unit}" + (" MISSED" if missed else "") if bar else ""
    print(f"{name:36} {value:10,.0f}{unit}{more}{text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--unix", action="store_true", help="a Unix socket")
    parser.add_argument("--asyncio", action="store_true", help="asyncio's own event loop")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each rate")
    parser.add_argument("--there", help=argparse.SUPPRESS)
    args = parser.parse_args()
    factory = None
    if not args.asyncio:
        try:
            import uvloop

            factory = uvloop.new_event_loop
        except ImportError:
            print("uvloop is not installed: asyncio's event loop")
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=factory) as runner:
        if args.there:
            runner.run(there(args.there))
        else:
            address = f"unix:{folder}/link" if args.unix else "127.0.0.1:0"
            program = [sys.executable, __file__] + ["--asyncio"] * args.asyncio
            runner.run(here(address, program, args.seconds))


if __name__ == "__main__":
    main()
