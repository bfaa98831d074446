"""A minimal broker for tests of ``leveret perf``, which injects faults into deliveries.

It has a single queue under every declared name. Published messages go to the consumers in turn, after ``fault`` has
changed the batch of ``(redelivered, message)``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from leveret.amqp import kernel, methods
from leveret.core.message import Message

Batch = list[tuple[bool, Message]]
Fault = Callable[[Batch], Batch]


class FaultyBroker(asyncio.Protocol):
    """One connection; ``shared`` is what all connections of one broker share."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.scanner = kernel.Scanner(131_072, 1 << 27)
        self.started = False
        self.confirms: dict[int, int] = {}

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self.started:
            assert data[:4] == b"AMQP"
            self.started = True
            self.send(0, methods.ConnectionStart())
            data = data[8:]
        for run in self.scanner.scan(data):
            if run[0] == kernel.PUBLISH:
                self.published(run[1], run[4])
            elif run[0] == kernel.METHOD:
                self.asked(run[1], methods.decode(run[2], run[3]))

    def send(self, channel: int, method: Any) -> None:
        self.transport.write(methods.method_frame(channel, methods.encode(method)))

    def asked(self, channel: int, method: Any) -> None:
        name = type(method).__name__
        if name == "ConnectionStartOk":
            self.send(channel, methods.ConnectionTune(2047, 131_072, 0))
        elif name == "QueueDeclare":
            count = len(self.shared.kept) if not self.shared.consumers else 0
            self.send(channel, methods.QueueDeclareOk(method.queue or "gen", count, 0))
        elif name == "BasicConsume":
            self.shared.consumers.append((self, channel, b"ctag"))
            self.send(channel, methods.BasicConsumeOk("ctag"))
        elif name == "ConfirmSelect":
            self.confirms[channel] = 0
            self.send(channel, methods.ConfirmSelectOk())
        elif hasattr(methods, name + "Ok"):
            self.send(channel, getattr(methods, name + "Ok")())

    def published(self, channel: int, messages: list[Message]) -> None:
        shared = self.shared
        self.confirm(channel, len(messages))
        batch = shared.fault([(False, message) for message in messages])
        shared.kept += [message for _, message in batch]
        for redelivered, message in batch if shared.consumers else ():
            broker, at, tag = shared.consumers[shared.turn % len(shared.consumers)]
            shared.turn += 1
            number = shared.tags[broker, at] = shared.tags.get((broker, at), 0) + 1
            broker.transport.write(
                kernel.deliveries(at, tag, number, int(redelivered), 131_072, [message])
            )

    def confirm(self, channel: int, count: int) -> None:
        if channel not in self.confirms:
            return
        self.confirms[channel] += count
        self.send(channel, self.shared.confirm(self.confirms[channel]))


class Shared:
    """What the connections of one broker share."""

    def __init__(self, fault: Fault, confirm: Callable[[int], Any]) -> None:
        self.fault = fault
        self.confirm = confirm
        self.kept: list[Message] = []
        self.consumers: list[tuple[FaultyBroker, int, bytes]] = []
        self.tags: dict[tuple[FaultyBroker, int], int] = {}
        self.turn = 0


@asynccontextmanager
async def faulty_broker(
    fault: Fault = lambda batch: batch,
    confirm: Callable[[int], Any] = lambda tag: methods.BasicAck(tag, True),
) -> AsyncIterator[str]:
    """Run a broker and give its URI."""
    shared = Shared(fault, confirm)
    server = await asyncio.get_running_loop().create_server(
        lambda: FaultyBroker(shared), "127.0.0.1", 0
    )
    async with server:
        yield f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
