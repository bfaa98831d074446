"""What the channels of one connection share: who is logged in, where bytes go, when to stop reading."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.actors.ref import Ref
    from leveret.broker.access import User
    from leveret.broker.routes import Routes
    from leveret.broker.settings import BrokerSettings
    from leveret.broker.vhosts import VHost
    from leveret.broker.writer import Writer


class Inlet:
    """The way in: reading pauses while anybody blocks it (a channel without credit or with held work).

    Counts the blockers; pausing and resuming the transport is all it does.
    """

    __slots__ = ("_blockers", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport: asyncio.Transport | None = transport
        self._blockers = 0

    @property
    def is_blocked(self) -> bool:
        """Whether reading is paused."""
        return self._blockers > 0

    def block(self) -> None:
        """Stop reading until the same party unblocks."""
        self._blockers += 1
        if self._blockers == 1 and self._transport is not None:
            self._transport.pause_reading()

    def unblock(self) -> None:
        """Take one block back."""
        if not self._blockers:
            return  # released meanwhile
        self._blockers -= 1
        if self._blockers == 0 and self._transport is not None:
            self._transport.resume_reading()

    def release(self) -> None:
        """Read whoever blocks: the channels are gone, killed ones without taking theirs back."""
        self._blockers = 0
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """Forget the transport; it is closed or about to be."""
        self._transport = None


class Session:
    """One logged-in connection, as its channels see it.

    Attributes:
        reader: the connection's reader actor; the owner of exclusive queues.
        name: ``127.0.0.1:51022 -> 127.0.0.1:5672``, for logs and lists.
        cancel_notify: the client understands basic.cancel from the broker.
        frame_max: negotiated frame size in bytes.
    """

    __slots__ = (
        "cancel_notify",
        "frame_max",
        "inlet",
        "name",
        "reader",
        "routes",
        "settings",
        "user",
        "vhost",
        "writer",
    )

    def __init__(
        self,
        reader: Ref,
        name: str,
        user: User,
        vhost: VHost,
        writer: Writer,
        inlet: Inlet,
        routes: Routes,
        settings: BrokerSettings,
        frame_max: int,
        cancel_notify: bool,
    ) -> None:
        self.reader = reader
        self.name = name
        self.user = user
        self.vhost = vhost
        self.writer = writer
        self.inlet = inlet
        self.routes = routes
        self.settings = settings
        self.frame_max = frame_max
        self.cancel_notify = cancel_notify
