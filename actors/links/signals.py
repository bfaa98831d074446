"""Exit signals, links and monitors between the actors of two sides.

Theory. For all monitors on one of its actors the other side is asked once (``MONITOR``) to report the actor's end
(``DOWN``), and it keeps the request until then. The request stays when the last monitor is withdrawn: the next call
would only renew it.

Both sides keep a link (``LINK``, ``UNLINK``), so that either can remove it, and an end that crosses an unlink is
ignored. The end of an actor (``DOWN``, ``LINK_EXIT``) is sent after all its mail, and after mail without a sender,
which may be its reply. An exit signal goes behind the mail of its sender, but for ``kill``, which waits for nothing.
The sides may report the same end twice, as a link and as a monitor; the second report has no effect.

Signals for an actor behind the other side, in a process there, are passed on. The other side keeps the monitors, and no
links; instead, both ends of such a link monitor each other, because the way between them may be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from leveret.actors.links.limits import NODE_BYTES_MAX, REASON_CHARS_MAX, SIGNAL_BYTES_MAX
from leveret.actors.links.sendable import WireError
from leveret.actors.runtime import links
from leveret.actors.runtime.ref import AFAR, DEAD_CELL, LOST_CELL, REMOTE, Ref
from leveret.actors.runtime.signals import KILL, NOCONNECTION, Exit
from leveret.core import small_set

if TYPE_CHECKING:
    from leveret.actors.links.codec import Codec
    from leveret.actors.links.connection import Connection
    from leveret.actors.links.streams import OutStream
    from leveret.actors.runtime.remote import RemoteInbox, Target
    from leveret.actors.runtime.runtime import Runtime
    from leveret.actors.runtime.signals import Watch

EXIT, LINK_EXIT, MONITOR, DOWN, LINK, UNLINK = range(6)


class Addresses(Protocol):
    """The actors of both sides, and the streams of mail to the other one."""

    def actor(self, target: Target) -> Ref:
        """Return an actor of this side, or one behind it; a dead address if there is none."""

    def known(self, target: Target) -> Ref | None:
        """Return the address of an actor of the other side, if somebody holds it here."""

    def forget(self, target: Target) -> None:
        """Drop the address of an actor of the other side that has ended."""

    def stream_to(self, target: Target, sender: Ref | None) -> OutStream | None:
        """Return the stream of a sender to an actor of the other side, if there is one."""

    def streams_of(self, sender: Ref | None) -> list[OutStream]:
        """Return the streams of a sender, which may be dead, and those of mail without a sender."""


class Signals:
    """The signals of one link.

    Args:
        runtime: of this side.
        connection: sends them.
        codec: of signals.
        addresses: the actors of both sides.
    """

    def __init__(
        self, runtime: Runtime, connection: Connection, codec: Codec, addresses: Addresses
    ) -> None:
        self._runtime = runtime
        self._connection = connection
        self._codec = codec
        self._addresses = addresses
        self._is_lost = False
        # Actors of the other side, with what takes the reason of their end.
        self._watched: dict[Target, Callable[[object], None]] = {}
        self._reported: dict[
            Target, Watch
        ] = {}  # actors of this side, whose ends are sent to the other side

    def lost(self) -> None:
        """Take all monitors back, because the link is broken."""
        self._is_lost = True
        for watch in self._reported.values():
            links.unwatch(watch)
        self._reported.clear()
        self._watched.clear()

    # Outwards.

    def send_exit(self, target: Target, signal: Exit, as_from: Ref | None = None) -> None:
        """Send an exit signal; one whose sender has ended is the end of a linked actor.

        Args:
            target: the receiver.
            signal: the exit signal.
            as_from: another address of the sender, by which the receiver knows it; the signal then does not tell of
                the end of a linked actor.
        """
        sender = signal.sender
        if sender is not None and not sender.is_alive and as_from is None:
            self.send_link_exit(target, signal.reason, sender)
            return
        packed = self._with_reason(EXIT, target, signal.reason, as_from or sender)
        stream = None if signal.reason == KILL else self._addresses.stream_to(target, sender)
        self._connection.signal(stream, packed)

    def send_link_exit(self, target: Target, reason: object, sender: Ref) -> None:
        """Send the end of a linked actor, behind everything that it has sent."""
        packed = self._with_reason(LINK_EXIT, target, reason, sender)
        self._connection.signal_behind(self._addresses.streams_of(sender), packed)

    def send_link(self, target: Target, other: Ref) -> None:
        """Tell the other side that an actor is linked with one of its actors."""
        self._send(LINK, target, other)

    def send_unlink(self, target: Target, other: Ref) -> None:
        """Tell the other side that it is not any more."""
        self._send(UNLINK, target, other)

    def watch(self, target: Target) -> None:
        """Have the other side tell of the end of one of its actors, which then ends its address here."""
        ref = self._addresses.known(target)
        if ref is not None:
            self._watched[target] = partial(self._remote_ended, target, ref)
            self._send(MONITOR, target)

    def when_ended(self, target: Target, ended: Callable[[object], None]) -> None:
        """Call back with the reason when the other side reports the end of one of its actors without a ``MONITOR``."""
        self._watched[target] = ended

    def tell_end_of(self, target: Target) -> None:
        """Report the end of an actor of this side, or behind it, to the other side."""
        if target not in self._reported:
            ref = self._addresses.actor(target)
            watch = self._runtime.watch(ref, partial(self._local_ended, target, ref))
            if ref.is_alive:
                self._reported[target] = watch

    def _send(self, *parts: Any) -> None:
        """Send a signal that is not ordered with mail."""
        if not self._is_lost:
            self._connection.signal(None, self._codec.pack(list(parts))[0])

    def _with_reason(self, op: int, target: Target, reason: Any, sender: Ref | None) -> bytes:
        """Return a signal with a reason, as text if it cannot be sent as it is."""
        try:
            packed, _ = self._codec.pack(reason)
            if len(packed) > SIGNAL_BYTES_MAX - REASON_CHARS_MAX:
                packed, _ = self._codec.pack(as_text(reason))
        except WireError:
            packed, _ = self._codec.pack(as_text(reason))
        return self._codec.pack([op, target, packed, sender])[0]

    def _local_ended(self, target: Target, ref: Ref, reason: object) -> None:
        self._reported.pop(target, None)
        packed = self._with_reason(DOWN, target, reason, None)
        self._connection.signal_behind(self._addresses.streams_of(ref), packed)

    def _remote_ended(self, target: Target, ref: Ref, reason: object) -> None:
        is_lost = isinstance(target, tuple) and reason == NOCONNECTION  # the other side has lost it
        self._runtime.turns.end_remote(ref, reason, LOST_CELL if is_lost else DEAD_CELL)

    # Inwards.

    def take(self, payload: memoryview) -> None:
        """Take a signal of the other side; WireError: it is malformed."""
        parts = self._codec.unpack(payload)
        try:
            op, target, *values = parts
            if not is_target(target):
                raise TypeError(f"{target!r:.80} is no actor")
            _TAKERS[op](self, target, *values)
        except (TypeError, ValueError, KeyError) as error:
            raise WireError(f"signal {parts!r:.80} that is malformed: {error!r}") from error

    def _on_exit(self, target: Target, packed: bytes, sender: Ref | None) -> None:
        sender = None if sender is None else _checked(sender)
        self._runtime.exit(self._addresses.actor(target), self._codec.unpack(packed), sender)

    def _on_link_exit(self, target: Target, packed: bytes, sender: Ref) -> None:
        """Take the end of an actor that is linked with one of this node, or of a process behind it."""
        ref = self._addresses.actor(target)
        if _forget_link(ref, _checked(sender)):
            self._tell_end_of_link(ref, self._codec.unpack(packed), sender)

    def _tell_end_of_link(self, to: Ref, reason: object, ended: Ref) -> None:
        far = far_inbox(to)
        if far is None:
            self._runtime.turns.signal(to.cell, reason, ended, may_ignore=True)
        else:
            far.end_link(reason, ended)

    def _on_down(self, target: Target, packed: bytes, _: None) -> None:
        ended = self._watched.pop(target, None)
        if ended is not None:
            self._addresses.forget(target)
            ended(self._codec.unpack(packed))

    def _on_link(self, target: Target, sender: Ref) -> None:
        ref = self._addresses.actor(target)
        if not _checked(sender).is_alive:
            return
        if not ref.is_alive:
            self._tell_end_of_link(sender, ref.cell.doom, ref)
            return
        if not _is_passed_on(ref):
            links.link(ref.cell, sender)
            _watch_if_behind(sender)
        far = far_inbox(ref)
        if far is not None:
            far.link(sender)

    def _on_unlink(self, target: Target, sender: Ref) -> None:
        ref = self._addresses.actor(target)
        is_linked = _is_passed_on(ref) or _forget_link(ref, _checked(sender))
        far = far_inbox(ref)
        if far is not None and is_linked:
            far.unlink(sender)


def far_inbox(ref: Ref) -> RemoteInbox | None:
    """Return the way to a remote actor; None: it runs in this process."""
    return links.remote_inbox(ref.cell) if ref.cell.state & AFAR else None


def is_target(value: Any) -> bool:
    """Whether what the other side has sent names an actor."""
    if type(value) is tuple:
        node, number = value if len(value) == 2 else (None, None)
        return type(node) is str and len(node) <= NODE_BYTES_MAX and type(number) is int
    return type(value) is int


def as_text(reason: Any) -> str:
    """Return the text of a reason that cannot be sent as it is."""
    text = reason if isinstance(reason, str) else repr(reason)
    return text[:REASON_CHARS_MAX].encode(errors="backslashreplace").decode()


def _checked(sender: Any) -> Ref:
    """Return the sender of a signal; TypeError: it is not an address."""
    if not isinstance(sender, Ref):
        raise TypeError(f"{sender!r:.80} is not an address")
    return sender


def _is_passed_on(ref: Ref) -> bool:
    """Whether the links of an actor are kept in its own process, because it is behind this node."""
    return bool(ref.cell.state & REMOTE)


def _watch_if_behind(ref: Ref) -> None:
    """Have a neighbour tell of the end of a linked actor behind it: it keeps no links, and may lose the actor."""
    far = far_inbox(ref)
    if far is not None and far.is_behind:
        far.watch()


def _forget_link(ref: Ref, other: Ref) -> bool:
    """Remove a link that the other node has removed; return whether there was one."""
    was_linked = small_set.contains(ref.cell.links, other)
    ref.cell.links = small_set.discard(ref.cell.links, other)
    other.cell.links = small_set.discard(other.cell.links, ref)
    return was_linked


_TAKERS: Final[dict[int, Callable[..., None]]] = {
    EXIT: Signals._on_exit,  # noqa: SLF001  # a table of its own methods
    LINK_EXIT: Signals._on_link_exit,  # noqa: SLF001
    MONITOR: Signals.tell_end_of,
    DOWN: Signals._on_down,  # noqa: SLF001
    LINK: Signals._on_link,  # noqa: SLF001
    UNLINK: Signals._on_unlink,  # noqa: SLF001
}
