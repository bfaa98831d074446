"""A TCP balancer: every new connection goes to the next of some nodes.

It does what HAProxy does with ``mode tcp``, ``balance roundrobin`` and ``send-proxy``: bytes, the end of a direction
and broken connections are carried on; a node that does not accept is passed over. It runs on a thread of its own, so
a test may use any client.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from itertools import chain, cycle, islice
from types import TracebackType
from typing import Self

TIMEOUT_S = 30.0

Place = tuple[str, int]


class _End(asyncio.Protocol):
    """One of the two sockets of a connection: what is read here is written to the other."""

    transport: asyncio.Transport
    other: _End
    is_at_eof = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.other = self  # until there is another
        transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.other.transport.write(data)

    def eof_received(self) -> bool:
        self.is_at_eof = True
        if self.other.is_at_eof:
            self.transport.close()
            self.other.transport.close()
        elif not self.other.transport.is_closing():
            self.other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self.other.transport.abort()


class _Client(_End):
    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._balancer.accepted(self)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._balancer.ended(self)


class Balancer:
    """Listens on one address for some nodes; a context.

    Args:
        nodes: where they listen.
        port: to listen on; 0: a free one.
        sends_proxy: a connection to a node begins with a header of the PROXY protocol (version 1), so that the node
            sees the client's address.

    Attributes:
        connections: how many connections each node has got.
    """

    def __init__(self, nodes: Sequence[Place], port: int = 0, *, sends_proxy: bool = False) -> None:
        self._nodes = nodes
        self._turns = cycle(range(len(nodes)))
        self._sends_proxy = sends_proxy
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="balancer", daemon=True)
        self._connecting: set[asyncio.Task[None]] = set()
        self._clients: set[_Client] = set()
        self.host, self.port = "127.0.0.1", port
        self.connections: Counter[Place] = Counter()

    def accepted(self, client: _Client) -> None:
        self._clients.add(client)
        task = self._loop.create_task(self._join(client))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def ended(self, client: _Client) -> None:
        self._clients.discard(client)

    async def _join(self, client: _Client) -> None:
        """Connect a client to the next node that accepts."""
        first = next(self._turns)
        for node in islice(chain(self._nodes[first:], self._nodes), len(self._nodes)):
            try:
                transport, end = await self._loop.create_connection(_End, *node)
            except OSError:
                continue
            self.connections[node] += 1
            client.other, end.other = end, client
            if self._sends_proxy:
                transport.write(self._header(client.transport))
            transport.resume_reading()
            client.transport.resume_reading()
            return
        client.transport.abort()

    def _header(self, transport: asyncio.Transport) -> bytes:
        (host, port), (own_host, own_port) = (
            transport.get_extra_info(name) for name in ("peername", "sockname")
        )
        return f"PROXY TCP4 {host} {own_host} {port} {own_port}\r\n".encode()

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(TIMEOUT_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(
            lambda: _Client(self), self.host, self.port, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for task in list(self._connecting):
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        for client in list(self._clients):
            client.transport.abort()
            client.other.transport.abort()
        await asyncio.sleep(0)  # the loop closes sockets that were aborted in its next round
