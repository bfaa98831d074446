"""Socket addresses as they are shown and judged."""

from __future__ import annotations

from typing import Any


def split(address: Any) -> tuple[str, int]:
    """Return host and port; empty and 0 for other kinds of addresses."""
    return (address[0], address[1]) if isinstance(address, tuple) else ("", 0)


def shown(address: Any) -> str:
    """Return ``host:port``, an IPv6 host in brackets."""
    host, port = split(address)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(address: Any) -> bool:
    """Whether the peer sits on this machine."""
    host = split(address)[0]
    return host.startswith(("127.", "::ffff:127.")) or host == "::1"
