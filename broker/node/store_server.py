"""The message store of one vhost as an actor: opened when the vhost starts, closed when it ends.

A thread opens the store, since opening reads the disk. The start is acknowledged before: a recovery may take minutes
and a disk may hang, and a supervisor that waits takes no other request. The vhost's queues
are started when the store is open (``bootstrap.QueueStarter``). When the store fails, or cannot be opened, this
actor ends and takes the queues along: the vhost starts anew and recovers from the disk. An error of disk,
descriptors or memory is noted in the vhost (``StoreState.error``); the restarter of the vhosts starts it again
however often that happens.

A disk that is full at the start gets the room of the ballast, then that of the reserve, so that acks can be
written and consumers can empty it.

A thread closes the store of a killed actor, for a disk may hang, and only then is the store opened again. The same
happens when the actor ends while a thread opens the store. Without a data directory there is no store, its code
is not even loaded, and durable queues live as long as the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.signals import SHUTDOWN, Exit
from leveret.broker.node import background, orphans
from leveret.broker.node.outages import is_of_machine
from leveret.broker.vhost.states import Event
from leveret.core.log.loggers import logger
from leveret.core.system.shortage import is_disk_full
from leveret.msg_store.format.errors import EpochUsed, StoreLocked

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.node.node import Node
    from leveret.broker.node.openings import Openings
    from leveret.broker.vhost.vhost import VHost
    from leveret.msg_store.recovery.recovery import Opened

log = logger(__name__)

STOP_S: Final = 600.0
REMOVED_WITHIN_S: Final = 1.0  # else the removal goes on behind the answer
_LOCKED_RETRY_S: Final = 0.05
_LOCKED_RETRIES: Final = 100
_OPEN: Final = "open"


class StoreLoop:
    """The event loop as a store knows it: its callbacks become part of the runtime's drains.

    A turn of the loop's own costs a poll of the selector, here one before a flush and one behind it.
    """

    def __init__(self, runtime: Runtime, loop: asyncio.AbstractEventLoop) -> None:
        self._runtime = runtime
        self._loop = loop
        self.time = loop.time
        self.call_later = loop.call_later
        self.remove_reader = loop.remove_reader

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        """Call when the drain ends, so that all that happens in it goes into the same flush."""
        self._runtime.after_drain(partial(callback, *args) if args else callback)

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> None:
        """Call from another thread, then drain the actors' run queue at once."""
        self._loop.call_soon_threadsafe(self._runtime.run_callback, callback, *args)

    def add_reader(self, descriptor: int, callback: Callable[..., Any], *args: Any) -> None:
        """Call when the descriptor is readable, then drain the actors' run queue."""
        self._loop.add_reader(descriptor, self._runtime.run_callback, callback, *args)


class _Opening:
    """A place among the node's openings; a call of it begins the opening. A closure would be a cycle of references."""

    def __init__(self, openings: Openings, server: StoreServer) -> None:
        self._openings = openings
        self._runtime, self._ref = server.runtime, server.ref
        self._try_to_open = server.try_to_open

    def __call__(self) -> None:
        if self._ref.is_alive:
            self._runtime.run_as(self._ref, self._try_to_open, self)
        else:
            self._openings.leave(self)


class StoreServer(GenServer):
    """Owns a vhost's ``MsgStore``."""

    trap_exits = True

    def init(self, node: Node, vhost: VHost) -> None:
        self._node = node
        self._vhost = vhost
        self._state = vhost.store
        self._is_stopping = False
        self._retries = _LOCKED_RETRIES
        self._has_burnt = self._is_first_try = False
        self._opens_at_s = self.runtime.clock.monotonic_s()
        loop = self.runtime.loop
        if node.data_dir is None or loop is None:
            self._state.opened(None)
            return
        self._loop = loop
        self._folder = store_folder(node.data_dir, vhost.name)
        self._state.let_go(loop)  # of a predecessor that was killed
        if self._state.when_free(self._free):
            self._open_in_turn()

    def _free(self, _: asyncio.Future[None]) -> None:
        if self.ref.is_alive:
            self.runtime.run_as(self.ref, self._open_in_turn)

    def _now_ms(self) -> int:
        return int(self.runtime.clock.wall_s() * 1000)

    def _open_in_turn(self) -> None:
        """Open the store as soon as few others are being opened."""
        self._node.openings.enter(_Opening(self._node.openings, self))

    def try_to_open(self, begin: Callable[[], object]) -> None:
        """Begin to open the store; ``begin`` is its place among the openings."""
        try:
            self._open(begin)
        except Exception as error:  # noqa: BLE001  this actor ends by it: no thread, no new epoch, a bug
            self._node.openings.leave(begin)
            self._not_opened(error)

    def _open(self, begin: Callable[[], object]) -> None:
        node, ref, runtime = self._node, self.ref, self.runtime
        epoch, trusted = node.epochs.of_store(self._vhost.name), self._state.durable_at_failure
        self._epoch, self._is_first_try = epoch, not self._state.was_tried
        self._state.was_tried = True
        folder, now_ms = self._folder, self._now_ms  # this actor may end before the thread begins
        vhost, loop = self._vhost.name, self._loop
        in_use: asyncio.Future[None] = loop.create_future()

        def work() -> Opened:
            # See above. The other two are for ``_take``: here an error, as of descriptors, is one of opening.
            from leveret.msg_store import drivers, store  # noqa: F401, PLC0415
            from leveret.msg_store.recovery.recovery import StoreFiles, open_store  # noqa: PLC0415

            where = StoreFiles(node.files, folder, node.ballast, now_ms, vhost=vhost)
            try:
                while True:
                    try:
                        opened = open_store(where, epoch, trusted)
                        if loop.is_closed():  # the broker has ended, ``came`` is not called
                            opened.close()
                        return opened
                    except OSError as error:
                        if not is_disk_full(error) or not node.ballast.release(makes_room=True):
                            raise
            finally:  # a recovery reads whole files, and its thread's free memory would not be used again
                node.resources.machine.give_back()

        def came(opened: Opened | Exception) -> None:
            """Take the opened store; close it if the actor has ended meanwhile."""
            node.openings.leave(begin)
            if ref.is_alive:
                runtime.run_as(ref, self._take, opened)
            elif not isinstance(opened, Exception):
                opened.close()
            in_use.set_result(None)

        background.start(node.gil_yielding, loop, "leveret-open", work, came, daemon=True)
        self._state.in_use = in_use

    def _take(self, opened: Opened | Exception) -> None:
        from leveret.msg_store import drivers, store  # noqa: PLC0415 - loaded by the thread

        if isinstance(opened, StoreLocked) and self._retries:  # a killed predecessor lets go soon
            self._retries -= 1
            self.start_timer(_LOCKED_RETRY_S, _OPEN)
        elif isinstance(opened, EpochUsed) and not self._has_burnt:  # by a try that failed later
            self._has_burnt = True
            if self._is_first_try:
                log.error(
                    "metadata is older than the messages of a vhost, queues declared since are not known vhost=%s error=%s",
                    self._vhost.name,
                    opened,
                )
            self._node.epochs.opened(self._vhost.name, self._epoch)
            self._open_in_turn()
        elif isinstance(opened, Exception):
            self._not_opened(opened)
        else:
            try:
                self._node.epochs.opened(self._vhost.name, self._epoch)
                msg_store = store.MsgStore(
                    opened,
                    StoreLoop(self.runtime, self._loop),
                    self.runtime.clock.monotonic_s,
                    self._failed,
                    drivers.threads(self._node.gil_yielding),
                    drivers.StoreLimits(flushes=self._node.settings.batching.flushes),
                    shortage_changed=self._node.resources.shortage_changed,
                )
            except Exception as error:  # noqa: BLE001  this actor ends by it, and leaves no folder locked
                opened.close()
                self._not_opened(error)
            self._state.opened(msg_store)
            self._log_opened(opened)

    def _log_opened(self, opened: Opened) -> None:
        recovered = opened.recovered
        has_history = (
            recovered.point.boot_epoch or recovered.journal_files or recovered.report.rebuilt
        )
        log.info(
            "message store opened vhost=%s clean=%s journal_files=%d records=%d messages=%d dropped=%d"
            " reclaimed=%d lost=%d rebuilt=%s took_s=%.3f",
            self._vhost.name,
            recovered.is_clean if has_history else "new",
            recovered.journal_files,
            recovered.records,
            sum(terms.messages for terms in recovered.memtables.terms.values()),
            len(recovered.report.dropped),
            sum(recovered.report.reclaimed.values()),
            len(recovered.report.lost),
            recovered.report.rebuilt or "no",
            self.runtime.clock.monotonic_s() - self._opens_at_s,
        )

    def _failed(self, error: Exception) -> None:
        log.error(
            "message store failed, its vhost is restarted vhost=%s error=%s",
            self._vhost.name,
            error,
        )
        self.runtime.run_as(self.ref, lambda: self._end_of(error))

    def _not_opened(self, error: Exception) -> NoReturn:
        if self._state.error is None:
            log.error("message store not opened vhost=%s error=%s", self._vhost.name, error)
        self._end_of(error)

    def _end_of(self, error: Exception) -> NoReturn:
        """End because of an error: in order if it is the machine's, else as a crash, with a traceback."""
        if not is_of_machine(error):
            self._state.error = None
            raise error
        self._state.error = error
        self.stop((SHUTDOWN, f"message store: {error}"))

    def handle_info(self, message: Any) -> None:
        """Try again to open; or end, when all has been written."""
        if message == _OPEN:
            self._open_in_turn()
        elif isinstance(message, Exit):
            self.stop(message.reason)
        else:
            super().handle_info(message)

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Stop the store in order, over several turns, when the supervisor says so.

        The store of a deleted vhost does not make its last writes: they may take long, and its messages go anyway.
        Nor does a store whose supervisor dies meanwhile: the successor waits for its files.
        """
        store = self._state.msg_store
        is_end = isinstance(message, Exit) and sender is self.parent
        if not is_end or store is None or self._vhost.is_closing:
            return super().handle_mail(message, sender)
        if self._is_stopping:
            self.stop(message.reason)
        self._is_stopping = True
        run_as, ref, reason = self.runtime.run_as, self.ref, message.reason
        self._state.give_up = lambda: run_as(ref, self.stop, reason)
        store.stop(lambda: run_as(ref, self._stopped, reason))
        return None

    def _stopped(self, reason: object) -> None:
        self._state.closed()
        self.stop(reason)

    def terminate(self, reason: object) -> None:
        """Abandon a store that was not stopped in order."""
        self._vhost.state.enter(Event.PART_ENDED)
        if self.runtime.loop is not None:
            self._state.let_go(self.runtime.loop)
        else:
            self._state.closed()


async def remove_store(node: Node, vhost: VHost) -> None:
    """Remove the messages of a vhost that is deleted and stopped, beside the loop.

    While a thread has the files, on a disk that hangs, they are left; the store of a new vhost of the same name is not
    opened before they are removed. A slow disk is not waited for. Folders that are left when the broker
    stops are removed after the next start.
    """
    if node.data_dir is None:
        return
    loop = asyncio.get_running_loop()
    name = vhost.name
    removed = node.removals[name] = loop.create_future()
    folder = store_folder(node.data_dir, name)
    now_ms = int(node.runtime.clock.wall_s() * 1000)

    def remove() -> None:
        with suppress(FileNotFoundError):  # it was never opened
            orphans.remove(orphans.set_aside(node.files, folder, now_ms))

    def done(error: Exception | None) -> None:
        if error is not None:  # maintenance removes it
            log.error(
                "messages of a deleted vhost not removed vhost=%s folder=%s error=%s",
                name,
                folder,
                error,
            )
        if node.removals.get(name) is removed:
            del node.removals[name]
        removed.set_result(None)

    def begin(_: object = None) -> None:
        if (
            node.connections.is_stopping
        ):  # the next broker of this process may have a vhost of that name
            done(None)
            return
        try:
            background.start(node.gil_yielding, loop, "leveret-remove", remove, done, daemon=True)
        except OSError as error:
            done(error)

    vhost.store.let_go(loop)  # of an actor that was killed last
    if vhost.store.when_free(begin):
        begin()
    await asyncio.wait([removed], timeout=REMOVED_WITHIN_S)


def store_folder(data_dir: Path, vhost_name: str) -> Path:
    """Return the folder of a vhost's messages; its name is made of the vhost's name, and never that name itself."""
    name = blake2b(vhost_name.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    return data_dir / "vhosts" / name
