"""Operations of ``turns.py`` on transactions and direct replies."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from harness.peer import PERSISTENT, PLAIN, Peer, frames, message
from operations.operation import MANY, MILLION, Operations, bind, declare, exchange, fill, take

from leveret.amqp import spec
from leveret.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicNack,
    BasicRecover,
    QueueDeclare,
    TxCommit,
    TxRollback,
    TxSelect,
)

if TYPE_CHECKING:
    from operations.rig import Rig

OPERATIONS = Operations()
operation = OPERATIONS.add
_REPLY_TO = "amq.rabbitmq.reply-to"
_BLOCK = 10_000


def _transactional(rig: Rig, durable: bool = False) -> Peer:
    peer = rig.peer()
    declare(peer, ["q"], durable=durable)
    peer.call(1, TxSelect())
    return peer


def _publish(peer: Peer, count: int, properties: bytes = PLAIN, body: bytes = b"") -> None:
    one = message(1, b"q", body, properties=properties)
    for at in range(0, count, _BLOCK):
        peer.raw(one * min(_BLOCK, count - at))


@operation("tx.commit", "10^6 publishes to a queue")
def _(rig: Rig) -> None:
    peer = _transactional(rig)
    rig.measure()
    _publish(peer, rig.scaled(MILLION))
    peer.call(1, TxCommit())


@operation("tx.commit", "300,000 persistent publishes to a durable queue")
def _(rig: Rig) -> None:
    peer = _transactional(rig, durable=True)
    rig.measure()
    _publish(peer, rig.scaled(300_000), PERSISTENT)
    peer.call(1, TxCommit())


@operation("tx.commit", "500,000 publishes, each with another key than the last")
def _(rig: Rig) -> None:
    peer = _transactional(rig)
    declare(peer, ["r"])
    rig.measure()
    pair = message(1, b"q") + message(1, b"r")
    for _ in range(rig.scaled(25)):
        peer.raw(pair * _BLOCK)
    peer.call(1, TxCommit())


@operation("tx.commit", "300,000 mandatory publishes that lead nowhere, a key of its own each")
def _(rig: Rig) -> None:
    peer = _transactional(rig)
    rig.measure()
    for at in range(0, rig.scaled(300_000), _BLOCK):
        peer.raw(
            b"".join(
                [message(1, b"k%d" % number, mandatory=True) for number in range(at, at + _BLOCK)]
            )
        )
    peer.call(1, TxCommit())


@operation("tx.commit", "100 publishes to 10,000 queues each")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = [f"q{number}" for number in range(rig.scaled(10_000))]
    declare(peer, names)
    exchange(peer, "fanout")
    for name in names:
        bind(peer, 1, name)
    peer.call(1, TxSelect())
    rig.measure()
    peer.raw(message(1, b"", exchange=b"x") * 100)
    peer.call(1, TxCommit())


@operation("tx.commit", "4 x 128 MiB")
def _(rig: Rig) -> None:
    peer = _transactional(rig)
    rig.measure()
    _publish(peer, 4, body=bytes(rig.scaled(1 << 27)))
    peer.call(1, TxCommit())


def _unacked(rig: Rig) -> tuple[Peer, int]:
    """Return a transactional peer and how many deliveries it has."""
    peer, count = rig.peer(), rig.scaled(MILLION)
    declare(peer, ["q"])
    fill(peer, "q", count)
    take(peer, "q", count)
    peer.call(1, TxSelect())
    return peer, count


def _acks(peer: Peer, count: int, step: int = 1) -> None:
    tags = list(range(1, count + 1, step))
    random.Random(1).shuffle(tags)
    for at in range(0, len(tags), _BLOCK):
        peer.raw(frames(1, [BasicAck(tag) for tag in tags[at : at + _BLOCK]]))


@operation("tx.commit", "10^6 acks one by one, in any order")
def _(rig: Rig) -> None:
    peer, count = _unacked(rig)
    rig.measure()
    _acks(peer, count)
    peer.call(1, TxCommit())


@operation("tx.commit", "one nack of 10^6 deliveries, which come back")
def _(rig: Rig) -> None:
    peer, _ = _unacked(rig)
    rig.measure()
    peer.send(1, BasicNack(0, multiple=True, requeue=True))
    peer.call(1, TxCommit())


@operation("tx.rollback", "10^6 publishes and 10^6 acks")
def _(rig: Rig) -> None:
    peer, count = _unacked(rig)
    rig.measure()
    _publish(peer, count)
    _acks(peer, count)
    peer.call(1, TxRollback())


@operation("tx.rollback", "4 x 128 MiB")
def _(rig: Rig) -> None:
    peer = _transactional(rig)
    rig.measure()
    _publish(peer, 4, body=bytes(rig.scaled(1 << 27)))
    peer.call(1, TxRollback())


@operation("basic.recover", "10^6 unacked, of which a transaction acks every second")
def _(rig: Rig) -> None:
    peer, count = _unacked(rig)
    _acks(peer, count, 2)
    rig.measure()
    peer.call(1, BasicRecover(True))


@operation("socket dropped", "10^6 publishes and 500,000 acks of a transaction")
def _(rig: Rig) -> None:
    peer, count = _unacked(rig)
    _publish(peer, count)
    _acks(peer, count, 2)
    rig.measure()
    peer.drop()


# Direct reply-to.


def _requester(rig: Rig) -> tuple[Peer, bytes]:
    """Return a peer that consumes replies, and the key of its requests."""
    peer = rig.peer()
    declare(peer, ["requests"])
    peer.call(1, BasicConsume(_REPLY_TO, "r", no_ack=True))
    name = _REPLY_TO.encode()
    properties = b"\x02\x00%c%b" % (len(name), name)
    server = rig.peer()
    server.call(1, BasicConsume("requests", "s", no_ack=True))
    peer.raw(message(1, b"requests", properties=properties))
    while not server.head:
        time.sleep(0.01)
    return peer, server.head[15 : 15 + server.head[14]]


@operation("direct replies", "10^5 requests, then 10^5 replies")
def _(rig: Rig) -> None:
    peer, key = _requester(rig)
    server = rig.peer()
    name, count = _REPLY_TO.encode(), rig.scaled(MANY)
    request = message(1, b"requests", properties=b"\x02\x00%c%b" % (len(name), name))
    rig.measure()
    peer.raw(request * count)
    peer.call(1, QueueDeclare("requests", passive=True))
    server.raw(message(1, key) * count)
    peer.wait(spec.BASIC_DELIVER, count)


@operation("direct replies", "4 x 128 MiB")
def _(rig: Rig) -> None:
    peer, key = _requester(rig)
    server = rig.peer()
    big = message(1, key, bytes(rig.scaled(1 << 27)))
    rig.measure()
    for _ in range(4):
        server.raw(big)
    peer.wait(spec.BASIC_DELIVER, 4)


@operation("direct replies", "10^6 to keys that nobody has")
def _(rig: Rig) -> None:
    server = rig.peer()
    count = rig.scaled(MILLION)
    rig.measure()
    for at in range(0, count, _BLOCK):
        keys = [b"amq.rabbitmq.reply-to.%022d" % number for number in range(at, at + _BLOCK)]
        server.raw(b"".join([message(1, key) for key in keys]))
    server.call(1, QueueDeclare("q"))
