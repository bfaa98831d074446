"""Costs of a message to a queue on another node, beside one on its own node.

Two nodes in one process are linked by a Unix socket; clients are asyncio's protocol objects, driven by hand. Prints
processor time per message of both nodes together: published in batches that are confirmed, to one queue and to ten;
and published and consumed, without acks, by clients that have no queue on their own node. ::

    .venv/bin/python -P benchmarks/micro/cluster.py
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from leveret.actors.links.node import Node as LinkedNode
from leveret.actors.links.security import Security
from leveret.actors.runtime.runtime import Runtime
from leveret.amqp import methods as m
from leveret.amqp.properties import Properties, head_of
from leveret.broker.cluster.other_changes import apply_changes
from leveret.broker.connection.sockets import ConnectionProtocol
from leveret.broker.node import bootstrap
from leveret.broker.node.node import Node
from leveret.broker.tree import BrokerSup
from leveret.core.settings import BrokerSettings
from leveret.metadata.interface import Then
from leveret.metadata.memory import MemoryStore
from leveret.metadata.tables import Row

BODY = bytes(100)
ROUNDS, TRIES = 30, 8
PASSED = 12_000  # messages of a try that are consumed
AHEAD = 12  # batches that are published before they are consumed


class Rows(MemoryStore):
    """Metadata of one node; the other one hears of what it writes."""

    other: Rows
    node: Node

    def write(self, puts: Sequence[Row], deletes: Sequence[Row], then: Then) -> None:
        super().write(puts, deletes, then)
        MemoryStore.write(self.other, puts, deletes, lambda _: None)
        apply_changes(self.other.node, puts, deletes)


class Wire(asyncio.Transport):
    """A transport that counts what is written to it."""

    def __init__(self) -> None:
        self.out_bytes = 0
        self.last = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.out_bytes += len(data)
        self.last = bytes(data[-100:])

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in {"peername", "sockname"} else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: it takes all."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        """Do nothing: the process ends."""

    close = pause_reading = resume_reading = abort

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol


class Client:
    """One connection with one channel."""

    def __init__(self, node: Node) -> None:
        self.wire = Wire()
        self.protocol = ConnectionProtocol(node.sockets)
        self.wire.set_protocol(self.protocol)
        self.protocol.connection_made(self.wire)

    async def open(self) -> None:
        await asyncio.sleep(0.05)
        self.protocol.data_received(b"AMQP\x00\x00\x09\x01")
        self.send(0, m.ConnectionStartOk({}, "PLAIN", b"\x00guest\x00guest"))
        self.send(0, m.ConnectionTuneOk(2047, 131072, 0))
        await asyncio.sleep(0.05)
        self.send(0, m.ConnectionOpen("/"))
        await asyncio.sleep(0.05)
        await self.ask(m.ChannelOpen())

    def send(self, channel: int, method: Any) -> None:
        self.protocol.data_received(m.method_frame(channel, m.encode(method)))

    async def ask(self, method: Any) -> None:
        before = self.wire.out_bytes
        self.send(1, method)
        while self.wire.out_bytes == before:  # noqa: ASYNC110  # it is measured
            await asyncio.sleep(0.0005)

    async def confirmed(self, tag: int) -> None:
        """Wait for the confirm of a publish, the last one under way."""
        while tag.to_bytes(8, "big") not in self.wire.last:  # noqa: ASYNC110  # it is measured
            await asyncio.sleep(0.0005)


def publishes(exchange: str, key: str, count: int, body: bytes = BODY) -> bytes:
    head = head_of(Properties(), len(body))
    one = m.method_frame(1, m.encode(m.BasicPublish(exchange, key)))
    one += b"\x02\x00\x01" + len(head).to_bytes(4, "big") + head + b"\xce"
    one += b"\x03\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce"
    return one * count


async def cost_us(client: Client, frames: bytes, batch: int, tag: int) -> tuple[float, int]:
    """Return the time per message of the best of some tries, and the last tag."""
    best = 1e9
    for _ in range(TRIES):
        began = time.process_time()
        for _ in range(ROUNDS):
            tag += batch
            client.protocol.data_received(frames)
            await client.confirmed(tag)
        best = min(best, (time.process_time() - began) / ROUNDS / batch * 1e6)
    return best, tag


async def through_us(publisher: Client, consumer: Client, queue: str, size: int) -> float:
    """Return the time per message of a body of so many bytes, published and consumed, of the best of some tries."""
    batch, body = 64 * 1024 // (size + 60), bytes(size)
    await consumer.ask(m.BasicConsume(queue, "c", no_ack=True))
    begin = consumer.wire.out_bytes
    publisher.protocol.data_received(publishes("", queue, 1, body))
    await asyncio.sleep(0.1)
    delivery = consumer.wire.out_bytes - begin
    frames, batches, best = publishes("", queue, batch, body), PASSED // batch, 1e9
    for _ in range(TRIES):
        begin, sent, began = consumer.wire.out_bytes, 0, time.process_time()
        while (come := consumer.wire.out_bytes - begin) < batches * batch * delivery:
            while sent < batches and sent * batch - come // delivery < AHEAD * batch:
                publisher.protocol.data_received(frames)
                sent += 1
            await asyncio.sleep(0)
        best = min(best, (time.process_time() - began) / batches / batch * 1e6)
    await consumer.ask(m.BasicCancel("c", nowait=False))
    return best


async def start(folder: str) -> dict[str, Node]:
    loop = asyncio.get_running_loop()
    rows = {name: Rows(loop.call_soon) for name in "ab"}
    nodes: dict[str, Node] = {}
    links = []
    for name, own in rows.items():
        runtime = Runtime(loop=loop, name=name)
        links.append(LinkedNode(runtime, Security(b"a secret of a benchmark")))
        own.other = rows["b" if name == "a" else "a"]
        MemoryStore.write(own, bootstrap.first_rows(BrokerSettings()), [], lambda _: None)
        node = nodes[name] = own.node = Node(runtime, BrokerSettings(), own, links=links[-1])
        await bootstrap.load(node)
        runtime.spawn(BrokerSup, node)
    links[1].dial(await links[0].listen(f"unix:{folder}/link"))
    home = nodes["b"].cluster_nodes
    assert home is not None
    while not home.home("a").is_up:  # noqa: ASYNC110  # once
        await asyncio.sleep(0.01)
    return nodes


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        nodes = await start(folder)
        there, here, second = Client(nodes["a"]), Client(nodes["b"]), Client(nodes["b"])
        for client in (there, here, second):
            await client.open()
        for client, place in ((here, "own node"), (there, "other node")):
            await client.ask(m.ExchangeDeclare(place, "fanout"))
            await client.ask(m.QueueDeclare(f"{place}, passed on"))
            arguments = {"x-max-length": ("l", 1000)}
            for number in range(10):
                await client.ask(m.QueueDeclare(f"{place}{number}", arguments=arguments))
                await client.ask(m.QueueBind(f"{place}{number}", place))
        for size in (100, 1024):
            for place in ("own node", "other node"):
                cost = await through_us(here, second, f"{place}, passed on", size)
                print(f"{size} bytes, {place}: {cost:.2f} us per message, published and consumed")
        await here.ask(m.ConfirmSelect())
        tag = 0
        for batch in (1, 100):
            for place in ("own node", "other node"):
                one, tag = await cost_us(here, publishes("", f"{place}0", batch), batch, tag)
                ten, tag = await cost_us(here, publishes(place, "", batch), batch, tag)
                print(f"batch={batch} {place}: {one:.2f} us per message, to 10 queues {ten:.2f} us")


asyncio.run(main())
