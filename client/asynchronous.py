"""A lean AMQP client: one protocol object per connection, frames parsed in place, no task per message.

A method that answers a request resolves the request waiting on its channel; deliveries, returns, confirms and
closes go to the channel's ``Agent``. The client checks the broker's framing, and fails on the first frame out of
order.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from leveret.amqp import methods, spec
from leveret.amqp.fields import Method
from leveret.amqp.tables import typed_table
from leveret.core.errors import LeveretError

FRAME: Final = struct.Struct(">BHI")
ACK_START: Final = struct.Struct(">BHIIQ")
_DELIVER: Final = struct.pack(">HH", 60, 60)
_RETURN: Final = struct.pack(">HH", 60, 50)
_ACK: Final = struct.pack(">HH", 60, 80)
_IDS = struct.Struct(">I")
_TAG = struct.Struct(">Q")
_TEN_S: Final = 10.0
_PORTS: Final = {"amqp": 5672, "amqps": 5671}


class BrokerError(LeveretError):
    """The broker refused a request or closed the connection."""


class Target(NamedTuple):
    """The address, user and vhost to connect to."""

    host: str
    port: int
    user: str
    password: str
    vhost: str
    has_tls: bool = False


def parse_uri(uri: str) -> Target:
    """Parse ``amqp://user:password@host:port/vhost``, or ``amqps``; every part but the scheme may be missing.

    Raises:
        ValueError: the text is not such a URI.
    """
    parts = urlsplit(uri)
    if parts.scheme not in _PORTS:
        raise ValueError(f'"{uri}" is not amqp[s]://[USER:PASSWORD@]HOST[:PORT][/VHOST]')
    return Target(
        parts.hostname or "127.0.0.1",
        parts.port or _PORTS[parts.scheme],
        unquote(parts.username or "guest"),
        unquote(parts.password or "guest"),
        unquote(parts.path[1:]) or "/",
        parts.scheme == "amqps",
    )


class Agent(Protocol):
    """The events of a channel, called synchronously by the parser."""

    def on_delivery(self, tag: int, redelivered: bool, body: bytes) -> None: ...
    def on_confirm(self, tag: int, multiple: bool, accepted: bool) -> None: ...
    def on_return(self, body: bytes) -> None: ...
    def on_cancelled(self) -> None: ...
    def on_writable(self) -> None: ...

    def on_read(self) -> None:
        """All frames of one socket read have been handled."""


class _Content:
    """An incomplete content on one channel."""

    __slots__ = ("missing", "parts", "redelivered", "tag")

    def __init__(self, tag: int, redelivered: bool) -> None:
        self.tag = tag  # -1 for a returned message
        self.redelivered = redelivered
        self.missing = -1  # before its header
        self.parts: list[bytes] = []


class Connection(asyncio.Protocol):
    """One connection; ``connect`` makes it ready for channels."""

    transport: asyncio.Transport  # from connection_made on

    def __init__(self) -> None:
        self.frame_max = 0
        self.paused = False
        self.read_ns = 0  # when the bytes being parsed were read
        self.server_properties: dict[str, Any] = {}
        self._agents: dict[int, Agent] = {}
        self._waiting: dict[int, asyncio.Future[Method]] = {}
        self._contents: dict[int, _Content] = {}
        self._rest = b""
        self.error: BrokerError | None = None
        self._lost = asyncio.get_running_loop().create_future()

    # Opening and closing.

    async def open(self, target: Target, heartbeat_s: int, frame_max: int) -> None:
        start = self._expect(0)
        self.transport.write(spec.PROTOCOL_HEADER)
        found: Any = await self._answer(start)
        self.server_properties = found.server_properties
        capabilities = {"authentication_failure_close": True, "consumer_cancel_notify": True}
        capabilities |= {"basic.nack": True, "publisher_confirms": True, "connection.blocked": True}
        properties = typed_table({"product": "leveret perf", "capabilities": capabilities})
        response = f"\0{target.user}\0{target.password}".encode()
        tune: Any = await self.call(0, methods.ConnectionStartOk(properties, "PLAIN", response))
        self.frame_max = min(frame_max or tune.frame_max, tune.frame_max) or 131_072
        self.send(0, methods.ConnectionTuneOk(tune.channel_max, self.frame_max, heartbeat_s))
        if heartbeat_s:
            self._beat(heartbeat_s / 2)
        await self.call(0, methods.ConnectionOpen(target.vhost))

    async def channel(self, number: int, agent: Agent | None = None) -> None:
        if agent is not None:
            self._agents[number] = agent
        await self.call(number, methods.ChannelOpen())

    async def close(self) -> None:
        """Close the connection; harmless when it is closed."""
        if not self._lost.done():
            if self.error is None:
                await self.call(0, methods.ConnectionClose(200, "bye", 0, 0))
            self.transport.close()
        await self._lost

    async def call(self, channel: int, method: Method, timeout_s: float = 60.0) -> Any:
        waiting = self._expect(channel)
        self.send(channel, method)
        return await self._answer(waiting, timeout_s)

    def send(self, channel: int, method: Method) -> None:
        self.transport.write(methods.method_frame(channel, methods.encode(method)))

    def _expect(self, channel: int) -> asyncio.Future[Method]:
        if self.error is not None:
            raise self.error
        waiting: asyncio.Future[Method] = asyncio.get_running_loop().create_future()
        self._waiting[channel] = waiting
        return waiting

    async def _answer(self, waiting: asyncio.Future[Method], timeout_s: float = _TEN_S) -> Method:
        try:
            return await asyncio.wait_for(waiting, timeout_s)
        except TimeoutError as error:
            raise BrokerError(f"no answer from the broker within {timeout_s:g} s") from error

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
        self._fail(BrokerError(f"connection lost: {error or 'closed by the broker'}"))
        if not self._lost.done():
            self._lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Parse the bytes; a failure ends the connection."""
        self.read_ns = time.monotonic_ns()
        try:
            self._parse(self._rest + data if self._rest else data)
        except LeveretError as error:
            self._fail(error if isinstance(error, BrokerError) else BrokerError(str(error)))
            self.transport.abort()
            return
        for agent in self._agents.values():
            agent.on_read()

    def _fail(self, error: BrokerError) -> None:
        if self.error is None:
            self.error = error
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(self.error)

    # Frames.

    def _parse(self, data: bytes) -> None:
        position, end = 0, len(data)
        while end - position >= 8:
            kind, channel, size = FRAME.unpack_from(data, position)
            stop = position + 7 + size
            if stop >= end:
                break
            if data[stop] != 0xCE:
                raise BrokerError("a frame of the broker does not end in 0xCE")
            if kind == spec.FRAME_BODY:
                self._body(channel, data[position + 7 : stop])
            elif kind == spec.FRAME_HEADER:
                self._header(channel, _TAG.unpack_from(data, position + 11)[0])
            elif kind == spec.FRAME_METHOD:
                self._method(channel, data, position + 7, stop)
            elif kind != spec.FRAME_HEARTBEAT:
                raise BrokerError(f"the broker sent a frame of type {kind}")
            position = stop + 1
        self._rest = data[position:]

    def _method(self, channel: int, data: bytes, position: int, stop: int) -> None:
        if data.startswith(_DELIVER, position):
            position += 5 + data[position + 4]
            tag = _TAG.unpack_from(data, position)[0]
            self._start(channel, _Content(tag, data[position + 8] != 0))
        elif data.startswith(_ACK, position):
            tag = _TAG.unpack_from(data, position + 4)[0]
            self._agents[channel].on_confirm(tag, data[position + 12] != 0, True)
        elif data.startswith(_RETURN, position):
            self._start(channel, _Content(-1, False))
        else:
            ids = _IDS.unpack_from(data, position)[0]
            self._other(channel, methods.decode(ids, data[position + 4 : stop]))

    def _start(self, channel: int, content: _Content) -> None:
        if channel in self._contents:
            raise BrokerError(f"a content began before the last one ended on channel {channel}")
        self._contents[channel] = content

    def _header(self, channel: int, size: int) -> None:
        content = self._contents.get(channel)
        if content is None or content.missing >= 0:
            raise BrokerError(f"a content header out of place on channel {channel}")
        content.missing = size
        if size == 0:
            self._whole(channel, content, b"")

    def _body(self, channel: int, part: bytes) -> None:
        content = self._contents.get(channel)
        if content is None or len(part) > content.missing:
            raise BrokerError(f"a content body out of place on channel {channel}")
        content.missing -= len(part)
        if content.missing == 0 and not content.parts:
            self._whole(channel, content, part)
            return
        content.parts.append(part)
        if content.missing == 0:
            self._whole(channel, content, b"".join(content.parts))

    def _whole(self, channel: int, content: _Content, body: bytes) -> None:
        del self._contents[channel]
        agent = self._agents[channel]
        if content.tag < 0:
            agent.on_return(body)
        else:
            agent.on_delivery(content.tag, content.redelivered, body)

    def _other(self, channel: int, method: Any) -> None:
        if method.IDS == spec.BASIC_NACK:
            self._agents[channel].on_confirm(method.delivery_tag, method.multiple, False)
        elif method.IDS in {spec.CONNECTION_CLOSE, spec.CHANNEL_CLOSE}:
            kind = "connection" if method.IDS == spec.CONNECTION_CLOSE else "channel"
            if kind == "connection":
                self.send(0, methods.ConnectionCloseOk())
            raise BrokerError(
                f"{kind} closed by the broker: {method.reply_code} {method.reply_text}"
            )
        elif method.IDS == spec.BASIC_CANCEL:
            self._agents[channel].on_cancelled()
        elif method.IDS not in {spec.CONNECTION_BLOCKED, spec.CONNECTION_UNBLOCKED}:
            waiting = self._waiting.pop(channel, None)
            if waiting is None:
                raise BrokerError(f"the broker answered without being asked: {method.NAME}")
            if not waiting.done():
                waiting.set_result(method)


async def connect(target: Target, heartbeat_s: int = 0, frame_max: int = 0) -> Connection:
    """Return an open connection.

    Raises:
        BrokerError: the connection or the login failed.
    """
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.create_connection(
            Connection, target.host, target.port, ssl=_any_broker() if target.has_tls else None
        )
    except OSError as error:
        place = f"{target.host}:{target.port}"
        raise BrokerError(f"cannot connect to {place}: {error.strerror or error}") from error
    try:
        await connection.open(target, heartbeat_s, frame_max)
    except BrokerError:
        connection.transport.abort()
        raise
    return connection


def _any_broker() -> ssl.SSLContext:
    """Return a context that trusts any broker, as PerfTest does: what is measured is no secret."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def acks(channel: int, tags: list[int], multiple: bool) -> bytes:
    """Return basic.ack frames for delivery tags; ``multiple`` acknowledges up to the last one."""
    end = b"\x01\xce" if multiple else b"\x00\xce"
    chosen = tags[-1:] if multiple else tags
    pack = ACK_START.pack
    return b"".join([pack(1, channel, 13, spec.BASIC_ACK, tag) + end for tag in chosen])
