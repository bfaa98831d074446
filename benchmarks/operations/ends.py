"""Operations of ``turns.py`` on many consumers, channels and connections, and their ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.peer import Peer, frames, message
from operations.operation import (
    CHANNELS,
    MANY,
    Operations,
    consumers,
    declare,
    exchange,
    gone,
    named,
    open_channels,
)

from leveret.amqp import spec
from leveret.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicNack,
    BasicQos,
    ChannelClose,
    ConnectionClose,
    ConnectionStartOk,
    QueueBind,
    QueueDeclare,
    QueueDelete,
)

if TYPE_CHECKING:
    from operations.rig import Rig

    from leveret.amqp.fields import Method
    from leveret.amqp.tables import Table

OPERATIONS = Operations()
operation = OPERATIONS.add
CONSUMERS_EACH = 50  # on a channel


# Consumers, channels, connections.


@operation("basic.consume", "10,000 on a queue, cancelled one by one")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"])
    count = rig.scaled(10_000)
    rig.measure()
    consumers(peer, [1], count, "q")
    peer.calls(1, [BasicCancel(f"c{number}") for number in range(count)])


@operation("basic.cancel", "10,000 consumers of a queue, in one write")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"])
    count = rig.scaled(10_000)
    consumers(peer, [1], count, "q")
    rig.measure()
    peer.calls(1, [BasicCancel(f"c{number}") for number in range(count)])


@operation("basic.consume", "10,000 tags of 255 octets, 10^5 messages, channel closed")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"])
    rig.measure()
    tags = [f"{number:0255}" for number in range(rig.scaled(10_000))]
    peer.calls(1, [BasicConsume("q", tag) for tag in tags])
    _flood(peer, 10)
    peer.wait(spec.BASIC_DELIVER, 100_000)
    peer.call(1, ChannelClose(200, "", 0, 0))


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


def _flood(peer: Peer, times: int) -> None:
    """Publish ten thousand messages to the queue, so many times."""
    messages = message(1, b"q") * 10_000
    for _ in range(times):
        peer.raw(messages)


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
    _flood(peer, 10)
    consumer.wait(spec.BASIC_DELIVER, 100_000)


@operation("basic.publish", "10^5 messages to 10,000 consumers, prefetch 1")
def _(rig: Rig) -> None:
    peer, consumer = _many_consumers(rig, prefetch=1)
    rig.measure()
    _flood(peer, 10)
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


def both_ends(
    size: str, exclusive: str = ""
) -> Callable[[Callable[[Rig], Peer]], Callable[[Rig], Peer]]:
    """Put the ends of the connection that a function prepares into the table: connection.close and a reset.

    ``exclusive``: a queue that must be gone then.
    """

    def register(prepare: Callable[[Rig], Peer]) -> Callable[[Rig], Peer]:
        @operation("connection.close", size)
        def close(rig: Rig) -> None:
            peer = prepare(rig)
            rig.measure()
            peer.close()
            if exclusive:
                gone(rig, exclusive)

        @operation("socket dropped", size)
        def drop(rig: Rig) -> None:
            peer = prepare(rig)
            rig.measure()
            peer.drop()

        return prepare

    return register


@both_ends("2,000 channels, 10,000 consumers, 10^5 unacked")
def _(rig: Rig) -> Peer:
    peer, consumer = _many_consumers(rig)
    _flood(peer, 10)
    consumer.wait(spec.BASIC_DELIVER, 100_000)
    return consumer


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


@operation("basic.ack", "100 times, 20,000 queues wait for room of a global prefetch of 1")
def _(rig: Rig) -> None:
    peer, publisher = rig.peer(), rig.peer()
    peer.call(1, BasicQos(0, 1, global_=True))
    names = named(rig.scaled(20_000))
    declare(peer, names)
    peer.calls(1, [BasicConsume(name, name) for name in names])
    publisher.raw(b"".join([message(1, name.encode()) * 2 for name in names]))
    publisher.call(1, QueueDeclare("q0", passive=True))
    rig.measure()
    for number in range(1, 101):
        peer.wait(spec.BASIC_DELIVER, number)
        peer.send(1, BasicAck(0, multiple=True))


@operation(
    "basic.ack multiple", "5,000 of as many queues, 20,000 wait for room of a global prefetch"
)
def _(rig: Rig) -> None:
    peer, publisher = rig.peer(), rig.peer()
    names = named(rig.scaled(25_000))
    peer.call(1, BasicQos(0, len(names) // 5, global_=True))
    declare(peer, names)
    peer.calls(1, [BasicConsume(name, name) for name in names])
    publisher.raw(b"".join([message(1, name.encode()) for name in names]))
    publisher.call(1, QueueDeclare("q0", passive=True))
    peer.wait(spec.BASIC_DELIVER, len(names) // 5)
    rig.measure()
    peer.send(1, BasicAck(0, multiple=True))
    peer.wait(spec.BASIC_DELIVER, 2 * len(names) // 5)


@operation("basic.deliver", "20,000 queues wait for a socket that is read late")
def _(rig: Rig) -> None:
    consumer, publisher = rig.peer(), rig.peer()
    names = named(rig.scaled(20_000))
    declare(publisher, names)
    consumer.calls(1, [BasicConsume(name, name, no_ack=True) for name in names])
    several = b"".join([message(1, name.encode(), bytes(2_000)) for name in names])
    rig.measure()
    with consumer.not_reading():
        publisher.raw(several)
        publisher.call(1, QueueDeclare("q0", passive=True))
    consumer.wait(spec.BASIC_DELIVER, len(names))


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


@both_ends("15,000 exclusive queues", exclusive="q0")
def _(rig: Rig) -> Peer:
    peer = rig.peer()
    declare(peer, named(rig.scaled(15_000)), exclusive=True)
    return peer


@both_ends("15,000 exclusive queues, 105,000 bindings to them", exclusive="q0")
def _(rig: Rig) -> Peer:
    peer = rig.peer()
    exchange(peer, "direct")
    names = named(rig.scaled(15_000))
    declare(peer, names, exclusive=True)
    peer.calls(1, [QueueBind(name, "x", f"k{key}") for name in names for key in range(7)])
    return peer


@both_ends("2,047 channels, 20,470 consumers of as many queues")
def _(rig: Rig) -> Peer:
    peer = rig.peer()
    channels = open_channels(peer, rig.scaled(CHANNELS))
    for number in channels:
        names = named(10, f"q{number}.")
        declare(peer, names)
        peer.raw(frames(number, [BasicConsume(name, name) for name in names]))
    peer.wait(spec.BASIC_CONSUME_OK, 10 * len(channels))
    return peer


def _all_channels(rig: Rig) -> list[Peer]:
    """Open 65,504 channels on 32 connections."""
    peers = [rig.peer() for _ in range(rig.scaled(32))]
    for peer in peers:
        open_channels(peer, CHANNELS)
    return peers


@operation("connection.close", "32 in a row, with 65,504 channels")
def _(rig: Rig) -> None:
    peers = _all_channels(rig)
    rig.measure()
    for peer in peers:
        peer.send(0, ConnectionClose(200, "bye", 0, 0))
    for peer in peers:
        peer.wait(spec.CONNECTION_CLOSE_OK)


@operation("socket dropped", "32 in a row, with 65,504 channels")
def _(rig: Rig) -> None:
    peers = _all_channels(rig)
    rig.measure()
    for peer in peers:
        peer.drop()


def _very_many_consumers(rig: Rig, **options: Any) -> tuple[Peer, Peer]:
    """Start 100,000 consumers of a queue on 2,000 channels."""
    peer, consumer = rig.peer(), rig.peer()
    declare(peer, ["q"], arguments=options.pop("queue", {}))
    channels = open_channels(consumer, rig.scaled(MANY) // CONSUMERS_EACH)
    if options.pop("prefetch", 0):
        consumer.raw(b"".join([frames(number, [BasicQos(0, 1)]) for number in channels]))
    consumers(consumer, channels, CONSUMERS_EACH, "q", **options)
    return peer, consumer


@both_ends("2,000 channels, 100,000 consumers of a queue")
def _(rig: Rig) -> Peer:
    return _very_many_consumers(rig)[1]


def _one_active(rig: Rig) -> Peer:
    """As ``_very_many_consumers``; one consumer is active, the others wait."""
    return _very_many_consumers(rig, queue={"x-single-active-consumer": ("t", True)})[1]


@both_ends("2,000 channels, 100,000 consumers of a queue, one active")
def _(rig: Rig) -> Peer:
    return _one_active(rig)


@operation("basic.cancel", "100,000 times the active consumer of a queue")
def _(rig: Rig) -> None:
    consumer = _one_active(rig)
    channels = range(1, rig.scaled(MANY) // CONSUMERS_EACH + 1)
    cancels = [BasicCancel(f"c{own}") for own in range(CONSUMERS_EACH)]
    rig.measure()
    consumer.raw(b"".join([frames(number, cancels) for number in channels]))
    consumer.wait(spec.BASIC_CANCEL_OK, len(channels) * CONSUMERS_EACH)


@operation("channel.close", "2,000 times, with the active of 100,000 consumers of a queue")
def _(rig: Rig) -> None:
    consumer = _one_active(rig)
    channels = range(1, rig.scaled(MANY) // CONSUMERS_EACH + 1)
    rig.measure()
    close = [ChannelClose(200, "", 0, 0)]
    consumer.raw(b"".join([frames(number, close) for number in channels]))
    consumer.wait(spec.CHANNEL_CLOSE_OK, len(channels))


@operation("queue.delete", "with 100,000 consumers on 2,000 channels")
def _(rig: Rig) -> None:
    peer, consumer = _very_many_consumers(rig)
    rig.measure()
    peer.call(1, QueueDelete("q"))
    consumer.wait(spec.BASIC_CANCEL, rig.scaled(MANY))


@operation("basic.publish", "4 x 10^5 messages to 100,000 consumers, prefetch 1")
def _(rig: Rig) -> None:
    peer, consumer = _very_many_consumers(rig, prefetch=1)
    rig.measure()
    _flood(peer, 40)
    consumer.wait(spec.BASIC_DELIVER, rig.scaled(MANY))
    channels = range(1, rig.scaled(MANY) // CONSUMERS_EACH + 1)
    for _ in range(3):
        before = consumer.seen[spec.BASIC_DELIVER]
        acks = [frames(number, [BasicAck(0, multiple=True)]) for number in channels]
        consumer.raw(b"".join(acks))
        consumer.wait(spec.BASIC_DELIVER, before + rig.scaled(MANY))


@operation("basic.publish", "1,000 single messages to 100,000 consumers that do not read")
def _(rig: Rig) -> None:
    peer, consumer = _very_many_consumers(rig, no_ack=True)
    large, single = message(1, b"q", bytes(1_000_000)), message(1, b"q")
    rig.measure()
    with consumer.not_reading():
        for _ in range(20):
            peer.raw(large)
        for _ in range(1_000):
            peer.raw(single)
            time.sleep(0.001)
    consumer.wait(spec.BASIC_DELIVER, 1_020)


@operation("basic.consume", "10 exclusive ones refused, 100,000 consumers; cancelled one by one")
def _(rig: Rig) -> None:
    peer, consumer = _very_many_consumers(rig)
    channels = open_channels(peer, 10)
    rig.measure()
    peer.raw(b"".join([frames(n, [BasicConsume("q", exclusive=True)]) for n in channels]))
    cancels = [BasicCancel(f"c{number}") for number in range(CONSUMERS_EACH)]
    numbers = range(1, rig.scaled(MANY) // CONSUMERS_EACH + 1)
    consumer.raw(b"".join([frames(number, cancels) for number in numbers]))
    consumer.wait(spec.BASIC_CANCEL_OK, rig.scaled(MANY))


@operation("connection.open", "500 in a row, all dropped at once")
def _(rig: Rig) -> None:
    rig.measure()
    peers = [rig.peer() for _ in range(rig.scaled(500))]
    for peer in peers:
        peer.drop()


def _start_ok(size: int) -> bytes:
    properties: Table = {"padding": ("S", bytes(size))}
    return spec.PROTOCOL_HEADER + frames(
        0, [ConnectionStartOk(properties, "PLAIN", b"\0guest\0guest")]
    )


@operation(
    "connection.start-ok", "500 x properties of 100 KB", note="refused: a frame of 4 KiB at most"
)
def _(rig: Rig) -> None:
    rig.measure()
    for _ in range(rig.scaled(500)):
        rig.send(_start_ok(100_000))


@operation("connection.start-ok", "500 x properties of 3.9 KB, all at once")
def _(rig: Rig) -> None:
    rig.measure()
    sockets = [rig.send(_start_ok(3_900)) for _ in range(rig.scaled(500))]
    for each in sockets:
        each.close()


@operation("queue.declare", "5,000 held while memory is short, then handled")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"])
    rig.control("set_vm_memory_high_watermark", size_bytes=1, share=None)
    peer.raw(message(1, b"q") + frames(1, [QueueDeclare(name) for name in named(5_000)]))
    rig.measure()
    rig.control("set_vm_memory_high_watermark", size_bytes=1 << 40, share=None)
    peer.wait(spec.QUEUE_DECLARE_OK, 5_000)


@operation("queues unused", "20,000 x-expires at once")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = named(rig.scaled(20_000))
    rig.measure()
    declare(peer, names, arguments={"x-expires": ("l", 20_000)})
    time.sleep(21)  # then all are due
