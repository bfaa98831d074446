"""A node link: actors of two processes know, watch and end each other over one socket.

Theory. Each side *exports* the actors whose addresses it has sent, and keeps a *proxy* for each address it
got: an actor of its own runtime that never runs. A proxy's mailbox is the link: mail put into it is
written to the socket, in the sender's turn, so that a message that cannot be sent is the sender's error.
Everything else about it is ordinary: it can be linked with, monitored and sent exit signals.

* The side that exports an actor sends ``DOWN`` when it ends; the proxy then ends for the same reason,
  which its links and monitors carry on.
* An exit signal to a proxy (it traps exits) goes over the link as ``EXIT``, the end of an actor
  linked with it as ``LINK_EXIT``: the two may be linked on both sides, and it is told once. The kill of a
  proxy is sent on to the actor.
* When the link is lost, or its owner has ended, all proxies end with ``noconnection``, once.

Messages, exit signals and ends share one order per direction. A link that came back would have new
proxies: monitors are not revived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakValueDictionary

from leveret.actors.actor import OtpActor
from leveret.actors.links.sendable import WireError
from leveret.actors.processes.wire import FrameCodec, Frames
from leveret.actors.runtime import links
from leveret.actors.runtime.calls import Answer, From
from leveret.actors.runtime.cell import DEAD_CELL, SUSPENDED
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import KILL, NOCONNECTION, Exit
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from leveret.actors.runtime.cell import Mail
    from leveret.actors.runtime.links import Watch
    from leveret.actors.runtime.runtime import Runtime

log = logger(__name__)

SEND, EXIT, LINK_EXIT, DOWN, REPLY = range(5)  # the ops of a link; its owner's ops are texts
NOBODY: Final = 0  # the number of a dead actor
ROOT: Final = -1  # the number of the actor for which the other process is there
_TEXT_MAX: Final = 10_000  # characters of a reason that cannot be sent as it is
UNSENT_BYTES_MAX: Final = 128 * 1024 * 1024


class RemoteInbox:
    """The mailbox of a proxy: mail put into it goes over the link; it is always empty."""

    __slots__ = ("link", "number")

    def __init__(self, link: NodeLink, number: int) -> None:
        self.link = link
        self.number = number

    def append(self, mail: Mail) -> None:
        message, sender = mail
        if type(message) is Exit:
            self.link.send_exit(self.number, message.reason, message.sender)
        else:
            self.link.write(self.link.encode(SEND, self.number, message, sender))

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Mail]:
        return iter(())


class Proxy(OtpActor):
    """Stands for an actor in another process."""

    trap_exits = True
    async_handlers = True  # so that inline calls, which cannot wait, are refused


class NodeLink(asyncio.Protocol):
    """One end of a link.

    Args:
        runtime: whose actors are linked.
        owner: the actor that the link belongs to; parent of all proxies.
        control: called with the parts of a frame that is the owner's.
        lost: called once when the connection has ended.
    """

    def __init__(
        self, runtime: Runtime, owner: Ref, control: Callable[..., None], lost: Callable[[], None]
    ) -> None:
        self._runtime = runtime
        self._owner = owner
        self._control = control
        self._lost: Callable[[], None] | None = lost
        self._codec = FrameCodec(self)
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._is_closed = False
        self._exported: dict[int, tuple[Ref, Watch]] = {}
        self._numbers: dict[Ref, int] = {}  # of the exported refs
        self._proxies: dict[int, Ref] = {}
        self._calls: WeakValueDictionary[int, asyncio.Future[Any]] = WeakValueDictionary()
        self._call_numbers = count(1)
        runtime.watch(owner, self._end_proxies)

    # Outwards.

    def encode(self, *parts: Any) -> bytes:
        """Return a frame for ``write``; WireError: a part cannot go to another process."""
        return self._codec.frame(*parts)

    def write(self, frame: bytes) -> None:
        """Send a frame at the end of the present drain; nothing if the link is lost."""
        if self._is_closed:
            return
        if not self._unsent:
            self._runtime.after_drain(self._flush)
        self._unsent.append(frame)

    def send_exit(self, number: int, reason: Any, sender: Ref | None) -> None:
        """Send an exit signal, or the end of a linked actor, to an actor of the other side."""
        op = EXIT if sender is None or sender.is_alive else LINK_EXIT
        self.write(self._with_reason(op, number, reason, sender))

    def tell(self, op: str, *values: Any) -> None:
        """Send the owner's counterpart a word; a value that cannot be sent goes as text."""
        self.write(self._with_reason(op, *values))

    def _with_reason(self, op: int | str, *values: Any) -> bytes:
        try:
            return self.encode(op, *values)
        except WireError:
            return self.encode(op, *(_as_text(value) for value in values))

    def _flush(self) -> None:
        transport = self._transport
        if transport is None or not self._unsent:
            return
        unsent, self._unsent = self._unsent, []
        if transport.is_closing():  # uvloop's refuses what asyncio's drops
            return
        transport.write(b"".join(unsent))
        if transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            log.error("process does not read its messages: link cut owner=%r", self._owner)
            transport.abort()

    @property
    def is_connected(self) -> bool:
        """Whether there is, or was, a connection."""
        return self._transport is not None

    def close(self) -> None:
        """End the connection when everything has been sent."""
        if self._transport is None:
            self._end()
        elif not self._is_closed:
            self._flush()
            self._transport.close()

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._is_closed:
            self._transport.abort()
        elif self._unsent:
            self._flush()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self._receive(frame)
        except WireError as error:
            log.error("link cut owner=%r: %s", self._owner, error)
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._unsent.clear()
        for _, watch in self._exported.values():
            links.unwatch(watch)
        self._exported.clear()
        self._numbers.clear()
        self._end_proxies()
        lost, self._lost = self._lost, None
        if lost is not None:
            lost()

    def _end_proxies(self, _: object = None) -> None:
        proxies, self._proxies = self._proxies, {}
        for ref in proxies.values():
            if ref.is_alive and ref is not self._owner:
                self._runtime.turns.end(ref.cell, NOCONNECTION)

    # Inwards.

    def _receive(self, frame: bytes) -> None:
        try:
            op, *values = self._codec.parts(frame)
        except WireError as error:
            log.error("message dropped owner=%r: %s", self._owner, error)
            return
        if op == SEND:
            number, message, sender = values
            self._runtime.send(self._mine(number), message, sender)
        elif op in (EXIT, LINK_EXIT):
            number, reason, sender = values
            ref = self._mine(number)
            if op == LINK_EXIT:
                links.unlink(ref, sender)
            self._runtime.exit(ref, reason, sender)
        elif op == DOWN:
            self._down(*values)
        elif op == REPLY:
            number, value = values
            future = self._calls.pop(number, None)
            if future is not None:
                Answer(future).give(value)
        else:
            self._control(op, *values)

    def _down(self, number: int, reason: Any) -> None:
        ref = self._proxies.pop(number, None)
        if ref is None or not ref.is_alive:
            return
        if ref is self._owner:
            self._control("down", reason)
        else:
            self._runtime.turns.end(ref.cell, reason)

    def _mine(self, number: int) -> Ref:
        found = self._exported.get(number)
        return self._nobody(number) if found is None else found[0]

    def _nobody(self, number: int) -> Ref:
        return Ref(self._runtime.node, number, DEAD_CELL)

    # Names of actors (wire.Peer).

    def name_of(self, ref: Ref) -> tuple[bool, int]:
        """Name a proxy by the number it has there, and an actor of ours by its own."""
        inbox: Any = ref.cell.inbox
        if isinstance(inbox, RemoteInbox) and inbox.link is self:
            return (False, inbox.number)
        number = self._numbers.get(ref)  # also of an actor that is just ending
        if number is None:
            number = self._export(ref) if ref.is_alive else NOBODY
        return (True, number)

    def _export(self, ref: Ref) -> int:
        number = ROOT if ref.cell.parent is self._owner else ref.num
        watch = self._runtime.watch(ref, partial(self._exported_ended, number))
        self._exported[number] = (ref, watch)
        self._numbers[ref] = number
        return number

    def _exported_ended(self, number: int, reason: Any) -> None:
        exported = self._exported.pop(number, None)
        if exported is not None:
            del self._numbers[exported[0]]
            self.write(self._with_reason(DOWN, number, reason))

    def ref_of(self, is_theirs: bool, number: int) -> Ref:
        """Return the proxy of an actor of theirs, a new one if need be, or our own actor."""
        if not is_theirs:
            return self._mine(number)
        known = self._proxies.get(number)
        return self._new_proxy(number) if known is None else known

    def _new_proxy(self, number: int) -> Ref:
        is_over = self._is_closed or self._runtime.is_closed or not self._owner.is_alive
        if number == NOBODY or is_over:
            return self._nobody(number)
        ref = self._runtime.start_link(self._owner, Proxy, (), lambda _: None, f"remote:{number}")
        links.unlink(ref, self._owner)  # it stays its parent, and hears nothing of it
        self.adopt(ref, RemoteInbox(self, number))
        self._runtime.watch(ref, partial(self._proxy_ended, number))
        return ref

    def adopt(self, ref: Ref, inbox: RemoteInbox) -> None:
        """Make a local actor a proxy: its mail goes over the link, waiting mail first."""
        self._proxies[inbox.number] = ref
        cell = ref.cell
        waiting, cell.inbox = cell.inbox, cast("Any", inbox)
        cell.state |= SUSPENDED  # so that nothing ever puts it into the run queue for its mail
        for mail in waiting or ():
            inbox.append(mail)

    def _proxy_ended(self, number: int, reason: Any) -> None:
        is_killed = self._proxies.pop(number, None) is not None
        if (
            is_killed and not self._runtime.is_closed
        ):  # a shutdown of this runtime ends no remote actor
            self.write(self.encode(EXIT, number, KILL, None))

    # Calls from outside the actors.

    def pack_from(self, frm: From) -> Any:
        """Name the caller: an actor, or the number of a call that a task waits for."""
        if isinstance(frm.to, Ref):
            return [frm.to, frm.tag]
        if isinstance(frm.to, RemoteAnswer):
            raise WireError("a call that came from another process cannot be passed on to one")
        number = next(self._call_numbers)
        self._calls[number] = frm.to.future
        return number

    def unpack_from(self, frm: Any) -> From:
        if isinstance(frm, list):
            return From(*frm)
        return From(RemoteAnswer(self, frm))


class RemoteAnswer(Answer):
    """Where the reply to a call from another process goes."""

    __slots__ = ("_link", "_number")

    def __init__(self, link: NodeLink, number: int) -> None:
        self._link = link
        self._number = number

    def give(self, value: object) -> None:
        self._link.write(self._link.encode(REPLY, self._number, value))


def _as_text(value: Any) -> Any:
    if value is None or isinstance(value, int | float | Ref):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text[:_TEXT_MAX].encode(errors="backslashreplace").decode()
