"""A broker without sockets: the real node and tree, metadata in memory, virtual time, fake transports.

Everything happens by hand: ``settle`` lets happen what needs no time, ``jump`` lets time pass.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.amqp import methods as m
from leveret.amqp.properties import Properties, head_of
from leveret.broker.connection.connections import registered
from leveret.broker.connection.reading.read_sizes import WideReads
from leveret.broker.connection.sockets import LISTENER, READERS, ConnectionProtocol
from leveret.broker.node import bootstrap
from leveret.broker.node.bootstrap import VhostStarter
from leveret.broker.node.node import Node
from leveret.broker.tree import ConnectionsSup, MetadataSup, ReadersSup, VhostsSup
from leveret.core.errors import StoreError
from leveret.core.limits import UNSENT_BYTES_MAX
from leveret.core.settings import BrokerSettings
from leveret.metadata.memory import MemoryStore
from leveret.metadata.tables import BindingRow, ExchangeRow, QueueRow, Row
from leveret.supervisors.requests import StartChild
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from leveret.testing.virtual_clock import VirtualClock

HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEAD, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_BODY_BYTES = 131_064


class Wire:
    """A transport that keeps the bytes written to it; like uvloop's, it does not derive from asyncio's.

    Attributes:
        out: bytes that the client has not looked at yet.
        received: where its bytes go.
        socket: its socket, which is none unless a test says so.
        tls: its TLS, likewise.
        unread_bytes: what the peer's socket is said not to have taken.
        largest_write: in bytes.
        state: ``open``, ``finished`` (nothing more is written), ``closed`` (after the last write) or
            ``aborted``.
    """

    def __init__(self, peer: str = "127.0.0.1") -> None:
        self.out = bytearray()
        self.peer = peer
        self.socket: Any = None
        self.tls: Any = None
        self.writes = self.largest_write = 0
        self.limits: tuple[int | None, int | None] = (None, None)
        self.unread_bytes = 0
        self.is_reading = True
        self.protocol: Any = None
        self.received: Callable[[bytes], None]
        self.state = "open"

    def write(self, data: Any) -> None:
        assert self.state == "open", "written after the end"
        self.out += data
        self.writes += 1
        self.largest_write = max(self.largest_write, len(data))

    def writelines(self, parts: Iterable[Any]) -> None:
        self.write(b"".join(parts))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        local = ("127.0.0.1", 5672)
        found = {"peername": (self.peer, 40_000), "sockname": local, "socket": self.socket}
        found["ssl_object"] = self.tls
        return found.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def get_write_buffer_limits(self) -> tuple[int | None, int | None]:
        high, low = self.limits
        return low, high

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def is_closing(self) -> bool:
        return self.state in {"closed", "aborted"}

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        assert self.state == "open"
        self.state = "finished"

    def set_protocol(self, protocol: ConnectionProtocol | WideReads) -> None:
        self.protocol = protocol
        if isinstance(protocol, WideReads):
            self.received = partial(_read_into, protocol)
        else:
            self.received = protocol.data_received  # it is not asked for again

    def get_protocol(self) -> Any:
        return self.protocol

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self) -> None:
        if not self.is_closing():
            self.state = "closed"

    def abort(self) -> None:
        if not self.is_closing():
            self.state = "aborted"


def _read_into(protocol: WideReads, data: bytes) -> None:
    while data:
        buffer = protocol.get_buffer(-1)
        some, data = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(some)] = some
        protocol.buffer_updated(len(some))


@dataclass(slots=True)
class Frame:
    """One frame as it stood on the wire."""

    kind: int
    channel: int
    payload: bytes


class Client:
    """A client at the end of a fake wire.

    Attributes:
        wire: the transport.
        protocol: asyncio's side of the connection.
    """

    def __init__(self, rig: Rig, peer: str = "127.0.0.1") -> None:
        self.rig = rig
        self.wire = Wire(peer)
        self.protocol = ConnectionProtocol(rig.node.sockets)
        self.protocol.connection_made(self.wire)  # type: ignore[arg-type]
        rig.settle()
        self.reader: Ref = rig.readers[-1]

    def feed(self, data: bytes) -> None:
        """Let the broker read these bytes."""
        assert self.wire.is_reading, "the broker does not read"
        if isinstance(self.wire.protocol, WideReads):
            self.wire.received(data)
        else:
            self.protocol.data_received(data)
        self.rig.settle()

    def send(self, channel: int, *methods: m.Method) -> None:
        self.feed(b"".join(m.method_frame(channel, m.encode(each)) for each in methods))

    def publish(
        self, channel: int, key: str, *bodies: bytes, exchange: str = "", **properties: Any
    ) -> None:
        mandatory = properties.pop("mandatory", False)
        method = m.BasicPublish(exchange, key, mandatory)
        self.feed(b"".join(_content(channel, method, properties, body) for body in bodies))

    def contents(self, channel: int, *contents: tuple[str, str, bytes, dict[str, Any]]) -> bytes:
        """Return publishes as bytes: exchange, routing key, body and properties of each."""
        return b"".join(
            _content(channel, m.BasicPublish(exchange, key), properties, body)
            for exchange, key, body, properties in contents
        )

    def hang_up(self) -> None:
        """Lose the socket."""
        self.wire.state = "aborted"
        self.protocol.connection_lost(None)
        self.rig.settle()

    def frames(self) -> list[Frame]:
        """Take the written bytes."""
        frames, data = [], bytes(self.wire.out)
        self.wire.out.clear()
        while data:
            kind, channel, size = struct.unpack_from(">BHI", data)
            assert data[7 + size] == 0xCE
            frames.append(Frame(kind, channel, data[7 : 7 + size]))
            data = data[8 + size :]
        return frames

    def reads_nothing(self) -> None:
        """Read nothing more, until ``reads_all``: what is written waits at the broker."""
        self.protocol.pause_writing()
        self.wire.unread_bytes = UNSENT_BYTES_MAX + 1

    def reads_all(self) -> None:
        self.wire.unread_bytes = 0
        self.protocol.resume_writing()
        self.rig.settle()

    def take(self) -> list[Any]:
        """Take the written frames: methods, the bytes of bodies, ``"heartbeat"``."""
        taken: list[Any] = []
        for frame in self.frames():
            if frame.kind == METHOD:
                ids = int.from_bytes(frame.payload[:4], "big")
                taken.append(m.decode(ids, frame.payload[4:]))
            elif frame.kind == BODY:
                taken.append(frame.payload)
            elif frame.kind == HEARTBEAT:
                taken.append("heartbeat")
        return taken

    def bodies(self) -> list[bytes]:
        return [each for each in self.take() if type(each) is bytes]

    def ask(self, channel: int, method: m.Method) -> Any:
        """Send a method and take its only answer."""
        self.send(channel, method)
        answers = self.take()
        assert len(answers) == 1, answers
        return answers[0]

    def log_in(self, heartbeat_s: int = 0, vhost: str = "/", user: str = "guest") -> None:
        capabilities = {"consumer_cancel_notify": ("t", True)}
        properties = {"capabilities": ("F", capabilities)}
        response = f"\0{user}\0{user}".encode()
        self.feed(HEADER)
        self.send(0, m.ConnectionStartOk(properties, "PLAIN", response))
        self.send(0, m.ConnectionTuneOk(2047, 131_072, heartbeat_s))
        self.send(0, m.ConnectionOpen(vhost))

    @property
    def is_up(self) -> bool:
        """Whether the broker may still say something."""
        return self.wire.state == "open"


def _content(channel: int, method: m.BasicPublish, properties: Any, body: bytes) -> bytes:
    head = head_of(Properties(**properties), len(body))
    parts = [body[at : at + FRAME_BODY_BYTES] for at in range(0, len(body), FRAME_BODY_BYTES)]
    frames = m.method_frame(channel, m.encode(method)) + _frame(HEAD, channel, head)
    return frames + b"".join([_frame(BODY, channel, part) for part in parts])


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


class Door(OtpActor):
    """What the listener does with an accepted connection."""

    def init(self, rig: Rig) -> None:
        self.rig = rig
        self.runtime.register(LISTENER, self.ref)

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        node = self.rig.node
        request = StartChild((node.connections, message.transport, message.protocol))
        self.rig.readers.append(
            self.runtime.call_inline(registered(self.runtime, READERS), request)[1]
        )


class FullDisk(MemoryStore):
    """Metadata that cannot be written while ``is_full``."""

    is_full = False

    def write(self, puts: Any, deletes: Any, then: Any) -> None:
        if self.is_full:
            self._deliver(lambda: then(StoreError("no space left on device")))
        else:
            super().write(puts, deletes, then)


class Rig:
    """A running broker; ``rows`` are in its metadata store from the beginning."""

    def __init__(self, rows: Sequence[Row] = (), **settings: Any) -> None:
        self.readers: list[Ref] = []
        self.clock = VirtualClock()
        self.runtime = Runtime(clock=self.clock)
        self.store = MemoryStore(lambda run: self.clock.call_later(0, run))
        self.node = Node(self.runtime, BrokerSettings(**settings), self.store)
        self.node.epochs.begin()
        first = bootstrap.first_rows(self.node.settings)
        self.store.write([*first, *rows], [], lambda _: None)
        bootstrap.fill(self.node, self.store.load())
        self.start_tree()

    def start_tree(self, *first: ChildSpec) -> None:
        """Start the actors."""
        children = (
            *first,
            ChildSpec("metadata", MetadataSup, (self.node,), type="supervisor"),
            ChildSpec("vhosts", VhostsSup, (self.node,), type="supervisor"),
            ChildSpec("vhost_starter", VhostStarter, (self.node,), restart="temporary"),
            ChildSpec("readers", ReadersSup, type="supervisor"),
            ChildSpec("connections", ConnectionsSup, type="supervisor"),
            ChildSpec("door", Door, (self,)),
        )
        spec = SupervisorSpec("one_for_all", 0, 1.0, children)
        self.root = self.runtime.spawn(Supervisor, spec, label="broker")
        self.settle()

    def settle(self) -> None:
        """Let everything happen that needs no time."""
        self.clock.jump(0)

    def jump(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.jump(seconds)

    def client(self, peer: str = "127.0.0.1") -> Client:
        """A fresh connection; nothing is said yet."""
        return Client(self, peer)

    def session(self, heartbeat_s: int = 0, channels: int = 1, user: str = "guest") -> Client:
        """A client that is logged in, with channels open."""
        client = self.client()
        client.log_in(heartbeat_s, user=user)
        client.send(0)
        for number in range(1, channels + 1):
            client.send(number, m.ChannelOpen())
        answers = client.take()
        assert type(answers[-1]) is (m.ChannelOpenOk if channels else m.ConnectionOpenOk), answers
        return client

    @property
    def queues(self) -> dict[str, Any]:
        return self.node.vhosts["/"].topology.queues


def mandatory(channel: int, exchange: str, key: str, body: bytes) -> bytes:
    """Return a mandatory publish as bytes."""
    return _content(channel, m.BasicPublish(exchange, key, True), {}, body)


def durable(name: str, **more: Any) -> m.QueueDeclare:
    return m.QueueDeclare(name, durable=True, **more)


def stored(store: MemoryStore) -> set[str]:
    """What would be there after a restart."""
    contents = store.load()
    found = {f"queue {row.name}" for row in contents.table(QueueRow)}
    found |= {f"exchange {row.name}" for row in contents.table(ExchangeRow)}
    return found | {f"{row.source}->{row.destination}" for row in contents.table(BindingRow)}
