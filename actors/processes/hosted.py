"""The program of a process that was started for one actor.

It has a runtime of its own. ``HostedParent`` is the parent of the actor there, and tells the host on the other side of
the link what becomes of it; when the actor has ended, or the link is lost, the process ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.actor import OtpActor
from leveret.actors.links.peer import SERVER
from leveret.actors.links.sendable import WireError
from leveret.actors.links.signals import as_text
from leveret.actors.processes.die_with_parent import die_with_parent
from leveret.actors.processes.link import PARENT, ROOT, ProcessLink
from leveret.actors.processes.target import Target, load
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.scheduler import crash_of
from leveret.actors.runtime.signals import Exit, Started, StartFailed
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.links.peer import Peer
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.signals import StartResult

_END_S: Final = 4.0  # less than the host's EXIT_GRACE_S


class HostLine:
    """Tells the host what happens in the process.

    Args:
        send: of the runtime.
        host: its address.
        sender: the actor's parent, as which the host knows the process.
    """

    def __init__(self, send: Callable[[Ref, Any, Ref], None], host: Ref, sender: Ref) -> None:
        self._send = send
        self._host = host
        self._sender = sender

    def tell(self, word: str, *values: Any) -> None:
        """Tell the host something; what cannot be sent goes as text."""
        try:
            self._send(self._host, (word, *values), self._sender)
        except WireError:
            self._send(self._host, (word, *map(_as_sendable, values)), self._sender)


def _as_sendable(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float) else as_text(value)


class HostedParent(OtpActor):
    """The actor's parent in the process: starts it, and is done when it has ended.

    The exit signals of the host's parent come to the actor as this one's (``HostInbox``).

    Attributes:
        line: to the host.
    """

    trap_exits = True

    def init(self, host: Ref, done: Callable[[], None]) -> None:
        self.line = HostLine(self.runtime.send, host, self.ref)
        self._done = done

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Notice the end of the actor, or stop with the process."""
        if type(message) is not Exit:
            return super().handle_mail(message, sender)
        if sender is None:
            self.stop(message.reason)
        self._done()
        return None

    def start(
        self,
        peer: Peer,
        host: int,
        target: Target,
        packed_args: bytes,
        label: str,
        log_level: int,
    ) -> None:
        """Start the actor, and tell the host how that went."""
        logging.getLogger().setLevel(log_level)
        try:
            actor_class = load(target)
            if not isinstance(actor_class, type):
                raise ActorError(f"{target[-1]} is not an actor class but {actor_class!r}")
            args = peer.unpack(packed_args)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # told to the supervisor
            self._failed(crash_of(error, label))
            return
        root = self.runtime.start_link(self.ref, actor_class, args, self._outcome, label)
        if root.is_alive:
            assert root.num == ROOT
            peer.stand_for(host, root)

    def _outcome(self, result: StartResult) -> None:
        if type(result) is Started:
            self.line.tell("started", result.value)
        elif type(result) is StartFailed:
            self._failed(result.reason)
        else:
            self.line.tell("ignored")
            self._done()

    def _failed(self, reason: Any) -> None:
        self.line.tell("failed", reason)
        self._done()


class LinkHandler(logging.Handler):
    """Gives log records to the parent process."""

    def __init__(self, line: HostLine, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._line = line
        self._loop = loop
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, its traceback as part of the text."""
        try:
            values = ("log", record.name, record.levelno, self.format(record), record.created)
            if threading.get_ident() == self._thread:
                self._line.tell(*values)
            else:
                self._loop.call_soon_threadsafe(self._line.tell, *values)
        except Exception:  # noqa: BLE001  # a record that cannot be shown is logging's to report
            self.handleError(record)


async def _serve(end: socket.socket, start: bytes, host: int, node: str, name: str) -> None:
    loop = asyncio.get_running_loop()
    runtime = Runtime(name=name, creation=int(node.rpartition("/")[2]))
    done, parted = asyncio.Event(), asyncio.Event()

    def lost() -> None:
        parted.set()
        done.set()

    link = ProcessLink(runtime, node, lost)
    runtime.routes.parent = link.peer
    ref = runtime.spawn(HostedParent, link.peer.ref(SERVER), done.set)
    assert ref.num == PARENT
    runtime.watch(ref, lambda _: done.set())
    parent: HostedParent = ref.cell.actor
    logging.getLogger().addHandler(LinkHandler(parent.line, loop))
    runtime.run_as(ref, partial(parent.start, link.peer, host, *link.peer.unpack(start)))
    await link.connect(end)
    await done.wait()
    await runtime.shutdown(_END_S)
    link.close()
    await parted.wait()


def main() -> None:
    """Serve the parent; the arguments are what ``host`` has given."""
    link, start, parent_pid, host = map(int, sys.argv[2:6])
    die_with_parent(parent_pid)
    end = socket.socket(fileno=link)
    end.set_inheritable(False)
    with os.fdopen(start, "rb") as file:
        packed = file.read()
    asyncio.run(_serve(end, packed, host, *sys.argv[6:8]))
