"""A connection on an asyncio loop: one protocol object, many channels, no task per message.

``call`` sends a request and awaits its answer; the other events go to the channel's ``Agent``.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any, Final, Protocol

from leveret.amqp import methods, spec
from leveret.amqp.fields import Method
from leveret.client.errors import BrokerError
from leveret.client.events import Answer, Event
from leveret.client.protocol import ClientProtocol, check_answer
from leveret.client.target import Target

_ANSWER_S: Final = 60.0
_LOGIN_S: Final = 30.0


class Agent(Protocol):
    """The events of a channel, called synchronously in the order in which they came."""

    def on_event(self, event: Event) -> None: ...
    def on_writable(self) -> None: ...

    def on_read(self) -> None:
        """All events of one socket read have been handled."""


class AsyncConnection(asyncio.Protocol):
    """An open connection; made by ``connect``.

    Attributes:
        protocol: the connection without I/O.
        transport: for frames that an agent makes itself.
        frame_max: as agreed, in bytes.
        paused: whether the transport has enough to write.
        read_ns: when the bytes of the events being handled were read.
        ended: done when the socket is closed.
    """

    transport: asyncio.Transport  # from connection_made on

    def __init__(self, protocol: ClientProtocol) -> None:
        self.frame_max = 0
        self.paused = False
        self.read_ns = 0
        self.ended = asyncio.get_running_loop().create_future()
        self.protocol = protocol
        self._agents: dict[int, Agent] = {}
        self._waiting: dict[int, asyncio.Future[Method]] = {}

    @property
    def error(self) -> BrokerError | None:
        """Why the connection has ended; None: it has not."""
        return self.protocol.error

    async def log_in(self) -> None:
        """Wait until the broker has let the client in; raises as ``call``."""
        await self._answer(0, methods.ConnectionOpen(), _LOGIN_S)
        self.frame_max = self.protocol.frame_max
        if self.protocol.heartbeat_s:
            self._beat(self.protocol.heartbeat_s / 2)

    async def channel(self, number: int, agent: Agent | None = None) -> None:
        """Open a channel; raises as ``call``."""
        if agent is not None:
            self._agents[number] = agent
        await self.call(number, methods.ChannelOpen())

    async def close(self) -> None:
        """Close the connection; harmless when it is closed."""
        if not self.ended.done():
            if self.error is None:
                await self.call(0, methods.ConnectionClose(200, "bye"))
            self.transport.close()
        await self.ended

    async def call(self, channel: int, method: Method, timeout_s: float = _ANSWER_S) -> Any:
        """Send a request and return its answer.

        Raises:
            ChannelClosed: the broker closed the channel instead.
            BrokerError: the connection has ended, or no answer came in time.
        """
        self.protocol.request(channel, method)
        return await self._answer(channel, method, timeout_s)

    async def _answer(self, channel: int, request: Method, timeout_s: float) -> Method:
        if self.error is not None:
            raise self.error
        waiting: asyncio.Future[Method] = asyncio.get_running_loop().create_future()
        self._waiting[channel] = waiting
        self.transport.write(self.protocol.take_output())
        try:
            return check_answer(request, await asyncio.wait_for(waiting, timeout_s))
        except TimeoutError as error:
            raise BrokerError(f"no answer to {request.NAME} within {timeout_s:g} s") from error

    def _beat(self, every_s: float) -> None:
        if not self.transport.is_closing():
            self.transport.write(spec.HEARTBEAT_FRAME)
            asyncio.get_running_loop().call_later(every_s, self._beat, every_s)

    # asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=256 * 1024, low=128 * 1024)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        for agent in self._agents.values():
            agent.on_writable()

    def connection_lost(self, error: Exception | None) -> None:
        why = error or "the broker closed it"
        self.protocol.end(BrokerError(f"the connection is lost: {why}"))
        self._fail_calls()
        if not self.ended.done():
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Hand out the events; an error ends the connection."""
        self.read_ns = time.monotonic_ns()
        agents, protocol = self._agents, self.protocol
        for event in protocol.receive(data):
            if type(event) is Answer:  # faster than isinstance
                self._answered(event)
            else:
                agents[event.channel].on_event(event)
        if output := protocol.take_output():
            self.transport.write(output)
        if protocol.error is not None:
            self._fail_calls()
            self.transport.abort()
            return
        for agent in agents.values():
            agent.on_read()

    def _answered(self, event: Answer) -> None:
        waiting = self._waiting.pop(event.channel, None)
        if waiting is None:
            error = BrokerError(f"the broker sent {event.method.NAME} without a request")
            self.protocol.end(error)
        elif not waiting.done():
            waiting.set_result(event.method)

    def _fail_calls(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done() and self.error is not None:
                future.set_exception(self.error)


async def connect(
    target: Target,
    product: str = "leveret",
    context: ssl.SSLContext | None = None,
    heartbeat_s: int = 0,
    frame_max: int = 0,
) -> AsyncConnection:
    """Return an open connection.

    Args:
        target: where to.
        product: the name that the broker shows for the client.
        context: of TLS, if the target has TLS; None: the machine's authorities are trusted.
        heartbeat_s: the interval of heartbeats; 0: none.
        frame_max: the largest frame, in bytes; 0: the broker's.

    Raises:
        BrokerError: the connection or the login failed.
    """
    protocol = ClientProtocol(target, product, heartbeat_s, frame_max)
    tls = (context or ssl.create_default_context()) if target.has_tls else None
    try:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: AsyncConnection(protocol), target.host, target.port, ssl=tls
        )
    except OSError as error:
        place = f"{target.host}:{target.port}"
        raise BrokerError(f"cannot connect to {place}: {error.strerror or error}") from error
    try:
        await connection.log_in()
    except BrokerError:
        connection.transport.abort()
        raise
    return connection
