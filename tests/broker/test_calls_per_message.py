"""How many calls a message takes on its way: Python functions of the broker, the codec left out, and writes to sockets.

With one message in each read half of its cost is the interpreter's, spread over calls as short as these. So a call that
is added to the path, or one write more, must be seen here. Each number is an upper bound: lower it when a call goes.
"""

from __future__ import annotations

import random
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import pytest

import leveret
from leveret.amqp import methods as m
from leveret.core.compiled_path import compiled_modules
from rigs.broker_rig import Client, Rig, Wire
from rigs.queues.stored_rig import StoreBench

Read: TypeAlias = "tuple[Client | Disk, bytes]"
Walk: TypeAlias = Callable[[Rig], Iterator[list[Read]]]

OURS = str(Path(leveret.__file__).parent)
NOT_COUNTED = (f"{OURS}/amqp/", f"{OURS}/testing/")
ROUNDS = 20


class Pair:
    """A publisher and a consumer of a queue of their own."""

    def __init__(self, rig: Rig, number: int = 0, prefetch: int = 50, **properties: Any) -> None:
        self.queue, self.tag, self._properties = f"q{number}", 0, properties
        self.publisher, self.consumer = rig.session(), rig.session()
        self.consumer.ask(1, m.QueueDeclare(self.queue, durable=True))
        self.consumer.send(1, m.BasicQos(prefetch_count=prefetch))
        self.consumer.send(1, m.BasicConsume(self.queue, "t"))

    def published(self, count: int = 1) -> Read:
        properties = [
            {"message_id": f"{self.tag + n}", **self._properties} if count > 1 else self._properties
            for n in range(count)
        ]
        bodies = [bytes(256 + n) for n in range(count)]
        contents = [("", self.queue, *each) for each in zip(bodies, properties, strict=True)]
        return self.publisher, self.publisher.contents(1, *contents)

    def acked(self, count: int = 1) -> Read:
        acks = [m.encode(m.BasicAck(self.tag + n + 1)) for n in range(count)]
        self.tag += count
        return self.consumer, b"".join(m.method_frame(1, ack) for ack in acks)


class Disk:
    """The store of a rig in the place of a client: when it is fed, it flushes."""

    def __init__(self, rig: Rig) -> None:
        self.wire = Wire()
        self._rig = rig
        self._bench = StoreBench(random.Random(1))
        rig.node.vhosts["/"].store.opened(self._bench.store)

    def feed(self, _: bytes) -> None:
        self._bench.run(jumps=0)
        self._rig.settle()

    def close(self) -> None:
        self._bench.close()


def confirmed(rig: Rig) -> Iterator[list[Read]]:
    """A publisher that waits for each confirm, and a consumer that acks: k1."""
    return confirmed_by_many(rig, 1)


def confirmed_by_many(rig: Rig, count: int = 50) -> Iterator[list[Read]]:
    """The same with 50 of each, one read after the other: k50."""
    pairs = [Pair(rig, number) for number in range(count)]
    for pair in pairs:
        pair.publisher.send(1, m.ConfirmSelect())
    while True:
        yield [read for pair in pairs for read in (pair.published(), pair.acked())]


def persistent(rig: Rig) -> Iterator[list[Read]]:
    """50 of each with persistent messages, which a flush brings to the disk together: k50p."""
    disk = Disk(rig)
    pairs = [Pair(rig, number, delivery_mode=2) for number in range(50)]
    for pair in pairs:
        pair.publisher.send(1, m.ConfirmSelect())
    try:
        while True:
            published = [pair.published() for pair in pairs]
            yield [*published, (disk, b""), *(pair.acked() for pair in pairs)]
    finally:
        disk.close()


def at_a_rate(rig: Rig) -> Iterator[list[Read]]:
    """A publisher without confirms, a message at a time, and a consumer that acks: h2k."""
    pair = Pair(rig, prefetch=200)
    while True:
        yield [pair.published(), pair.acked()]


def at_once(rig: Rig) -> Iterator[list[Read]]:
    """100 messages in a read, no two alike, and their acks: c1kv."""
    pair = Pair(rig, prefetch=200)
    while True:
        yield [pair.published(100), pair.acked(100)]


def counted(reads: Iterable[Read]) -> Counter[str]:
    """Have the broker read; return the calls of each function."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        name = code.co_filename
        if event == "call" and name.startswith(OURS) and not name.startswith(NOT_COUNTED):
            calls[f"{name.removeprefix(OURS)} {code.co_qualname}"] += 1

    sys.setprofile(count)
    try:
        for client, data in reads:
            client.feed(data)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    ("walk", "messages", "calls_max", "writes_max"),
    [
        (confirmed, 1, 89.5, 2),
        (confirmed_by_many, 50, 89.5, 2),
        (persistent, 50, 153.5, 2),
        (at_a_rate, 1, 75.5, 1),
        (at_once, 100, 0.893, 0.01),
    ],
    ids=["k1", "k50", "k50p", "h2k", "c1kv"],
)
def test_a_message_takes_no_more_calls(
    walk: Walk, messages: int, calls_max: float, writes_max: float
) -> None:
    rig = Rig()
    rounds = walk(rig)
    for _ in range(ROUNDS):
        counted(next(rounds))
    reads = [read for _ in range(ROUNDS) for read in next(rounds)]
    wires = {id(client): client.wire for client, _ in reads}.values()
    written = sum(wire.writes for wire in wires)

    calls = counted(reads)

    of_each = {name: count / ROUNDS / messages for name, count in calls.most_common()}
    assert sum(of_each.values()) <= calls_max, of_each
    assert (sum(wire.writes for wire in wires) - written) / ROUNDS / messages <= writes_max


def test_to_sockets_the_kernel_sends_with_as_few_calls() -> None:
    """``confirmed`` with sockets, as the broker is served: the transport is not asked, and two calls are more."""
    rig = Rig()
    rounds = confirmed(rig)
    for _ in range(ROUNDS):
        counted(next(rounds))
    reads = [read for _ in range(ROUNDS) for read in next(rounds)]
    clients = [client for client, _ in reads[:2] if isinstance(client, Client)]
    writes = [client.wire.writes for client in clients]
    ends = [socket.socketpair() for _ in clients]
    for (ours, _), client in zip(ends, clients, strict=True):
        rig.node.connections.readers[client.reader].writer.plain_descriptor = ours.fileno()

    calls = counted(reads)

    assert [client.wire.writes for client in clients] == writes
    assert all(theirs.recv(1 << 16) for _, theirs in ends)
    assert sum(calls.values()) / ROUNDS <= 92.5, calls
    for ours, theirs in ends:
        ours.close()
        theirs.close()


@pytest.mark.skipif(not compiled_modules(), reason="the sources run")
@pytest.mark.parametrize(
    "walk", [confirmed, persistent, at_a_rate, at_once], ids=["k1", "k50p", "h2k", "c1kv"]
)
def test_where_the_path_is_compiled_nothing_of_channel_queue_and_store_is_interpreted(
    walk: Walk,
) -> None:
    compiled = ("/broker/channel/", "/msg_store/wal/", "/queue_backing/")
    rounds = walk(Rig())
    for _ in range(ROUNDS):
        counted(next(rounds))

    calls = counted(next(rounds))

    assert [name for name in calls if name.startswith(compiled)] == []
