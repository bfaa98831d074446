"""Where the shared store is, and as whom it is asked."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from leveret.core.errors import ConfigError

ENDPOINTS_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """Where etcd is, and as whom it is asked.

    Attributes:
        endpoints: URLs of its servers, ``http://HOST:PORT`` or ``https://HOST:PORT``; all of one cluster.
        user: to log in as; empty: without a login.
        password: of the user.
        ca_file: authorities for the servers' certificates, in PEM; None: those of the system.
        cert_file: certificate of this client, in PEM.
        key_file: its key.
        timeout_s: for the answer of one server.
        connect_timeout_s: for the connection to one server.
    """

    endpoints: tuple[str, ...]
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    timeout_s: float = 2.0
    connect_timeout_s: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < len(self.endpoints) <= ENDPOINTS_MAX:
            raise ConfigError(
                f"there are {len(self.endpoints)} endpoints of etcd: give 1 to {ENDPOINTS_MAX}"
            )
        if len({_scheme(endpoint) for endpoint in self.endpoints}) > 1:
            raise ConfigError("endpoints of etcd are http and https: give one kind only")
        for name in ("timeout_s", "connect_timeout_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} is {getattr(self, name)}, it must be above 0 and finite")
        if bool(self.user) != bool(self.password):
            raise ConfigError("a login to etcd needs both user and password")
        if (self.cert_file is None) != (self.key_file is None):
            raise ConfigError("a certificate for etcd needs both cert_file and key_file")
        if not self.is_tls and (self.ca_file or self.cert_file):
            raise ConfigError("certificates for etcd have no effect with http endpoints: use https")

    @property
    def is_tls(self) -> bool:
        return _scheme(self.endpoints[0]) == "https"

    def tls(self) -> ssl.SSLContext | None:
        """Return the context of TLS connections, from the files as they are now; None: there is no TLS.

        Raises:
            ConfigError: a file cannot be read, or is none of certificates or keys.
        """
        if not self.is_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:  # ssl.SSLError is one
            files = ", ".join(
                str(file) for file in (self.ca_file, self.cert_file, self.key_file) if file
            )
            raise ConfigError(f"certificates for etcd cannot be used: {error} ({files})") from error
        return context


def _scheme(endpoint: str) -> str:
    """Return http or https.

    Raises:
        ConfigError: the endpoint is no URL of a server.
    """
    try:
        url = urlsplit(endpoint)
        port = url.port
    except ValueError as error:
        raise ConfigError(f"endpoint {endpoint!r} of etcd: {error}") from error
    rest = (url.username, url.password, url.path.rstrip("/"), url.query, url.fragment)
    if url.scheme not in ("http", "https") or not url.hostname or port is None or any(rest):
        raise ConfigError(
            f"endpoint {endpoint!r} of etcd is not http://HOST:PORT or https://HOST:PORT"
        )
    return url.scheme
