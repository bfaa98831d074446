"""Rows for the operator, with rabbitmqctl's column names, out of the broker's own objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from leveret.amqp.tables import plain, type_name
from leveret.broker.connection.info import connection_info
from leveret.server.admin.socket_counts import socket_counts
from leveret.server.output.json_text import Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.amqp.tables import Field, Table
    from leveret.broker.connection.reader import Reader
    from leveret.broker.queue.effective import Applied
    from leveret.broker.queue.registry import QueueEntry
    from leveret.routing.bindings import Binding
    from leveret.routing.exchange import Exchange
    from leveret.supervisors.tree import Node as TreeNode


def triples(table: Table) -> list[list[Any]]:
    """Return a field table as ``[name, type, value]`` lists, tables inside likewise."""
    return [[name, type_name(field), _value(field)] for name, field in table.items()]


def _value(field: Field) -> Any:
    letter, content = field
    if letter == "F":
        return triples(content)
    if letter == "A":
        return [[type_name(each), _value(each)] for each in content]
    return plain(field)


def queue(entry: QueueEntry, figures: dict[str, Any]) -> Row:
    """Return a queue; ``figures`` is its own answer, empty when it does not run."""
    kind = entry.arguments.get("x-queue-type")
    return {
        **figures,
        "backing_queue_status": _backing(figures),
        "name": entry.name,
        "durable": entry.durable,
        "auto_delete": entry.auto_delete,
        "exclusive": entry.exclusive is not None,
        "arguments": triples(entry.arguments),
        "pid": _pid(entry.ref),
        "owner_pid": _pid(entry.exclusive),
        "state": entry.state,
        "type": kind[1].decode("utf-8", "replace") if kind is not None else "classic",
        **_policies(entry.applied),
    }


_BACKING = (
    "mode", "q1", "q2", "delta", "q3", "q4", "target_ram_count", "next_seq_id",
    "next_deliver_seq_id", "avg_ingress_rate", "avg_egress_rate", "avg_ack_ingress_rate",
    "avg_ack_egress_rate",
)  # fmt: skip


def _backing(figures: dict[str, Any]) -> str:
    """Return the parts of a backing queue as JSON; ``delta`` is how many messages it has."""
    shown = {**figures, "delta": figures["delta_messages"]} if "q1" in figures else figures
    return _json({name: shown[name] for name in _BACKING if name in shown})


def _json(table: Mapping[str, Any]) -> str:
    return json.dumps(table, separators=(",", ":"), ensure_ascii=False) if table else ""


def _policies(applied: Applied) -> Row:
    policy, operator = applied.policy, applied.operator
    return {
        "policy": policy.name if policy is not None else "",
        "operator_policy": operator.name if operator is not None else "",
        "effective_policy_definition": _json(applied.definition),
    }


def exchange(found: Exchange, applied: Applied) -> Row:
    """Return an exchange and the name of its policy."""
    return {
        "name": found.name,
        "type": found.type,
        "durable": found.durable,
        "auto_delete": found.auto_delete,
        "internal": found.internal,
        "arguments": triples(found.arguments),
        "policy": applied.policy.name if applied.policy is not None else "",
    }


def binding(found: Binding) -> Row:
    """Return a binding."""
    return {
        "source_name": found.source,
        "source_kind": "exchange",
        "destination_name": found.destination,
        "destination_kind": found.kind,
        "routing_key": found.key.decode("utf-8", "backslashreplace"),
        "arguments": triples(found.arguments),
    }


def implicit_binding(queue_name: str) -> Row:
    """Return the default exchange's binding of a queue."""
    return {
        "source_name": "",
        "source_kind": "exchange",
        "destination_name": queue_name,
        "destination_kind": "queue",
        "routing_key": queue_name,
        "arguments": [],
    }


def connection(reader: Reader) -> Row:
    """Return a connection."""
    opened = reader.opened
    return (
        connection_info(reader)
        | socket_counts(reader.writer.descriptor)
        | {
            "protocol": [0, 9, 1],
            "ssl": False,
            "client_properties": triples(opened.client_properties) if opened is not None else [],
        }
    )


def actor(node: TreeNode, now_s: float) -> Row:
    """Return a place in the supervision tree, as of ``now_s`` of the runtime's clock."""
    restarted_s = node.restarted_s
    return {
        "depth": node.depth,
        "name": node.label,
        "actor": node.actor_class,
        "type": node.type,
        "state": node.state,
        "restarts": node.restarts,
        "restarted_ago_s": None if restarted_s is None else round(now_s - restarted_s, 3),
        "mailbox": node.mailbox,
    }


def _pid(ref: object | None) -> str:
    return "" if ref is None else str(ref)
