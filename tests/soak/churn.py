"""One round of churn: one of each thing that clients and operators can make, used a little, and ended again."""

from __future__ import annotations

import json
from pathlib import Path

from conformance.raw import Channel, Connection
from leveret.server.control_client import ask

CONNECTIONS = 4
CHANNELS = 4
QUEUES = 3  # of each channel
ASK_S = 30.0


def churn(
    address: tuple[str, int], data: Path, number: int, connections: int = CONNECTIONS
) -> None:
    """Make and end everything once; names end with ``number``, so that no name comes twice."""
    user, vhost = f"user{number}", f"vhost{number}"
    ask(data, "add_vhost", {"name": vhost}, ASK_S)
    ask(data, "add_user", {"name": user, "password": "secret"}, ASK_S)
    for at in (vhost, "/"):
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        ask(data, "set_permissions", {"vhost": at, "user": user, **everything}, ASK_S)
        ask(data, "set_policy", _policy(at, number), ASK_S)
    for at in (vhost, "/"):
        _use(address, at, user, number, connections)
        ask(data, "clear_policy", {"vhost": at, "name": f"policy{number}"}, ASK_S)
    ask(data, "delete_user", {"name": user}, ASK_S)
    ask(data, "delete_vhost", {"name": vhost}, ASK_S)


def _policy(vhost: str, number: int) -> dict[str, object]:
    definition = {"max-length": 1_000, "dead-letter-exchange": f"dead{number}"}
    return {
        "vhost": vhost,
        "name": f"policy{number}",
        "pattern": f"^q{number}\\.",
        "definition": json.dumps(definition),
        "priority": 0,
        "apply_to": "queues",
    }


def _use(address: tuple[str, int], vhost: str, user: str, number: int, count: int) -> None:
    connections = []
    for each in range(count):
        connection = Connection(address)
        opened = connection.open(user=user, password="secret", vhost=vhost)
        assert opened.name == "connection.open-ok", opened
        for _ in range(CHANNELS):
            _use_channel(connection.channel(), f"{number}.{each}")
        _use_features(connection.channel(), f"{number}.{each}")
        connections.append(connection)
    for each, connection in enumerate(connections):
        if each % 2:
            connection.drop()
        else:
            assert connection.close().name == "connection.close-ok"


def _use_channel(channel: Channel, name: str) -> None:
    """Make exchanges, queues, bindings and consumers; publish, deliver, ack; delete all of it."""
    name = f"{name}.{channel.number}"
    for kind in ("topic", "headers"):
        channel.ok("exchange.declare", exchange=f"{kind}{name}", type=kind, durable=True)
    channel.ok(
        "exchange.bind", destination=f"headers{name}", source=f"topic{name}", routing_key="#"
    )
    channel.ok("confirm.select")
    for each in range(QUEUES):
        queue = f"q{name}.{each}"
        channel.ok("queue.declare", queue=queue, durable=each != 1, exclusive=each == 2)
        binding = {"exchange": f"topic{name}", "routing_key": f"a.{name}.*"}
        channel.ok("queue.bind", queue=queue, **binding)
        channel.ok("queue.bind", queue=queue, exchange=f"headers{name}", arguments={"x": name})
        tag = channel.ok("basic.consume", queue=queue).consumer_tag
        channel.publish(f"a.{name}.b", bytes(500), f"topic{name}", delivery_mode=2)
        events = {event.name: event for event in (channel.read(), channel.read())}
        channel.send("basic.ack", delivery_tag=events["basic.deliver"].delivery_tag)
        channel.ok("basic.cancel", consumer_tag=tag)
        channel.ok("queue.unbind", queue=queue, **binding)
    for each in range(QUEUES):
        channel.ok("queue.delete", queue=f"q{name}.{each}")
    for kind in ("topic", "headers"):
        channel.ok("exchange.delete", exchange=f"{kind}{name}")
    if channel.number % 2:
        channel.ok("channel.close", reply_code=200, reply_text="bye")
    else:
        channel.error("queue.declare", queue="nowhere", passive=True)


def _use_features(channel: Channel, name: str) -> None:
    """Use priorities, delays, dead letters, transactions and replies, which have parts of their own."""
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"dead{name}"}
    kinds = {
        "dead": {"x-max-length": 1},
        "levels": {"x-max-priority": 3, "x-message-ttl": 1, **dead},
        "quorum": {"x-queue-type": "quorum", "x-delivery-limit": 1, **dead},
        "lazy": {"x-queue-mode": "lazy", "x-expires": 60_000},
    }
    delayed = {"exchange": f"delayed{name}", "type": "x-delayed-message", "durable": True}
    channel.ok("exchange.declare", **delayed, arguments={"x-delayed-type": "direct"})
    channel.ok("tx.select")
    for kind, arguments in kinds.items():
        queue = f"{kind}{name}"
        channel.ok("queue.declare", queue=queue, durable=True, arguments=arguments)
        channel.ok("queue.bind", queue=queue, exchange=delayed["exchange"], routing_key=queue)
        for exchange in ("", delayed["exchange"]):
            channel.publish(queue, b"x", exchange, delivery_mode=2, headers={"x-delay": 1})
    channel.ok("tx.commit")
    channel.ok("basic.consume", queue="amq.rabbitmq.reply-to", no_ack=True)
    channel.ok("basic.get", queue=f"quorum{name}", no_ack=False)
    channel.ok("basic.recover", requeue=True)
    for kind in kinds:
        channel.ok("queue.delete", queue=f"{kind}{name}")
    channel.ok("exchange.delete", exchange=delayed["exchange"])
