"""Names with markup, terminal codes, paths and expressions: sent over the wire, shown in the log and in every list.

Clients choose names. None forges a line of the log or reaches a terminal raw, none is a path or an expression, and
JSON has each as it was sent.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from conformance.raw import CAPABILITIES, Channel, Connection, error_of
from conformance.wire import as_bytes, table
from rigs.nodes import (
    BrokerUnderTest,
    clean_environment,
    leveret_program,
    serving,
)

FORGED = "2026-11-23T12:00:00.000Z info leveret.forged all is well user=root"
NAMES = {
    "markup": "<script>alert('x')</script>&lt;\"'`",
    "terminal": "\x1b[2J\x1b]0;title\x07red\x9b31m\x08\x7f",
    "lines": f"a\r\n{FORGED}\n\x85\u2028b\tc",
    "path": "../../../tmp/leveret\0/etc/passwd",
    "expression": "^(a+)+$|[.*?]{9}\\(\\d#*.#",
    "direction": "\u202egnp.exe\u2066\u200b\ufeff",
    "template": '%s %(name)s {0} {name!r} $HOME `id` ${jndi:ldap://h/x} user=root "',
}
OCTETS = (
    "h\udcff\udcfe\udc80"  # not UTF-8, which method arguments must be and table values need not
)
LINE = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]{12}Z (debug|info|warning|error|critical) leveret[.\w]* \S.*|    .*"
)


def stripped(name: str) -> str:
    """Return the name as declarations take it."""
    return name.replace("\r", "").replace("\n", "")


class Peer:
    """A node, and connections to it that are closed at the end."""

    def __init__(self, node: BrokerUnderTest) -> None:
        self.node = node
        self._made = ExitStack()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_error: object) -> None:
        self._made.close()

    def dial(self) -> Connection:
        connection = Connection((self.node.host, self.node.port))
        self._made.callback(connection.drop)
        return connection

    def begin(self, name: str, **start_ok: Any) -> Connection:
        """Return a connection that has sent start-ok, with client properties made of the name."""
        connection = self.dial()
        connection.send_bytes(b"AMQP\0\0\x09\x01")
        connection.read()
        called = dict.fromkeys(("connection_name", "product", "version", "platform"), name)
        properties = called | {name[:20]: {name[:9]: OCTETS}, "capabilities": CAPABILITIES}
        fields = {"mechanism": "PLAIN", "response": "\0guest\0guest", "locale": name} | start_ok
        connection.send("connection.start-ok", client_properties=properties, **fields)
        return connection

    def channel(self, name: str, vhost: str = "/") -> Channel:
        """Open a connection that is called so, and a channel on it."""
        connection = self.begin(name)
        connection.read()
        connection.send("connection.tune-ok", channel_max=10, frame_max=131072, heartbeat=0)
        reply = connection.call("connection.open", virtual_host=vhost)
        assert reply.name == "connection.open-ok"
        return connection.channel()


def make_all(channel: Channel, name: str) -> None:
    """Declare, bind, consume and publish with this name wherever a method takes one."""
    tables = {"x-mine": name, name[:20]: [name, {name[:9]: name}]}
    channel.ok("exchange.declare", exchange=name, type="topic", durable=True, arguments=tables)
    channel.ok("queue.declare", queue=name, durable=True, arguments=tables)
    ends = {"queue": name, "exchange": name, "routing_key": name}
    channel.ok("queue.bind", **ends, arguments=tables)
    channel.publish(name, "m", exchange=stripped(name), mandatory=True, headers=tables, type=name)
    channel.ok("basic.consume", queue=stripped(name), consumer_tag=name, arguments=tables)


def provoke_errors(peer: Peer, name: str) -> None:
    """Have the name in each kind of refusal."""
    failures: list[tuple[str, dict[str, Any]]] = [
        ("queue.declare", {"queue": f"no{name}", "passive": True}),
        ("queue.declare", {"queue": f"{name}q", "arguments": {"x-queue-mode": name}}),
        ("queue.declare", {"queue": f"amq.{name}"}),
        ("exchange.declare", {"exchange": f"amq.{name}", "type": "fanout"}),
        ("exchange.declare", {"exchange": "x", "type": name}),
        ("exchange.delete", {"exchange": f"amq.{name}"}),
        ("queue.bind", {"queue": f"no{name}", "exchange": f"no{name}"}),
    ]
    for method, fields in failures:
        assert peer.channel(name).error(method, **fields)
    channel = peer.channel(name)
    channel.publish(name, "m", exchange=f"no{name}")
    assert channel.read_error()[1] == 404
    assert error_of(peer.dial().open(vhost=f"no{name}"))[1] == 530
    channel = peer.channel(name)
    channel.ok("channel.close", reply_code=200, reply_text=name)
    channel.connection.call("connection.close", reply_code=200, reply_text=name)


def refused_logins(peer: Peer, name: str) -> list[Connection]:
    """Begin logins with the name as user, password and mechanism; most are answered after three seconds."""
    return [
        peer.begin(name, response=f"\0{name}\0{name}x"),
        peer.begin(name, response=f"\0{OCTETS}\0{name}"),
        peer.begin(name, response=name),
        peer.begin(name, mechanism=name),
        peer.begin(
            name, mechanism="AMQPLAIN", response=table({"LOGIN": name, "PASSWORD": f"{name}x"})[4:]
        ),
    ]


def told(node: BrokerUnderTest, *words: str) -> str:
    """Return what ``leveret ctl`` prints; it has no terminal codes."""
    asked = [leveret_program(), "ctl", "-q", "--data", str(node.data), *words]
    done = subprocess.run(asked, env=clean_environment(), capture_output=True, check=True)
    text = done.stdout.decode()
    assert [each for each in text if not each.isprintable() and each not in "\n\t"] == [], words
    return text


LISTS = (
    ("list_queues", "name", "arguments"),
    ("list_exchanges", "name", "arguments"),
    ("list_bindings",),
    ("list_connections", "name", "user", "vhost", "client_properties"),
    ("list_policies",),
    ("list_users",),
    ("list_permissions",),
    ("list_vhosts", "name", "tags"),
    ("list_channels", "connection", "user", "vhost"),
    ("list_consumers",),
    ("list_user_limits", "--global"),
    ("list_vhost_limits", "--global"),
    ("list_topic_permissions",),
    ("list_parameters",),
    ("report",),
)


def defined() -> dict[str, Any]:
    """Return definitions of users, vhosts and policies with these names."""
    everything = dict.fromkeys(("configure", "write", "read"), ".*")
    names = NAMES.values()
    return {
        "users": [
            {"name": name, "password": name, "tags": name, "limits": {"max-channels": 50}}
            for name in names
        ],
        "vhosts": [{"name": name} for name in names],
        "permissions": [{"user": name, "vhost": "/"} | everything for name in names]
        + [{"user": "guest", "vhost": name} | everything for name in names],
        "topic_permissions": [
            {"user": name, "vhost": "/", "exchange": "amq.topic", "write": ".*", "read": ".*"}
            for name in names
        ],
        "parameters": [
            {"vhost": "/", "component": "mine", "name": name, "value": {name: name}}
            for name in names
        ]
        + [
            {
                "vhost": name,
                "component": "vhost-limits",
                "name": "limits",
                "value": {"max-queues": 50},
            }
            for name in names
        ],
        "policies": [
            {"vhost": "/", "name": name, "pattern": "^none$", "definition": {"message-ttl": 5}}
            for name in names
        ],
    }


def test_no_name_breaks_the_log_or_a_list(own_leveret: Callable[..., BrokerUnderTest]) -> None:
    node = own_leveret("--log-level", "debug")
    node.import_definitions(defined())
    with Peer(node) as peer:
        refused = []
        for name in NAMES.values():
            refused += refused_logins(peer, name)
            make_all(peer.channel(name), name)
            provoke_errors(peer, name)

        for words in LISTS:
            lines = told(node, *words).split("\n")
            assert len(lines) >= len(NAMES), words
            assert not [line for line in lines if line.startswith(FORGED)]
        names = {stripped(name) for name in NAMES.values()}
        for verb, key in (("list_queues", "name"), ("list_exchanges", "name")):
            rows = json.loads(told(node, verb, "--formatter", "json"))
            assert {row[key] for row in rows} >= names
        for verb, key in (("list_bindings", "routing_key"), ("list_users", "user")):
            rows = json.loads(told(node, verb, "--formatter", "json"))
            assert {row[key] for row in rows} >= set(NAMES.values())
        assert {each.read().name for each in refused} == {"connection.close", "closed"}

    assert node.log is not None
    log = node.log.read_text("utf-8")
    assert [line for line in log.split("\n")[:-1] if not LINE.fullmatch(line)] == []
    assert "leveret.forged" in log


def test_a_name_is_no_path_and_survives_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as node, Peer(node) as peer:
        there = set(tmp_path.iterdir())
        node.import_definitions(defined())
        for name in NAMES.values():
            channel = peer.channel("plain", vhost=name)
            channel.ok("queue.declare", queue=name, durable=True)
            channel.ok("confirm.select")
            channel.publish(stripped(name), name, delivery_mode=2)
            channel.read_confirms({1})

    assert set(tmp_path.iterdir()) == there
    assert all(re.fullmatch(r"[\w.@-]+", path.name) for path in (tmp_path / "data").rglob("*"))
    with serving(tmp_path) as node, Peer(node) as peer:
        for name in NAMES.values():
            assert peer.channel("plain", vhost=name).get(stripped(name)).body == as_bytes(name)


def test_a_policy_for_a_quoted_name_applies_to_nothing_else(
    own_leveret: Callable[..., BrokerUnderTest],
) -> None:
    node = own_leveret()
    queues = {stripped(name): short for short, name in NAMES.items()}
    with Peer(node) as peer:
        channel = peer.channel("plain")
        for queue in ["a", "aaa", *queues, *(f"{queue}x" for queue in queues)]:
            channel.ok("queue.declare", queue=queue)

    policies = [
        {
            "vhost": "/",
            "name": short,
            "pattern": f"^{re.escape(queue)}$",
            "definition": {"expires": 70_000},
        }
        for queue, short in queues.items()
    ]
    node.import_definitions({"policies": policies})

    rows = json.loads(told(node, "list_queues", "name", "policy", "--formatter", "json"))
    assert {row["name"]: row["policy"] for row in rows if row["policy"]} == queues
