"""The operations of ``turns.py``: what a peer can send, at a size that the broker's defaults allow.

What the files of operations share. An operation is a function: it prepares, calls ``rig.measure()``, and attacks.
``@operation(name, size)`` puts it into the table. Numbers of queues and bindings have no limit, so theirs are large;
other sizes are at the limit (names, tables, bodies, channels). Behind ``measure`` nothing needs to be waited for but
answers: the table's figure includes the work that the broker does later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.peer import PERSISTENT, Peer, RefusedError, frames, message

from leveret.amqp import spec
from leveret.amqp.methods import (
    BasicConsume,
    ChannelOpen,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from operations.rig import Rig

    from leveret.amqp.tables import Table

MANY = 100_000
MILLION = 1_000_000
TABLE_FIELDS = 18_000  # of a name of three letters and a void: a table of some 100 KB
DEPTH = 120
CHANNELS = 2_047


class Operation(NamedTuple):
    """A row of the table.

    Attributes:
        note: what the table says of it.
    """

    name: str
    size: str
    run: Callable[[Rig], None]
    note: str = ""


class Kind(NamedTuple):
    """Messages and their queue."""

    name: str
    properties: bytes
    durable: bool


KINDS = (Kind("transient", b"\0\0", False), Kind("persistent", PERSISTENT, True))
Run = Callable[["Rig"], None]
OfKind = Callable[["Rig", Kind], None]


class Operations(list[Operation]):
    """The rows of one file."""

    def add(self, name: str, size: str, note: str = "") -> Callable[[Run], Run]:
        """Put a function into the table."""

        def register(run: Run) -> Run:
            self.append(Operation(name, size, run, note))
            return run

        return register

    def of_both_kinds(self, name: str, size: str) -> Callable[[OfKind], OfKind]:
        """Put a function into the table for transient and for persistent messages."""

        def register(run: OfKind) -> OfKind:
            for kind in KINDS:
                self.add(name, size.format(kind.name))(partial(run, kind=kind))
            return run

        return register


# Parts of operations.


def wide(fields: int = TABLE_FIELDS) -> Table:
    """Return a table with many fields."""
    return {f"k{number:x}": ("V", None) for number in range(fields)}


def deep(fields: int = TABLE_FIELDS // 2) -> Table:
    """Return a table with many fields, in levels."""
    table: Table = wide(fields)
    for level in range(DEPTH):
        table = {f"l{level}": ("F", table)}
    return table


def declare(peer: Peer, names: Sequence[str], **options: Any) -> None:
    peer.calls(1, [QueueDeclare(name, **options) for name in names])


def named(count: int, prefix: str = "q") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def exchange(peer: Peer, kind: str, name: str = "x", **options: Any) -> None:
    peer.call(1, ExchangeDeclare(name, kind, **options))


def bind(peer: Peer, count: int, queue: str = "q", key: str = "k{}") -> None:
    peer.calls(1, [QueueBind(queue, "x", key.format(number)) for number in range(count)])


def fill(
    peer: Peer, queue: str, count: int, properties: bytes = b"\0\0", body: bytes = b""
) -> None:
    """Publish to a queue and wait until it has the messages."""
    one = message(1, queue.encode(), body, properties=properties)
    left = count
    while left:
        some = min(left, 10_000)
        peer.raw(one * some)
        left -= some
    found = peer.call(1, QueueDeclare(queue, passive=True))
    assert found.message_count == count, found


def take(peer: Peer, queue: str, count: int, channel: int = 1) -> None:
    """Consume and have everything delivered, without acks."""
    peer.call(channel, BasicConsume(queue))
    peer.wait(spec.BASIC_DELIVER, count)


def open_channels(peer: Peer, count: int) -> list[int]:
    """Open channels 2 to ``count``; return the numbers of all."""
    numbers = list(range(1, count + 1))
    peer.raw(b"".join([frames(number, [ChannelOpen()]) for number in numbers[1:]]))
    peer.wait(spec.CHANNEL_OPEN_OK, count)
    return numbers


def consumers(peer: Peer, channels: Sequence[int], each: int, queue: str, **options: Any) -> None:
    """Start consumers on channels."""
    peer.raw(
        b"".join(
            [
                frames(number, [BasicConsume(queue, f"c{own}", **options) for own in range(each)])
                for number in channels
            ]
        )
    )
    peer.wait(spec.BASIC_CONSUME_OK, len(channels) * each)


def gone(rig: Rig, queue: str) -> None:
    """Check that a queue does not exist."""
    try:
        rig.peer().call(1, QueueDeclare(queue, passive=True))
    except RefusedError:
        return
    raise AssertionError(f"{queue} still exists")
