"""The message store of one vhost as an actor: opened when the vhost starts, closed when it ends.

Opening reads the disk, so a thread does it; the start is acknowledged when the store is open, and the
vhost's queues are started after it. When the store fails this actor ends and takes the queues
along: the vhost starts anew and recovers from the disk. An error of disk, descriptors or memory is noted
in the vhost (``store_error``); the keeper of the vhosts starts it again however often that happens.

A disk that is full at the start gets the room of the ballast, then that of the reserve, so that acks can be
written and consumers can empty it.

The vhost holds the store itself, so the successor of a killed actor finds the store that it has to close.
A thread closes it, for a disk may hang, and only then is it opened anew. Without a data directory there is
no store, its code is not even loaded, and durable queues live as long as the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.actor import LATER
from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.signals import SHUTDOWN, Exit
from leveret.broker.node import background, orphans
from leveret.broker.node.outages import is_of_machine
from leveret.core.errors import StoreError
from leveret.core.log import logger
from leveret.core.shortage import is_disk_full
from leveret.msg_store.format.errors import EpochUsed, StoreLocked

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.node.node import Node
    from leveret.broker.vhost.vhost import VHost
    from leveret.msg_store.recovery.recovery import Opened
    from leveret.msg_store.store import MsgStore

log = logger(__name__)

STOP_S: Final = 600.0
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


class StoreServer(GenServer):
    """Owns a vhost's ``MsgStore``."""

    trap_exits = True

    def init(self, node: Node, vhost: VHost) -> object:
        self._node = node
        self._vhost = vhost
        self._is_stopping = False
        self._looks = _LOCKED_RETRIES
        self._has_burnt = False
        self._opens_at_s = self.runtime.clock.monotonic_s()
        loop = self.runtime.loop
        if node.data_dir is None or loop is None:
            return None
        self._loop = loop
        let_go(vhost, loop)  # of a predecessor that was killed
        self._folder = store_folder(node.data_dir, vhost.name)
        if vhost.store_end is None or vhost.store_end.done():
            self._try_to_open()
        else:
            vhost.store_end.add_done_callback(self._let_go)
        return LATER

    def _let_go(self, _: asyncio.Future[None]) -> None:
        if self.ref.is_alive:
            self.runtime.run_as(self.ref, self._try_to_open)

    def _now_ms(self) -> int:
        return int(self.runtime.clock.wall_s() * 1000)

    def _try_to_open(self) -> None:
        try:
            self._open()
        except (OSError, StoreError, MemoryError) as error:  # no thread, no new epoch
            self._not_opened(error)

    def _open(self) -> None:
        node = self._node
        epoch, trusted = node.epochs.of_store(self._vhost.name), self._vhost.durable_at_failure
        self._epoch = epoch

        def work() -> Opened:
            from leveret.msg_store.recovery.recovery import StoreFiles, open_store  # noqa: PLC0415 - see above

            where = StoreFiles(node.files, self._folder, node.ballast, self._now_ms)
            try:
                while True:
                    try:
                        return open_store(where, epoch, trusted)
                    except OSError as error:
                        if not is_disk_full(error) or not node.ballast.release(makes_room=True):
                            raise
            finally:  # a recovery reads whole files, and its thread's free memory would not be used again
                node.resources.machine.give_back()

        background.start(node.gil_yielding, self._loop, "leveret-open", work, self._came)

    def _came(self, opened: Opened | Exception) -> None:
        """Take the opened store; close it if this actor has ended meanwhile."""
        if self.ref.is_alive:
            self.runtime.run_as(self.ref, lambda: self._take(opened))
        elif not isinstance(opened, Exception):
            opened.close()

    def _take(self, opened: Opened | Exception) -> None:
        from leveret.msg_store import store  # noqa: PLC0415 - see above
        from leveret.msg_store.drivers import threads  # noqa: PLC0415

        if isinstance(opened, StoreLocked) and self._looks:  # a killed predecessor lets go soon
            self._looks -= 1
            self.start_timer(_LOCKED_RETRY_S, _OPEN)
        elif isinstance(opened, EpochUsed) and not self._has_burnt:  # by a try that failed later
            self._has_burnt = True
            self._node.epochs.opened(self._vhost.name, self._epoch)
            self._try_to_open()
        elif isinstance(opened, Exception):
            self._not_opened(opened)
        else:
            self._node.epochs.opened(self._vhost.name, self._epoch)
            loop = StoreLoop(self.runtime, self._loop)
            try:
                self._vhost.msg_store = store.MsgStore(
                    opened,
                    loop,
                    self.runtime.clock.monotonic_s,
                    self._failed,
                    threads(self._node.gil_yielding),
                    shortage_changed=self._node.resources.shortage_changed,
                )
            except (OSError, StoreError, MemoryError) as error:
                self._not_opened(error)
            self._vhost.durable_at_failure = self._vhost.store_error = None
            self._log_opened(opened)
            self.started()

    def _log_opened(self, opened: Opened) -> None:
        recovered = opened.recovered
        log.info(
            "message store opened vhost=%s clean=%s journal_files=%d records=%d messages=%d dropped=%d"
            " lost=%d rebuilt=%s took_s=%.3f",
            self._vhost.name,
            recovered.is_clean,
            recovered.journal_files,
            recovered.records,
            sum(terms.messages for terms in recovered.memtables.terms.values()),
            len(recovered.report.dropped),
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

    def _not_opened(self, error: Exception) -> None:
        if self._vhost.store_error is None:
            log.error("message store not opened vhost=%s error=%s", self._vhost.name, error)
        self._end_of(error)

    def _end_of(self, error: Exception) -> None:
        """End because of an error: in order if it is the machine's, else as a crash, with a traceback."""
        if not is_of_machine(error):
            self._vhost.store_error = None
            raise error
        self._vhost.store_error = error
        self.stop((SHUTDOWN, f"message store: {error}"))

    def handle_info(self, message: Any) -> None:
        """Try again to open; or end, when all has been written."""
        if message == _OPEN:
            self._try_to_open()
        elif isinstance(message, Exit):
            self.stop(message.reason)
        else:
            super().handle_info(message)

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Stop the store in order, over several turns, when the supervisor says so."""
        store = self._vhost.msg_store
        if not isinstance(message, Exit) or sender is not self.parent or store is None:
            return super().handle_mail(message, sender)
        if not self._is_stopping:
            self._is_stopping = True
            reason = message.reason
            store.stop(lambda: self.runtime.run_as(self.ref, lambda: self._stopped(reason)))
        return None

    def _stopped(self, reason: object) -> None:
        self._vhost.msg_store = None
        self.stop(reason)

    def terminate(self, reason: object) -> None:
        """Let go of a store that was not stopped in order."""
        if self.runtime.loop is not None:
            let_go(self._vhost, self.runtime.loop)


def let_go(vhost: VHost, loop: asyncio.AbstractEventLoop) -> None:
    """Close a vhost's store as a crash would leave it, if it is open; ``store_end`` says when it is."""
    store, vhost.msg_store = vhost.msg_store, None
    if store is not None:
        end = vhost.store_end = loop.create_future()
        _kill(store, end, loop)
        if store.durable_at_failure is not None:  # later writes may not be on the disk
            vhost.durable_at_failure = store.durable_at_failure


def _kill(store: MsgStore, end: asyncio.Future[None], loop: asyncio.AbstractEventLoop) -> None:
    def ended() -> None:
        if not end.done():
            end.set_result(None)

    try:
        store.kill(ended)
    except OSError as error:  # no thread is left
        log.warning("message store not closed, it is tried again in 1 s error=%s", error)
        loop.call_later(1.0, _kill, store, end, loop)


async def remove_store(node: Node, vhost_name: str) -> None:
    """Remove the messages of a vhost that is deleted and stopped, beside the loop.

    A caller that is cancelled, as when the broker stops, does not wait: the thread goes on, and folders
    that are left are removed after the next start.
    """
    if node.data_dir is None:
        return
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()
    folder = store_folder(node.data_dir, vhost_name)
    now_ms = int(node.runtime.clock.wall_s() * 1000)

    def remove() -> None:
        try:
            orphans.remove(orphans.set_aside(node.files, folder, now_ms))
        except OSError as error:
            log.error(
                "messages of a deleted vhost not removed, maintenance tries again vhost=%s folder=%s error=%s",
                vhost_name,
                folder,
                error,
            )

    try:
        background.start(node.gil_yielding, loop, "leveret-remove", remove, done.set_result)
    except OSError as error:  # maintenance removes it
        log.error("messages of a deleted vhost not removed vhost=%s error=%s", vhost_name, error)
        return
    await asyncio.shield(done)


def store_folder(data_dir: Path, vhost_name: str) -> Path:
    """Return where the messages of a vhost are; a name made of the vhost's, never the name itself."""
    name = blake2b(vhost_name.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    return data_dir / "vhosts" / name
