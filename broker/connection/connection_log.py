"""The log lines of a connection: accepted, authenticated, refused, error, closed.

``accepted`` is written when the client has sent something, so checks of a load balancer that only connect are silent
above ``debug``. An accepted connection ends with exactly one line: ``refused`` when the broker turned it away, else
``closed`` with the reason and how long it lived, also when the client left before it was open. All lines name the
connection, and lines are limited per peer address in a flood.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from leveret.amqp import spec
from leveret.broker.connection import address
from leveret.core.log.floods import SOURCE
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from leveret.amqp.errors import ProtocolError
    from leveret.amqp.tables import Table
    from leveret.broker.connection.handshake import Opened

log = logger(__name__)

TO_MAKE_ROOM: Final = "socket closed before login, to make room for others"

_TLS: Final = b"\x16\x03"  # how a TLS client begins


def header_problem(header: bytes) -> str:
    """Return why these first bytes of a client are no protocol header."""
    hint = " (a TLS client; this listener has no TLS)" if header.startswith(_TLS) else ""
    return f"no AMQP 0-9-1 header but {header!r}{hint}"


def refused_at_once(peer: Any, reason: str) -> None:
    """Write that a socket was closed before anything was read from it."""
    log.error(
        "connection refused at once peer=%s reason=%s",
        address.shown(peer),
        reason,
        extra={SOURCE: address.split(peer)[0]},
    )


def closed_before_first_byte(peer: Any) -> None:
    """Write that a client had left before its socket was accepted: a check that only connects, or a flood."""
    log.debug(
        "connection closed before its first byte peer=%s",
        address.shown(peer),
        extra={SOURCE: address.split(peer)[0]},
    )


class ConnectionLog:
    """Writes the lines of one connection.

    Attributes:
        name: ``peer -> local``.
        client_name: ``connection_name`` of the client's properties.
    """

    __slots__ = (
        "_account", "_is_accepted", "_is_refused", "_level", "_reason", "_started_s", "_user",
        "_vhost", "client_name", "name",
    )  # fmt: skip

    def __init__(self, name: str, peer: Any, now_s: float) -> None:
        self.name = name
        self.client_name = self._user = self._vhost = ""
        self._account = {SOURCE: address.split(peer)[0]}
        self._started_s = now_s
        self._is_accepted = self._is_refused = False
        self._reason, self._level = "", logging.INFO

    @property
    def source(self) -> str:
        """On whose account the lines are counted in a flood."""
        return self._account[SOURCE]

    def accepted(self) -> None:
        """Write, once, that a client is there."""
        if not self._is_accepted:
            self._is_accepted = True
            log.info("connection accepted name=%s", self.name, extra=self._account)

    def opened(self, opened: Opened) -> None:
        """Write that the client is logged in and its vhost open."""
        properties = opened.client_properties
        self.knows(opened.user.name, properties)
        self._vhost = opened.vhost.name
        log.info(
            "connection authenticated name=%s user=%s vhost=%s mechanism=%s connection_name=%s"
            " product=%s version=%s platform=%s",
            self.name,
            self._user,
            self._vhost,
            opened.mechanism,
            self.client_name,
            _text(properties, "product"),
            _text(properties, "version"),
            _text(properties, "platform"),
            extra=self._account,
        )

    def secret_updated(self, reason: str) -> None:
        """Write that a new secret of the client was taken; never the secret itself."""
        log.info(
            "secret updated name=%s connection_name=%s user=%s vhost=%s reason=%s",
            self.name,
            self.client_name,
            self._user,
            self._vhost,
            reason,
            extra=self._account,
        )

    def knows(self, user: str, properties: Table) -> None:
        """Note what the handshake has brought so far: the user, empty before its login, and the client's name."""
        self._user, self.client_name = user, _text(properties, "connection_name")

    def refused(self, reason: str, method: int = 0, code: int = 0) -> None:
        """Write, once, that a connection does not get open.

        Args:
            reason: for the operator.
            method: of the client that is refused; 0 for none.
            code: that the client is told; 0 when it gets no answer.
        """
        if self._is_refused:
            return
        self.accepted()
        self._is_refused = True
        log.error(
            "connection refused name=%s connection_name=%s user=%s method=%s code=%d reason=%s",
            self.name,
            self.client_name,
            self._user,
            spec.method_name(method),
            code,
            reason,
            extra=self._account,
        )

    def failed(self, error: ProtocolError, channel: int) -> None:
        """Write the error that ends an open connection."""
        self.ends(f"{error.code} {error.name}")
        log.error(
            "connection error name=%s connection_name=%s user=%s vhost=%s channel=%d method=%s"
            " code=%d text=%s",
            self.name,
            self.client_name,
            self._user,
            self._vhost,
            channel,
            spec.method_name(error.method or 0),
            error.code,
            error.log_text,
            extra=self._account,
        )

    def ends(self, reason: str, level: int = logging.INFO) -> None:
        """Note why the connection ends; the first reason counts."""
        if not self._reason:
            self._reason, self._level = reason, level

    def closed(self, now_s: float, reason: object) -> None:
        """Write that the connection is closed.

        Args:
            now_s: the time.
            reason: of the reader's end, which counts when no other was noted.
        """
        if self._is_refused:
            return
        self.ends(str(reason), logging.ERROR)
        log.log(
            self._level if self._is_accepted else logging.DEBUG,
            "connection closed name=%s connection_name=%s user=%s vhost=%s reason=%s lived_s=%.3f",
            self.name,
            self.client_name,
            self._user,
            self._vhost,
            self._reason,
            now_s - self._started_s,
            extra=self._account,
        )


def _text(properties: Table, name: str) -> str:
    """Return a text of the client's properties; empty without."""
    letter, found = properties.get(name, ("V", None))
    return found.decode("utf-8", "surrogateescape") if letter == "S" else ""
