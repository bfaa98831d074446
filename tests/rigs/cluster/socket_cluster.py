"""Brokers that are one cluster in this process, over real sockets, with messages on disk.

Their metadata is in memory, as in ``cluster_rig``.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

from leveret.actors.links.node import Node as LinkedNode
from leveret.actors.links.security import Security
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.broker.cluster.other_changes import apply_changes
from leveret.broker.connection.sockets import Listening
from leveret.broker.node import bootstrap
from leveret.broker.node.node import Node
from leveret.broker.tree import BrokerSup
from leveret.broker.vhost.states import State
from leveret.core.settings import BrokerSettings
from leveret.metadata.interface import Then
from leveret.metadata.memory import MemoryStore
from leveret.metadata.tables import Row
from rigs.waiting import eventually

SECRET = Security(b"a secret of tests")
LINKED_S = 20.0


class SharedRows(MemoryStore):
    """The metadata of one node; ``others`` are those of the other nodes, which hear of what it writes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop.call_soon)
        self._loop = loop
        self.others: list[SharedRows] = []
        self.node: Node | None = None

    def next_queue_no(self) -> int:
        number = super().next_queue_no()
        for other in self.others:
            MemoryStore.next_queue_no(other)
        return number

    def write(self, puts: Sequence[Row], deletes: Sequence[Row], then: Then) -> None:
        super().write(puts, deletes, then)
        for other in self.others:
            self._loop.call_soon(other.hear, puts, deletes)

    def hear(self, puts: Sequence[Row], deletes: Sequence[Row]) -> None:
        MemoryStore.write(self, puts, deletes, lambda _: None)
        if self.node is not None:
            apply_changes(self.node, puts, deletes)


class SocketBroker:
    """One broker; it may be started again after ``stop``."""

    def __init__(self, name: str, data_dir: Path, rows: SharedRows) -> None:
        self.name = name
        self.data_dir = data_dir
        self.rows = rows
        self.link_address = f"unix:{data_dir}.sock"
        self.port = 0

    async def start(self) -> None:
        runtime = self.runtime = Runtime(loop=asyncio.get_running_loop(), name=self.name)
        self.links = LinkedNode(runtime, SECRET)
        settings = BrokerSettings()
        self.node = Node(runtime, settings, self.rows, self.data_dir, links=self.links)
        self.listening = socket.create_server(("127.0.0.1", self.port))
        self.listening.setblocking(False)
        self.port = self.listening.getsockname()[1]
        self.node.sockets.listening = [Listening(self.listening)]
        await bootstrap.load(self.node)
        self.rows.node = self.node
        self.root: Ref = runtime.spawn(BrokerSup, self.node, label="leveret")
        await self.links.listen(self.link_address)

    async def stop(self) -> None:
        self.rows.node = None
        self.node.connections.is_stopping = True
        self.runtime.exit(self.root, "shutdown")
        await self.runtime.join(self.root)
        await self.links.close()
        await self.runtime.shutdown()
        uses = [vhost.store.in_use for vhost in self.node.vhosts.values()]
        await asyncio.wait_for(asyncio.gather(*[each for each in uses if each]), LINKED_S)
        self.node.sockets.close_servers()
        for transport in list(self.node.sockets.accepted.values()):
            transport.abort()
        self.listening.close()
        await asyncio.sleep(0)

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"


async def start_cluster(folder: Path, names: str = "ab") -> dict[str, SocketBroker]:
    """Start brokers that serve, and are linked with each other."""
    loop = asyncio.get_running_loop()
    rows = {name: SharedRows(loop) for name in names}
    for own in rows.values():
        own.others = [other for other in rows.values() if other is not own]
        own.write(bootstrap.first_rows(BrokerSettings()), [], lambda _: None)
    brokers = {name: SocketBroker(name, folder / name, rows[name]) for name in names}
    for broker in brokers.values():
        broker.data_dir.mkdir()
        await broker.start()
    for broker in brokers.values():
        for other in brokers.values():
            if other is not broker:
                broker.links.dial(other.link_address)
    for broker in brokers.values():
        for name in names:
            if name != broker.name:
                await is_up(broker, name)
    vhosts = [vhost for broker in brokers.values() for vhost in broker.node.vhosts.values()]
    await eventually(
        lambda: all(vhost.state.now is State.RUNNING for vhost in vhosts),
        "a vhost does not serve",
        LINKED_S,
    )
    return brokers


async def is_up(broker: SocketBroker, name: str) -> None:
    """Wait until a broker knows the queues of another node."""
    assert broker.node.cluster_nodes is not None
    home = broker.node.cluster_nodes.home(name)
    await eventually(lambda: home.is_up, f"node {name} is not linked", LINKED_S)
