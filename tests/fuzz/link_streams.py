"""What linked nodes say, recorded, and frames of links that are well formed and make no sense."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack
import pytest

from leveret.actors.links.frames import GRANTED, HEADER, LARGE, Kind
from leveret.actors.links.sendable import Pieces
from leveret.actors.runtime.ref import Ref
from leveret.testing.links import SimulatedWire
from rigs.links.linked_nodes import LinkedNodes, Noting

STREAMS = (0, 1, 1, 1, 2, 2, 3, 1 << 20, (1 << 32) - 1)
KINDS = (
    Kind.OPEN, Kind.OPEN, Kind.RUN, Kind.RUN, Kind.RUN, Kind.RUN, Kind.FIRST, Kind.FIRST, Kind.SIGNAL, Kind.SIGNAL,
    Kind.SIGNAL, Kind.CLOSE, Kind.HEARTBEAT, Kind.HEARTBEAT, Kind.HEARTBEAT, *[Kind.RUN] * 10, Kind.MORE, Kind.GRANT,
)  # fmt: skip
EDGES = (0, 1, 1 << 20, (1 << 32) - 1)
NUMBERS = (-1, 0, 1, 2, 3, 4, 5, 1 << 31, 1 << 62, (1 << 64) - 1)


class Frame(NamedTuple):
    """A frame without its incarnation."""

    kind: int
    stream: int
    payload: bytes

    def packed(self, incarnation: int) -> bytes:
        return HEADER.pack(len(self.payload), incarnation, self.kind, self.stream) + self.payload


def recorded() -> list[list[Frame]]:
    """Return what each of two nodes says to the other, behind the handshake."""
    said: dict[int, bytearray] = {}
    with pytest.MonkeyPatch.context() as patched:
        write = SimulatedWire.write

        def note(wire: SimulatedWire, data: list[Any]) -> None:
            if wire.endpoint.is_made:
                said.setdefault(id(wire), bytearray()).extend(b"".join(data))
            write(wire, data)

        patched.setattr(SimulatedWire, "write", note)
        _talk(LinkedNodes(1))
    return [_frames(bytes(data)) for data in said.values()]


def _talk(nodes: LinkedNodes) -> None:
    """Have the actors of two nodes do everything that links carry."""
    at_a, at_b = [nodes.spawn("a") for _ in range(3)], [nodes.spawn("b") for _ in range(3)]
    for here, there, name in ((at_a, at_b, "a"), (at_b, at_a, "b")):
        for (sender, _), (receiver, _) in zip(here, there, strict=True):
            to = nodes.ref(name, receiver)
            nodes.runtimes[name].send(sender, _doings(to, sender))
    nodes.run(1.0)
    nodes.runtimes["a"].exit(at_a[0][0], "kill")
    nodes.runtimes["b"].exit(at_b[1][0], "reason")
    nodes.run(3.0)


def _doings(to: Ref, me: Ref) -> Callable[[Noting], None]:
    def do(actor: Noting) -> None:
        actor.monitor(to)
        for value in (None, 1, "text", b"bytes", (to, me, [1.5, {"k": to}]), b"." * 20_000):
            actor.post(to, value)
        actor.link(to)
        actor.post(to, Pieces([b"a" * 10, b"b" * 40_000]))
        actor.post(to, (b"x" * 300_000, b"y" * 17_000))
        actor.unlink(to)
        actor.post(to, "last")

    return do


def _frames(data: bytes) -> list[Frame]:
    frames = []
    at = 0
    while at < len(data):
        size, _, kind, stream = HEADER.unpack_from(data, at)
        begin = at + HEADER.size
        at = begin + size
        frames.append(Frame(kind, stream, data[begin:at]))
    return frames


def invented(rng: random.Random) -> list[Frame]:
    """Return frames of every kind, with contents at random, and most of them on streams that are open."""
    frames: list[Frame] = []
    opened: list[int] = []
    for _ in range(rng.randint(1, 40)):
        kind = Kind.OPEN if not opened else rng.choice(KINDS)
        stream = rng.choice(opened) if opened and rng.random() < 0.97 else rng.choice(STREAMS)
        if kind is Kind.OPEN:
            stream = rng.choice((len(opened) + 1, len(opened) + 1, len(opened) + 1, stream))
            opened.append(stream)
        elif kind is Kind.CLOSE and stream in opened:
            opened.remove(stream)
        elif kind is Kind.SIGNAL and rng.random() < 0.5:
            stream = 0
        frames.append(Frame(kind, stream, _PAYLOADS[kind](rng)))
        if kind is Kind.FIRST:
            frames += _rest(rng, frames[-1])
    return frames


def _rest(rng: random.Random, first: Frame) -> list[Frame]:
    """Return what is missing of a large mail, or a little less or more."""
    size, _ = LARGE.unpack_from(first.payload)
    missing = min(size, 1000) + LARGE.size - len(first.payload) + rng.choice((0, 0, 0, 0, -1, 1))
    if missing <= 0 or rng.random() < 0.1:
        return []
    data = rng.randbytes(missing)
    cut = rng.randint(0, missing)
    return [Frame(Kind.MORE, first.stream, part) for part in (data[:cut], data[cut:])]


def _nothing(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((0, 0, 0, 0, 1)))


def _large(rng: random.Random) -> bytes:
    message = msgpack.packb(value(rng))
    size = len(message) + rng.choice((0, 0, 0, 7, 600))
    if rng.random() < 0.05:
        return LARGE.pack(rng.choice(EDGES), rng.choice(EDGES)) + message
    return LARGE.pack(size, len(message)) + message[: rng.choice((0, 5, 1000))]


_PAYLOADS: dict[int, Callable[[random.Random], bytes]] = {
    Kind.HEARTBEAT: _nothing,
    Kind.OPEN: lambda rng: msgpack.packb(
        [rng.choice((None, None, None, value(rng, 3))), rng.choice(NUMBERS)]
    ),
    Kind.RUN: lambda rng: b"".join(msgpack.packb(value(rng)) for _ in range(rng.randint(0, 5))),
    Kind.FIRST: _large,
    Kind.MORE: lambda rng: rng.randbytes(rng.choice((0, 1, 50, 100))),
    Kind.GRANT: lambda rng: GRANTED.pack(rng.choice((0, 1, 1 << 31)), rng.choice((0, 1, 1 << 31))),
    Kind.CLOSE: _nothing,
    Kind.SIGNAL: lambda rng: msgpack.packb(
        [rng.randint(-1, 7), *[value(rng) for _ in range(rng.randint(0, 4))]]
    ),
}


def value(rng: random.Random, depth: int = 0) -> Any:
    """Return a value of msgpack, with extensions of known and unknown numbers."""
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return rng.choice(NUMBERS)
    if kind == 1:
        return rng.choice((None, True, 1.5, "kill", "normal", "shutdown", "b/1", "é"))
    if kind == 2:
        return rng.randbytes(rng.choice((0, 1, 8, 9, 100)))
    if kind in (3, 4, 5):
        inner = value(rng, depth + 1)
        packed = msgpack.packb(inner) if rng.random() < 0.8 else rng.randbytes(9)
        return msgpack.ExtType(rng.randint(0, 12), packed)
    if kind == 6:
        return {rng.choice(("a", 1, b"x")): value(rng, depth + 1)}
    return [value(rng, depth + 1) for _ in range(rng.randint(0, 4))]
