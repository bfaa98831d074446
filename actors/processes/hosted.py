"""The program of a process that was started for one actor.

It has a runtime of its own. ``HostedParent`` is the parent of the actor there and obeys the host on the other side of
the link; when the actor has ended, or the link is lost, the process ends.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.actor import OtpActor
from leveret.actors.processes.die_with_parent import die_with_parent
from leveret.actors.processes.link import NodeLink
from leveret.actors.processes.target import Target, load
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import Crash, Exit, Started, StartFailed
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.signals import StartResult

_END_S: Final = 4.0  # less than the host's EXIT_GRACE_S


class HostedParent(OtpActor):
    """The actor's parent in the process: starts it, stops it when told, and is done when it has ended."""

    trap_exits = True
    link_up: NodeLink

    def init(self, done: Callable[[], None]) -> None:
        self._done = done
        self._root: Ref | None = None

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Notice the end of the actor, or stop with the process."""
        if type(message) is not Exit:
            return super().handle_mail(message, sender)
        if sender is None:
            self.stop(message.reason)
        self._done()
        return None

    def on_start(self, target: Target, args: tuple[Any, ...], label: str, log_level: int) -> None:
        logging.getLogger().setLevel(log_level)
        try:
            actor_class = load(target)
            if not isinstance(actor_class, type):
                raise ActorError(f"{target[-1]} is not an actor class but {actor_class!r}")
        except (Exception, SystemExit) as error:  # noqa: BLE001  # told to the supervisor
            self._failed(Crash(error))
            return
        self._root = self.runtime.start_link(self.ref, actor_class, args, self._outcome, label)
        if self._root.is_alive:
            self.link_up.name_of(self._root)  # from here on its end is told

    def on_stop(self, reason: Any) -> None:
        """Send the actor the exit signal of its parent."""
        if self._root is not None:
            self.exit(self._root, reason)

    def _outcome(self, result: StartResult) -> None:
        if type(result) is Started:
            self.link_up.name_of(result.ref)
            self.link_up.tell("started", result.value)
        elif type(result) is StartFailed:
            self._failed(result.reason)
        else:
            self.link_up.tell("ignored", None)
            self._done()

    def _failed(self, reason: Any) -> None:
        self.link_up.tell("failed", reason)
        self._done()


class LinkHandler(logging.Handler):
    """Gives log records to the parent process."""

    def __init__(self, link: NodeLink, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._link = link
        self._loop = loop
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, its traceback as part of the text."""
        try:
            values = (record.name, record.levelno, self.format(record), record.created)
            if threading.get_ident() == self._thread:
                self._link.tell("log", *values)
            else:
                self._loop.call_soon_threadsafe(partial(self._link.tell, "log", *values))
        except Exception:  # noqa: BLE001  # a record that cannot be shown is logging's to report
            self.handleError(record)


async def _serve(end: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    runtime = Runtime(name="process")
    done, parted = asyncio.Event(), asyncio.Event()

    def lost() -> None:
        parted.set()
        done.set()

    parent = runtime.spawn(HostedParent, done.set)
    runtime.watch(parent, lambda _: done.set())
    actor: HostedParent = parent.cell.actor
    words: dict[str, Callable[..., None]] = {"start": actor.on_start, "stop": actor.on_stop}
    link = actor.link_up = NodeLink(
        runtime, parent, lambda op, *values: runtime.run_as(parent, words[op], *values), lost
    )
    logging.getLogger().addHandler(LinkHandler(link, loop))
    await loop.create_connection(lambda: link, sock=end)
    await done.wait()
    await runtime.shutdown(_END_S)
    link.close()
    await parted.wait()


def main() -> None:
    """Serve the parent on the socket whose number is the first argument."""
    die_with_parent(int(sys.argv[2]))
    end = socket.socket(fileno=int(sys.argv[1]))
    end.set_inheritable(False)
    asyncio.run(_serve(end))
