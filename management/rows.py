"""Rows for the operator, with rabbitmqctl's column names, made from the broker's objects."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import asdict
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from leveret.amqp.tables import plain, type_name
from leveret.broker.connection import address
from leveret.broker.connection.layers.certificate import (
    certificate_of,
    distinguished_name,
    validity,
)
from leveret.broker.connection.layers.credentials import ciphers
from leveret.broker.connection.states import State
from leveret.management.json_text import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from ssl import SSLObject

    from leveret.actors.runtime.ref import Ref
    from leveret.amqp.tables import Field, Table
    from leveret.broker.connection.reader import Reader
    from leveret.broker.node.node import Node
    from leveret.broker.node.outages import Outage
    from leveret.broker.registry.queue_settings import AppliedPolicies
    from leveret.broker.registry.registry import QueueEntry
    from leveret.broker.vhost.vhost import VHost
    from leveret.msg_store.stats import StoreStats
    from leveret.routing.bindings import Binding
    from leveret.routing.exchange import Exchange
    from leveret.supervisors.tree_view import Node as TreeNode


def triples(table: Table) -> list[list[Any]]:
    """Return a field table as ``[name, type, value]`` lists, nested tables likewise."""
    return [[name, type_name(field), _value(field)] for name, field in table.items()]


def _value(field: Field) -> Any:
    letter, content = field
    if letter == "F":
        return triples(content)
    if letter == "A":
        return [[type_name(each), _value(each)] for each in content]
    return plain(field)


def queue(entry: QueueEntry, stats: dict[str, Any]) -> Row:
    """Return the row of a queue; ``stats`` is the queue's answer, empty when it does not run."""
    arguments = entry.arguments
    kind = arguments.get("x-queue-type")
    return {
        **stats,
        "backing_queue_status": _backing(stats),
        "name": entry.name,
        "durable": entry.durable,
        "auto_delete": entry.auto_delete,
        "exclusive": entry.exclusive is not None,
        "arguments": triples(arguments),
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


def _backing(stats: dict[str, Any]) -> str:
    """Return the parts of a backing queue as JSON; ``delta`` is its number of messages."""
    shown = {**stats, "delta": stats["delta_messages"]} if "q1" in stats else stats
    return _json({name: shown[name] for name in _BACKING if name in shown})


def _json(table: Mapping[str, Any]) -> str:
    return json.dumps(table, separators=(",", ":"), ensure_ascii=False) if table else ""


def _policies(applied: AppliedPolicies) -> Row:
    policy, operator = applied.policy, applied.operator
    return {
        "policy": policy.name if policy is not None else "",
        "operator_policy": operator.name if operator is not None else "",
        "effective_policy_definition": _json(applied.definition),
    }


def exchange(found: Exchange, applied: AppliedPolicies) -> Row:
    """Return the row of an exchange, with the name of its policy."""
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
    """Return the row of a binding."""
    return {
        "source_name": found.source,
        "source_kind": "exchange",
        "destination_name": found.destination,
        "destination_kind": found.kind,
        "routing_key": found.key.decode("utf-8", "backslashreplace"),
        "arguments": triples(found.arguments),
    }


def implicit_binding(queue_name: str) -> Row:
    """Return the row of the default exchange's binding to a queue."""
    return {
        "source_name": "",
        "source_kind": "exchange",
        "destination_name": queue_name,
        "destination_kind": "queue",
        "routing_key": queue_name,
        "arguments": [],
    }


def connection(reader: Reader) -> Row:
    """Return the row of a connection."""
    opened = reader.opened
    peer, local = address.split(reader.peer), address.split(reader.local)
    return {
        "pid": str(reader.ref),
        "name": reader.name,
        "user": opened.user.name if opened else "",
        "vhost": opened.vhost.name if opened else "",
        "peer_host": peer[0],
        "peer_port": peer[1],
        "host": local[0],
        "port": local[1],
        "state": connection_state(reader),
        "auth_mechanism": opened.mechanism if opened else "",
        "send_pend": reader.writer.unsent_bytes,
        "channels": len(reader.channels),
        "frame_max": opened.frame_max if opened else 0,
        "channel_max": opened.channel_max if opened else 0,
        "timeout": opened.heartbeat_s if opened else 0,
        "connected_at": int(reader.connected_at_s * 1000),
        **socket_counts(reader.writer.descriptor),
        "protocol": [0, 9, 1],
        **_tls(reader.protocol.tls),
        "client_properties": triples(opened.client_properties) if opened is not None else [],
    }


def _tls(tls: SSLObject | None) -> Row:
    """Return RabbitMQ's columns of TLS; a connection without it has ``ssl`` alone."""
    cipher = tls.cipher() if tls is not None else None
    if tls is None or cipher is None:
        return {"ssl": False}
    found = ciphers().get(cipher[0], {})
    exchange, authentication = found.get("kea", "kx-"), found.get("auth", "auth-")
    by = f"{exchange[3:]}_{authentication[5:]}" if authentication != "auth-any" else exchange[3:]
    certificate = certificate_of(tls)
    row = {
        "ssl": True,
        "ssl_protocol": (tls.version() or "").lower(),
        "ssl_key_exchange": by,
        "ssl_cipher": found.get("symmetric", cipher[0]).replace("-", "_"),
        "ssl_hash": "aead" if found.get("aead") else found.get("digest") or "",
    }
    if certificate:
        row["peer_cert_subject"] = distinguished_name(certificate["subject"])
        row["peer_cert_issuer"] = distinguished_name(certificate["issuer"])
        row["peer_cert_validity"] = validity(certificate)
    return row


def channel(reader: Reader, ref: Ref, stats: dict[str, Any]) -> Row:
    """Return the row of a channel."""
    session = reader.session
    return {
        "pid": str(ref),
        "connection": str(reader.ref),
        "name": f"{reader.name} ({stats['number']})",
        "user": session.user.name if session is not None else "",
        "vhost": session.vhost.name if session is not None else "",
        **stats,
    }


def consumer(stats: dict[str, Any]) -> Row:
    """Return the row of a consumer."""
    return stats | {"arguments": triples(stats["arguments"])}


def connection_state(reader: Reader) -> str:
    """Return RabbitMQ's word.

    While an alarm is raised a connection is blocked once it has published, and blocking before. A
    connection whose reading is paused is in flow.
    """
    if reader.state.now is State.RUNNING:
        if reader.connections.alarms.raised:
            return "blocked" if reader.read_control.throttle.is_blocked else "blocking"
        return "flow" if reader.read_control.is_blocked else "running"
    return "opening" if reader.state.now is State.OPENING else "closing"


def actor(node: TreeNode, now_s: float) -> Row:
    """Return the row of an actor in the supervision tree; ``now_s`` is the runtime's time."""
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


def down(outage: tuple[str, Outage]) -> Row:
    """Return the row of a vhost that is down, where the supervision tree would have it."""
    name, found = outage
    return {
        "depth": 2,
        "name": f"vhost:{name}",
        "actor": "VhostSup",
        "type": "supervisor",
        "state": f"down ({found.reason})",
        "restarts": found.tries,
        "restarted_ago_s": None,
        "mailbox": 0,
    }


def outages(node: Node) -> list[Row]:
    """Return the vhosts that are down: why, for how long, and in how many seconds each is started again."""
    now_s = node.runtime.clock.wall_s()
    return [
        {
            "vhost": name,
            "reason": each.reason,
            "since_s": each.since_s,
            "down_s": round(now_s - each.since_s, 3),
            "tries": each.tries,
            "is_retried": each.is_retried,
            "next_try_in_s": None
            if each.next_try_s is None
            else max(0.0, round(each.next_try_s - now_s, 3)),
        }
        for name, each in node.outages.by_vhost.items()
    ]


def stores(vhosts: Iterable[VHost]) -> list[Row]:
    """Return the statistics of the open message stores, a row for each vhost that has one."""
    return [
        {"vhost": vhost.name, **_store(store.stats())}
        for vhost in vhosts
        if (store := vhost.store.msg_store) is not None
    ]


def _store(stats: StoreStats) -> Row:
    return {**asdict(stats), "transients": stats.transients._asdict()}


_SEGMENTS: Final = Struct("=II")  # data_segs_in, data_segs_out
_SEGMENTS_AT: Final = 152
_RECEIVED: Final = Struct("=Q")
_RECEIVED_AT: Final = 128
_SENT: Final = Struct("=QQ")  # bytes_sent, bytes_retrans
_SENT_AT: Final = 200
_BYTES: Final = _SENT_AT + _SENT.size


def socket_counts(descriptor: int) -> dict[str, int]:
    """Return ``recv_oct``, ``recv_cnt``, ``send_oct``, ``send_cnt`` of a TCP socket.

    Linux keeps these figures anyway (``struct tcp_info``), so the broker counts nothing per message.
    Only packets with data count. Empty on other systems, and for a closed socket.
    """
    if sys.platform != "linux" or descriptor < 0:
        return {}
    try:
        with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as copy:
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES)
    except OSError:
        return {}
    if len(info) < _BYTES:  # before Linux 4.19
        return {}
    packets_in, packets_out = _SEGMENTS.unpack_from(info, _SEGMENTS_AT)
    sent, again = _SENT.unpack_from(info, _SENT_AT)
    return {
        "recv_oct": _RECEIVED.unpack_from(info, _RECEIVED_AT)[0],
        "recv_cnt": packets_in,
        "send_oct": sent - again,
        "send_cnt": packets_out,
    }
