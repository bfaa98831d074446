"""An actor in a process of its own, seen from the parent's side.

``ProcessHost`` is the actor that a supervisor starts. It starts the process, which loads the actor's
class by its import path, and is the actor's proxy: mail, exit signals, links and monitors of its
address are the actor's. It ends as the actor ends, when the process is gone; with ``noconnection`` if
the process was killed or died without a reason. When the host is killed, so is the process. Processes
end with their parent (``die_with_parent``).

Class and arguments are checked in the parent: a class that cannot be imported, or an argument that
cannot be sent over the link, fails the start as an error in ``init`` does. Log records of the process
are handled by the loggers here.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.processes.link import ROOT, NodeLink, Proxy, RemoteInbox
from leveret.actors.processes.os_process import OsProcess
from leveret.actors.processes.target import target_of
from leveret.actors.runtime.signals import LATER, NOCONNECTION, Exit
from leveret.core.errors import ActorError
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    import asyncio

    from leveret.actors.runtime.cell import Cell, Mail
    from leveret.actors.runtime.ref import Ref

log = logger(__name__)

EXIT_GRACE_S: Final = 5.0  # from the actor's end to that of its process
_BOOT: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]);"
    " from leveret.actors.processes.hosted import main; main()"
)


class RootInbox(RemoteInbox):
    """The mailbox of a host: its parent's exit signal is that of the actor's parent there."""

    __slots__ = ("_parent",)

    def __init__(self, link: NodeLink, number: int, parent: Ref | None) -> None:
        super().__init__(link, number)
        self._parent = parent

    def append(self, mail: Mail) -> None:
        message, _ = mail
        if type(message) is Exit and message.sender is self._parent:
            self.link.tell("stop", message.reason)
        else:
            super().append(mail)


class ProcessHost(Proxy):
    """Runs an actor in a process of its own."""

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
        link = NodeLink(self.runtime, self.ref, self._control, self._link_lost)
        target = target_of(actor_class)
        cell.label = cell.label or target[-1]
        start = link.encode("start", target, args, cell.describe(), _log_level())
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = OsProcess(_command(theirs), loop, pass_fds=[theirs.fileno()])
            except OSError:
                ours.close()
                raise
        self._process = process
        self.runtime.tasks.await_at_shutdown(process.ended)
        self.runtime.watch(self.ref, partial(_part, process, link))
        process.ended.add_done_callback(lambda _: self.end_with_process())
        link.write(start)
        link.adopt(self.ref, RootInbox(link, ROOT, self.parent))
        connecting = loop.create_connection(lambda: link, sock=ours)
        task = self.runtime.tasks.new_task(cell, connecting, _connected)
        task.add_done_callback(lambda _: None if link.is_connected else ours.close())
        return LATER

    @property
    def os_pid(self) -> int:
        return self._process.pid

    def _control(self, op: str, *values: Any) -> None:
        if not self.ref.is_alive:
            return
        if op == "log":
            _log(self._process.pid, *values)
        else:
            self.runtime.run_as(self.ref, _WORDS[op], self, *values)

    def _on_started(self, value: Any) -> None:
        self._is_started = True
        self.started(value)

    def _on_ignored(self, _: object) -> None:
        self.runtime.ignore(self.ref.cell)

    def _on_down(self, reason: Any) -> None:
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
    "failed": ProcessHost._on_down,  # noqa: SLF001
    "down": ProcessHost._on_down,  # noqa: SLF001
}


def _command(theirs: socket.socket) -> list[str]:
    """Return the command line of the process that is to use this end of the link."""
    flags = [f"-W{option}" for option in sys.warnoptions]
    numbers = [str(theirs.fileno()), str(os.getpid())]
    return [sys.executable, *flags, "-P", "-c", _BOOT, *numbers, json.dumps(sys.path)]


def _part(process: OsProcess, link: NodeLink, _: object) -> None:
    """End the process and the link of a host that has ended."""
    process.end_now()
    link.close()


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
