"""Operations of ``turns.py`` on messages: their number, size, headers and fan-out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

from harness.peer import PART, PERSISTENT, Peer, frames, message
from operations.operation import (
    KINDS,
    MANY,
    MILLION,
    Kind,
    Operations,
    bind,
    declare,
    deep,
    exchange,
    fill,
    named,
    open_channels,
    take,
    wide,
)

from leveret.amqp import spec
from leveret.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicRecover,
    ChannelClose,
    ChannelOpen,
    ConfirmSelect,
    ExchangeBind,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)
from leveret.amqp.tables import encode_table

if TYPE_CHECKING:
    from operations.rig import Rig

    from leveret.amqp.tables import Field, Table

OPERATIONS = Operations()
operation = OPERATIONS.add


# Messages of one queue.


def filled(rig: Rig, kind: Kind) -> Peer:
    peer = rig.peer()
    declare(peer, ["q"], durable=kind.durable)
    fill(peer, "q", rig.scaled(MILLION), kind.properties)
    return peer


def unacked(rig: Rig, kind: Kind) -> Peer:
    peer = filled(rig, kind)
    take(peer, "q", rig.scaled(MILLION))
    return peer


@OPERATIONS.of_both_kinds("basic.publish", "10^6 {}, one queue, confirmed")
def _(rig: Rig, kind: Kind) -> None:
    peer = rig.peer()
    declare(peer, ["q"], durable=kind.durable)
    peer.call(1, ConfirmSelect())
    rig.measure()
    fill(peer, "q", rig.scaled(MILLION), kind.properties)
    peer.wait_confirmed(rig.scaled(MILLION))


@OPERATIONS.of_both_kinds("queue.purge", "10^6 {}")
def _(rig: Rig, kind: Kind) -> None:
    peer = filled(rig, kind)
    rig.measure()
    peer.call(1, QueuePurge("q"))


@OPERATIONS.of_both_kinds("queue.delete", "with 10^6 {}")
def _(rig: Rig, kind: Kind) -> None:
    peer = filled(rig, kind)
    rig.measure()
    peer.call(1, QueueDelete("q"))


@OPERATIONS.of_both_kinds("basic.consume", "10^6 {} delivered")
def _(rig: Rig, kind: Kind) -> None:
    peer = filled(rig, kind)
    rig.measure()
    take(peer, "q", rig.scaled(MILLION))


def of_unacked(name: str, attack: Callable[[Peer], object]) -> None:
    """Put an attack on 10^6 unacked messages of one channel into the table."""

    @OPERATIONS.of_both_kinds(name, "10^6 {} unacked")
    def run(rig: Rig, kind: Kind) -> None:
        peer = unacked(rig, kind)
        rig.measure()
        attack(peer)


# Quorum queues: every message that comes back is counted, and delivered with the count in its header.


def quorum_unacked(rig: Rig) -> Peer:
    """Have 10^6 messages of a quorum queue delivered, on channel 2."""
    peer = rig.peer()
    declare(peer, ["q"], durable=True, arguments={"x-queue-type": ("S", b"quorum")})
    fill(peer, "q", rig.scaled(MILLION), b"\0\0")
    open_channels(peer, 2)
    peer.send(2, BasicConsume("q", "c"))
    peer.wait(spec.BASIC_DELIVER, rig.scaled(MILLION))
    return peer


def _requeued(rig: Rig) -> Peer:
    """Have them come back."""
    peer = quorum_unacked(rig)
    peer.call(2, BasicCancel("c"))
    peer.send(2, BasicNack(0, True, True))
    rig.settle()
    return peer


@operation("basic.nack multiple requeue", "10^6 unacked of a quorum queue, none consumes")
def _(rig: Rig) -> None:
    peer = quorum_unacked(rig)
    peer.call(2, BasicCancel("c"))
    rig.measure()
    peer.send(2, BasicNack(0, True, True))


@operation("channel.close", "10^6 unacked of a quorum queue, beyond its delivery limit")
def _(rig: Rig) -> None:
    peer = quorum_unacked(rig)
    rig.control(
        "set_policy", vhost="/", name="p", pattern="", definition='{"delivery-limit":0}',
        priority=0, apply_to="queues",
    )  # fmt: skip
    rig.measure()
    peer.call(2, ChannelClose(200, "", 0, 0))


@operation("basic.consume", "10^6 delivered again by a quorum queue, with x-delivery-count")
def _(rig: Rig) -> None:
    peer = _requeued(rig)
    rig.measure()
    peer.send(2, BasicConsume("q", "again"))
    peer.wait(spec.BASIC_DELIVER, 2 * rig.scaled(MILLION))


@operation("basic.ack multiple", "10^6 of a quorum queue, delivered twice")
def _(rig: Rig) -> None:
    peer = _requeued(rig)
    peer.send(2, BasicConsume("q", "again"))
    peer.wait(spec.BASIC_DELIVER, 2 * rig.scaled(MILLION))
    rig.measure()
    peer.send(2, BasicAck(0, multiple=True))


@operation("queue.purge", "10^6 of a quorum queue that came back")
def _(rig: Rig) -> None:
    peer = _requeued(rig)
    rig.measure()
    peer.call(1, QueuePurge("q"))


of_unacked("basic.ack multiple", lambda peer: peer.send(1, BasicAck(0, multiple=True)))
of_unacked("basic.nack multiple requeue", lambda peer: peer.send(1, BasicNack(0, True, True)))
of_unacked("basic.nack multiple drop", lambda peer: peer.send(1, BasicNack(0, True, False)))
of_unacked("basic.recover", lambda peer: peer.call(1, BasicRecover(requeue=True)))
of_unacked("channel.close", lambda peer: peer.call(1, ChannelClose(200, "", 0, 0)))
of_unacked("connection.close", lambda peer: peer.close())
of_unacked("socket dropped", lambda peer: peer.drop())
of_unacked("queue.delete", lambda peer: peer.call(1, QueueDelete("q")))


@OPERATIONS.of_both_kinds("socket dropped", "amid an ack of 10^6 {}")
def _(rig: Rig, kind: Kind) -> None:
    peer = unacked(rig, kind)
    rig.measure()
    peer.send(1, BasicAck(0, multiple=True))
    peer.drop()


@OPERATIONS.of_both_kinds("queue.purge", "1 message beside 10^6 {} unacked")
def _(rig: Rig, kind: Kind) -> None:
    peer = filled(rig, kind)
    peer.call(1, BasicConsume("q", "c"))
    peer.wait(spec.BASIC_DELIVER, rig.scaled(MILLION))
    peer.call(1, BasicCancel("c"))
    fill(peer, "q", 1, kind.properties)
    rig.measure()
    peer.call(1, QueuePurge("q"))


def unacked_of_both_kinds(rig: Rig) -> Peer:
    """Have 10^6 messages delivered, transient and persistent ones in turns."""
    peer = rig.peer()
    declare(peer, ["q"], durable=True)
    pairs = rig.scaled(MILLION // 2)
    two = b"".join([message(1, b"q", properties=kind.properties) for kind in KINDS])
    for first in range(0, pairs, 5_000):
        peer.raw(two * min(5_000, pairs - first))
    peer.call(1, BasicConsume("q", "c"))
    peer.wait(spec.BASIC_DELIVER, 2 * pairs)
    peer.call(1, BasicCancel("c"))
    return peer


def of_unacked_of_both_kinds(name: str, size: str, attack: Callable[[Peer], object]) -> None:
    @operation(name, size)
    def run(rig: Rig) -> None:
        peer = unacked_of_both_kinds(rig)
        rig.measure()
        attack(peer)


def _purge_one(peer: Peer) -> None:
    fill(peer, "q", 1)
    peer.call(1, QueuePurge("q"))


MIXED = "10^6 transient and persistent unacked"
of_unacked_of_both_kinds("queue.purge", f"1 message beside {MIXED}", _purge_one)
of_unacked_of_both_kinds(
    "queue.delete", f"with {MIXED}", lambda peer: peer.call(1, QueueDelete("q"))
)
of_unacked_of_both_kinds("connection.close", MIXED, lambda peer: peer.close())


def every_second_requeued(rig: Rig, kind: Kind, count: int, **options: Any) -> Peer:
    peer = rig.peer()
    declare(peer, ["q"], durable=kind.durable, **options)
    fill(peer, "q", count, kind.properties)
    peer.call(1, BasicConsume("q", "c"))
    peer.wait(spec.BASIC_DELIVER, count)
    peer.call(1, BasicCancel("c"))
    peer.raw(b"".join([frames(1, [BasicNack(tag, False, True)]) for tag in range(1, count, 2)]))
    peer.call(1, QueueDeclare("q", passive=True))
    return peer


@OPERATIONS.of_both_kinds("queue.purge", "10^6 {}, every second requeued, the others unacked")
def _(rig: Rig, kind: Kind) -> None:
    peer = every_second_requeued(rig, kind, rig.scaled(MILLION))
    rig.measure()
    peer.call(1, QueuePurge("q"))


@operation("queue.purge", "8,000 persistent, the same before a checkpoint")
def _(rig: Rig) -> None:
    peer = every_second_requeued(rig, KINDS[1], rig.scaled(8_000))
    rig.measure()
    peer.call(1, QueuePurge("q"))


@operation("queue.purge", "10^6 transient of a lazy queue, every second requeued")
def _(rig: Rig) -> None:
    lazy: Table = {"x-queue-mode": ("S", b"lazy")}
    peer = every_second_requeued(rig, KINDS[0], rig.scaled(MILLION), arguments=lazy)
    rig.measure()
    peer.call(1, QueuePurge("q"))


@operation("basic.ack", "every second of 200,000, then multiple")
def _(rig: Rig) -> None:
    peer = rig.peer()
    count = rig.scaled(200_000)
    declare(peer, ["q"])
    fill(peer, "q", count)
    take(peer, "q", count)
    rig.measure()
    peer.raw(b"".join([frames(1, [BasicAck(tag)]) for tag in range(2, count, 2)]))
    peer.send(1, BasicNack(0, multiple=True, requeue=True))
    peer.call(1, QueueDeclare("q", passive=True))


@operation("basic.get", "100,000 in one write")
def _(rig: Rig) -> None:
    peer = rig.peer()
    count = rig.scaled(MANY)
    declare(peer, ["q"])
    fill(peer, "q", count)
    rig.measure()
    peer.raw(frames(1, [BasicGet("q")]) * count)
    peer.wait(spec.BASIC_GET_OK, count)


@operation("messages expire", "10^6 at once, a message TTL of the queue")
def _(rig: Rig) -> None:
    peer = rig.peer()
    ttl: Table = {"x-message-ttl": ("l", 60_000)}
    declare(peer, ["q"], arguments=ttl)
    rig.measure()
    fill(peer, "q", rig.scaled(MILLION))
    rig.control(
        "set_policy", vhost="/", name="p", pattern="^q$", definition='{"message-ttl": 1}',
        priority=0, apply_to="queues",
    )  # fmt: skip


@operation("messages expire", "10^6 at once, their own TTL")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"])
    rig.measure()
    one = message(1, b"q", properties=b"\x01\x00\x0515000")
    peer.raw(one * rig.scaled(MILLION))
    peer.call(1, QueueDeclare("q", passive=True))
    rig.settle()
    time.sleep(15)  # then all are due


@operation("messages expire", "every second of 500,000, purged, and again, deleted")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"])
    rig.measure()
    two = message(1, b"q", bytes(100), properties=b"\x01\x00\x03100") + message(1, b"q", bytes(100))
    for method in (QueuePurge("q"), QueueDelete("q")):
        for _ in range(rig.scaled(2_500)):
            peer.raw(two * 100)
        peer.call(1, method)


@operation("priorities", "255, 255,000 messages, then purged")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"], arguments={"x-max-priority": ("l", 255)})
    rig.measure()
    block = b"".join([message(1, b"q", properties=b"\x08\x00%c" % level) for level in range(255)])
    for _ in range(rig.scaled(1_000)):
        peer.raw(block)
    peer.call(1, QueuePurge("q"))


@operation("queue.purge", "255 priorities, 1,000 messages of each")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"], arguments={"x-max-priority": ("l", 255)})
    block = b"".join([message(1, b"q", properties=b"\x08\x00%c" % level) for level in range(255)])
    for _ in range(rig.scaled(1_000)):
        peer.raw(block)
    peer.call(1, QueueDeclare("q", passive=True))
    rig.measure()
    peer.call(1, QueuePurge("q"))


# Bodies and headers.


def _bodies(what: str, properties: bytes, durable: bool) -> None:
    @operation("basic.publish and deliver", f"4 x 128 MiB {what}")
    def run(rig: Rig) -> None:
        peer = rig.peer()
        declare(peer, ["q"], durable=durable)
        big = message(1, b"q", bytes(rig.scaled(1 << 27)), properties=properties)
        rig.measure()
        for _ in range(4):
            peer.raw(big)
        take(peer, "q", 4)

    @operation("basic.publish", f"30,000 x 64 KiB {what}, consumed")
    def flood(rig: Rig) -> None:
        peer, consumer = rig.peer(), rig.peer()
        declare(peer, ["q"], durable=durable)
        consumer.call(1, BasicConsume("q", no_ack=True))
        block = message(1, b"q", bytes(1 << 16), properties=properties) * 100
        rig.measure()
        for _ in range(rig.scaled(300)):
            peer.raw(block)
        consumer.wait(spec.BASIC_DELIVER, 100 * rig.scaled(300))


_bodies("transient", b"\0\0", False)
_bodies("persistent", PERSISTENT, True)


@operation("basic.deliver", "4 x 128 MiB read back from the disk")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"], durable=True, arguments={"x-queue-mode": ("S", b"lazy")})
    big = message(1, b"q", os.urandom(1 << 20) * rig.scaled(1 << 7), properties=PERSISTENT)
    for _ in range(4):
        peer.raw(big)
    peer.call(1, QueueDeclare("q", passive=True))
    rig.measure()
    take(peer, "q", 4)


def _large(rig: Rig) -> Peer:
    peer = rig.peer()
    declare(peer, ["q"])
    fill(peer, "q", 8, body=bytes(rig.scaled(1 << 27)))
    return peer


@operation("basic.nack requeue", "8 x 128 MiB, delivered twice")
def _(rig: Rig) -> None:
    peer = _large(rig)
    rig.measure()
    take(peer, "q", 8)
    peer.send(1, BasicNack(0, True, True))
    peer.wait(spec.BASIC_DELIVER, 16)


def _of_large(name: str, attack: Callable[[Peer], object], is_taken: bool = False) -> None:
    @operation(name, "8 x 128 MiB")
    def run(rig: Rig) -> None:
        peer = _large(rig)
        if is_taken:
            take(peer, "q", 8)
        rig.measure()
        attack(peer)
        rig.peer().call(1, QueueDeclare("other"))


_of_large("queue.purge", lambda peer: peer.call(1, QueuePurge("q")))
_of_large("queue.delete", lambda peer: peer.call(1, QueueDelete("q")))
_of_large(
    "basic.ack multiple", lambda peer: peer.send(1, BasicAck(0, multiple=True)), is_taken=True
)


@operation("socket dropped", "8 contents of 128 MiB, all but their last frame sent")
def _(rig: Rig) -> None:
    peer = rig.peer()
    numbers = open_channels(peer, 8)
    size = rig.scaled(1 << 10) * PART
    for number in numbers:
        peer.raw(message(number, b"q", bytes(size))[: -PART - 8])
    rig.measure()
    peer.drop()


@operation(
    "socket dropped", "20 with half of a body of 128 MiB each, some closed before: memory is short"
)
def _(rig: Rig) -> None:
    rig.control("set_vm_memory_high_watermark", size_bytes=1_000_000_000, share=None)
    parts = rig.scaled(1 << 10)
    half = message(1, b"q", bytes(parts * PART))[: -(parts // 2) * (PART + 8)]
    peers = [rig.peer() for _ in range(20)]
    rig.measure()
    for act in (lambda peer: peer.raw(half), Peer.drop):
        for peer in peers:
            with suppress(OSError):  # the broker has closed it
                act(peer)


def _filled(rig: Rig, count: int, **content: bytes) -> Peer:
    peer = rig.peer()
    declare(peer, ["q"])
    fill(peer, "q", rig.scaled(count), **content)
    return peer


@operation("basic.deliver", "1,000 x 1 MiB")
def _(rig: Rig) -> None:
    peer = _filled(rig, 1_000, body=bytes(1 << 20))
    rig.measure()
    take(peer, "q", rig.scaled(1_000))


@operation("basic.get", "1,000 x 1 MiB in one write")
def _(rig: Rig) -> None:
    peer = _filled(rig, 1_000, body=bytes(1 << 20))
    rig.measure()
    peer.raw(frames(1, [BasicGet("q")]) * rig.scaled(1_000))
    peer.wait(spec.BASIC_GET_OK, rig.scaled(1_000))


@operation("basic.publish and deliver", "5,000 x headers of 100 KB, no body")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"])
    one = message(1, b"q", properties=headers_property(wide()))
    rig.measure()
    for _ in range(rig.scaled(5_000)):
        peer.raw(one)
    take(peer, "q", rig.scaled(5_000))


@operation("basic.return", "4 x 128 MiB, unroutable")
def _(rig: Rig) -> None:
    peer = rig.peer()
    big = message(1, b"nowhere", bytes(rig.scaled(1 << 27)), mandatory=True)
    rig.measure()
    for _ in range(4):
        peer.raw(big)
    peer.wait(spec.BASIC_RETURN, 4)


@operation("basic.return", "200,000 small, unroutable")
def _(rig: Rig) -> None:
    peer = rig.peer()
    block = message(1, b"nowhere", b"body", mandatory=True) * 1_000
    rig.measure()
    for _ in range(rig.scaled(200)):
        peer.raw(block)
    peer.wait(spec.BASIC_RETURN, 1_000 * rig.scaled(200))


def headers_property(headers: Table) -> bytes:
    return b"\x20\x00" + encode_table(headers)


def _headers(name: str, size: str, kind: str, headers: Callable[[], Table], count: int) -> None:
    @operation(name, size)
    def run(rig: Rig) -> None:
        peer = rig.peer()
        exchange(peer, kind)
        declare(peer, ["q"])
        peer.call(1, QueueBind("q", "x", "", arguments={"kz": ("S", b"z")}))
        one = message(1, b"k", exchange=b"x", properties=headers_property(headers()))
        rig.measure()
        for _ in range(rig.scaled(count)):
            peer.raw(one)
        peer.call(1, QueueDeclare("q", passive=True))


_headers("basic.publish headers exchange", "300 x headers of 100 KB", "headers", wide, 300)
_headers("basic.publish headers exchange", "300 x headers 120 levels deep", "headers", deep, 300)


def _copies(count: int) -> Table:
    fields: list[Field] = [("S", b"q%d" % number) for number in range(count)]
    return {"CC": ("A", fields)}


@operation("basic.publish CC", "200 x 10,000 keys, to the default exchange")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, named(100))
    one = message(1, b"q", properties=headers_property(_copies(10_000)))
    rig.measure()
    peer.raw(one * rig.scaled(200))
    peer.call(1, QueueDeclare("q0", passive=True))


@operation("basic.publish CC", "200 x 10,000 keys, topic of 1,000 patterns")
def _(rig: Rig) -> None:
    peer = rig.peer()
    exchange(peer, "topic")
    declare(peer, ["q"])
    bind(peer, 1_000, key="#.q{}.*.#")
    one = message(1, b"q", exchange=b"x", properties=headers_property(_copies(10_000)))
    rig.measure()
    peer.raw(one * rig.scaled(200))
    peer.call(1, QueueDeclare("q", passive=True))


def _through_topic(rig: Rig, patterns: list[str], keys: list[Field]) -> None:
    """Publish a message with these CC keys to a topic exchange with these patterns."""
    peer = rig.peer()
    exchange(peer, "topic")
    declare(peer, ["q"])
    peer.calls(1, [QueueBind("q", "x", pattern) for pattern in patterns])
    one = message(1, b"a", exchange=b"x", properties=headers_property({"CC": ("A", keys)}))
    rig.measure()
    peer.raw(one)
    peer.call(1, QueueDeclare("q", passive=True))


@operation("basic.publish topic", "1,500 patterns of many #, 2.5 KB of CC keys")
def _(rig: Rig) -> None:
    patterns = [".".join(["#.a.#.*"] * 8 + [f"k{number}"]) for number in range(rig.scaled(1_500))]
    _through_topic(rig, patterns, [("S", (b"a." * 120) + b"%d" % number) for number in range(10)])


@operation("basic.publish topic", "1,500 patterns of 60 # and words, 7.5 KB of CC keys")
def _(rig: Rig) -> None:
    random = Random(1)
    patterns = [
        ".".join([*random.choices(["#.a", "#.b"], k=60), "z"]) for _ in range(rig.scaled(1_500))
    ]
    keys: list[Field] = [("S", b".".join(random.choices([b"a", b"b"], k=120))) for _ in range(30)]
    _through_topic(rig, patterns, keys)


@operation("basic.publish", "a body of 32 MiB in frames of one byte")
def _(rig: Rig) -> None:
    peer = rig.peer()
    one, count = message(1, b"none", b"x"), rig.scaled(32 << 20)
    start, frame = one[:-9], one[-9:]
    rig.measure()
    peer.raw(start.replace((1).to_bytes(8, "big"), count.to_bytes(8, "big")))
    for _ in range(0, count, 1 << 16):
        peer.raw(frame * (1 << 16))
    peer.call(1, QueueDeclare("q", exclusive=True))


@operation("basic.publish topic", "8,192 patterns of which all nodes stay live, 3 KB of CC keys")
def _(rig: Rig) -> None:
    ways = [
        ".".join(["a.#" if bit == "0" else "*.a.#" for bit in f"{number:013b}"])
        for number in range(rig.scaled(8_192))
    ]
    keys: list[Field] = [("S", b".".join([b"a"] * number)) for number in range(117, 127)]
    _through_topic(rig, [f"#.{way}.b" for way in ways], keys)


@operation("basic.publish headers exchange", "10 x, 50,000 bindings that must all be tried")
def _(rig: Rig) -> None:
    peer = rig.peer()
    exchange(peer, "headers")
    declare(peer, ["q"])
    common: Table = {f"h{number}": ("l", 1) for number in range(10)}
    peer.calls(
        1,
        [
            QueueBind("q", "x", f"k{number}", arguments=common | {f"h{number % 10}": ("V", None)})
            for number in range(rig.scaled(50_000))
        ],
    )
    headers = common | {f"h{number}": ("l", 2) for number in (1, 2)}
    several = message(1, b"k", exchange=b"x", properties=headers_property(headers)) * 10
    rig.measure()
    peer.raw(several)
    peer.call(1, QueueDeclare("q", passive=True))


@operation("basic.publish", "20 x, a chain of 10,000 exchanges, a key of its own each")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = [f"x{number}" for number in range(rig.scaled(10_000))]
    peer.calls(1, [ExchangeDeclare(name, "fanout") for name in names])
    peer.calls(1, [ExchangeBind(name, before) for before, name in pairwise(names)])
    several = [message(1, b"k%d" % number, exchange=b"x0") for number in range(20)]
    rig.measure()
    peer.raw(b"".join(several))
    peer.call(1, QueueDeclare("q"))


@operation("basic.publish headers exchange", "700 x differing headers, 100,000 bindings")
def _(rig: Rig) -> None:
    peer = rig.peer()
    exchange(peer, "headers")
    declare(peer, ["q"])
    peer.calls(
        1,
        [
            QueueBind("q", "x", arguments={f"h{number}": ("l", number)})
            for number in range(rig.scaled(MANY))
        ],
    )
    several = [
        message(1, b"k", exchange=b"x", properties=headers_property({f"m{n}": ("l", n)}))
        for n in range(700)
    ]
    rig.measure()
    peer.raw(b"".join(several))
    peer.call(1, QueueDeclare("q", passive=True))


# Fan-out.


def _fan_out(queues: int, body: int, count: int, durable: bool = False) -> None:
    size = f"{count} x {body} B to {queues:,} {'durable ' * durable}queues"

    @operation("basic.publish fanout", size)
    def run(rig: Rig) -> None:
        peer = rig.peer()
        exchange(peer, "fanout")
        names = named(rig.scaled(queues))
        declare(peer, names, durable=durable)
        peer.calls(1, [QueueBind(name, "x") for name in names])
        peer.call(1, ConfirmSelect())
        properties = PERSISTENT if durable else b"\0\0"
        one = message(1, b"", bytes(body), b"x", properties)
        rig.measure()
        peer.raw(one * count)
        peer.wait_confirmed(count)


_fan_out(10_000, 0, 200)
_fan_out(10_000, 1 << 16, 20)
_fan_out(10_000, 1 << 20, 5)
_fan_out(10_000, 1 << 10, 20, durable=True)
_fan_out(MANY, 0, 20)
_fan_out(MANY, 1 << 10, 5, durable=True)


@operation("basic.deliver", "64 KiB fanned out to 1,000 queues, one consumer's socket")
def _(rig: Rig) -> None:
    peer, consumer = rig.peer(), rig.peer()
    exchange(peer, "fanout")
    names = named(rig.scaled(1_000))
    declare(peer, names)
    peer.calls(1, [QueueBind(name, "x") for name in names])
    consumer.calls(1, [BasicConsume(name, no_ack=True) for name in names])
    one = message(1, b"", bytes(1 << 16), b"x")
    rig.measure()
    peer.raw(one * 5)
    consumer.wait(spec.BASIC_DELIVER, 5 * len(names))


@operation("basic.publish and deliver", "20 x 64 KiB to 1,000 queues and consumers of one socket")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = named(rig.scaled(1_000))
    declare(peer, names, exclusive=True)
    peer.calls(1, [QueueBind(name, "amq.fanout") for name in names])
    peer.calls(1, [BasicConsume(name, no_ack=True) for name in names])
    rig.measure()
    peer.raw(message(1, b"", bytes(1 << 16), b"amq.fanout") * 20)
    peer.wait(spec.BASIC_DELIVER, 20 * len(names))


def _held_up(channels: int, no_ack: bool) -> None:
    size = f"5 x 64 KiB to 1,000 queues, {channels} channels of a socket read late"

    @operation("basic.deliver" + " and ack" * (not no_ack), size)
    def run(rig: Rig) -> None:
        peer, consumer = rig.peer(), rig.peer()
        exchange(peer, "fanout")
        names = named(rig.scaled(1_000))
        declare(peer, names)
        peer.calls(1, [QueueBind(name, "x") for name in names])
        for number in range(1, channels + 1):
            if number > 1:
                consumer.call(number, ChannelOpen())
            own = names[number - 1 :: channels]
            consumer.calls(number, [BasicConsume(name, no_ack=no_ack) for name in own])
        peer.call(1, ConfirmSelect())
        one = message(1, b"", bytes(1 << 16), b"x")
        rig.measure()
        with consumer.not_reading():
            peer.raw(one * 5)
            peer.wait_confirmed(5)
        consumer.wait(spec.BASIC_DELIVER, 5 * len(names))


_held_up(1, True)
_held_up(1, False)
_held_up(100, True)


@operation("basic.publish", "each to another of 20,000 queues")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = named(rig.scaled(20_000))
    declare(peer, names)
    several = b"".join([message(1, name.encode(), b"body") for name in names])
    rig.measure()
    peer.raw(several)
    peer.call(1, QueueDeclare("q0", passive=True))
