"""Addresses of listeners, as settings and the command line write them, and sockets that listen on them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from ipaddress import IPv6Address
from typing import Any, Final

from leveret.core.errors import ConfigError

AMQP: Final = "amqp"
AMQPS: Final = "amqps"
UNIX: Final = "unix"
SCHEMES: Final = (AMQP, AMQPS, UNIX)
UNIX_MODE: Final = 0o660
_MAPPED: Final = "::ffff:"  # the prefix of IPv4 addresses in IPv6


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a listener; it unpacks to host and port.

    Attributes:
        host: empty for a Unix socket.
        port: 0 takes a free port.
        scheme: ``amqp``, ``amqps`` (TLS) or ``unix``.
        proxy_protocol: connections begin with a header of the PROXY protocol; None: as
            ``Config.proxy_protocol`` says, and not on a Unix socket.
        path: of a Unix socket.
        mode: permissions of the Unix socket's file; who may write to it may connect.
    """

    host: str
    port: int
    scheme: str = AMQP
    _: KW_ONLY
    proxy_protocol: bool | None = None
    path: str = ""
    mode: int = UNIX_MODE

    def __iter__(self) -> Iterator[Any]:
        return iter((self.host, self.port))

    @property
    def place(self) -> str:
        """``HOST:PORT``, or the path."""
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The place with its scheme: ``amqps://HOST:PORT``, ``unix:///PATH``."""
        return f"{self.scheme}://{self.place}"

    def __str__(self) -> str:
        return self.place if self.scheme == AMQP else self.url


FORMS: Final = "HOST:PORT, amqps://HOST:PORT or unix:///PATH"


def parse_address(text: str, scheme: str = AMQP) -> Address:
    """Parse ``HOST:PORT``, ``[IPv6]:PORT`` or a bare ``PORT`` (on 127.0.0.1).

    ``amqp://`` and ``amqps://`` may stand before it and replace ``scheme``; ``unix:///PATH`` is a Unix socket. Options
    follow a ``?``: ``proxy_protocol=true``, and ``mode=0660`` for a Unix socket.

    Raises:
        ConfigError: the text has another form.
    """
    before, mark, rest = text.partition("://")
    if mark:
        scheme = before
    if scheme not in SCHEMES:
        raise ConfigError(f'address "{text}" is not {FORMS}')
    place, _, query = (rest if mark else text).partition("?")
    options = _options(text, query, scheme)
    if scheme == UNIX:
        if not place.startswith("/"):
            raise ConfigError(f'address "{text}" is not unix:///PATH with an absolute path')
        return Address("", 0, UNIX, path=place, **options)
    host, colon, port = place.rpartition(":")
    if not colon:
        host = "127.0.0.1"
    elif host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f'address "{text}" is not HOST:PORT; IPv6 is written [HOST]:PORT')
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise ConfigError(f'address "{text}" is not HOST:PORT with a port from 0 to 65535')
    return Address(host, int(port), scheme, **options)


def _options(text: str, query: str, scheme: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for option in query.split("&") if query else ():
        name, _, given = option.partition("=")
        if name == "proxy_protocol" and given in {"true", "false"}:
            options[name] = given == "true"
        elif name == "mode" and scheme == UNIX and re.fullmatch("0?[0-7]{3}", given):
            options[name] = int(given, 8)
        else:
            allowed = "proxy_protocol=true|false" + (", mode=0660" if scheme == UNIX else "")
            raise ConfigError(f'address "{text}" has the option "{option}"; allowed: {allowed}')
    return options


def plain_host(host: str) -> str:
    """Return an address; an IPv4 address that is mapped into IPv6 is returned as IPv4."""
    mapped = IPv6Address(host).ipv4_mapped if host.startswith(_MAPPED) else None
    return host if mapped is None else str(mapped)


def listening_socket(
    family: int, place: tuple[Any, ...], backlog: int, *, ipv6_only: bool = False
) -> socket.socket:
    """Return a listening socket; OSError: the address cannot be bound.

    ``::`` serves IPv4 addresses too, as in RabbitMQ, unless ``ipv6_only``.
    """
    # With the protocol: asyncio disables Nagle's algorithm only for sockets that name TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, ipv6_only)
        listener.bind(place)
        listener.listen(backlog)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
