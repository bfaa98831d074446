"""Operations of ``turns.py`` on exchange types beyond AMQP's, and on the firehose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.peer import Peer, message
from operations.operation import (
    MANY,
    MILLION,
    Operations,
    declare,
    exchange,
    fill,
    named,
    take,
    wide,
)

from leveret.amqp.methods import BasicConsume, QueueBind, QueueDeclare, QueueDelete
from leveret.amqp.tables import encode_table

if TYPE_CHECKING:
    from operations.rig import Rig

OPERATIONS = Operations()
operation = OPERATIONS.add


def bound(rig: Rig, kind: str, queues: int) -> Peer:
    """Bind as many queues to an exchange."""
    peer = rig.peer()
    exchange(peer, kind)
    names = named(max(2, rig.scaled(queues)))
    declare(peer, names)
    peer.calls(1, [QueueBind(name, "x", "1") for name in names])
    return peer


def _publish(kind: str, queues: int, messages: int) -> None:
    @operation(f"basic.publish {kind}", f"{messages:,} keys, {queues:,} queues")
    def run(rig: Rig) -> None:
        peer = bound(rig, kind, queues)
        rig.measure()
        for first in range(0, rig.scaled(messages), 1_000):
            keys = [b"k%d" % number for number in range(first, first + 1_000)]
            peer.raw(b"".join([message(1, key, exchange=b"x") for key in keys]))
        peer.call(1, QueueDeclare("q0", passive=True))


_publish("x-consistent-hash", 10, MANY)
_publish("x-consistent-hash", 20_000, 1_000)
_publish("x-modulus-hash", 20_000, 1_000)
_publish("x-random", 20_000, MANY)


@operation(
    "basic.publish x-random", "10,000 while the queue of all but one of 100,000 bindings is deleted"
)
def _(rig: Rig) -> None:
    peer = bound(rig, "x-random", 2)
    peer.calls(1, [QueueBind("q0", "x", f"k{number}") for number in range(rig.scaled(MANY))])
    rig.measure()
    other = rig.peer()
    other.send(1, QueueDelete("q0"))
    peer.raw(message(1, b"k", exchange=b"x") * rig.scaled(10_000))
    peer.call(1, QueueDeclare("q1", passive=True))


def traced(rig: Rig) -> Peer:
    """Turn the firehose on, with a queue that gets all copies."""
    peer = rig.peer()
    declare(peer, ["q", "copies"])
    peer.call(1, QueueBind("copies", "amq.rabbitmq.trace", "#"))
    rig.control("trace_on", vhost="/", rate=1.0)
    return peer


@operation("firehose", "10^6 published and delivered")
def _(rig: Rig) -> None:
    peer = traced(rig)
    rig.measure()
    fill(peer, "q", rig.scaled(MILLION))
    take(peer, "q", rig.scaled(MILLION))


@operation("firehose", "200 x headers of 100 KB")
def _(rig: Rig) -> None:
    peer = traced(rig)
    properties = b"\x20\x00" + encode_table(wide())
    rig.measure()
    fill(peer, "q", rig.scaled(200), properties)


@operation("firehose", "1,000 to 500 queues with long names, a consumer that does not read")
def _(rig: Rig) -> None:
    peer, deaf = traced(rig), rig.peer()
    names = [f"{'n' * 240}{number}" for number in range(rig.scaled(500))]
    declare(peer, names)
    peer.calls(1, [QueueBind(name, "amq.fanout", "") for name in names])
    with deaf.not_reading():
        deaf.send(1, BasicConsume("copies", no_ack=True))
        rig.measure()
        peer.raw(message(1, b"", exchange=b"amq.fanout") * rig.scaled(1_000))
        peer.call(1, QueueDeclare("q", passive=True))


@operation("firehose", "1,000 x 1 MiB")
def _(rig: Rig) -> None:
    peer = traced(rig)
    rig.measure()
    fill(peer, "q", rig.scaled(1_000), body=bytes(1 << 20))


@operation("firehose", "100 to 10,000 queues, copied to 10,000")
def _(rig: Rig) -> None:
    peer = bound(rig, "fanout", 10_000)
    peer.calls(
        1, [QueueBind(name, "amq.rabbitmq.trace", "#") for name in named(rig.scaled(10_000))]
    )
    rig.control("trace_on", vhost="/", rate=1.0)
    rig.measure()
    peer.raw(message(1, b"k", exchange=b"x") * rig.scaled(100))
    peer.call(1, QueueDeclare("q0", passive=True))
