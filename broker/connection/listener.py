"""The listener: accepts on the node's sockets and has a reader started for each connection.

The bound sockets belong to the node (``sockets``) and outlive the actor, which works on duplicates: after a restart
of the listener the port is the same, and clients that connect meanwhile wait in the kernel's backlog. The acceptors
belong to the node too, so the successor of a killed listener can close them.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec import Struct

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import CallFailed, Down
from leveret.broker.connection.accepting import Accepting
from leveret.broker.connection.connections import registered
from leveret.broker.connection.layers.credentials import CHECK_S, Credentials
from leveret.broker.connection.sockets import READERS, Accepted, Sockets
from leveret.core.limits import LINGER_S
from leveret.core.log.loggers import logger
from leveret.supervisors.requests import StartChild

log = logger(__name__)

_CHECK_CERTIFICATES: Final = "check_certificates"  # a timer


class _Linger(Struct, eq=False):
    """Timer: a closed connection has had its time to take its last bytes."""

    transport: asyncio.Transport


class Listener(GenServer):
    """Accepts connections.

    It watches the readers: a killed reader cannot close its socket itself.
    """

    def init(self, sockets: Sockets, name: str) -> None:
        self.sockets = sockets
        self.transports: dict[Ref, asyncio.Transport] = {}
        sockets.close_servers()
        for protocol, transport in sockets.accepted.items():
            if not protocol.is_attached:
                self._see_closed(transport)
        for listening in sockets.listening:
            sockets.servers.append(Accepting(sockets, listening))
        self.runtime.register(name, self.ref)
        if self._credentials():
            self.start_timer(CHECK_S, _CHECK_CERTIFICATES)

    def _credentials(self) -> set[Credentials]:
        found = {each.credentials for each in self.sockets.listening}
        return {each for each in found if each is not None}

    def handle_cast(self, message: Any) -> None:
        assert type(message) is Accepted
        transport = message.transport

        def started(answer: Any) -> None:
            if isinstance(answer, CallFailed) or answer[0] != "ok":
                log.error("reader not started, its socket is closed reason=%s", answer)
                transport.abort()
            elif answer[1] is not None:
                self.transports[answer[1]] = transport
                self.monitor(answer[1])

        request = StartChild((self.sockets.connections, transport, message.protocol))
        self.call(registered(self.runtime, READERS), request, started, None)

    def handle_info(self, message: Any) -> None:
        if type(message) is Down:
            transport = self.transports.pop(message.ref, None)
            if transport is not None:
                self._see_closed(transport)
        elif type(message) is _Linger:
            message.transport.abort()
        elif message == _CHECK_CERTIFICATES:
            for each in self._credentials():
                each.reload_if_changed()
            self.start_timer(CHECK_S, _CHECK_CERTIFICATES)

    def _see_closed(self, transport: asyncio.Transport) -> None:
        """Close the socket of a reader that has ended; a peer that does not read gets some time."""
        if not transport.is_closing():
            transport.abort()
        elif transport.get_write_buffer_size():
            self.start_timer(LINGER_S, _Linger(transport))

    def terminate(self, reason: object) -> None:
        self.sockets.close_servers()
