"""A broker in the test's own loop whose actors can be killed, and blocking clients in threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from conformance.raw import Channel, Connection
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import KILL
from leveret.core.addresses import Address
from leveret.core.system.files import Files, SystemCalls
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from leveret.supervisors.tree_view import Node, walk
from leveret.testing.manual_clock import ManualClock


class Poison:
    """A mail no actor knows: it crashes in the handler."""


class Chaos:
    """What a test does to a running broker."""

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.runtime = broker.runtime
        self._connections: list[Connection] = []

    # The tree.

    def nodes(self) -> list[Node]:
        root = next(cell.ref for cell in self.runtime.cells() if cell.describe() == "leveret")
        return list(walk(self.runtime, root))

    def find(self, *labels: str) -> Ref:
        """Return the one actor whose path ends like this."""
        found = [node.ref for node in self.nodes() if node.labels[-len(labels) :] == labels]
        assert len(found) == 1, (labels, [node.path for node in self.nodes()])
        assert found[0] is not None
        return found[0]

    def reader_of(self, connection: Connection) -> Ref:
        port = connection.socket.getsockname()[1]
        return next(
            ref
            for ref, each in self.broker.node.connections.readers.items()
            if each.peer[1] == port
        )

    def channel_of(self, connection: Connection, number: int = 1) -> Ref:
        label = (
            f"connection:{self.broker.node.connections.readers[self.reader_of(connection)].name}"
        )
        return self.find(label, f"channel:{number}")

    # What happens to it.

    def kill(self, ref: Ref) -> None:
        self.runtime.exit(ref, KILL)

    def crash(self, ref: Ref) -> None:
        self.runtime.send(ref, Poison())

    # Clients.

    async def dial(self) -> Connection:
        """Open a socket, without a word; ``close`` closes it."""
        host, port = self.broker.addresses[0]
        self._connections.append(await asyncio.to_thread(Connection, (host, port)))
        return self._connections[-1]

    async def connect(self, **options: Any) -> Connection:
        connection = await self.dial()
        reply = await asyncio.to_thread(connection.open, **options)
        assert reply.name == "connection.open-ok", reply
        return connection

    def close(self) -> None:
        """Close the remaining clients."""
        for connection in self._connections:
            connection.drop()

    async def channel(self, **options: Any) -> Channel:
        connection = await self.connect(**options)
        return await asyncio.to_thread(connection.channel)

    async def round_trip(self, queue: str) -> None:
        """Publish and get one message through a queue, on a connection of its own."""
        channel = await self.channel()

        def there_and_back() -> None:
            channel.ok("queue.declare", queue=queue)
            channel.ok("confirm.select")
            channel.publish(queue, "hello")
            assert channel.read().name == "basic.ack"
            assert channel.get(queue).body == b"hello"
            channel.connection.close()

        await asyncio.to_thread(there_and_back)


@asynccontextmanager
async def chaos_on(disk: SystemCalls, folder: Path) -> AsyncIterator[Chaos]:
    """Run a broker on a disk that may do anything."""
    clock = ManualClock(asyncio.get_running_loop())
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=folder / "data")
    async with Broker(config, clock, Files(disk)) as broker:
        rig = Chaos(broker, clock)
        yield rig
        rig.close()
