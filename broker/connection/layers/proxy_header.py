"""The header of HAProxy's PROXY protocol, versions 1 and 2, with which a connection through a proxy begins.

It tells the addresses of the client and of the proxy's own side. Sans-IO: bytes in, addresses and the bytes behind the
header out. What version 2 has behind the addresses (TLVs) is skipped.

Source: https://www.haproxy.org/download/2.6/doc/proxy-protocol.txt
"""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple, TypeAlias

Place: TypeAlias = tuple[str, int]

_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"  # of version 2
_V1: Final = b"PROXY "
_V1_BYTES_MAX: Final = 107
_HEAD: Final = struct.Struct(">12sBBH")
_VERSION: Final = 0x20
_LOCAL, _PROXY = 0, 1
_TCP4, _TCP6 = 0x11, 0x21
_IPV4: Final = struct.Struct(">4s4sHH")
_IPV6: Final = struct.Struct(">16s16sHH")


class ProxyHeaderError(Exception):
    """The bytes are no header; the text says why."""


class ProxyHeader(NamedTuple):
    """A complete header.

    Attributes:
        size: of the header, in bytes.
        client: the client's address; None: the connection is the proxy's own, or its kind is not known.
        proxy: the address that the client has connected to; None as ``client``.
    """

    size: int
    client: Place | None
    proxy: Place | None


def parse(data: bytes) -> ProxyHeader | None:
    """Return the header that these bytes begin with; None: more bytes are needed.

    Raises:
        ProxyHeaderError: the bytes are no header.
    """
    if _begins(data, _V1):
        return _parse_1(data)
    if _begins(data, _SIGNATURE):
        return _parse_2(data)
    raise ProxyHeaderError(f"no PROXY header but {data[:12]!r}")


def _begins(data: bytes, signature: bytes) -> bool:
    return data[: len(signature)] == signature[: len(data)]


def _parse_1(data: bytes) -> ProxyHeader | None:
    """Parse ``PROXY TCP4 CLIENT PROXY PORT PORT`` or ``PROXY UNKNOWN ...``, which end in CR LF."""
    end = data.find(b"\r\n", 0, _V1_BYTES_MAX)
    if end < 0:
        if len(data) >= _V1_BYTES_MAX:
            raise ProxyHeaderError("PROXY header of version 1 without an end")
        return None
    fields = data[:end].split(b" ")
    if fields[1] == b"UNKNOWN":
        return ProxyHeader(end + 2, None, None)
    kinds = {b"TCP4": socket.AF_INET, b"TCP6": socket.AF_INET6}
    if len(fields) != 6 or fields[1] not in kinds:
        raise ProxyHeaderError(f"PROXY header {data[:end]!r}")
    family = kinds[fields[1]]
    try:
        hosts = [_host(family, text) for text in fields[2:4]]
        ports = [_port(text) for text in fields[4:6]]
    except ValueError as error:
        raise ProxyHeaderError(f"PROXY header {data[:end]!r}") from error
    return ProxyHeader(end + 2, (hosts[0], ports[0]), (hosts[1], ports[1]))


def _host(family: int, text: bytes) -> str:
    if b"%" in text:  # a zone, which only means something to the proxy
        raise ValueError(text)
    kind = IPv4Address if family == socket.AF_INET else IPv6Address
    return str(kind(text.decode("ascii")))


def _port(text: bytes) -> int:
    if not text.isdigit() or len(text) > 5 or int(text) > 65_535:
        raise ValueError(text)
    return int(text)


def _parse_2(data: bytes) -> ProxyHeader | None:
    """Parse a binary header: signature, version and command, family and protocol, size of the rest."""
    if len(data) < _HEAD.size:
        return None
    _, version, kind, rest = _HEAD.unpack_from(data)
    command = version & 0x0F
    if version & 0xF0 != _VERSION or command not in {_LOCAL, _PROXY}:
        raise ProxyHeaderError(f"PROXY header of version and command {version:#04x}")
    size = _HEAD.size + rest
    form = {_TCP4: _IPV4, _TCP6: _IPV6}.get(kind)
    if command == _LOCAL or form is None:
        client = proxy = None
    else:
        if rest < form.size:
            raise ProxyHeaderError(f"PROXY header with {rest} bytes of addresses")
        if len(data) < _HEAD.size + form.size:
            return None
        client, proxy = _addresses(form, data)
    return ProxyHeader(size, client, proxy)


def _addresses(form: struct.Struct, data: bytes) -> tuple[Place, Place]:
    client, proxy, client_port, proxy_port = form.unpack_from(data, _HEAD.size)
    kind = IPv4Address if form is _IPV4 else IPv6Address
    return (str(kind(client)), client_port), (str(kind(proxy)), proxy_port)
