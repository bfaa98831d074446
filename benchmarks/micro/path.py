"""Costs of one message in the broker, from socket to socket, without the sockets.

One publisher and one consumer with manual acks, driven through asyncio's protocol objects by hand: a
publish is handed in, the delivery comes out, the ack is handed in. Prints CPU microseconds per message
for one message per event and for batches; with ``--profile`` the functions that it calls.

    .venv/bin/python -P benchmarks/micro/path.py [--profile]
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from leveret.amqp import methods as m
from leveret.amqp.kernel import KERNEL_NAME
from leveret.amqp.properties import Properties, head_of
from leveret.broker.connection.sockets import ConnectionProtocol
from leveret.core.addresses import Address
from leveret.server.broker import Broker
from leveret.server.config.config import Config


class Wire(asyncio.Transport):
    """A transport that counts the bytes written to it."""

    max_size = 0

    def __init__(self) -> None:
        self.out = 0
        self._protocol: asyncio.BaseProtocol | None = None

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.out += len(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in {"peername", "sockname"} else None

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def _nothing(self, *args: object) -> None:
        """Do nothing."""

    set_write_buffer_limits = _nothing  # type: ignore[assignment]
    pause_reading = resume_reading = abort = close = _nothing


class Client:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.wire = Wire()
        self.protocol = ConnectionProtocol(broker.node.sockets)
        self.wire.set_protocol(self.protocol)
        self.protocol.connection_made(self.wire)
        self.settle()
        self.feed(b"AMQP\x00\x00\x09\x01")
        self.send(0, m.ConnectionStartOk({}, "PLAIN", b"\x00guest\x00guest"))
        self.send(0, m.ConnectionTuneOk(2047, 131072, 0))
        self.send(0, m.ConnectionOpen("/"))
        self.send(1, m.ChannelOpen())

    def settle(self) -> None:
        self.broker.runtime.run_until_idle()

    def feed(self, data: bytes) -> None:
        self.protocol.data_received(data)
        self.settle()

    def send(self, channel: int, method: Any) -> None:
        self.feed(m.method_frame(channel, m.encode(method)))


def publish_frames(body: bytes) -> bytes:
    method = m.method_frame(1, m.encode(m.BasicPublish("", "path")))
    head = head_of(Properties(), len(body))
    return (
        method
        + b"\x02\x00\x01" + len(head).to_bytes(4, "big") + head + b"\xce"
        + b"\x03\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce"
    )  # fmt: skip


def run(
    publisher: Client, consumer: Client, batch: int, rounds: int, tag: int
) -> tuple[float, int]:
    frames = publish_frames(b"x" * 1024) * batch
    began = time.process_time()
    for _ in range(rounds):
        publisher.feed(frames)
        acks = (
            b"".join(
                m.method_frame(1, m.encode(m.BasicAck(each, False)))
                for each in range(tag, tag + batch)
            )
            if batch == 1
            else m.method_frame(1, m.encode(m.BasicAck(tag + batch - 1, True)))
        )
        consumer.feed(acks)
        tag += batch
    return (time.process_time() - began) / rounds / batch * 1e6, tag


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = Config(listen=(Address("127.0.0.1", 0),), data_dir=Path(folder))
        async with Broker(config) as broker:
            publisher, consumer = Client(broker), Client(broker)
            publisher.send(1, m.QueueDeclare("path"))
            consumer.send(1, m.BasicConsume("path", "c"))
            tag = 1
            for batch, rounds in ((1, 600), (100, 60)):
                best = 1e9
                for _ in range(40):
                    await asyncio.sleep(0)  # the loop runs the handles that the last round left
                    cost, tag = run(publisher, consumer, batch, rounds, tag)
                    best = min(best, cost)
                print(f"kernel={KERNEL_NAME} batch={batch}: {best:.2f} us per message")
            assert consumer.wire.out > 1024 * (tag - 1)
            if "--profile" in sys.argv:
                profile = cProfile.Profile()
                profile.enable()
                run(publisher, consumer, 1, 1000, tag)
                profile.disable()
                pstats.Stats(profile).sort_stats("ncalls").print_stats(95)


asyncio.run(main())
