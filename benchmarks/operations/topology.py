"""Operations of ``turns.py`` on exchanges, queues and bindings, and operators' work on many of them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from harness.peer import PERSISTENT, Peer, frames, message
from operations.operation import (
    CHANNELS,
    MANY,
    Operations,
    bind,
    declare,
    deep,
    exchange,
    fill,
    named,
    open_channels,
    wide,
)

from leveret.amqp import spec
from leveret.amqp.methods import (
    BasicConsume,
    ChannelClose,
    ChannelOpen,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueUnbind,
)

if TYPE_CHECKING:
    from operations.rig import Rig

    from leveret.amqp.tables import Table

OPERATIONS = Operations()
operation = OPERATIONS.add


# Declarations and arguments.


@operation("queue.declare", "100,000 names of 255 octets, in one write")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = [f"{number:0255}" for number in range(rig.scaled(MANY))]
    rig.measure()
    declare(peer, names)


@operation("queue.declare durable", "20,000 in one write")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = named(rig.scaled(20_000))
    rig.measure()
    declare(peer, names, durable=True)


def _arguments(size: str, arguments: Table) -> None:
    @operation("queue.declare", size)
    def run(rig: Rig) -> None:
        peer = rig.peer()
        rig.measure()
        declare(peer, named(rig.scaled(200)), arguments=arguments)


_arguments("200 x arguments of 100 KB, in one write", wide())
_arguments("200 x arguments 120 levels deep", deep())


@operation("exchange.declare durable", "100,000 in one write")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = named(rig.scaled(MANY), "x")
    rig.measure()
    peer.calls(1, [ExchangeDeclare(name, durable=True) for name in names])


@operation("queue.declare again", "200 x arguments of 100 KB, durable")
def _(rig: Rig) -> None:
    peer = rig.peer()
    several = [QueueDeclare("q", durable=True, arguments=wide())] * rig.scaled(200)
    rig.measure()
    peer.calls(1, several)


@operation("exchange.declare", "200 x arguments of 100 KB, durable")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = named(rig.scaled(200), "x")
    rig.measure()
    peer.calls(1, [ExchangeDeclare(name, durable=True, arguments=wide()) for name in names])


@operation("queue.bind", "200 x arguments of 100 KB, headers, durable")
def _(rig: Rig) -> None:
    peer = rig.peer()
    exchange(peer, "headers", durable=True)
    declare(peer, ["q"], durable=True)
    several = [
        QueueBind("q", "x", f"k{number}", arguments=wide()) for number in range(rig.scaled(200))
    ]
    rig.measure()
    peer.calls(1, several)


@operation("basic.consume", "200 x arguments of 100 KB")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"])
    several = [BasicConsume("q", f"c{n}", arguments=wide()) for n in range(rig.scaled(200))]
    rig.measure()
    peer.calls(1, several)


@operation("channel.open", "2,047 in one write, then closed")
def _(rig: Rig) -> None:
    peer = rig.peer()
    rig.measure()
    channels = open_channels(peer, rig.scaled(CHANNELS))
    peer.raw(b"".join([frames(each, [ChannelClose(200, "", 0, 0)]) for each in channels]))
    peer.wait(spec.CHANNEL_CLOSE_OK, len(channels))


@operation("channel.open and close", "20,000 times the same number, in one write")
def _(rig: Rig) -> None:
    peer = rig.peer()
    count = rig.scaled(20_000)
    rig.measure()
    peer.raw(frames(2, [ChannelOpen(), ChannelClose(200, "", 0, 0)]) * count)
    peer.wait(spec.CHANNEL_CLOSE_OK, count)


# Bindings.


def _bind(kind: str, size: str, key: str, durable: bool, count: int) -> None:
    @operation(f"queue.bind {kind}{' durable' * durable}", size)
    def run(rig: Rig) -> None:
        peer = rig.peer()
        exchange(peer, kind, durable=durable)
        declare(peer, ["q"], durable=durable)
        rig.measure()
        bind(peer, rig.scaled(count), key=key)

    @operation(f"queue.delete {kind}{' durable' * durable}", f"with its {size}")
    def run_delete(rig: Rig) -> None:
        peer = rig.peer()
        exchange(peer, kind, durable=durable)
        declare(peer, ["q"], durable=durable)
        bind(peer, rig.scaled(count), key=key)
        rig.measure()
        peer.call(1, QueueDelete("q"))
        peer.call(1, QueueDeclare("q", durable=durable))

    @operation(f"exchange.delete {kind}{' durable' * durable}", f"with its {size}")
    def run_delete_exchange(rig: Rig) -> None:
        peer = rig.peer()
        exchange(peer, kind, durable=durable)
        declare(peer, ["q"], durable=durable)
        bind(peer, rig.scaled(count), key=key)
        rig.measure()
        peer.call(1, ExchangeDelete("x"))
        exchange(peer, kind, durable=durable)

    @operation(f"queue.unbind {kind}{' durable' * durable}", f"its {size}, in one write")
    def run_unbind(rig: Rig) -> None:
        peer = rig.peer()
        exchange(peer, kind, durable=durable)
        declare(peer, ["q"], durable=durable)
        bind(peer, rig.scaled(count), key=key)
        several = [QueueUnbind("q", "x", key.format(n)) for n in range(rig.scaled(count))]
        rig.measure()
        peer.calls(1, several)


_bind("direct", "100,000 bindings", "k{}", False, MANY)
_bind("topic", "100,000 bindings", "#.a.*.k{}.#", False, MANY)
_bind("headers", "100,000 bindings", "k{}", False, MANY)
_bind("x-consistent-hash", "100,000 bindings of one queue", "1{:06}", False, MANY)
_bind("x-modulus-hash", "100,000 bindings", "k{}", False, MANY)
_bind("x-random", "100,000 bindings", "k{}", False, MANY)
_bind("direct", "40,000 bindings", "k{}", True, 40_000)


@operation("queue.bind fanout", "one exchange to 10,000 queues")
def _(rig: Rig) -> None:
    peer = rig.peer()
    exchange(peer, "fanout")
    names = named(rig.scaled(10_000))
    declare(peer, names)
    rig.measure()
    peer.calls(1, [QueueBind(name, "x") for name in names])


def _between_exchanges(rig: Rig) -> tuple[Peer, list[str]]:
    peer = rig.peer()
    exchange(peer, "direct")
    exchange(peer, "direct", "y")
    keys = named(rig.scaled(MANY), "k")
    peer.calls(1, [ExchangeBind("y", "x", key) for key in keys])
    return peer, keys


@operation("exchange.unbind", "100,000 bindings of two exchanges, in one write")
def _(rig: Rig) -> None:
    peer, keys = _between_exchanges(rig)
    rig.measure()
    peer.calls(1, [ExchangeUnbind("y", "x", key) for key in keys])


@operation("exchange.delete", "target of 100,000 bindings of another exchange")
def _(rig: Rig) -> None:
    peer, _ = _between_exchanges(rig)
    rig.measure()
    peer.call(1, ExchangeDelete("y"))
    exchange(peer, "direct", "y")


@operation("exchange.delete", "400 in one write, each with 900 bindings")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = named(rig.scaled(400), "x")
    declare(peer, ["q"])
    for name in names:
        exchange(peer, "direct", name)
        peer.calls(1, [QueueBind("q", name, f"k{key}") for key in range(900)])
    rig.measure()
    peer.calls(1, [ExchangeDelete(name) for name in names])


@operation("exchange.delete topic", "with 3,000 bindings of 120 words")
def _(rig: Rig) -> None:
    peer = rig.peer()
    exchange(peer, "topic")
    declare(peer, ["q"])
    bind(peer, rig.scaled(3_000), key="{}" + ".#.a" * 60)
    rig.measure()
    peer.call(1, ExchangeDelete("x"))
    exchange(peer, "topic")


@operation("exchange.delete fanout", "bound to 100,000 queues")
def _(rig: Rig) -> None:
    peer = rig.peer()
    exchange(peer, "fanout")
    names = named(rig.scaled(MANY))
    declare(peer, names)
    peer.calls(1, [QueueBind(name, "x") for name in names])
    rig.measure()
    peer.call(1, ExchangeDelete("x"))


@operation("queue.delete", "end of a chain of 20,000 auto-delete exchanges")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = named(rig.scaled(20_000), "x")
    peer.calls(1, [ExchangeDeclare(name, "fanout", auto_delete=True) for name in names])
    pairs = pairwise(names)
    peer.calls(1, [ExchangeBind(after, before) for before, after in pairs])
    declare(peer, ["q"])
    peer.call(1, QueueBind("q", names[-1]))
    rig.measure()
    peer.call(1, QueueDelete("q"))
    exchange(peer, "direct", names[0])


@operation("queue.delete", "the only queue of 20,000 auto-delete exchanges")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = named(rig.scaled(20_000), "x")
    peer.calls(1, [ExchangeDeclare(name, "fanout", auto_delete=True) for name in names])
    declare(peer, ["q"])
    peer.calls(1, [QueueBind("q", name) for name in names])
    rig.measure()
    peer.call(1, QueueDelete("q"))
    exchange(peer, "direct", names[0])


@operation("basic.publish", "through a chain of 10,000 exchanges")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = named(rig.scaled(10_000), "x")
    peer.calls(1, [ExchangeDeclare(name, "fanout") for name in names])
    pairs = pairwise(names)
    peer.calls(1, [ExchangeBind(after, before) for before, after in pairs])
    rig.measure()
    for number in range(20):
        peer.raw(message(1, b"%d" % number, exchange=b"x0"))
    peer.call(1, QueueDeclare("q"))


# Operators' work.

_POLICY: dict[str, Any] = {"vhost": "/", "name": "p", "pattern": "", "priority": 0}


@operation("set_policy, clear_policy", "100,000 queues")
def _(rig: Rig) -> None:
    declare(rig.peer(), named(rig.scaled(MANY)))
    rig.measure()
    definition = json.dumps({"message-ttl": 1000})
    rig.control("set_policy", **_POLICY, definition=definition, apply_to="all")
    rig.control("clear_policy", vhost="/", name="p")


def _topology(rig: Rig) -> Peer:
    peer = rig.peer()
    exchange(peer, "direct", durable=True)
    names = named(rig.scaled(50_000))
    declare(peer, names, durable=True)
    peer.calls(1, [QueueBind(name, "x", "k") for name in names])
    return peer


@operation("list_queues, list_bindings, export", "50,000 queues, 50,000 bindings")
def _(rig: Rig) -> None:
    _topology(rig)
    rig.measure()
    for verb in ("list_queues", "list_bindings", "list_exchanges"):
        rig.control(verb, vhost="/")
    rig.control("export_definitions")


@operation("import_definitions", "50,000 queues, 50,000 bindings")
def _(rig: Rig) -> None:
    names = named(rig.scaled(50_000))
    common: dict[str, Any] = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    definitions = {
        "exchanges": [{**common, "name": "x", "type": "direct", "internal": False}],
        "queues": [{**common, "name": name} for name in names],
        "bindings": [
            {
                "source": "x", "vhost": "/", "destination": name, "destination_type": "queue",
                "routing_key": "k", "arguments": {},
            }
            for name in names
        ],
    }  # fmt: skip
    rig.measure()
    rig.control("import_definitions", document=definitions)


@operation("delete_vhost", "20,000 queues, 20,000 bindings")
def _(rig: Rig) -> None:
    rig.control("add_vhost", name="v")
    rig.control("set_permissions", vhost="v", user="guest", configure=".*", write=".*", read=".*")
    peer = rig.peer(vhost="v")
    exchange(peer, "direct", durable=True)
    names = named(rig.scaled(20_000))
    declare(peer, names, durable=True)
    peer.calls(1, [QueueBind(name, "x", "k") for name in names])
    rig.measure()
    rig.control("delete_vhost", name="v")


@operation("memory limit", "2 GB in 10 queues, then a limit of 500 MB")
def _(rig: Rig) -> None:
    peer = rig.peer()
    names = named(10)
    declare(peer, names, durable=True)
    for name in names:
        fill(peer, name, rig.scaled(50_000), PERSISTENT, bytes(4_096))
    rig.measure()
    rig.control("set_vm_memory_high_watermark", size_bytes=500_000_000, share=None)
    rig.settle()
    peer.calls(1, [QueueDelete(name) for name in names])
