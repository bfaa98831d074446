"""How nodes know each other: a secret, TLS with certificates of both sides, or both."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leveret.actors.links.limits import SECRET_BYTES_MIN
from leveret.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Security:
    """What two nodes must prove to each other.

    With a secret, the handshake proves that both know it. Without, TLS must prove it: both contexts demand a
    certificate of the other side, and a node's name must be a DNS name or the common name in its certificate.

    Attributes:
        secret: the same on all nodes, at least 16 bytes that cannot be guessed; empty: none.
        listener_tls: context of the side that listens; None: connections are not encrypted.
        dialler_tls: context of the side that makes a connection.
    """

    secret: bytes = field(default=b"", repr=False)
    listener_tls: ssl.SSLContext | None = None
    dialler_tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        if (self.listener_tls is None) != (self.dialler_tls is None):
            raise ConfigError("TLS needs two contexts: listener_tls and dialler_tls")
        if self.secret:
            if len(self.secret) < SECRET_BYTES_MIN:
                raise ConfigError(
                    f"the secret of the links has {len(self.secret)} bytes, it must have"
                    f" {SECRET_BYTES_MIN} at least, from a random source"
                )
            return
        if self.listener_tls is None or self.dialler_tls is None:
            raise ConfigError("links need a secret, or TLS: without, any stranger would be a node")
        for name in ("listener_tls", "dialler_tls"):
            if getattr(self, name).verify_mode is not ssl.CERT_REQUIRED:
                raise ConfigError(
                    f"{name} does not demand a certificate: set verify_mode to CERT_REQUIRED, or give a secret"
                )

    @property
    def needs_certified_names(self) -> bool:
        """Whether only its certificate tells who a node is."""
        return not self.secret


def certified_names(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return the names that a certificate gives its owner, of ``SSLSocket.getpeercert``."""
    names = {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}
    for parts in certificate.get("subject", ()):
        names.update(value for kind, value in parts if kind == "commonName")
    return frozenset(names)
