"""What well-behaved clients say, as bytes, and ways to spoil it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from conformance import wire

PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"


def _method(channel: int, name: str, **fields: Any) -> bytes:
    return wire.frame(wire.METHOD, channel, wire.method(name, **fields))


def _publish(
    channel: int, key: str, body: bytes, exchange: str = "", **properties: Any
) -> list[bytes]:
    return [
        _method(channel, "basic.publish", exchange=exchange, routing_key=key, mandatory=True),
        wire.frame(wire.HEADER, channel, wire.head(len(body), properties)),
        wire.frame(wire.BODY, channel, body),
    ]


def handshake() -> list[bytes]:
    return [
        PROTOCOL_HEADER,
        _method(
            0,
            "connection.start-ok",
            client_properties={"product": "p", "capabilities": {"basic.nack": True}},
            mechanism="PLAIN",
            response="\0guest\0guest",
            locale="en_US",
        ),
        _method(0, "connection.tune-ok", channel_max=100, frame_max=131072, heartbeat=0),
        _method(0, "connection.open", virtual_host="/"),
    ]


def _work_queue() -> list[bytes]:
    return [
        _method(1, "channel.open"),
        _method(1, "basic.qos", prefetch_count=3),
        _method(
            1, "queue.declare", queue="fuzz-w", exclusive=True, arguments={"x-message-ttl": 5000}
        ),
        _method(1, "basic.consume", consumer_tag="c", arguments={"x-priority": 5}),
        *_publish(1, "fuzz-w", b"x" * 300, delivery_mode=2, headers={"a": [1, {"b": None}]}),
        *_publish(1, "fuzz-w", b"", message_id="m", timestamp=1700000000),
        _method(1, "basic.ack", delivery_tag=1),
        _method(1, "basic.nack", delivery_tag=2, requeue=True),
        _method(1, "basic.cancel", consumer_tag="c"),
        _method(1, "channel.close", reply_code=200),
    ]


def _topology() -> list[bytes]:
    return [
        _method(2, "channel.open"),
        _method(2, "exchange.declare", exchange="fuzz-x", type="topic", auto_delete=True),
        _method(2, "exchange.declare", exchange="fuzz-h", type="headers", auto_delete=True),
        _method(2, "exchange.bind", source="fuzz-x", destination="fuzz-h", routing_key="#"),
        _method(2, "queue.declare", exclusive=True),
        _method(2, "queue.bind", exchange="fuzz-h", arguments={"x-match": "any", "k": 1}),
        _method(2, "confirm.select"),
        *_publish(2, "a.b.c", b"body", "fuzz-x", headers={"k": 1, "CC": ["x", "y"]}),
        _method(2, "basic.get", no_ack=False),
        _method(2, "basic.recover", requeue=True),
        _method(2, "queue.purge"),
        _method(2, "queue.unbind", exchange="fuzz-h", arguments={"x-match": "any", "k": 1}),
        _method(2, "queue.delete"),
        _method(2, "exchange.delete", exchange="fuzz-x"),
        _method(2, "channel.flow", active=True),
        _method(0, "connection.close", reply_code=200),
    ]


def _transactions() -> list[bytes]:
    reply_to = "amq.rabbitmq.reply-to"
    return [
        _method(3, "channel.open"),
        _method(3, "queue.declare", queue="fuzz-t", exclusive=True),
        _method(3, "basic.consume", queue=reply_to, consumer_tag="r", no_ack=True),
        _method(3, "tx.select"),
        *_publish(3, "fuzz-t", b"x", reply_to=reply_to, headers={"CC": [f"{reply_to}.x"]}),
        _method(3, "tx.rollback"),
        *_publish(3, f"{reply_to}.abc", b"reply"),
        *_publish(3, "fuzz-t", b"y" * 300, delivery_mode=2),
        _method(3, "tx.commit"),
        _method(3, "basic.get", queue="fuzz-t"),
        _method(3, "basic.ack", delivery_tag=1, multiple=True),
        _method(3, "queue.declare", queue=f"{reply_to}.abc", passive=True),
        _method(3, "channel.close", reply_code=200),
    ]


SESSIONS: tuple[list[bytes], ...] = (
    _work_queue(),
    _topology(),
    _transactions(),
    [*_work_queue(), *_transactions(), *_topology()],
)
EDGES = (0, 1, 0x7F, 0x80, 0xCE, 0xFF)


def _flip(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _edge(rng: random.Random, data: bytearray) -> None:
    at, size = rng.randrange(len(data)), rng.choice((1, 2, 4, 8))
    data[at : at + size] = bytes([rng.choice(EDGES)]) * size


def _cut(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.randint(1, 20)]


def _truncate(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def _repeat(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + rng.randint(1, 200)] * rng.randint(1, 5)


def _noise(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at:at] = rng.randbytes(rng.randint(1, 100))


SPOIL: tuple[Callable[[random.Random, bytearray], None], ...] = (
    _flip, _flip, _edge, _edge, _cut, _truncate, _repeat, _noise,
)  # fmt: skip


def spoiled(rng: random.Random, frames: list[bytes]) -> bytes:
    """Return the session with frames moved or left out at times, and its bytes damaged."""
    frames = frames.copy()
    if rng.random() < 0.3:
        at = rng.randrange(len(frames))
        frame = frames.pop(at)
        if rng.random() < 0.7:
            frames.insert(rng.randrange(len(frames) + 1), frame)
    data = bytearray(b"".join(frames))
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        if data:
            rng.choice(SPOIL)(rng, data)
    return bytes(data)


def invented(rng: random.Random) -> bytes:
    """Return well-formed methods of every kind with arguments and channels at random."""
    out = []
    for _ in range(rng.randint(1, 30)):
        name = rng.choice(list(wire.IDS))
        fields = {field: _value(rng, kind) for field, kind in wire.FIELDS[name]}
        out.append(_method(rng.choice((0, 1, 1, 1, 1, 2, 65535)), name, **fields))
        if name == "basic.publish" and rng.random() < 0.9:
            size = rng.choice((0, 1, 10, 1 << 40))
            out.append(wire.frame(wire.HEADER, 1, wire.head(size, {"headers": _table(rng)})))
            out.append(wire.frame(wire.BODY, 1, b"x" * min(size, 100)))
    return _method(1, "channel.open") + b"".join(out)


WORDS = ("", "q", "fuzz", "amq.direct", "amq.topic", "topic", "x-match", "\r\n", "é", "x" * 255)
KEYS = ("x-expires", "x-match", "x-message-ttl", "alternate-exchange", "x-priority", "CC", "k")


def _value(rng: random.Random, kind: str) -> Any:
    if kind in "os":
        return rng.choice((0, 1, 2, 255))
    if kind in "lL":
        return rng.choice((0, 1, 2, 1 << 31, (1 << 32) - 1))
    if kind == "b":
        return rng.random() < 0.3
    return _table(rng) if kind == "T" else rng.choice(WORDS)


def _table(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    return {rng.choice(KEYS): _field(rng, depth) for _ in range(rng.choice((0, 0, 1, 3)))}


def _field(rng: random.Random, depth: int) -> Any:
    if depth < 3 and rng.random() < 0.3:
        nested = _table(rng, depth + 1)
        return nested if rng.random() < 0.5 else list(nested.values())
    return rng.choice((None, True, 0, -1, 1 << 40, 1.5, "a", "any", "60000", wire.Typed("T", 5)))


def nested_table(depth: int) -> bytes:
    """Return a table of tables, ``depth`` deep, as bytes with its length."""
    inner = b"\0\0\0\0"
    for _ in range(depth):
        content = b"\x01aF" + inner
        inner = len(content).to_bytes(4, "big") + content
    return inner
