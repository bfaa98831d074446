"""Pacing: what is sent to clients on the same machine is not spread over time.

BBR, where it is the system's congestion control, spreads what a socket sends by timers, so that no queue builds up in
the network. Between two programs of one machine there is no network, and the timers cost a quarter of the throughput of
large bodies (docs/decisions/0047). So the sockets of such clients get Reno, which does not pace, and which Linux lets
every process choose (``tcp_allowed_congestion_control``).
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
    """Whether what is sent on the connections of a listening socket is paced; ``pacing`` are algorithms that do so."""
    return _algorithm(listening) in pacing


def stop_pacing(accepted: socket.socket, peer: Any) -> None:
    """Send at once on a connection, if its peer, the address that ``accept`` has told, sits on this machine."""
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
