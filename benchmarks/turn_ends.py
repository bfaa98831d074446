"""Operations of ``turns.py`` on many consumers, channels and connections, and their ends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from turn_operations import Operations, consumers, declare, exchange, gone, named, open_channels
from turn_peer import Peer, frames, message

from leveret.amqp import spec
from leveret.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicNack,
    BasicQos,
    ChannelClose,
    QueueBind,
    QueueDeclare,
    QueueDelete,
)

if TYPE_CHECKING:
    from turns import Rig

    from leveret.amqp.fields import Method

OPERATIONS = Operations()
operation = OPERATIONS.add


# Consumers, channels, connections.


@operation("basic.consume", "10,000 on a queue, cancelled one by one")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"])
    count = rig.scaled(10_000)
    rig.measure()
    consumers(peer, [1], count, "q")
    peer.calls(1, [BasicCancel(f"c{number}") for number in range(count)])


@operation("basic.consume", "10,000 priorities on a queue, channel closed")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"])
    rig.measure()
    several: list[Method] = [
        BasicConsume("q", f"c{n}", arguments={"x-priority": ("l", n)})
        for n in range(rig.scaled(10_000))
    ]
    peer.calls(1, several)
    peer.call(1, ChannelClose(200, "", 0, 0))


def _many_consumers(rig: Rig, prefetch: int = 0) -> tuple[Peer, Peer]:
    peer, consumer = rig.peer(), rig.peer()
    declare(peer, ["q"])
    channels = open_channels(consumer, rig.scaled(2_000))
    if prefetch:
        consumer.raw(b"".join([frames(n, [BasicQos(0, prefetch)]) for n in channels]))
    consumers(consumer, channels, 5, "q")
    return peer, consumer


@operation("basic.publish", "10^5 messages to 10,000 waiting consumers")
def _(rig: Rig) -> None:
    peer, consumer = _many_consumers(rig)
    rig.measure()
    fast = message(1, b"q") * 10_000
    for _ in range(10):
        peer.raw(fast)
    consumer.wait(spec.BASIC_DELIVER, 100_000)


@operation("basic.publish", "10^5 messages to 10,000 consumers, prefetch 1")
def _(rig: Rig) -> None:
    peer, consumer = _many_consumers(rig, prefetch=1)
    rig.measure()
    fast = message(1, b"q") * 10_000
    for _ in range(10):
        peer.raw(fast)
    consumer.wait(spec.BASIC_DELIVER, 5 * rig.scaled(2_000))
    channels = range(1, rig.scaled(2_000) + 1)
    consumer.raw(b"".join([frames(number, [BasicAck(0, multiple=True)]) for number in channels]))
    consumer.wait(spec.BASIC_DELIVER, 10 * rig.scaled(2_000))


@operation("queue.delete", "with 10,000 consumers on 2,000 channels")
def _(rig: Rig) -> None:
    peer, _ = _many_consumers(rig)
    rig.measure()
    peer.call(1, QueueDelete("q"))


@operation("queue.delete", "with 10,000 consumers on one channel")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"])
    consumers(peer, [1], rig.scaled(10_000), "q")
    rig.measure()
    peer.call(1, QueueDelete("q"))


@operation("socket dropped", "2,000 channels, 10,000 consumers, 10^5 unacked")
def _(rig: Rig) -> None:
    peer, consumer = _many_consumers(rig)
    fill_fast = message(1, b"q") * 10_000
    for _ in range(10):
        peer.raw(fill_fast)
    consumer.wait(spec.BASIC_DELIVER, 100_000)
    rig.measure()
    consumer.drop()


@operation("connection.close", "2,000 channels, 10,000 consumers, 10^5 unacked")
def _(rig: Rig) -> None:
    peer, consumer = _many_consumers(rig)
    fill_fast = message(1, b"q") * 10_000
    for _ in range(10):
        peer.raw(fill_fast)
    consumer.wait(spec.BASIC_DELIVER, 100_000)
    rig.measure()
    consumer.close()


def _consumed_queues(rig: Rig, count: int, messages: int, **options: Any) -> Peer:
    """Consume from many queues on channel 1 and have messages of each delivered."""
    peer = rig.peer()
    names = named(rig.scaled(count))
    declare(peer, names, **options)
    peer.calls(1, [BasicConsume(name, name) for name in names])
    if messages:
        peer.raw(b"".join([message(1, name.encode()) * messages for name in names]))
        peer.wait(spec.BASIC_DELIVER, messages * len(names))
    return peer


@operation("basic.ack multiple", "10^5 unacked of 20,000 queues")
def _(rig: Rig) -> None:
    peer = _consumed_queues(rig, 20_000, 5)
    rig.measure()
    peer.send(1, BasicAck(0, multiple=True))
    peer.call(1, QueueDeclare("q0", passive=True))


@operation("basic.nack multiple requeue", "10^5 unacked of 20,000 queues")
def _(rig: Rig) -> None:
    peer = _consumed_queues(rig, 20_000, 5)
    rig.measure()
    peer.send(1, BasicNack(0, multiple=True, requeue=True))
    peer.call(1, QueueDeclare("q0", passive=True))


@operation("basic.qos global", "changed 100 times, 20,000 consumers")
def _(rig: Rig) -> None:
    peer = _consumed_queues(rig, 20_000, 1)
    several = [BasicQos(0, 1 + number % 2 * 1_000, global_=True) for number in range(100)]
    rig.measure()
    peer.calls(1, several)


@operation("channel.close", "20,000 consumers of 20,000 queues, 10^5 unacked")
def _(rig: Rig) -> None:
    peer = _consumed_queues(rig, 20_000, 5)
    rig.measure()
    peer.call(1, ChannelClose(200, "", 0, 0))


@operation("socket dropped", "20,000 consumers of 20,000 queues, 10^5 unacked")
def _(rig: Rig) -> None:
    peer = _consumed_queues(rig, 20_000, 5)
    rig.measure()
    peer.drop()


@operation("socket dropped", "the only consumer of 20,000 auto-delete queues")
def _(rig: Rig) -> None:
    peer = _consumed_queues(rig, 20_000, 0, auto_delete=True)
    rig.measure()
    peer.drop()


@operation("connection.close", "15,000 exclusive queues")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, named(rig.scaled(15_000)), exclusive=True)
    rig.measure()
    peer.close()
    gone(rig, "q0")


@operation("socket dropped", "15,000 exclusive queues")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, named(rig.scaled(15_000)), exclusive=True)
    rig.measure()
    peer.drop()


@operation("connection.close", "15,000 exclusive queues, 105,000 bindings to them")
def _(rig: Rig) -> None:
    peer = rig.peer()
    exchange(peer, "direct")
    names = named(rig.scaled(15_000))
    declare(peer, names, exclusive=True)
    peer.calls(1, [QueueBind(name, "x", f"k{key}") for name in names for key in range(7)])
    rig.measure()
    peer.close()
    gone(rig, "q0")


@operation("socket dropped", "15,000 exclusive queues, 105,000 bindings to them")
def _(rig: Rig) -> None:
    peer = rig.peer()
    exchange(peer, "direct")
    names = named(rig.scaled(15_000))
    declare(peer, names, exclusive=True)
    peer.calls(1, [QueueBind(name, "x", f"k{key}") for name in names for key in range(7)])
    rig.measure()
    peer.drop()


@operation("connection.open", "500 in a row, all dropped at once")
def _(rig: Rig) -> None:
    rig.measure()
    peers = [rig.peer() for _ in range(rig.scaled(500))]
    for peer in peers:
        peer.drop()


@operation("queues unused", "20,000 x-expires at once")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = named(rig.scaled(20_000))
    rig.measure()
    declare(peer, names, arguments={"x-expires": ("l", 20_000)})
    time.sleep(21)
