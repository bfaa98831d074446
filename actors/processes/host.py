"""An actor in a process of its own, seen from the parent's side.

``ProcessHost`` is the actor that a supervisor starts. It starts the process, which loads the actor's
class by its import path, and is the actor's proxy: mail, exit signals, links and monitors of its
address are the actor's. It ends as the actor ends, when the process is gone; with ``noconnection`` if
the process was killed or died without a reason. When the host is killed, so is the process. Processes
end with their parent (``die_with_parent``).

Class and arguments are checked in the parent: a class that cannot be imported, or an argument that
cannot be sent over the link, fails the start as an error in ``init`` does. They are in a file that the process
inherits, so that it has started the actor before the first mail comes. What the process tells the host is mail of
the actor's parent there to the link's server, which is the host: ``started`` with the value of the start, ``ignored``,
``failed`` with the reason, and ``log`` with a log record, which the loggers here handle.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

from leveret.actors.actor import OtpActor
from leveret.actors.links.codec import Unreadable
from leveret.actors.links.peer import Inbox
from leveret.actors.links.sendable import WireError
from leveret.actors.processes.link import PARENT, ROOT, ProcessLink
from leveret.actors.processes.os_process import OsProcess
from leveret.actors.processes.target import target_of
from leveret.actors.runtime.signals import LATER, NOCONNECTION, Exit
from leveret.core.errors import ActorError
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    import asyncio

    from leveret.actors.links.peer import Peer
    from leveret.actors.processes.target import Target
    from leveret.actors.runtime.inbox import Mail
    from leveret.actors.runtime.ref import Cell, Ref

log = logger(__name__)

EXIT_GRACE_S: Final = 5.0  # from the actor's end to that of its process
_BOOT: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from leveret.actors.processes.hosted import main; main()"
)


class HostInbox(Inbox):
    """The mailbox of a host: that of the actor in the process, but for what the process tells the host itself.

    The exit signal of the host's parent comes from the actor's parent there.
    """

    __slots__ = ("_parent", "_remote_parent", "_take")

    def __init__(self, peer: Peer, parent: Ref | None, take: Callable[[Any], None]) -> None:
        super().__init__(peer, ROOT)
        self._parent = parent
        self._remote_parent = peer.ref(PARENT)
        self._take = take

    def append(self, mail: Mail) -> None:
        message, sender = mail
        if sender is self._remote_parent:
            self._take(message)
        elif not self.peer.is_lost:
            if type(message) is Exit and message.sender is self._parent:
                self.peer.signals.send_exit(ROOT, message, as_from=self._remote_parent)
            else:
                super().append(mail)


class ProcessHost(OtpActor):
    """Runs an actor in a process of its own."""

    trap_exits = True
    async_handlers = True  # so that inline calls, which cannot wait, are refused

    def init(self, actor_class: Any, args: tuple[Any, ...]) -> object:
        """Start the process; the start is acknowledged when the actor's is.

        Args:
            actor_class: a class, or ``"package.module:Class"``.
            args: of its ``init``; plain data, addresses, and dataclasses marked with ``message``.
        """
        loop = self.runtime.loop
        if loop is None:
            raise ActorError("processes need an event loop")
        self._is_started = self._is_cut_off = self._has_last_word = False
        self._last_word: object = None
        cell = self.ref.cell
        name, (_, _, creation) = self.runtime.routes.new_child(), self.runtime.node.rpartition("/")
        link = ProcessLink(self.runtime, f"{name}/{creation}", self._link_lost, self.ref)
        try:
            ours, process = self._launch(link, name, target_of(actor_class), args, loop)
        except BaseException:
            link.discard()
            raise
        self._process = process
        self.runtime.tasks.await_at_shutdown(process.ended)
        self.runtime.watch(self.ref, partial(_part, process, link.peer))
        process.ended.add_done_callback(lambda _: self.end_with_process())
        link.peer.adopt(self.ref, HostInbox(link.peer, self.parent, self._take), self._on_end)
        task = self.runtime.tasks.new_task(cell, link.connect(ours), _connected)
        task.add_done_callback(lambda _: None if link.is_connected else ours.close())
        return LATER

    def _launch(
        self,
        link: ProcessLink,
        name: str,
        target: Target,
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
    ) -> tuple[socket.socket, OsProcess]:
        """Start the process; return this side's end of the link, too."""
        cell = self.ref.cell
        cell.label = cell.label or target[-1]
        packed_args = link.peer.pack(args)  # read when the actor's module has marked its classes
        start = link.peer.pack([target, packed_args, cell.describe(), _log_level()])
        ours, theirs = socket.socketpair()
        try:
            with theirs, _new_file() as file:
                file.write(start)
                file.seek(0)
                numbers = (theirs.fileno(), file.fileno(), os.getpid(), self.ref.num)
                command = _command(*map(str, numbers), self.runtime.node, name)
                fds = [theirs.fileno(), file.fileno()]
                return ours, OsProcess(command, loop, pass_fds=fds)
        except BaseException:
            ours.close()
            raise

    @property
    def os_pid(self) -> int:
        return self._process.pid

    def _take(self, message: Any) -> None:
        """Take what the process tells the host."""
        if not self.ref.is_alive:
            return
        if type(message) is Unreadable:
            self.runtime.run_as(self.ref, self._on_unreadable, message)
            return
        word, *values = message
        if word == "log":
            _log(self._process.pid, *values)
        else:
            self.runtime.run_as(self.ref, _WORDS[word], self, *values)

    def _on_unreadable(self, message: Unreadable) -> None:
        raise WireError(f"the process has told its host what cannot be read here: {message.error}")

    def _on_started(self, value: Any) -> None:
        self._is_started = True
        self.started(value)

    def _on_ignored(self) -> None:
        self.runtime.ignore(self.ref.cell)

    def _on_end(self, reason: Any) -> None:
        """Note why the actor has ended; the process will end now."""
        if not self._has_last_word:
            self._last_word, self._has_last_word = reason, True
            timer = self.runtime.clock.call_later(EXIT_GRACE_S, self._process.kill)
            self._process.ended.add_done_callback(lambda _: timer.cancel())

    def _link_lost(self) -> None:
        if self.ref.is_alive:
            self._is_cut_off = True
            if not self._has_last_word:
                self._process.kill()
            self.end_with_process()

    def end_with_process(self) -> None:
        """End when the process has ended and its last message has come."""
        if not (self.ref.is_alive and self._is_cut_off and self._process.ended.done()):
            return
        reason = self._last_word
        if not self._has_last_word:
            pid, status = self._process.pid, self._process.ended.result()
            name = self.ref.cell.describe()
            log.error("process is gone actor=%s pid=%d status=%d", name, pid, status)
            reason = NOCONNECTION if self._is_started else ("process_ended", status)
        self.runtime.run_as(self.ref, self.stop, reason)


_WORDS: Final[dict[str, Callable[..., None]]] = {
    "started": ProcessHost._on_started,  # noqa: SLF001  # a table of its own methods
    "ignored": ProcessHost._on_ignored,  # noqa: SLF001
    "failed": ProcessHost._on_end,  # noqa: SLF001
}


def _command(*args: str) -> list[str]:
    """Return the command line of a process with the arguments of ``hosted.main``."""
    flags = [f"-W{option}" for option in sys.warnoptions]
    return [sys.executable, *flags, "-P", "-c", _BOOT, json.dumps(sys.path), *args]


def _new_file() -> IO[bytes]:
    """Return a new file without a name; in memory on Linux."""
    if sys.platform != "linux":
        return tempfile.TemporaryFile()
    return os.fdopen(os.memfd_create("leveret-start"), "w+b")


def _part(process: OsProcess, peer: Peer, _: object) -> None:
    """End the process and the link of a host that has ended."""
    process.end_now()
    peer.cut("the process is gone")


def _connected(cell: Cell, task: asyncio.Task[Any]) -> None:
    """End a host whose link cannot be made."""
    if not task.cancelled():
        cell.actor.runtime.run_as(cell.ref, task.result)


def _log_level() -> int:
    """Return the lowest level that any logger here asks for."""
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    levels = [found.level for found in loggers if isinstance(found, logging.Logger) and found.level]
    return min(levels, default=logging.WARNING)


def _log(pid: int, name: str, level: int, text: str, created_s: float) -> None:
    """Handle a log record of the process as one of the logger of that name."""
    logger = logging.getLogger(name)
    if logger.isEnabledFor(level):
        record = logger.makeRecord(name, level, "(another process)", 0, text, (), None)
        record.created, record.process = created_s, pid
        logger.handle(record)
