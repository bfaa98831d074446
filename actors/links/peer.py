"""A peer: one incarnation of another node, or a process of this one, whose actors can be reached from here.

Theory. An actor is named by the node it runs on and its number there; so any node can make the address of any actor,
and no side keeps a table of addresses that it has given away. A peer keeps the addresses that somebody holds here, so
that there is one ``RemoteRef`` per actor and incarnation, and the streams of mail by sender and receiver. Exit signals,
links and monitors are in ``signals``.

An actor may be behind the other side, in a process there (``runtime.remote.Routes``). Then mail and signals name it by
node and number, and the other side passes them on as if its own actors had sent them: it has an address of its own for
the sender and for the receiver. Credit for such mail is granted when it has been sent on, not while it waits here.

One actor of the other side can have an address of this node, where an actor of this node stands for it (``adopt``);
the other side puts the one in the place of the other, too (``stand_for``).

When the link breaks, all addresses of this incarnation are lost, in one go, after everything that had come was put
into mailboxes. Nothing of it comes later: the next connection has another incarnation, with other addresses, calls and
streams. A reply to a call of the old one finds its caller gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast
from weakref import WeakValueDictionary

from leveret.actors.links.codec import Buffer, Codec, Unreadable
from leveret.actors.links.connection import Connection
from leveret.actors.links.frames import RUN_BYTES_MAX
from leveret.actors.links.handshake import Claim
from leveret.actors.links.limits import NODE_BYTES_MAX, LinkLimits
from leveret.actors.links.sendable import WireError
from leveret.actors.links.signals import Signals, far_inbox, is_target
from leveret.actors.runtime.actor_ref import ActorRef
from leveret.actors.runtime.calls import Answer, From
from leveret.actors.runtime.ref import DEAD_CELL, LOST_CELL, PROXY, REMOTE, Ref
from leveret.actors.runtime.remote import RemoteRef, Target
from leveret.actors.runtime.signals import NOCONNECTION, Exit
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    import asyncio

    from leveret.actors.links.streams import InStream, OutStream
    from leveret.actors.runtime.inbox import Mail
    from leveret.actors.runtime.runtime import Runtime
    from leveret.core.clock import TimerHandle

log = logger(__name__)

SERVER: Final = 0  # the number of every node's server
ANSWERS: Final = -1  # the receiver of replies to calls that came from no actor
OURS: Final = 0  # the node of an address: the side that names it
THEIRS: Final = 1
_BUDGET_BYTES: Final = 256 * 1024  # that are handed to the socket at once
_GRANT_S: Final = 0.005  # until the next check whether actors have handled their mail


class Wire(Protocol):
    """A socket, or what is in its place."""

    @property
    def is_full(self) -> bool:
        """Whether nothing should be written now; ``flush`` is called when it may be."""

    def write(self, data: list[Buffer]) -> None:
        """Write bytes."""

    def abort(self) -> None:
        """Close it without writing the rest; the end is reported to the endpoint later."""

    def close(self) -> None:
        """Close it when the rest is written."""


class Hub(Protocol):
    """The node of a peer, as far as the peer needs it."""

    @property
    def server(self) -> Ref:
        """The node's server."""

    def down(self, peer: Peer, reason: str) -> None:
        """The peer is lost."""


class Inbox:
    """The mailbox of an actor of a peer, or behind it (``runtime.remote.RemoteInbox``)."""

    __slots__ = ("is_watched", "peer", "streams", "target")

    def __init__(self, peer: Peer, target: Target) -> None:
        self.peer = peer
        self.target = target
        self.is_watched = False
        self.streams: dict[Ref | None, OutStream] = {}  # by sender

    def append(self, mail: Mail) -> None:
        message, sender = mail
        if type(message) is Exit:
            self.peer.signals.send_exit(self.target, message)
            return
        stream = self.streams.get(sender)
        if stream is None:
            stream = self.streams[sender] = self.peer.stream(sender, self.target)
        self.peer.connection.send(stream, message)

    def watch(self) -> None:
        if not self.is_watched:
            self.is_watched = True
            self.peer.signals.watch(self.target)

    def link(self, other: Ref) -> None:
        self.peer.signals.send_link(self.target, other)
        if self.is_behind and not other.cell.state & REMOTE:
            self.watch()

    def unlink(self, other: Ref) -> None:
        self.peer.signals.send_unlink(self.target, other)

    def end_link(self, reason: object, ended: Ref) -> None:
        self.peer.signals.send_link_exit(self.target, reason, ended)

    @property
    def is_behind(self) -> bool:
        return isinstance(self.target, tuple)

    def is_waiting(self, sender: Ref | None) -> bool:
        stream = self.streams.get(sender)
        return stream is not None and bool(stream.queue or stream.parts)

    def when_written(self, sender: Ref | None, call: Callable[[], None]) -> bool:
        stream = self.streams.get(sender)
        return stream is not None and self.peer.when_written(stream, call)

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Mail]:
        return iter(())


class Peer:
    """One incarnation of another node.

    Args:
        runtime: of this node.
        node: the other one, ``name/creation``.
        mine: this side's claim in the handshake.
        theirs: the other side's claim.
        limits: bounds and times.
        hub: this node.
        wire: the socket.
        has_heartbeats: whether silence ends the link.

    Attributes:
        name: of the other node.
        is_lost: the link is broken.
    """

    def __init__(
        self,
        runtime: Runtime,
        node: str,
        mine: Claim,
        theirs: Claim,
        limits: LinkLimits,
        hub: Hub,
        wire: Wire,
        has_heartbeats: bool = True,
    ) -> None:
        self.node = node
        self.name = node.rpartition("/")[0]
        self.mine = mine
        self.theirs = theirs
        self._runtime = runtime
        self._limits = limits
        self._hub = hub
        self._wire = wire
        self._codec = codec = Codec(self, has_bodies=True, run_bytes_max=RUN_BYTES_MAX)
        self._short_codec = short_codec = Codec(self)
        self.connection = Connection(
            mine.incarnation, theirs.incarnation, limits, codec, self, has_heartbeats
        )
        self.signals = Signals(runtime, self.connection, short_codec, self)
        self._refs: WeakValueDictionary[Target, Ref] = WeakValueDictionary()
        self._streams: dict[_Name, dict[Target, OutStream]] = {}  # by sender and receiver
        self._calls: WeakValueDictionary[int, asyncio.Future[Any]] = WeakValueDictionary()
        self._call_numbers = count(1)
        self._notices: dict[int, Callable[[], None]] = {}
        self._notice_keys = count()
        self._is_woken = self._is_granting = self.is_lost = False
        self._timer: TimerHandle | None = None
        if has_heartbeats:
            self._begin_ticks()

    # The socket.

    def received(self, data: bytes) -> None:
        """Take bytes; if they are malformed the link breaks."""
        if self.is_lost:
            return
        if self._timer is None:  # there may be something to be granted, or a stream to be closed
            self._begin_ticks()
        try:
            self.connection.receive(data)
        except WireError as error:
            log.error("link cut node=%s: %s", self.node, error)
            self.cut(str(error))
            return
        if self.connection.is_grant_due and not self._is_granting:
            self._is_granting = True
            self._runtime.after_drain(self._grant)

    def flush(self) -> None:
        """Write what waits, as much as the socket takes."""
        wire, take = self._wire, self.connection.take
        while not (self.is_lost or wire.is_full):
            data = take(_BUDGET_BYTES)
            if not data:
                break
            wire.write(data)
        self._is_woken = False
        if self.connection.unsent_bytes > self._limits.unsent_bytes_max and not self.is_lost:
            text = (
                f"{self.connection.unsent_bytes} bytes wait, limit {self._limits.unsent_bytes_max}"
            )
            log.error("link cut node=%s: it takes its mail too slowly: %s", self.node, text)
            self.cut(text)

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._runtime.after_drain(self.flush)

    def _begin_ticks(self) -> None:
        if not self.is_lost:
            self._timer = self._runtime.clock.call_later(self._limits.heartbeat_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self.connection.tick(_may_grant):
            log.warning("link cut node=%s: silent for %s s", self.node, self._limits.suspect_s)
            self.cut("silent")
        elif self._timer is None and self.connection.needs_ticks:
            self._begin_ticks()

    def _grant(self) -> None:
        self._is_granting = False
        if self.is_lost:
            return
        self.connection.grant(_may_grant)
        if self.connection.is_grant_due:
            self._is_granting = True
            self._runtime.clock.call_later(_GRANT_S, self._grant)

    def cut(self, reason: str) -> None:
        """Break the link."""
        self._wire.abort()
        self.lost(reason)

    def lost(self, reason: str) -> None:
        """End all addresses of this incarnation; the link is broken."""
        if self.is_lost:
            return
        self.is_lost = True
        if self._timer is not None:
            self._timer.cancel()
        self.signals.lost()
        self._streams.clear()
        notices, self._notices = self._notices, {}
        for call in notices.values():
            call()
        for ref in list(self._refs.values()):
            if ref.node != self._runtime.node:
                self._runtime.turns.end_remote(ref, NOCONNECTION, LOST_CELL)
        self._hub.down(self, reason)

    # Outwards.

    def ref(self, target: Target) -> Ref:
        """Return the address of an actor of theirs, or behind them."""
        node, number = (self.node, target) if isinstance(target, int) else target
        if self.is_lost:
            return ActorRef(node, number, LOST_CELL)
        ref = self._refs.get(target)
        if ref is None:
            ref = self._refs[target] = RemoteRef(
                node, number, Inbox(self, target), self._runtime.turns
            )
        return ref

    def actor(self, target: Target) -> Ref:
        """Return the actor of this node of that number, or the one behind it, or the address of a dead one."""
        if isinstance(target, tuple):
            return self._runtime.routes.ref(*target)
        if target == SERVER:
            return self._hub.server
        return self._runtime.by_number(target) or ActorRef(self._runtime.node, target, DEAD_CELL)

    def known(self, target: Target) -> Ref | None:
        return self._refs.get(target)

    def forget(self, target: Target) -> None:
        self._refs.pop(target, None)

    def adopt(self, proxy: Ref, inbox: Inbox, ended: Callable[[object], None]) -> None:
        """Let an actor of this node stand for one of theirs: its mail goes there, and its address is the other's here.

        Args:
            proxy: the actor, which has got no mail.
            inbox: the way to the other.
            ended: called with the reason of the other's end, of which the other side tells unasked (``stand_for``).
        """
        assert isinstance(inbox.target, int)
        self._refs[inbox.target] = proxy
        self.signals.when_ended(inbox.target, ended)
        proxy.cell.inbox = cast("Any", inbox)
        proxy.cell.state |= PROXY

    def stand_for(self, number: int, ref: Ref) -> None:
        """Use an actor of this node in the place of the one of theirs that stands for it, and tell them of its end.

        Else mail from below this node would go there and come back, out of order with the end of its sender.
        """
        self._refs[number] = ref
        self.signals.tell_end_of(ref.num)

    def stream(self, sender: Ref | None, target: Target) -> OutStream:
        """Return the stream of a sender to an actor of theirs, or a new one."""
        streams = self._streams.setdefault(_name(sender), {})
        stream = streams.get(target)
        if stream is None:
            packed, _ = self._short_codec.pack([sender, target])
            stream = streams[target] = self.connection.open(packed, (sender, target))
        return stream

    def closed(self, stream: OutStream) -> None:
        sender, target = stream.key
        name = _name(sender)
        streams = self._streams[name]
        del streams[target]
        if not streams:
            del self._streams[name]
        ref = self._refs.get(target)
        if ref is not None and ref.is_alive:
            _inbox_of(ref).streams.pop(sender, None)

    def answer(self, target: Target, value: object) -> None:
        """Answer a call that came from no actor; WireError: the value cannot be sent."""
        if not self.is_lost:
            self.connection.send(self.stream(None, ANSWERS), [target, value])

    def pack(self, value: Any) -> bytes:
        """Return a value as bytes for ``unpack`` on the other side; WireError: it cannot be sent."""
        return self._short_codec.pack(value)[0]

    def unpack(self, packed: bytes) -> Any:
        """Return the value; WireError: it cannot be read here."""
        value = self._short_codec.unpack(packed)
        if isinstance(value, Unreadable):
            raise WireError(value.error)
        return value

    def stream_to(self, target: Target, sender: Ref | None) -> OutStream | None:
        return self._streams.get(_name(sender), {}).get(target)

    def streams_of(self, sender: Ref | None) -> list[OutStream]:
        streams = [*self._streams.get(_name(sender), {}).values()]
        return streams if sender is None else [*streams, *self._streams.get(None, {}).values()]

    def when_written(self, stream: OutStream, call: Callable[[], None]) -> bool:
        """Call back when all that waits in a stream has been written, or the link breaks.

        Returns:
            Whether something waits.
        """
        if self.is_lost:
            return False
        key = next(self._notice_keys)

        def written() -> None:
            del self._notices[key]
            call()

        waits = self.connection.when_written(stream, written)
        if waits:
            self._notices[key] = call
        return waits

    # Inwards.

    def opened(self, payload: memoryview) -> tuple[Ref | None, Ref | None]:
        parts = self._short_codec.unpack(payload)
        if isinstance(parts, list) and len(parts) == 2:
            sender, target = parts
            if (sender is None or isinstance(sender, Ref)) and is_target(target):
                return sender, None if target == ANSWERS else self.actor(target)
        raise WireError(f"stream of {parts!r:.80}: it must be of a sender and a receiver")

    def deliver(self, stream: InStream, messages: list[Any]) -> None:
        """Put messages into the receiver's mailbox, or give callers their answers."""
        to, sender, send = stream.to, stream.sender, self._runtime.send
        if to is None:
            for message in messages:
                self._answered(message)
            return
        for message in messages:
            if type(message) is Unreadable:
                log.error("message is not readable node=%s to=%r: %s", self.node, to, message.error)
            try:
                send(to, message, sender)
            except WireError as error:  # on the way to another process
                log.error("message is not passed on node=%s to=%r: %s", self.node, to, error)

    def _answered(self, message: Any) -> None:
        if isinstance(message, Unreadable):
            log.error("reply is not readable node=%s: %s", self.node, message.error)
            return
        if not (isinstance(message, list) and len(message) == 2 and is_target(message[0])):
            raise WireError(f"reply that is no caller and value: {message!r:.80}")
        target, value = message
        if isinstance(target, tuple):
            node, number = target
            try:
                self._runtime.routes.answer(node, number, value)
            except WireError as error:
                log.error("reply is not passed on node=%s to=%s: %s", self.node, target, error)
            return
        future = self._calls.pop(target, None)
        if future is not None:
            Answer(future).give(value)

    def signal(self, payload: memoryview) -> None:
        self.signals.take(payload)

    # Names of actors and calls (codec.Peer).

    def name_of(self, ref: Ref) -> tuple[int | str, int]:
        node = ref.node
        if node == self.node:
            return THEIRS, ref.num
        if node == self._runtime.node:
            return OURS, ref.num
        return node, ref.num

    def ref_of(self, node: Any, number: int) -> Ref:
        if type(number) is not int:
            raise TypeError(f"{number!r:.80} is no number of an actor")
        if node == OURS:
            return self.ref(number)
        if node == THEIRS:
            return self.actor(number)
        if type(node) is not str or len(node) > NODE_BYTES_MAX:
            raise TypeError(f"{node!r:.80} is no node")
        return self._runtime.routes.ref(node, number)

    def pack_from(self, frm: From) -> Any:
        if isinstance(frm.to, Ref):
            return [frm.to, frm.tag]
        if isinstance(frm.to, RemoteAnswer):
            return frm.to.name
        number = next(self._call_numbers)
        self._calls[number] = frm.to.future
        return number

    def unpack_from(self, frm: Any) -> From:
        if isinstance(frm, list):
            to, tag = frm
            if not isinstance(to, Ref):
                raise TypeError(f"{to!r:.80} is no caller")
            return From(to, tag)
        if not is_target(frm):
            raise TypeError(f"{frm!r:.80} is no caller")
        return From(RemoteAnswer(self, frm))


class RemoteAnswer(Answer):
    """The way of a reply to a task of another node, which has called without being an actor."""

    __slots__ = ("_peer", "_target")

    def __init__(self, peer: Peer, target: Target) -> None:
        self._peer = peer
        self._target = target

    @property
    def name(self) -> tuple[str, int]:
        """The call's name on any node: the node that has made it, and its number there."""
        target = self._target
        return (self._peer.node, target) if isinstance(target, int) else target

    def give(self, value: object) -> None:
        self._peer.answer(self._target, value)


_Name: TypeAlias = tuple[str, int] | None


def _name(sender: Ref | None) -> _Name:
    """Return node and number of a sender, because a dead actor may have several addresses."""
    return None if sender is None else (sender.node, sender.num)


def _inbox_of(ref: Ref) -> Inbox:
    inbox: Any = ref.cell.inbox
    assert isinstance(inbox, Inbox)
    return inbox


def _may_grant(stream: InStream) -> bool:
    """Whether credit may be given back: the receiver has handled most of the mail, or has ended."""
    to: Ref | None = stream.to
    if to is None or not to.is_alive:
        return True
    far = far_inbox(to)
    if far is not None:
        return not far.is_waiting(stream.sender)
    return 4 * to.cell.mail_count() <= stream.messages
