"""An endpoint: one socket from its connection to its end, first in the handshake, then as a link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from leveret.actors.links.handshake import Handshake, HandshakeError, Verdict
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from leveret.actors.links.peer import Peer, Wire
    from leveret.actors.runtime.runtime import Runtime

log = logger(__name__)

REFUSED: Final = "refused"


class Owner(Protocol):
    """What an endpoint tells its node."""

    def made(self, endpoint: Endpoint, handshake: Handshake) -> Peer | None:
        """Handle the end of a handshake; return the link, None if it is not used."""

    def ended(self, endpoint: Endpoint, reason: str) -> None:
        """Handle the end of the socket, or that it could not be made."""


class Endpoint:
    """One socket.

    Args:
        runtime: of the node.
        owner: the node.
        handshake: to be made.
        timeout_s: for the handshake, from now.
        is_dialler: this side has made the connection.
        certified: whether the other side's certificate must contain its name.

    Attributes:
        handshake: as given.
        is_dialler: as given.
        wire: the socket; None before it is connected.
    """

    def __init__(
        self,
        runtime: Runtime,
        owner: Owner,
        handshake: Handshake,
        timeout_s: float,
        is_dialler: bool,
        certified: bool,
    ) -> None:
        self.handshake = handshake
        self.is_dialler = is_dialler
        self.wire: Wire | None = None
        self._runtime = runtime
        self._owner = owner
        self._certified = certified
        self._names: frozenset[str] = frozenset()
        self._peer: Peer | None = None
        self._is_ended = False
        self._timer = runtime.clock.call_later(timeout_s, self._timed_out)

    @property
    def is_made(self) -> bool:
        """Whether the handshake is over."""
        return self._peer is not None

    def connected(self, wire: Wire, names: frozenset[str] = frozenset()) -> None:
        """Begin; ``names`` are those of the other side's certificate."""
        self.wire = wire
        self._names = names
        if self._is_ended:
            wire.abort()
            return
        hello = self.handshake.begin()
        if hello:
            wire.write([hello])

    def received(self, data: bytes) -> None:
        """Take bytes."""
        if self._peer is not None:
            self._runtime.run_callback(self._peer.received, data)
        elif not self._is_ended:
            self._shake(data)

    def writable(self) -> None:
        """The socket takes bytes again."""
        if self._peer is not None:
            self._peer.flush()

    def ended(self, reason: str) -> None:
        """The socket has ended, or could not be connected."""
        if self._is_ended:
            return
        self._is_ended = True
        self._timer.cancel()
        if self._peer is not None:
            self._runtime.run_callback(self._peer.lost, reason)
        self._owner.ended(self, reason)

    def abort(self, reason: str) -> None:
        """Close the socket."""
        if self.wire is not None:
            self.wire.abort()
        self.ended(reason)

    def _timed_out(self) -> None:
        self.abort("the handshake has taken too long")

    def _shake(self, data: bytes) -> None:
        handshake, wire = self.handshake, self.wire
        assert wire is not None
        try:
            answer = handshake.receive(data)
            if handshake.peer and self._certified:
                self._check_names()
        except HandshakeError as error:
            log.warning("link refused: %s", error)
            self.abort(str(error))
            return
        if answer:
            wire.write([answer])
        mine, theirs = handshake.my_claim, handshake.their_claim
        if mine is None or theirs is None:
            return
        if Verdict.DUPLICATE in (mine.verdict, theirs.verdict):
            self.abort(REFUSED)
            return
        self._timer.cancel()
        self._peer = self._owner.made(self, handshake)
        if self._peer is None:
            self.abort(REFUSED)
        elif handshake.rest:
            self.received(handshake.rest)

    def _check_names(self) -> None:
        name = self.handshake.peer.rpartition("/")[0]
        if name not in self._names:
            raise HandshakeError(
                f"{self.handshake.peer} has a certificate of {sorted(self._names)}: its name must be in it"
            )
