"""A service with a supervision tree of its own, in which the broker is one child among others.

The broker is killed here deliberately: its supervisor restarts it on the same port, and the other children are not
affected.

    pip install leveret pika
    python examples/supervise_service.py
"""

from __future__ import annotations

import asyncio
import logging
import socket
import tempfile
from pathlib import Path
from typing import Any

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.service import Service, ServiceSpec
from leveret.server import Address, Config, child_spec
from leveret.supervisors.requests import WhichChildren
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from leveret.supervisors.tree_view import render, walk


class Counter(GenServer):
    """Stores a number; registered under a name."""

    def init(self) -> None:
        self.count = 0
        self.runtime.register("counter", self.ref)

    def handle_cast(self, message: Any) -> None:
        self.count += message

    def handle_call(self, request: Any, frm: object) -> object:
        return self.count


async def knock(service: Service, port: int) -> None:
    """A coroutine as a child: counts how often the broker's port is open. It may crash, too."""
    while True:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        counter = service.runtime.whereis("counter")
        if counter is not None:
            service.runtime.send(counter, 1)
        await asyncio.sleep(0.02)


class ShopSup(Supervisor):
    """The service's root."""

    def init(self, config: Config) -> SupervisorSpec:
        port = config.listen[0].port
        return SupervisorSpec(
            "one_for_one",
            intensity=20,
            period_s=10.0,
            children=(
                ChildSpec("counter", Counter),
                child_spec(config),
                ChildSpec(
                    "knock", Service, (ServiceSpec(knock, (port,)),), restart=("permanent", 0.05)
                ),
            ),
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


async def broker_of(runtime: Runtime, shop: Ref) -> Ref:
    """Return the broker's address; the supervisor answers when it is ready."""
    children = await runtime.call(shop, WhichChildren())
    found: Ref = next(ref for id_, ref, *_ in children if id_ == "broker")
    return found


async def run(folder: Path) -> None:
    runtime = Runtime()
    config = Config(listen=(Address("127.0.0.1", free_port()),), data_dir=folder)
    shop = runtime.spawn(ShopSup, config, label="shop")
    broker = await broker_of(runtime, shop)
    print(render(walk(runtime, shop)), flush=True)

    runtime.exit(broker, "kill")
    await runtime.join(broker)
    again = await broker_of(runtime, shop)
    assert again is not broker
    print("killed, and started again on the same port:")
    print(render(walk(runtime, shop)))

    counter = runtime.whereis("counter")
    assert counter is not None
    before = await runtime.call(counter, "count")
    async with asyncio.timeout(10):
        while True:
            await asyncio.sleep(0.02)
            if await runtime.call(counter, "count") > before:
                break
    print("somebody knocks, and the port is open")
    await runtime.shutdown()


def main() -> None:
    logging.getLogger("leveret").setLevel(logging.CRITICAL)  # the restarts are deliberate here
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder) / "data"))
    print("stopped")


if __name__ == "__main__":
    main()
