"""A peer: one incarnation of another node, whose actors can be reached from here.

Theory. An actor is named by the node it runs on and its number there; so any node can make the address of any actor,
and no side keeps a table of addresses that it has given away. What is kept:

* here, the addresses that somebody holds, so that there is one ``RemoteRef`` per actor and incarnation;
* here, those that somebody monitors. The other node is asked once to tell of the actor's end, and not asked again when
  the last monitor is taken back: the next call would only renew it;
* there, the actors of which it is to tell (``MONITOR``), until they end.

A link is told to both sides (``LINK``, ``UNLINK``), so that either can remove it, and an end that crosses an unlink is
ignored. The end of an actor (``DOWN``, ``LINK_EXIT``) goes behind everything that it has sent, also behind what has no
sender, for that may be its reply. An exit signal goes behind the mail of its sender, but for ``kill``, which waits for
nothing. The sides may tell each other of the same end twice, as a link and as a monitor; the second finds nothing.

When the link breaks, all addresses of this incarnation are lost, in one go, after everything that had come was put
into mailboxes. Nothing of it comes later: the next connection has another incarnation, with other addresses, calls and
streams. A reply to a call of the old one finds its caller gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakValueDictionary

from leveret.actors.links.codec import Buffer, Codec, Unreadable
from leveret.actors.links.connection import Connection
from leveret.actors.links.frames import RUN_BYTES_MAX
from leveret.actors.links.handshake import Claim
from leveret.actors.links.limits import (
    NODE_BYTES_MAX,
    REASON_CHARS_MAX,
    SIGNAL_BYTES_MAX,
    LinkLimits,
)
from leveret.actors.links.sendable import WireError
from leveret.actors.runtime import links
from leveret.actors.runtime.calls import Answer, From
from leveret.actors.runtime.cell import DEAD_CELL, LOST_CELL
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.remote import RemoteRef
from leveret.actors.runtime.signals import KILL, NOCONNECTION, NOPROC, Exit
from leveret.core import small_set
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    import asyncio

    from leveret.actors.links.streams import InStream, OutStream
    from leveret.actors.runtime.cell import Mail
    from leveret.actors.runtime.links import Watch
    from leveret.actors.runtime.runtime import Runtime

log = logger(__name__)

EXIT, LINK_EXIT, MONITOR, DOWN, LINK, UNLINK = range(6)
SERVER: Final = 0  # the number of every node's server
ANSWERS: Final = -1  # the receiver of replies to calls that came from no actor
OURS: Final = 0  # the node of an address: the side that names it
THEIRS: Final = 1
_BUDGET_BYTES: Final = 256 * 1024  # that are handed to the socket at once
_GRANT_S: Final = 0.005  # before it is looked again whether actors have handled their mail


class Wire(Protocol):
    """A socket, or what is in its place."""

    @property
    def is_full(self) -> bool:
        """Whether nothing should be written now; ``flush`` is called when it may be."""

    def write(self, data: list[Buffer]) -> None:
        """Write bytes."""

    def abort(self) -> None:
        """Close it without writing the rest; the endpoint hears of the end later."""


class Hub(Protocol):
    """What a peer needs of its node."""

    @property
    def server(self) -> Ref:
        """The node's server."""

    def ref(self, node: str, number: int) -> Ref:
        """Return the address of an actor of any node."""

    def down(self, peer: Peer, reason: str) -> None:
        """Hear that the peer is lost."""


class Inbox:
    """The mailbox of an actor of a peer (``runtime.remote.RemoteInbox``)."""

    __slots__ = ("is_watched", "number", "peer", "streams")

    def __init__(self, peer: Peer, number: int) -> None:
        self.peer = peer
        self.number = number
        self.is_watched = False
        self.streams: dict[Ref | None, OutStream] = {}  # by sender

    def append(self, mail: Mail) -> None:
        message, sender = mail
        if type(message) is Exit:
            self.peer.send_exit(self.number, message)
            return
        stream = self.streams.get(sender)
        if stream is None:
            stream = self.streams[sender] = self.peer.stream(sender, self.number)
        self.peer.connection.send(stream, message)

    def watch(self) -> None:
        if not self.is_watched:
            self.is_watched = True
            self.peer.watch(self.number)

    def link(self, local: Ref) -> None:
        self.peer.send_signal(LINK, self.number, local.num)

    def unlink(self, local: Ref) -> None:
        self.peer.send_signal(UNLINK, self.number, local.num)

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Mail]:
        return iter(())


class Peer:
    """One incarnation of another node.

    Args:
        runtime: of this node.
        node: the other one, ``name/creation``.
        mine: what this side has said of itself.
        theirs: what the other has.
        limits: bounds and times.
        hub: this node.
        wire: the socket.

    Attributes:
        name: of the other node.
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
        self._signals = Codec(self)
        self.connection = Connection(mine.incarnation, theirs.incarnation, limits, codec, self)
        self._refs: WeakValueDictionary[int, RemoteRef] = WeakValueDictionary()
        self._watched: dict[int, RemoteRef] = {}  # of theirs
        self._told: dict[int, Watch] = {}  # of ours: they are told of the end
        self._streams: dict[Ref | None, dict[int, OutStream]] = {}  # by sender and receiver
        self._calls: WeakValueDictionary[int, asyncio.Future[Any]] = WeakValueDictionary()
        self._call_numbers = count(1)
        self._notices: dict[int, Callable[[], None]] = {}
        self._notice_keys = count()
        self._is_woken = self._is_granting = self._is_lost = False
        self._timer = runtime.clock.call_later(limits.heartbeat_s, self._tick)

    # The socket.

    def received(self, data: bytes) -> None:
        """Take bytes; if they are malformed the link breaks."""
        if self._is_lost:
            return
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
        while not (self._is_lost or wire.is_full):
            data = take(_BUDGET_BYTES)
            if not data:
                break
            wire.write(data)
        self._is_woken = False
        if self.connection.unsent_bytes > self._limits.unsent_bytes_max and not self._is_lost:
            text = (
                f"{self.connection.unsent_bytes} bytes wait, limit {self._limits.unsent_bytes_max}"
            )
            log.error("link cut node=%s: it takes its mail too slowly: %s", self.node, text)
            self.cut(text)

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._runtime.after_drain(self.flush)

    def _tick(self) -> None:
        self._timer = self._runtime.clock.call_later(self._limits.heartbeat_s, self._tick)
        if not self.connection.tick(_may_grant):
            log.warning("link cut node=%s: silent for %s s", self.node, self._limits.suspect_s)
            self.cut("silent")

    def _grant(self) -> None:
        self._is_granting = False
        if self._is_lost:
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
        if self._is_lost:
            return
        self._is_lost = True
        self._timer.cancel()
        for watch in self._told.values():
            links.unwatch(watch)
        self._told.clear()
        self._watched.clear()
        self._streams.clear()
        notices, self._notices = self._notices, {}
        for call in notices.values():
            call()
        for ref in list(self._refs.values()):
            self._runtime.turns.end_remote(ref, NOCONNECTION, LOST_CELL)
        self._hub.down(self, reason)

    # Outwards.

    def ref(self, number: int) -> Ref:
        """Return the address of an actor of theirs."""
        if self._is_lost:
            return Ref(self.node, number, LOST_CELL)
        ref = self._refs.get(number)
        if ref is None:
            ref = self._refs[number] = RemoteRef(
                self.node, number, Inbox(self, number), self._runtime.turns
            )
        return ref

    def stream(self, sender: Ref | None, number: int) -> OutStream:
        """Return the stream of a sender to an actor of theirs, or a new one."""
        streams = self._streams.setdefault(sender, {})
        stream = streams.get(number)
        if stream is None:
            packed, _ = self._signals.pack([sender, number])
            stream = streams[number] = self.connection.open(packed, (sender, number))
        return stream

    def closed(self, stream: OutStream) -> None:
        sender, number = stream.key
        streams = self._streams[sender]
        del streams[number]
        if not streams:
            del self._streams[sender]
        ref = self._refs.get(number)
        if ref is not None and ref.is_alive:
            _inbox_of(ref).streams.pop(sender, None)

    def send_signal(self, *parts: Any) -> None:
        """Send a signal that is not ordered with mail."""
        self.connection.signal(None, self._signals.pack(list(parts))[0])

    def send_exit(self, number: int, signal: Exit) -> None:
        """Send an exit signal; one whose sender has ended is the end of a linked actor."""
        sender = signal.sender
        if sender is not None and not sender.is_alive:
            packed = self._with_reason(LINK_EXIT, number, signal.reason, sender)
            self.connection.signal_behind(self._streams_of(sender), packed)
            return
        packed = self._with_reason(EXIT, number, signal.reason, sender)
        if signal.reason == KILL:
            self.connection.signal(None, packed)
        else:
            self.connection.signal(self._streams.get(sender, {}).get(number), packed)

    def watch(self, number: int) -> None:
        """Have the other side tell of the end of one of its actors."""
        ref = self._refs.get(number)
        if ref is not None:
            self._watched[number] = ref
            self.send_signal(MONITOR, number)

    def answer(self, number: int, value: object) -> None:
        """Answer a call that came from no actor; WireError: the value cannot be sent."""
        if not self._is_lost:
            self.connection.send(self.stream(None, ANSWERS), [number, value])

    def _with_reason(self, op: int, number: int, reason: Any, sender: Ref | None) -> bytes:
        """Return a signal with a reason, as text if it cannot be sent as it is."""
        try:
            packed, _ = self._signals.pack(reason)
            if len(packed) > SIGNAL_BYTES_MAX - REASON_CHARS_MAX:
                packed, _ = self._signals.pack(_as_text(reason))
        except WireError:
            packed, _ = self._signals.pack(_as_text(reason))
        return self._signals.pack([op, number, packed, sender])[0]

    def _streams_of(self, sender: Ref | None) -> list[OutStream]:
        """Return the streams of a sender, and those of mail without one."""
        streams = [*self._streams.get(sender, {}).values()]
        return streams if sender is None else [*streams, *self._streams.get(None, {}).values()]

    def when_written(self, sender: Ref | None, number: int, call: Callable[[], None]) -> bool:
        """Call back when all that waits of a sender's mail has been written, or the link breaks.

        Returns:
            Whether something waits.
        """
        stream = self._streams.get(sender, {}).get(number)
        if stream is None or self._is_lost:
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
        parts = self._signals.unpack(payload)
        if isinstance(parts, list) and len(parts) == 2:
            sender, number = parts
            if (sender is None or isinstance(sender, Ref)) and type(number) is int:
                return sender, None if number == ANSWERS else self._mine(number)
        raise WireError(f"stream of {parts!r:.80}: it must be of a sender and a number")

    def deliver(self, stream: InStream, messages: list[Any]) -> None:
        """Put messages into the receiver's mailbox."""
        to, sender, send = stream.to, stream.sender, self._runtime.send
        if to is None:
            for message in messages:
                self._answered(message)
            return
        for message in messages:
            if type(message) is Unreadable:
                log.error("message is not readable node=%s to=%r: %s", self.node, to, message.error)
            send(to, message, sender)

    def _answered(self, message: Any) -> None:
        if isinstance(message, Unreadable):
            log.error("reply is not readable node=%s: %s", self.node, message.error)
            return
        if not isinstance(message, list) or len(message) != 2 or type(message[0]) is not int:
            raise WireError(f"reply that is no number and value: {message!r:.80}")
        number, value = message
        future = self._calls.pop(number, None)
        if future is not None:
            Answer(future).give(value)

    def signal(self, payload: memoryview) -> None:
        parts = self._signals.unpack(payload)
        try:
            op, *values = parts
            _SIGNALS[op](self, *values)
        except (TypeError, ValueError, KeyError) as error:
            raise WireError(f"signal {parts!r:.80} that is malformed: {error!r}") from error

    def _on_exit(self, number: int, packed: bytes, sender: Ref | None) -> None:
        if sender is not None:
            _check_address(sender)
        self._runtime.exit(self._mine(number), self._signals.unpack(packed), sender)

    def _on_link_exit(self, number: int, packed: bytes, sender: Ref) -> None:
        _check_address(sender)
        ref = self._mine(number)
        if small_set.contains(ref.cell.links, sender):
            _forget_link(ref, sender)
            self._runtime.turns.signal(
                ref.cell, self._signals.unpack(packed), sender, may_ignore=True
            )

    def _on_monitor(self, number: int) -> None:
        if number not in self._told:
            ref = self._mine(number)
            watch = self._runtime.watch(ref, partial(self._ended, number, ref))
            if ref.is_alive:
                self._told[number] = watch

    def _ended(self, number: int, ref: Ref, reason: object) -> None:
        self._told.pop(number, None)
        packed = self._with_reason(DOWN, number, reason, None)
        self.connection.signal_behind(self._streams_of(ref), packed)

    def _on_down(self, number: int, packed: bytes, _: None) -> None:
        ref = self._watched.pop(number, None)
        if ref is not None:
            del self._refs[number]
            self._runtime.turns.end_remote(ref, self._signals.unpack(packed), DEAD_CELL)

    def _on_link(self, number: int, sender: int) -> None:
        ref = self._mine(number)
        if ref.is_alive:
            links.link(ref.cell, self._theirs(sender))
        else:
            _check_number(sender)
            packed = self._with_reason(LINK_EXIT, sender, NOPROC, ref)
            self.connection.signal(None, packed)

    def _on_unlink(self, number: int, sender: int) -> None:
        _forget_link(self._mine(number), self._theirs(sender))

    def _mine(self, number: int) -> Ref:
        """Return the actor of this node of that number, or the address of a dead one."""
        _check_number(number)
        if number == SERVER:
            return self._hub.server
        return self._runtime.by_number(number) or Ref(self._runtime.node, number, DEAD_CELL)

    def _theirs(self, number: int) -> Ref:
        _check_number(number)
        return self.ref(number)

    # Names of actors and calls (codec.Peer).

    def name_of(self, ref: Ref) -> tuple[int | str, int]:
        if ref.node == self.node:
            return THEIRS, ref.num
        return (OURS if ref.node == self._runtime.node else ref.node), ref.num

    def ref_of(self, node: Any, number: int) -> Ref:
        _check_number(number)
        if node == OURS:
            return self.ref(number)
        if node == THEIRS:
            return self._mine(number)
        if type(node) is not str or len(node) > NODE_BYTES_MAX:
            raise TypeError(f"{node!r:.80} is no node")
        return self._hub.ref(node, number)

    def pack_from(self, frm: From) -> Any:
        if isinstance(frm.to, Ref):
            return [frm.to, frm.tag]
        if isinstance(frm.to, RemoteAnswer):
            raise WireError("a call that came from another node cannot be passed on to one")
        number = next(self._call_numbers)
        self._calls[number] = frm.to.future
        return number

    def unpack_from(self, frm: Any) -> From:
        if isinstance(frm, list):
            to, tag = frm
            if not isinstance(to, Ref):
                raise TypeError(f"{to!r:.80} is no caller")
            return From(to, tag)
        return From(RemoteAnswer(self, frm))


class RemoteAnswer(Answer):
    """Where the reply to a call from no actor of another node goes."""

    __slots__ = ("_number", "_peer")

    def __init__(self, peer: Peer, number: int) -> None:
        self._peer = peer
        self._number = number

    def give(self, value: object) -> None:
        self._peer.answer(self._number, value)


def _inbox_of(ref: RemoteRef) -> Inbox:
    inbox: Any = ref.cell.inbox
    assert isinstance(inbox, Inbox)
    return inbox


def _check_number(number: object) -> None:
    if type(number) is not int:
        raise TypeError(f"{number!r:.80} is no number of an actor")


def _check_address(value: object) -> None:
    if not isinstance(value, Ref):
        raise TypeError(f"{value!r:.80} is no address of an actor")


def _forget_link(ref: Ref, other: Ref) -> None:
    """Remove a link that the other node has removed."""
    ref.cell.links = small_set.discard(ref.cell.links, other)
    other.cell.links = small_set.discard(other.cell.links, ref)


def _may_grant(stream: InStream) -> bool:
    """Whether the receiver has handled most of what was not granted again, or never will."""
    to: Ref | None = stream.to
    return to is None or not to.is_alive or 4 * to.cell.mail_count() <= stream.messages


def _as_text(reason: Any) -> str:
    text = reason if isinstance(reason, str) else repr(reason)
    return text[:REASON_CHARS_MAX].encode(errors="backslashreplace").decode()


_SIGNALS: Final[dict[int, Callable[..., None]]] = {
    EXIT: Peer._on_exit,  # noqa: SLF001  # a table of its own methods
    LINK_EXIT: Peer._on_link_exit,  # noqa: SLF001
    MONITOR: Peer._on_monitor,  # noqa: SLF001
    DOWN: Peer._on_down,  # noqa: SLF001
    LINK: Peer._on_link,  # noqa: SLF001
    UNLINK: Peer._on_unlink,  # noqa: SLF001
}
