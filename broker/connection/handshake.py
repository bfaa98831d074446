"""The handshake: login, negotiated limits and the vhost, up to connection.open.

Sans-IO: takes methods, returns the answers and finally an ``Opened``. Where RabbitMQ answers with silence (it
logs, waits three seconds and closes) ``RefusedError`` is raised; the reader does the waiting.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import leveret
from leveret.amqp import sasl, spec
from leveret.amqp.errors import AccessRefused, HardError, ProtocolError
from leveret.amqp.kernel import KERNEL_NAME
from leveret.amqp.methods import (
    ConnectionOpen,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    decode,
)
from leveret.amqp.tables import Table, typed
from leveret.broker.connection.layers.certificate import certificate_of, login_name
from leveret.broker.vhost.auth.access import LoginRefused
from leveret.core.limits import FRAME_MIN_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLObject

    from leveret.amqp.fields import Method
    from leveret.broker.connection.connections import Connections
    from leveret.broker.vhost.auth.access import User
    from leveret.broker.vhost.vhost import VHost
    from leveret.core.settings import BrokerSettings

HEADER_BYTES: Final = 8
REFUSAL: Final = b"AMQP\x00\x00\x09\x01"
_ACCEPTED: Final = frozenset({b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x09"})
# As RabbitMQ announces them.
_CAPABILITIES: Final = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)
_MECHANISMS: Final = {"PLAIN": sasl.plain, "AMQPLAIN": sasl.amqplain}
_EXTERNAL: Final = "EXTERNAL"
_OFFERED: Final = ("AMQPLAIN", "PLAIN", _EXTERNAL)  # in RabbitMQ's order


class RefusedError(Exception):
    """The client is to be left without an answer; the socket is closed after a while."""


@dataclass(slots=True)
class Opened:
    """The handshake is over.

    Attributes:
        heartbeat_s: agreed interval; 0 is off.
        cancel_notify: the client understands basic.cancel from the broker.
        blocked_notify: the client understands connection.blocked.
    """

    user: User
    vhost: VHost
    frame_max: int
    channel_max: int
    heartbeat_s: int
    client_properties: Table
    cancel_notify: bool
    blocked_notify: bool
    mechanism: str


def is_protocol_header(data: bytes) -> bool:
    """Whether these 8 bytes ask for AMQP 0-9-1 (0-9 is taken as 0-9-1, as RabbitMQ does)."""
    return data in _ACCEPTED


def server_properties(settings: BrokerSettings, cluster_name: str) -> Table:
    """Return the table that connection.start announces; kombu looks for RabbitMQ's name in it."""
    return _server_properties(settings.product, settings.product_version, cluster_name)


@lru_cache(maxsize=8)
def _server_properties(product: str, version: str, cluster_name: str) -> Table:
    properties: dict[str, Any] = {
        "capabilities": dict.fromkeys(_CAPABILITIES, True),
        "cluster_name": cluster_name,
        "copyright": "Copyright (c) the Leveret authors.",
        "information": "Licensed under the Apache License 2.0.",
        "platform": f"Python {platform.python_version()}",
        "product": product,
        "version": version,
        "leveret_version": leveret.__version__,
        "leveret_kernel": KERNEL_NAME,
    }
    table: Table = typed(properties)[1]
    return table


class Handshake:
    """The state of one connection before it is open."""

    def __init__(
        self,
        connections: Connections[Any],
        from_loopback: bool,
        peer: str,
        tls: SSLObject | None = None,
    ) -> None:
        self._connections = connections
        self._from_loopback = from_loopback
        self._peer = peer
        self._tls = tls
        self._login: Callable[[], User] | None = None  # under way
        self._state = spec.CONNECTION_START_OK
        self._user: User | None = None
        self.client_properties: Table = {}
        self._capabilities: Table = {}
        self._mechanism = ""
        self.tuned: ConnectionTuneOk | None = None

    @property
    def user_name(self) -> str:
        """Name of the user that has logged in; empty before."""
        return self._user.name if self._user is not None else ""

    @property
    def tells_failures(self) -> bool:
        """Whether the client wants connection.close for a refused login."""
        return self._capable("authentication_failure_close")

    def start(self) -> ConnectionStart:
        return ConnectionStart(
            0,
            9,
            server_properties(self._connections.settings, self._connections.cluster_name()),
            " ".join(self._mechanisms).encode(),
            b"en_US",
        )

    @property
    def _mechanisms(self) -> list[str]:
        """The mechanisms that are offered."""
        allowed = self._connections.settings.auth_mechanisms
        offered = [each for each in _OFFERED if each in allowed]
        return [each for each in offered if each != _EXTERNAL or self._tls is not None]

    def method(self, ids: int, arguments: bytes) -> Method | Opened | None:
        """Take the client's next method.

        Returns:
            What to send, None for nothing, or that the connection is open.

        Raises:
            Question: a back end is being asked; the same is to be done again when it has answered.
            RefusedError: wrong method or agreement; no answer.
            ProtocolError: login or vhost refused; to be sent as connection.close.
        """
        if ids != self._state:
            raise RefusedError(
                f"{spec.method_name(ids)} where {spec.method_name(self._state)} is due"
            )
        try:
            method: Any = decode(ids, arguments)
        except ProtocolError as error:
            raise RefusedError(error.log_text) from error
        if ids == spec.CONNECTION_START_OK:
            return self._log_in(method)
        if ids == spec.CONNECTION_TUNE_OK:
            self._tune(method)
            return None
        return self._open(method)

    def _log_in(self, method: ConnectionStartOk) -> Method:
        self.client_properties = method.client_properties
        field = self.client_properties.get("capabilities")
        if field is not None and field[0] == "F":
            self._capabilities = field[1]
        if method.mechanism not in self._mechanisms:
            raise RefusedError(f"unknown mechanism '{method.mechanism}'")
        try:
            if method.mechanism == _EXTERNAL:
                self._user = self._by_certificate()
            else:
                self._user = self._by_password(method)
        except AccessRefused as error:
            if not self.tells_failures:
                raise RefusedError(error.log_text) from error
            error.method = 0
            raise
        self._mechanism = method.mechanism
        settings = self._connections.settings
        self._state = spec.CONNECTION_TUNE_OK
        return ConnectionTune(settings.channel_max, settings.frame_max, settings.heartbeat_s)

    def _by_password(self, method: ConnectionStartOk) -> User:
        try:
            name, password = _MECHANISMS[method.mechanism](method.response)
        except ProtocolError as error:
            raise RefusedError(error.log_text) from error
        return self._logged_in(name, password, method.mechanism)

    def _by_certificate(self) -> User:
        """Return the user that the client's certificate stands for; the response of EXTERNAL has no meaning."""
        assert self._tls is not None
        settings = self._connections.settings
        certificate = certificate_of(self._tls)
        if not certificate:
            problem = "connection peer presented no TLS (x.509) certificate"
            raise LoginRefused(_EXTERNAL, problem)
        kind = settings.tls_login_from
        name = login_name(
            certificate, kind, settings.tls_login_san_type, settings.tls_login_san_index
        )
        if name is None:
            raise LoginRefused(_EXTERNAL, f"no name found: the certificate has no {kind}")
        return self._logged_in(name, None, _EXTERNAL)

    def _logged_in(self, name: str, password: bytes | None, mechanism: str) -> User:
        """Return the user; a login that is under way is not begun again. No password: a certificate says who it is."""
        if self._login is None:
            self._login = self._connections.access.log_in(
                name, password, mechanism, self._from_loopback, self._peer
            )
        return self._login()

    def _tune(self, method: ConnectionTuneOk) -> None:
        settings = self._connections.settings
        if _exceeds(method.frame_max, settings.frame_max) or (
            0 < method.frame_max < FRAME_MIN_BYTES
        ):
            raise RefusedError(
                f"negotiated frame_max = {method.frame_max}, allowed are {FRAME_MIN_BYTES} to"
                f" {settings.frame_max or 'any'}"
            )
        if _exceeds(method.channel_max, settings.channel_max):
            raise RefusedError(
                f"negotiated channel_max = {method.channel_max}, allowed are 1 to"
                f" {settings.channel_max}"
            )
        self.tuned = method
        self._state = spec.CONNECTION_OPEN

    def _open(self, method: ConnectionOpen) -> Opened:
        assert self._user is not None
        assert self.tuned is not None
        try:
            vhost = self._connections.open_vhost(self._user, method.virtual_host)
        except HardError as error:
            error.method = spec.CONNECTION_OPEN
            raise
        return Opened(
            self._user,
            vhost,
            self.tuned.frame_max,
            self.tuned.channel_max,
            self.tuned.heartbeat,
            self.client_properties,
            self._capable("consumer_cancel_notify"),
            self._capable("connection.blocked"),
            self._mechanism,
        )

    def _capable(self, name: str) -> bool:
        return self._capabilities.get(name) == ("t", True)


def _exceeds(value: int, limit: int) -> bool:
    """Whether a client asks for more than offered; 0 is no limit on either side, thus the most."""
    return limit > 0 and (value == 0 or value > limit)
