"""Operations of ``turns.py`` on dead letters and length limits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.peer import PERSISTENT, Peer, frames, message
from operations.messages import headers_property
from operations.operation import (
    KINDS,
    MANY,
    MILLION,
    Kind,
    Operations,
    declare,
    deep,
    exchange,
    fill,
    named,
    open_channels,
    take,
    wide,
)

from leveret.amqp.methods import (
    BasicNack,
    ConfirmSelect,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)

if TYPE_CHECKING:
    from operations.rig import Rig

    from leveret.amqp.tables import Table

OPERATIONS = Operations()
operation = OPERATIONS.add
TTL_S = 15
TO_X: Table = {"x-dead-letter-exchange": ("S", b"x")}


def policy(rig: Rig, **values: int | str) -> None:
    """Set a policy for the queue ``q``."""
    definition = json.dumps({name.replace("_", "-"): value for name, value in values.items()})
    rig.control(
        "set_policy", vhost="/", name="p", pattern="^q$", definition=definition,
        priority=0, apply_to="queues",
    )  # fmt: skip


def dead_lettering(rig: Rig, kind: Kind, targets: int = 1, **arguments: int) -> Peer:
    """Return a peer with a queue ``q`` that dead-letters to some queues over a fanout exchange."""
    peer = rig.peer()
    exchange(peer, "fanout")
    names = named(targets, "dead")
    declare(peer, names, durable=kind.durable)
    peer.calls(1, [QueueBind(name, "x") for name in names])
    own: Table = {f"x-{name.replace('_', '-')}": ("l", value) for name, value in arguments.items()}
    declare(peer, ["q"], durable=kind.durable, arguments=TO_X | own)
    return peer


@OPERATIONS.of_both_kinds("dead letters", "10^6 {}, expired at once")
def _(rig: Rig, kind: Kind) -> None:
    peer = dead_lettering(rig, kind, message_ttl=TTL_S * 1000)
    one = message(1, b"q", properties=kind.properties)
    rig.measure()
    flood(peer, one * 10_000, rig.scaled(100))
    rig.settle()
    time.sleep(TTL_S)  # then all are due
    rig.settle()


@OPERATIONS.of_both_kinds("dead letters", "10^6 {}, rejected by one nack")
def _(rig: Rig, kind: Kind) -> None:
    peer = dead_lettering(rig, kind)
    fill(peer, "q", rig.scaled(MILLION), kind.properties)
    take(peer, "q", rig.scaled(MILLION))
    rig.measure()
    peer.send(1, BasicNack(0, multiple=True, requeue=False))
    rig.settle()


@OPERATIONS.of_both_kinds("dead letters", "10^6 {}, a policy's max-length")
def _(rig: Rig, kind: Kind) -> None:
    peer = dead_lettering(rig, kind)
    fill(peer, "q", rig.scaled(MILLION), kind.properties)
    rig.measure()
    policy(rig, max_length=1)
    rig.settle()


@OPERATIONS.of_both_kinds("max-length by policy", "10^6 {} dropped")
def _(rig: Rig, kind: Kind) -> None:
    peer = rig.peer()
    declare(peer, ["q"], durable=kind.durable)
    fill(peer, "q", rig.scaled(MILLION), kind.properties)
    rig.measure()
    policy(rig, max_length_bytes=1, max_length=1)
    rig.settle()


@operation("max-length by policy", "255 priorities, 255,000 messages")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"], arguments={"x-max-priority": ("l", 255)})
    block = b"".join([message(1, b"q", properties=b"\x08\x00%c" % level) for level in range(255)])
    for _ in range(rig.scaled(1_000)):
        peer.raw(block)
    peer.call(1, QueueDeclare("q", passive=True))
    rig.measure()
    policy(rig, max_length=1)
    rig.settle()


@operation("dead letters", "10^6 rejected, and a purge and a deletion of the queue amid them")
def _(rig: Rig) -> None:
    peer = dead_lettering(rig, KINDS[0])
    fill(peer, "q", rig.scaled(MILLION))
    take(peer, "q", rig.scaled(MILLION))
    rig.measure()
    peer.send(1, BasicNack(0, multiple=True, requeue=False))
    peer.call(1, QueuePurge("q"))
    peer.call(1, QueueDelete("q"))


@operation("dead letters", "10^6 rejected, their target is deleted amid them")
def _(rig: Rig) -> None:
    peer = dead_lettering(rig, KINDS[1])
    fill(peer, "q", rig.scaled(MILLION), PERSISTENT)
    take(peer, "q", rig.scaled(MILLION))
    rig.measure()
    peer.send(1, BasicNack(0, multiple=True, requeue=False))
    peer.call(1, QueueDelete("dead0"))
    rig.settle()


def _fan_out(targets: int, count: int, kind: Kind) -> None:
    @operation("dead letters", f"{count} {kind.name}, each to {targets:,} queues")
    def run(rig: Rig) -> None:
        peer = dead_lettering(rig, kind, rig.scaled(targets), message_ttl=1)
        rig.measure()
        peer.raw(message(1, b"q", bytes(1024), properties=kind.properties) * count)
        rig.settle()


_fan_out(10_000, 200, KINDS[0])
_fan_out(10_000, 20, KINDS[1])
_fan_out(MANY, 5, KINDS[0])


def _headers(what: str, headers: Callable[[], Table]) -> None:
    @operation("dead letters", f"300 x headers {what}")
    def run(rig: Rig) -> None:
        peer = dead_lettering(rig, KINDS[0], message_ttl=1)
        several = [
            message(1, b"q", properties=headers_property(headers() | {"n": ("l", number)}))
            for number in range(20)
        ]
        rig.measure()
        for _ in range(rig.scaled(15)):
            peer.raw(b"".join(several))
        rig.settle()


_headers("of 100 KB", wide)
_headers("120 levels deep", deep)
_headers("with 2,000 deaths", lambda: {"x-death": ("A", [_death(n) for n in range(2_000)])})
_headers("with a death of 18,000 fields", lambda: {"x-death": ("A", [("F", wide())])})


def _death(number: int) -> tuple[str, Table]:
    return ("F", {"queue": ("S", b"q%d" % number), "reason": ("S", b"expired"), "count": ("l", 1)})


@operation("dead letters", "topic, 8,192 patterns of which all nodes stay live, 3 KB of CC keys")
def _(rig: Rig) -> None:
    peer = rig.peer()
    exchange(peer, "topic")
    declare(peer, ["dead"])
    ways = [
        ".".join(["a.#" if bit == "0" else "*.a.#" for bit in f"{number:013b}"])
        for number in range(rig.scaled(8_192))
    ]
    peer.calls(1, [QueueBind("dead", "x", f"#.{way}.b") for way in ways])
    declare(peer, ["q"], arguments=TO_X | {"x-message-ttl": ("l", 1)})
    keys = ("A", [("S", b".".join([b"a"] * number)) for number in range(117, 127)])
    rig.measure()
    peer.raw(message(1, b"q", properties=headers_property({"CC": keys})))
    rig.settle()


def flood(peer: Peer, block: bytes, times: int) -> None:
    """Publish blocks to the queue ``q``, and wait until it has handled them."""
    for _ in range(times):
        peer.raw(block)
    peer.call(1, QueueDeclare("q", passive=True))


def full_queue(rig: Rig) -> Peer:
    """Make the queue ``q`` one that takes small messages, and refuses others."""
    peer = rig.peer()
    arguments: Table = {
        "x-max-length-bytes": ("l", 1 << 40),
        "x-overflow": ("S", b"reject-publish"),
    }
    declare(peer, ["q"], arguments=arguments)
    fill(peer, "q", 1, body=bytes(1_000))
    policy(rig, max_length_bytes=1_010)
    return peer


@operation("reject-publish", "10^6, every second one too large")
def _(rig: Rig) -> None:
    peer = full_queue(rig)
    peer.call(1, ConfirmSelect())
    two = message(1, b"q", bytes(100)) + message(1, b"q")
    rig.measure()
    flood(peer, two * 1_000, rig.scaled(500))


@operation(
    "reject-publish", "2,000 channels take turns, 500,000 messages, every second one too large"
)
def _(rig: Rig) -> None:
    peer = full_queue(rig)
    channels = open_channels(peer, rig.scaled(2_000))
    peer.raw(b"".join([frames(number, [ConfirmSelect()]) for number in channels]))
    peer.call(1, QueueDeclare("q", passive=True))
    one_each = [message(number, b"q", bytes(100 * (number % 2))) for number in channels]
    rig.measure()
    flood(peer, b"".join(one_each), 250)


@operation("reject-publish-dlx", "10^6, of which the queue takes none")
def _(rig: Rig) -> None:
    peer = rig.peer()
    exchange(peer, "fanout")
    declare(peer, ["dead"])
    peer.call(1, QueueBind("dead", "x"))
    own: Table = {"x-max-length": ("l", 0), "x-overflow": ("S", b"reject-publish-dlx")}
    declare(peer, ["q"], arguments=TO_X | own)
    one = message(1, b"q")
    rig.measure()
    flood(peer, one * 10_000, rig.scaled(100))


@operation("drop-head", "10^6 to a queue with priorities and x-max-length-bytes")
def _(rig: Rig) -> None:
    peer = rig.peer()
    own: Table = {"x-max-length-bytes": ("l", 1_000), "x-max-priority": ("l", 9)}
    declare(peer, ["q"], arguments=own)
    block = b"".join(
        [message(1, b"q", bytes(100), properties=b"\x08\x00%c" % level) for level in range(10)]
    )
    rig.measure()
    flood(peer, block * 100, rig.scaled(1_000))
