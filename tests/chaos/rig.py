"""A broker in the test's own loop whose actors can be killed, and blocking clients in threads."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from conformance.raw import Channel, Connection
from leveret.actors.ref import Ref
from leveret.actors.signals import KILL
from leveret.core.clock import SystemClock
from leveret.core.files import Files, SystemCalls
from leveret.server.broker import Broker
from leveret.server.config import Address, Config
from leveret.supervisors.tree import Node, walk


class SkippingClock(SystemClock):
    """The machine's time, of which one can skip a part: restarts then lie further apart."""

    __slots__ = ("_skipped_s",)

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self._skipped_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self._skipped_s

    def skip(self, duration_s: float) -> None:
        self._skipped_s += duration_s


class Poison:
    """A mail no actor knows: it crashes in the handler."""


class Chaos:
    """What a test does to a running broker."""

    def __init__(self, broker: Broker, clock: SkippingClock) -> None:
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
        return next(ref for ref, each in self.broker.node.readers.items() if each.peer[1] == port)

    def channel_of(self, connection: Connection, number: int = 1) -> Ref:
        label = f"connection:{self.broker.node.readers[self.reader_of(connection)].name}"
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
        """Drop what is left of the clients."""
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


class Worker(threading.Thread, ABC):
    """A client that goes on until it is told to stop; it connects again when its connection ends.

    Attributes:
        done: confirmed publishes, or acknowledged deliveries.
        refused: nacked publishes.
        losses: connections and consumers that ended, and how.
        surprises: what may never happen.
    """

    def __init__(self, address: tuple[str, int], queue: str) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.queue = queue
        self.done = 0
        self.refused = 0
        self.losses: list[str] = []
        self.surprises: list[str] = []
        self.is_told_to_stop = False

    def run(self) -> None:
        while not self.is_told_to_stop:
            connection = Connection(self.address)
            try:
                self._work(self._channel(connection))
            except (OSError, _LostError) as loss:
                self.losses.append(repr(loss))
            except Exception as error:  # noqa: BLE001  # the test fails with it
                self.surprises.append(repr(error))
                return
            finally:
                connection.drop()

    def _channel(self, connection: Connection) -> Channel:
        _expect(connection.open().name, "connection.open-ok")
        channel = Channel(connection, 1)
        self.call(channel, "channel.open")
        self.call(channel, "queue.declare", queue=self.queue)
        return channel

    def call(self, channel: Channel, name: str, **fields: Any) -> None:
        _expect(channel.call(name, **fields).name, f"{name}-ok")

    @abstractmethod
    def _work(self, channel: Channel) -> None:
        """Do the work until told to stop."""

    def _events(self, channel: Channel) -> Iterator[Any]:
        while not self.is_told_to_stop:
            try:
                event = channel.read(0.2)
            except TimeoutError:
                yield None
                continue
            if event.name in {"connection.close", "closed", "channel.close"}:
                raise _LostError(f"{event.name} {event.fields.get('reply_text', '')}")
            yield event


class Publisher(Worker):
    """Publishes with confirms, a few at a time."""

    WINDOW = 20

    def _work(self, channel: Channel) -> None:
        self.call(channel, "confirm.select")
        sent = settled = 0
        for event in self._fed(channel):
            if event == "more":
                while sent - settled < self.WINDOW:
                    channel.publish(self.queue, f"message {sent}")
                    sent += 1
                continue
            number = event.delivery_tag
            count = number - settled if event.multiple else 1
            settled += count
            if event.name == "basic.ack":
                self.done += count
            elif event.name == "basic.nack":
                self.refused += count
            else:
                self.surprises.append(event.name)

    def _fed(self, channel: Channel) -> Iterator[Any]:
        yield "more"
        for event in self._events(channel):
            if event is not None:
                yield event
            yield "more"


class Consumer(Worker):
    """Consumes and acknowledges."""

    def _work(self, channel: Channel) -> None:
        self.call(channel, "basic.qos", prefetch_count=10)
        self.call(channel, "basic.consume", queue=self.queue, consumer_tag="worker")
        for event in self._events(channel):
            if event is None:
                continue
            if event.name == "basic.cancel":
                raise _LostError(event.name)
            if event.name != "basic.deliver":
                self.surprises.append(event.name)
                continue
            channel.send("basic.ack", delivery_tag=event.delivery_tag)
            self.done += 1


class _LostError(Exception):
    """The connection ended."""


def _expect(found: str, wanted: str) -> None:
    if found != wanted:
        raise _LostError(found)


@asynccontextmanager
async def chaos_on(disk: SystemCalls, folder: Path) -> AsyncIterator[Chaos]:
    """Run a broker on a disk that may do anything."""
    clock = SkippingClock()
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=folder / "data")
    async with Broker(config, clock, Files(disk)) as broker:
        rig = Chaos(broker, clock)
        yield rig
        rig.close()
