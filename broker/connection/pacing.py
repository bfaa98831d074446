"""Pacing: the broker sends to clients on the same machine at once, also where the system paces TCP.

Many systems use BBR for congestion control. BBR paces: a timer delays each packet of a socket, so that no queue builds
up in the network. Two programs of one machine have no network between them, and these timers cost a quarter of the
throughput of large bodies (docs/decisions/0047). So the broker sets Reno on the sockets of such clients. Reno does not
pace, and Linux lets every process choose it (``tcp_allowed_congestion_control``).
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.connection.address import is_loopback, split

if TYPE_CHECKING:
    from collections.abc import Container

PACING: Final = frozenset((b"bbr",))
UNPACED: Final = b"reno"

_OPTION: Final = getattr(socket, "TCP_CONGESTION", None)  # Linux
_NAME_BYTES: Final = 16  # TCP_CA_NAME_MAX


def is_paced(listening: socket.socket, pacing: Container[bytes] = PACING) -> bool:
    """Whether a listening socket, and so its connections, uses one of the algorithms that pace."""
    return _algorithm(listening) in pacing


def stop_pacing(accepted: socket.socket, peer: Any) -> None:
    """Set Reno on an accepted socket if its peer, whose address ``accept`` returned, is on this machine."""
    if _OPTION is None:
        return
    try:
        if is_loopback(peer) or split(peer)[0] == split(accepted.getsockname())[0]:
            accepted.setsockopt(socket.IPPROTO_TCP, _OPTION, UNPACED)
    except OSError:  # the system refuses it: the connection stays paced
        return


def _algorithm(found: socket.socket) -> bytes:
    """Return the name of a socket's congestion control; empty for others than TCP."""
    if _OPTION is None:
        return b""
    try:
        return found.getsockopt(socket.IPPROTO_TCP, _OPTION, _NAME_BYTES).rstrip(b"\0")
    except OSError:
        return b""
