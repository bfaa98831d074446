"""The session: the objects that the channels of one connection share, from user to read control."""

from __future__ import annotations

import struct
from abc import ABCMeta, abstractmethod
from enum import StrEnum, auto
from typing import TYPE_CHECKING, Any, Final, Protocol

from leveret.amqp import spec
from leveret.amqp.body_frames import UNCOPIED_BYTES, Part, body_parts, part_max_of
from leveret.amqp.kernel import ACK, METHOD, OVERSIZE, PUBLISH, RUN_KIND, Run, content
from leveret.core.limits import LARGE_BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.actors.runtime.timers import Timer
    from leveret.amqp.fields import Method
    from leveret.broker.channel.reply_consumers import ReplyConsumers
    from leveret.broker.channel.routes import Routes
    from leveret.broker.channel.settlement_timeout import SettlementTimeout
    from leveret.broker.channel.uncommitted import OpenTransactions
    from leveret.broker.registry.registry import QueueEntry
    from leveret.broker.vhost.auth.access import User
    from leveret.broker.vhost.vhost import Client, VHost
    from leveret.core.message import Message
    from leveret.core.settings import BrokerSettings


class Output(metaclass=ABCMeta):
    """Where a channel writes its frames (``connection/writer.py``)."""

    __slots__ = ()

    @property
    @abstractmethod
    def unsent_bytes(self) -> int: ...

    @abstractmethod
    def write(self, data: bytes) -> None: ...

    @abstractmethod
    def write_parts(self, parts: list[Part]) -> None: ...

    @abstractmethod
    def write_body(self, channel: int, frame_max: int, body: bytes) -> None: ...


class Block(StrEnum):
    """Why a connection is not read; ``connection/reading/read_control.py`` says until when."""

    CREDIT = auto()
    BACK_PRESSURE = auto()
    HELD_RUNS = auto()
    LONG_READ = auto()
    UNSENT = auto()
    ALARM = auto()
    COALESCING = auto()
    REPLIES = auto()
    ENDING = auto()
    QUESTION = auto()


# basic.return: reply-code 312, reply-text NO_ROUTE; exchange and routing key follow.
_RETURN_NO_ROUTE: Final = struct.pack(">HHHB", 60, 50, 312, 8) + b"NO_ROUTE"
# The kind of a run of the reader's own, behind all that a client has sent before connection.close.
END_OF_RUNS: Final = -1
# The kind of a run of publishes that an interceptor has refused: ``(REFUSED, channel, ProtocolError)``.
REFUSED: Final = -2
_METHOD_OF_RUN: Final = {
    PUBLISH: spec.BASIC_PUBLISH,
    OVERSIZE: spec.BASIC_PUBLISH,
    REFUSED: spec.BASIC_PUBLISH,
    ACK: spec.BASIC_ACK,
}

_TOPOLOGY: Final = frozenset({40, 50})  # the classes exchange and queue


def method_of(run: Run) -> int:
    """Return the ids of the method a run of any kind of the kernel's stands for."""
    kind: int = run[RUN_KIND]
    if kind != METHOD:
        return _METHOD_OF_RUN[kind]
    ids: int
    _, _, ids, _ = run
    return ids


def is_long(method: Run, work_left: int) -> bool:
    """Return whether a method is more work than this: those of exchanges and queues are as much as 100 messages."""
    ids: int
    arguments: bytes
    _, _, ids, arguments = method
    return ids >> 16 in _TOPOLOGY or len(arguments) > work_left


class Reading(Protocol):
    """Control of reading, as a channel uses it (``connection/reading/read_control.py``)."""

    to_backlogs: int

    def block(self, reason: Block) -> None: ...

    def unblock(self, reason: Block) -> None: ...

    def limit_coalescing(self, prefetch: int) -> None: ...

    def coalesce_no_acks(self) -> None: ...

    def coalesce_no_publishes(self) -> None: ...


class Intercepting(Protocol):
    """The interceptors of the node, as a channel uses them (``channel/interceptors.py``)."""

    def published(self, client: Client, runs: list[Run]) -> list[Run]: ...

    def delivered(self, client: Client, queue: str, messages: list[Message]) -> list[Message]: ...


class Session:
    """One logged-in connection, as its channels see it.

    Attributes:
        reader: of the connection; it owns its exclusive queues.
        name: ``127.0.0.1:51022 -> 127.0.0.1:5672``, for logs and lists.
        source: the peer's address; lines of the log are limited per address in a flood.
        features: of the vhost.
        cancel_notify: the client understands basic.cancel from the broker.
        frame_max: negotiated frame size in bytes.
        client_name: ``connection_name`` of the client's properties, for logs.
        reply_consumers: of the node.
        open_transactions: of the node.
        interceptors: see what the client publishes and gets; None: there are none.
        left_queues: auto-delete queues that channels have consumed from until they ended with the connection.
    """

    __slots__ = (
        "cancel_notify",
        "client_name",
        "features",
        "frame_max",
        "interceptors",
        "left_queues",
        "name",
        "open_transactions",
        "read_control",
        "reader",
        "reply_consumers",
        "routes",
        "settings",
        "source",
        "user",
        "vhost",
        "writer",
    )

    def __init__(
        self,
        user: User,
        reader: Ref,
        name: str,
        source: str,
        vhost: VHost,
        writer: Output,
        read_control: Reading,
        routes: Routes,
        settings: BrokerSettings,
        frame_max: int,
        cancel_notify: bool,
        client_name: str,
        reply_consumers: ReplyConsumers,
        open_transactions: OpenTransactions,
        interceptors: Intercepting | None,
    ) -> None:
        self.user = user
        self.reader = reader
        self.name = name
        self.source = source
        self.vhost = vhost
        self.features = vhost.features
        self.writer = writer
        self.read_control = read_control
        self.routes = routes
        self.settings = settings
        self.frame_max = frame_max
        self.cancel_notify = cancel_notify
        self.client_name = client_name
        self.reply_consumers = reply_consumers
        self.open_transactions = open_transactions
        self.interceptors = interceptors
        self.left_queues: tuple[QueueEntry, ...] = ()

    def write_content(self, channel: int, method: bytes, head: bytes, body: bytes) -> None:
        """Write one content; a body of some size is not copied, and a large one goes piece by piece."""
        frame_max, writer = self.frame_max, self.writer
        if len(body) < UNCOPIED_BYTES:
            writer.write(content(channel, method, frame_max, head, body))
            return
        writer.write(content(channel, method, frame_max, head, b""))
        if len(body) <= LARGE_BODY_BYTES:
            writer.write_parts(body_parts(channel, part_max_of(frame_max, body), body))
        else:
            writer.write_body(channel, frame_max, body)

    def write_returns(self, channel: int, messages: list[Message]) -> None:
        """Return messages that no queue gets."""
        for origin, head, body in messages:
            self.write_content(channel, _RETURN_NO_ROUTE + origin, head, body)


class ChannelActor(Protocol):
    """The channel's actor, as its publishing and its consuming half use it."""

    is_bulk_turn: bool
    number: int
    session: Session
    settlement_timeout: SettlementTimeout
    trap_exits: bool

    @property
    def ref(self) -> Ref: ...

    @property
    def runtime(self) -> Runtime: ...

    def watch(self, target: Ref) -> None: ...

    def unwatch(self, target: Ref) -> None: ...

    def start_timer(self, delay_s: float, message: Any) -> Timer: ...

    def send_method(self, method: Method) -> None: ...

    def next_turn(self, callback: Callable[[Any], None]) -> None: ...

    def resume_commit(self) -> None: ...
