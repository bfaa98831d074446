"""Operations of ``turns.py`` that operators ask for: users, permissions, policies, listings."""

from __future__ import annotations

import json
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from harness.peer import PERSISTENT, Peer, frames, message
from operations.operation import (
    CHANNELS,
    MANY,
    Operations,
    consumers,
    declare,
    exchange,
    fill,
    named,
    open_channels,
)

from leveret.amqp import spec
from leveret.amqp.methods import BasicConsume, QueueDeclare

if TYPE_CHECKING:
    from operations.rig import Rig

OPERATIONS = Operations()
operation = OPERATIONS.add

COSTLY = "^(a+)+[xy]"
"""An expression that is stopped at its bound in the names below."""


def _users(rig: Rig) -> dict[str, Any]:
    """Return definitions of users with permissions."""
    names = named(rig.scaled(MANY), "u")
    secret = b64encode(bytes(36)).decode()
    return {
        "users": [{"name": name, "password_hash": secret, "tags": []} for name in names],
        "permissions": [
            {"user": name, "vhost": "/", "configure": f"^{name}", "write": f"^{name}", "read": ".*"}
            for name in names
        ],
    }


@operation("control socket", "parts of 40,000 lists, from 15 clients at once")
def _(rig: Rig) -> None:
    part = b'{"part":["document","queues"],"items":[%b]}\n' % b",".join([b"[]"] * 40_000)
    rig.measure()
    with ThreadPoolExecutor(15) as clients:
        list(clients.map(rig.control_bytes, [part * rig.scaled(30)] * 15))


@operation("import, list, export users", "100,000 users with permissions of their own")
def _(rig: Rig) -> None:
    document = _users(rig)
    rig.measure()
    rig.control("import_definitions", document=document)
    rig.control("list_users")
    rig.control("list_permissions", vhost="/")
    rig.control("export_definitions")


@operation("import_definitions", "100,000 users with permissions, again")
def _(rig: Rig) -> None:
    document = _users(rig)
    rig.control("import_definitions", document=document)
    rig.measure()
    rig.control("import_definitions", document=document)


@operation("close_all_connections", "500 connections of 4 channels, each with a consumer")
def _(rig: Rig) -> None:
    peers = [rig.peer() for _ in range(rig.scaled(500))]
    declare(peers[0], ["q"])
    for each in peers:
        consumers(each, open_channels(each, 4), 1, "q")
    rig.measure()
    rig.control("close_all_connections", vhost=None, reason="maintenance")
    for each in peers:
        each.wait(spec.CONNECTION_CLOSE)


def _connections(rig: Rig, vhost: str = "/") -> list[Peer]:
    """Open 2,000 connections with a consumer each."""
    peers = [rig.peer(vhost=vhost) for _ in range(rig.scaled(2_000))]
    declare(peers[0], ["q"])
    for each in peers:
        each.call(1, BasicConsume("q"))
    return peers


@operation("clear_permissions, set_permissions", "2,000 connections of the user")
def _(rig: Rig) -> None:
    peers = _connections(rig)
    rig.measure()
    rig.control("clear_permissions", vhost="/", user="guest")
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    rig.control("set_permissions", vhost="/", user="guest", **rights)
    for each in peers:
        each.raw(message(1, b"q"))


@operation("delete_user", "2,000 connections of the user")
def _(rig: Rig) -> None:
    peers = _connections(rig)
    rig.measure()
    rig.control("delete_user", name="guest")
    for each in peers:
        each.wait(spec.CONNECTION_CLOSE)


@operation("delete_vhost", "2,000 connections, 20,000 queues")
def _(rig: Rig) -> None:
    rig.control("add_vhost", name="v")
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    rig.control("set_permissions", vhost="v", user="guest", **rights)
    peers = _connections(rig, vhost="v")
    declare(peers[0], named(rig.scaled(20_000)), durable=True)
    rig.measure()
    rig.control("delete_vhost", name="v")
    for each in peers:
        each.wait(spec.CONNECTION_CLOSE)


def _policies(count: int, pattern: str) -> list[dict[str, Any]]:
    definition = {"message-ttl": 1000}
    common = {"vhost": "/", "definition": definition, "apply-to": "all", "priority": 0}
    return [{**common, "name": f"p{number}", "pattern": pattern} for number in range(count)]


@operation("policies", "1,000 whose search is stopped at its bound, 20 queues")
def _(rig: Rig) -> None:
    names = [f"{'a' * 250}{number:04}" for number in range(20)]
    rig.measure()
    rig.control("import_definitions", document={"policies": _policies(1_000, COSTLY)})
    declare(rig.peer(), names)
    definition = json.dumps({"message-ttl": 1000})
    policy = {"vhost": "/", "name": "p", "pattern": "", "priority": -1}
    rig.control("set_policy", **policy, definition=definition, apply_to="all")
    rig.control("export_definitions")


@operation("policies", "1,000 that apply to nothing, 10,000 queues")
def _(rig: Rig) -> None:
    rig.measure()
    rig.control("import_definitions", document={"policies": _policies(1_000, "^other")})
    declare(rig.peer(), named(rig.scaled(10_000)))
    rig.control("clear_policy", vhost="/", name="p0")


@operation("status, tree, list_connections", "100,000 queues, 400 connections")
def _(rig: Rig) -> None:
    peers = [rig.peer() for _ in range(400)]
    declare(peers[0], named(rig.scaled(MANY)))
    rig.measure()
    rig.control("status")
    rig.control("tree")
    rig.control("list_connections")
    rig.control("list_queues", vhost="/")


@operation(
    "list_channels, list_consumers, memory_breakdown",
    "49 connections of 2,047 channels, a consumer each",
)
def _(rig: Rig) -> None:
    peers = [rig.peer() for _ in range(rig.scaled(MANY) // CHANNELS + 1)]
    declare(peers[0], ["q"])
    for each in peers:
        consumers(each, open_channels(each, CHANNELS), 1, "q")
    rig.measure()
    rig.control("list_channels")
    rig.control("list_consumers", vhost="/")
    rig.control("memory_breakdown")


@operation("list_consumers", "100,000 of one channel, with arguments")
def _(rig: Rig) -> None:
    peer = rig.peer()
    declare(peer, ["q"])
    consumers(peer, [1], rig.scaled(MANY), "q", arguments={"x-priority": ("I", 5)})
    rig.measure()
    rig.control("list_consumers", vhost="/")
    rig.control("list_channels")


@operation("close_all_user_connections", "2,000 connections of the user")
def _(rig: Rig) -> None:
    peers = _connections(rig)
    rig.measure()
    rig.control("close_all_user_connections", user="guest", reason="maintenance")
    for each in peers:
        each.wait(spec.CONNECTION_CLOSE)


@operation("topic permissions", "100,000 of one user set by a file, listed, cleared")
def _(rig: Rig) -> None:
    topics = {"user": "guest", "vhost": "/", "write": "^a", "read": ".*"}
    rows = [{**topics, "exchange": name} for name in named(rig.scaled(MANY), "x")]
    rig.measure()
    rig.control("import_definitions", document={"topic_permissions": rows})
    rig.control("list_topic_permissions", vhost="/")
    rig.control("set_topic_permissions", **topics, exchange="y")
    rig.control("clear_topic_permissions", vhost="/", user="guest", exchange=None)


@operation("list_unresponsive_queues", "100,000 queues")
def _(rig: Rig) -> None:
    declare(rig.peer(), named(rig.scaled(MANY)))
    rig.measure()
    rig.control("list_unresponsive_queues", vhost="/", queue_timeout_s=15.0)


@operation("purge_queue, delete_queue", "100,000 persistent messages each")
def _(rig: Rig) -> None:
    peer, names = rig.peer(), ["p", "d"]
    declare(peer, names, durable=True)
    for name in names:
        fill(peer, name, rig.scaled(MANY), PERSISTENT)
    rig.measure()
    rig.control("purge_queue", vhost="/", name="p")
    rig.control("delete_queue", vhost="/", name="d", if_empty=False, if_unused=False)


@operation("import_definitions", "200 MB that is no JSON")
def _(rig: Rig) -> None:
    rig.measure()
    rig.control_bytes(b'[{"a":' * rig.scaled(200_000_000 // 6))


def _guest(rig: Rig, configure: str = ".*", topic: str = ".*") -> None:
    granted = {"user": "guest", "vhost": "/", "configure": configure, "write": ".*", "read": ".*"}
    topics = {"user": "guest", "vhost": "/", "exchange": "x", "write": topic, "read": ".*"}
    document = {"permissions": [granted], "topic_permissions": [topics]}
    rig.control("import_definitions", document=document)


@operation("queue.declare refused", "2,047 channels, each search is stopped at its bound")
def _(rig: Rig) -> None:
    _guest(rig, configure=COSTLY)
    peer = rig.peer()
    open_channels(peer, CHANNELS)
    rig.measure()
    peer.raw(
        b"".join(
            frames(number, [QueueDeclare(f"{'a' * 250}{number:04}")])
            for number in range(1, CHANNELS + 1)
        )
    )


@operation("basic.publish", "20,000 keys, each a costly search that ends with a grant")
def _(rig: Rig) -> None:
    peer = rig.peer()
    exchange(peer, "topic")
    _guest(rig, topic=f"{COSTLY}|$")
    rig.measure()
    keys = (f"{'a' * 12}{number:05}".encode() for number in range(20_000))
    peer.raw(b"".join(message(1, key, exchange=b"x") for key in keys))
