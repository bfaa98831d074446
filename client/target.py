"""The address of a broker and the login there, as an AMQP URI says them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

_PORTS: Final = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True)
class Target:
    """A broker's address, user and vhost; ``str`` and ``repr`` have no password."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    vhost: str = "/"
    has_tls: bool = False

    def __str__(self) -> str:
        scheme = "amqps" if self.has_tls else "amqp"
        return f"{scheme}://{self.host}:{self.port} vhost {self.vhost}"


def parse_uri(uri: str, place: str, default_host: str = "") -> Target:
    """Parse ``amqp[s]://[USER[:PASSWORD]@]HOST[:PORT][/VHOST]``.

    Args:
        uri: the text.
        place: where it stands, for the error, which does not show the URI: it may have a password.
        default_host: of a URI without one, which is malformed otherwise.

    Raises:
        ValueError: the text is not such a URI.
    """
    try:
        parts = urlsplit(uri.strip())
        port = parts.port
    except ValueError:
        raise _malformed(place) from None
    host = parts.hostname or default_host
    if parts.scheme not in _PORTS or not host or parts.query or parts.fragment:
        raise _malformed(place)
    has_user = parts.username is not None
    return Target(
        host,
        port or _PORTS[parts.scheme],
        unquote(parts.username or "") if has_user else "guest",
        unquote(parts.password or "") if has_user else "guest",
        unquote(parts.path[1:]) or "/",
        parts.scheme == "amqps",
    )


def _malformed(place: str) -> ValueError:
    return ValueError(f"{place} is not amqp[s]://[USER[:PASSWORD]@]HOST[:PORT][/VHOST]")
