"""Byte streams that tests of the codec are made of: frames, publishes, acks, and what to expect of them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from leveret.amqp.kernel import ACK, ERROR, PUBLISH

FRAME_MAX = 131_072
MESSAGE_MAX = 1 << 27
PLAIN_PROPERTIES = b"\x80\x00\x0atext/plain"
PERSISTENT_PROPERTIES = b"\x90\x00\x0atext/plain\x02"
HEADERS_PROPERTIES = b"\x20\x00\x00\x00\x00\x04\x01at\x01"
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"


def frame(kind: int, channel: int, payload: bytes, end: int = 0xCE) -> bytes:
    return b"%b%b%c" % (struct.pack(">BHI", kind, channel, len(payload)), payload, end)


def publish_method(key: bytes = b"key", exchange: bytes = b"", bits: int = 0) -> bytes:
    return b"\x00\x3c\x00\x28\x00\x00%c%b%c%b%c" % (len(exchange), exchange, len(key), key, bits)


def head(
    size: int, properties: bytes = PLAIN_PROPERTIES, class_id: int = 60, weight: int = 0
) -> bytes:
    return struct.pack(">HHQ", class_id, weight, size) + properties


def publish(
    body: bytes = b"body",
    properties: bytes = PLAIN_PROPERTIES,
    channel: int = 1,
    part: int = FRAME_MAX - 8,
    key: bytes = b"key",
) -> bytes:
    """Return the frames of one message, its body split at ``part`` bytes."""
    parts = (body[at : at + part] for at in range(0, len(body), part))
    return (
        frame(1, channel, publish_method(key))
        + frame(2, channel, head(len(body), properties))
        + b"".join(frame(3, channel, piece) for piece in parts)
    )


def ack(tag: int, channel: int = 1, bits: int = 0) -> bytes:
    return frame(1, channel, struct.pack(">HHQB", 60, 80, tag, bits))


def frames_of(wire: bytes) -> Iterator[bytes]:
    """Cut a stream into its frames."""
    while wire:
        size = 8 + int.from_bytes(wire[3:7], "big")
        yield wire[:size]
        wire = wire[size:]


def in_reads(wire: bytes, size: int) -> list[bytes]:
    """Cut a stream into reads of ``size`` bytes."""
    return [wire[at : at + size] for at in range(0, len(wire), size)]


def events(runs: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return what happened, one entry per message and tag, however reads cut the runs."""
    out: list[Any] = []
    for run in runs:
        if run[0] == PUBLISH:
            out += [(*run[:4], message) for message in run[4]]
        elif run[0] == ACK:
            out += [(*run[:2], tag) for tag in run[2]]
        elif run[0] == ERROR:
            out.append((ERROR, type(run[1]), run[1].text, run[1].method))
        else:
            out.append(run)
    return out


def busy_connection() -> bytes:
    """Return a stream with everything in it that a well-behaved client sends."""
    body = bytes(range(256)) * 2
    qos = struct.pack(">HHIHB", 60, 10, 0, 100, 0)
    interleaved = (
        frame(1, 3, publish_method(b"third"))
        + frame(1, 4, publish_method(b"fourth"))
        + frame(2, 4, head(3))
        + frame(2, 3, head(6))
        + frame(3, 3, b"abc")
        + ack(41, channel=5)
        + frame(3, 4, b"xyz")
        + frame(3, 3, b"def")
    )
    return b"".join(
        (
            frame(1, 1, qos),
            publish() * 12,
            publish(b"same head, other body"[:4]),
            publish(b"longer body"),
            publish(b"", PERSISTENT_PROPERTIES) * 3,
            publish(b"durable", PERSISTENT_PROPERTIES) * 2,
            publish(b"with headers", HEADERS_PROPERTIES),
            HEARTBEAT_FRAME,
            b"".join(ack(tag) for tag in range(1, 40)),
            ack(40, bits=1),
            publish(body, part=100),
            publish(key=b"a") + publish(key=b"a", channel=2) + publish(key=b"a"),
            interleaved,
            publish() * 3,
        )
    )
