"""Pacing: large bodies go to clients on the same machine at once, also where the system paces TCP.

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
    import asyncio

PACING: Final = frozenset((b"bbr",))
UNPACED: Final = b"reno"

_OPTION: Final = getattr(socket, "TCP_CONGESTION", None)  # Linux
_NAME_BYTES: Final = 16  # TCP_CA_NAME_MAX


def stop_pacing(transport: asyncio.BaseTransport) -> None:
    """Set Reno on a transport's socket if its algorithm is one of ``PACING`` and its peer is on this machine."""
    found: Any = transport.get_extra_info("socket")
    if _OPTION is None or found is None:
        return
    try:
        algorithm = found.getsockopt(socket.IPPROTO_TCP, _OPTION, _NAME_BYTES).rstrip(b"\0")
        if algorithm in PACING and _is_here(found.getpeername(), found.getsockname()):
            found.setsockopt(socket.IPPROTO_TCP, _OPTION, UNPACED)
    except OSError:  # a Unix socket, or the system refuses it: the connection stays as it is
        return


def _is_here(peer: Any, local: Any) -> bool:
    return is_loopback(peer) or split(peer)[0] == split(local)[0]
