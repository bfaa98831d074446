"""A connection as operators see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leveret.amqp.tables import plain
from leveret.broker.connection import address
from leveret.broker.connection.states import State

if TYPE_CHECKING:
    from leveret.broker.connection.reader import Reader


def connection_info(reader: Reader) -> dict[str, Any]:
    """Return what list_connections can show, by RabbitMQ's names."""
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
        "state": _state(reader),
        "auth_mechanism": opened.mechanism if opened else "",
        "send_pend": reader.writer.unsent_bytes,
        "channels": len(reader.slots),
        "protocol": "{0,9,1}",
        "frame_max": opened.frame_max if opened else 0,
        "channel_max": opened.channel_max if opened else 0,
        "timeout": opened.heartbeat_s if opened else 0,
        "connected_at": int(reader.connected_at_s * 1000),
        "client_properties": plain(opened.client_properties) if opened else {},
    }


def _state(reader: Reader) -> str:
    """Return RabbitMQ's word.

    While an alarm is raised a connection that has published is blocked, the others are blocking; one that
    waits for credit is in flow.
    """
    if reader.state is State.RUNNING:
        if reader.connections.alarms.raised:
            return "blocked" if reader.read_control.throttle.is_blocked else "blocking"
        return "flow" if reader.read_control.is_blocked else "running"
    return "opening" if reader.state is State.OPENING else "closing"
