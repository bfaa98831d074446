"""Socket addresses as they are shown and judged.

An address is a tuple of host and port, with more behind them for IPv6. IPv4 mapped into IPv6, which a socket of both
and some proxies tell, is IPv4, as in RabbitMQ. At a Unix socket the host is ``unix:`` and the
client's process, or the socket's path, and the port is a number of the connection, which makes its name unique.
"""

from __future__ import annotations

import itertools
import socket
import struct
from typing import Any, Final

from leveret.core.addresses import plain_host

UNIX: Final = "unix:"

_CREDENTIALS: Final = struct.Struct("=iII")  # pid, uid, gid
_CREDENTIALS_OPTION: Final = getattr(socket, "SO_PEERCRED", None)  # Linux
_numbers: Final = itertools.count(1)


def ends_of(transport: Any) -> tuple[Any, Any]:
    """Return the addresses of the peer and of this side of a transport's socket."""
    peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if not isinstance(local, str | bytes):
        return peer, local
    path = local if isinstance(local, str) else local.decode("utf-8", "surrogateescape")
    return (_process(transport), next(_numbers)), (UNIX + path, 0)


def _process(transport: Any) -> str:
    """Return the process at the other end of a Unix socket, where the system tells it."""
    found = transport.get_extra_info("socket")
    if found is None or _CREDENTIALS_OPTION is None:
        return UNIX
    try:
        data = found.getsockopt(socket.SOL_SOCKET, _CREDENTIALS_OPTION, _CREDENTIALS.size)
    except OSError:
        return UNIX
    pid, uid, _ = _CREDENTIALS.unpack(data)
    return f"{UNIX}uid={uid},pid={pid}"


def split(address: Any) -> tuple[str, int]:
    """Return host and port; empty and 0 for other kinds of addresses."""
    return (plain_host(address[0]), address[1]) if isinstance(address, tuple) else ("", 0)


def shown(address: Any) -> str:
    """Return ``host:port``, an IPv6 host in brackets; ``unix:...#number`` for a Unix socket's client."""
    host, port = split(address)
    if host.startswith(UNIX):
        return f"{host}#{port}" if port else host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def name(peer: Any, local: Any) -> str:
    """Return ``peer -> local``, as RabbitMQ names connections."""
    return f"{shown(peer)} -> {shown(local)}"


def is_loopback(address: Any) -> bool:
    """Whether the peer sits on this machine."""
    host = split(address)[0]
    return host.startswith(("127.", UNIX)) or host == "::1"
