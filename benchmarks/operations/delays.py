"""Operations of ``turns.py`` on exchanges of the type ``x-delayed-message``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.peer import Peer, message
from operations.operation import MANY, MILLION, Operations, declare, exchange, named

from leveret.amqp import spec
from leveret.amqp.methods import BasicConsume, ExchangeDelete, QueueBind, QueueDeclare
from leveret.amqp.tables import Table, encode_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from operations.rig import Rig

OPERATIONS = Operations()
operation = OPERATIONS.add

HOUR_MS = 3_600_000
DIRECT: Table = {"x-delayed-type": ("S", b"direct")}


def delayed(rig: Rig, queues: int = 1) -> Peer:
    """Bind queues to an exchange that delays, by their names."""
    peer = rig.peer()
    exchange(peer, "x-delayed-message", arguments=DIRECT)
    names = named(queues)
    declare(peer, names)
    peer.calls(1, [QueueBind(name, "x", name) for name in names])
    return peer


def put(peer: Peer, delays_ms: Iterable[int], key: bytes = b"q0", body: bytes = b"") -> None:
    """Publish a message with each delay; return when the broker has routed them."""
    batch: list[bytes] = []
    for delay_ms in delays_ms:
        properties = b"\x20\x00" + encode_table({"x-delay": ("l", delay_ms)})
        batch.append(message(1, key, body, exchange=b"x", properties=properties))
        if len(batch) == 1_000:
            peer.raw(b"".join(batch))
            batch.clear()
    peer.raw(b"".join(batch))
    peer.call(1, QueueDeclare("q0", passive=True))


@operation("basic.publish x-delayed-message", "10^6, the delays fall")
def _(rig: Rig) -> None:
    peer = delayed(rig)
    rig.measure()
    put(peer, range(2 * HOUR_MS, 2 * HOUR_MS - rig.scaled(MILLION), -1))


@operation("delayed messages due", "100,000 at once, a consumer")
def _(rig: Rig) -> None:
    peer, consumer = delayed(rig), rig.peer()
    consumer.call(1, BasicConsume("q0", no_ack=True))
    rig.measure()
    count = rig.scaled(MANY)
    put(peer, [3_000] * count)
    consumer.wait(spec.BASIC_DELIVER, count)


@operation("delayed messages due", "100 x 1 MiB at once, a consumer")
def _(rig: Rig) -> None:
    peer, consumer = delayed(rig), rig.peer()
    consumer.call(1, BasicConsume("q0", no_ack=True))
    rig.measure()
    put(peer, [3_000] * rig.scaled(100), body=bytes(1 << 20))
    consumer.wait(spec.BASIC_DELIVER, rig.scaled(100))


@operation("delayed messages due", "100 to 10,000 queues")
def _(rig: Rig) -> None:
    peer = rig.peer()
    exchange(peer, "x-delayed-message", arguments={"x-delayed-type": ("S", b"fanout")})
    names = named(rig.scaled(10_000))
    declare(peer, names)
    peer.calls(1, [QueueBind(name, "x", "") for name in names])
    peer.call(1, BasicConsume(names[-1], no_ack=True))
    rig.measure()
    put(peer, [100] * rig.scaled(100))
    peer.wait(spec.BASIC_DELIVER, rig.scaled(100))


@operation("list_delayed_messages, cancel_delayed_messages, purge_queue", "100,000")
def _(rig: Rig) -> None:
    peer, count = delayed(rig), rig.scaled(MANY)
    put(peer, range(HOUR_MS + count, HOUR_MS, -1))
    rig.measure()
    rows = rig.control("list_delayed_messages", vhost="/", exchange="x")
    ids = [str(row["id"]) for row in rows[: count // 2]]
    rig.control("cancel_delayed_messages", vhost="/", exchange="x", ids=ids)
    rig.control("purge_queue", vhost="/", name="amq.delayed.x")
    peer.call(1, ExchangeDelete("x"))
