"""Admission: which new sockets are taken, counted in file descriptors.

The process may have so many descriptors (``core/system/descriptors.py``). Some are reserved for the node (metadata,
control socket with its clients, listeners) and for the message store of each vhost; all others may be sockets of
clients. When these are used up, a new socket takes the place of the oldest one without an open connection:
its peer has not logged in yet, was refused, or is being closed. When all have open connections, the new
socket is closed; an open connection is never closed for a new one.

Sockets without an open connection are bounded as well, since each costs some kilobytes. The newest stay, so peers
that never log in do not keep out those that do, which takes them milliseconds.

There are never fewer sockets than RabbitMQ allows, which is 829 at 1,024 descriptors. With more than two vhosts that
leaves their stores less than was reserved for them. They are seldom at their worst all at once, and wait for
descriptors where they must.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Any, Protocol

from leveret.broker.connection.connection_log import refused_at_once
from leveret.core.limits import DESCRIPTORS_OF_NODE, DESCRIPTORS_OF_VHOST, HANDSHAKES_MAX
from leveret.core.system import descriptors

if TYPE_CHECKING:
    import asyncio


class NotOpen(Protocol):
    """A socket without an open connection."""

    def forget(self) -> None:
        """The socket is closed now, before its end is seen."""


class Admission:
    """Decides about new sockets.

    Args:
        vhosts: of the node; each has a store.
    """

    def __init__(self, vhosts: Sized) -> None:
        self._vhosts = vhosts
        self._waiting: dict[NotOpen, asyncio.Transport] = {}  # the oldest first

    @property
    def sockets_limit(self) -> int:
        """How many sockets there may be at present."""
        limit = descriptors.limit()
        reserved = DESCRIPTORS_OF_NODE + DESCRIPTORS_OF_VHOST * len(self._vhosts)
        return max(0, _allowed_by_rabbitmq(limit), limit - reserved)

    @property
    def waiting_count(self) -> int:
        """How many sockets have no open connection."""
        return len(self._waiting)

    def waits(self, protocol: NotOpen, transport: asyncio.Transport) -> None:
        """A socket has no open connection yet, or no more."""
        self._waiting[protocol] = transport

    def waits_no_more(self, protocol: NotOpen) -> None:
        """The connection of a socket is open, or the socket is closed."""
        self._waiting.pop(protocol, None)

    def has_room(self, sockets: int, peer: Any) -> bool:
        """Return whether a socket of this address is taken, beside so many; may close the oldest that waits."""
        limit = self.sockets_limit
        if (sockets < limit and len(self._waiting) < HANDSHAKES_MAX) or self.close_oldest():
            return True
        refused_at_once(peer, f"out of file descriptors: {limit} sockets are open")
        return False

    def close_oldest(self) -> bool:
        """Close the oldest socket without an open connection; return whether there was one."""
        for protocol, transport in self._waiting.items():
            protocol.forget()
            transport.abort()
            return True
        return False


def _allowed_by_rabbitmq(limit: int) -> int:
    """Return how many sockets RabbitMQ allows at so many descriptors. Source: ``file_handle_cache``."""
    return int((limit - 100) * 0.9) - 2
