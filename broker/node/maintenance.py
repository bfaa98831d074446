"""Maintenance: frees unneeded memory and disk space in the background.

* Every second: a slice of the actors is swept. A mailbox that was used once keeps about 700 bytes, and
  most queues and connections are idle. A slice costs well under a millisecond.
* Every minute, the first time a minute after the start: the ballast is restored, if there is room.
* Every hour, and the first time: orphans, which are messages and folders without a definition, are listed,
  and removed after a week (``orphans``); at once if a crash has cut their queue's deletion off.

The last two need a data directory. A thread reads the disk and compares queues with definitions; orphans
are removed on the loop, a hundred queues in a turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.actors.gen_server import GenServer
from leveret.broker.node import background, orphans
from leveret.broker.node.store_server import store_folder
from leveret.broker.queue.storage.factory import queue_nos_of
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from leveret.broker.node.node import Node
    from leveret.broker.vhost.vhost import VHost
    from leveret.msg_store.store import MsgStore

log = logger(__name__)

SWEEP_S: Final = 1.0
ACTORS_PER_SWEEP: Final = 2_500
PERIOD_S: Final = 60.0
ORPHANS_PERIODS: Final = 60
QUEUES_PER_TURN: Final = 100

_SWEEP: Final = "sweep"
_CHECK: Final = "check"
_REMOVE: Final = "remove"


class Maintenance(GenServer):
    """Sweeps the runtime's mailboxes and tidies the node's data directory, for ever."""

    def init(self, node: Node) -> None:
        self.start_timer(SWEEP_S, _SWEEP)
        self._node = node
        self._thread: threading.Thread | None = None
        self._is_ending = threading.Event()
        self._periods = 0
        self._orphans: list[tuple[_StoreAndQueues, int]] = []  # queues that are still to be removed
        self._gone: list[int] = []  # deleted queues that are still to be forgotten
        if node.data_dir is not None and self.runtime.loop is not None:
            self._vhosts = node.data_dir / "vhosts"
            self._loop = self.runtime.loop
            self.start_timer(PERIOD_S, _CHECK)

    def handle_info(self, message: object) -> None:
        """Sweep a slice of the actors; or check the disk, unless the last check is still running."""
        if message == _SWEEP:
            self.runtime.sweep(ACTORS_PER_SWEEP)
            self.start_timer(SWEEP_S, _SWEEP)
            return
        assert message == _CHECK
        if self._thread is None:
            self.check_disk(has_orphans=self._periods % ORPHANS_PERIODS == 0)
            self._periods += 1
        self.start_timer(PERIOD_S, _CHECK)

    def handle_cast(self, message: object) -> None:
        """Remove more orphans."""
        assert message == _REMOVE
        self._remove_queues()

    def check_disk(self, has_orphans: bool = True) -> None:
        """Restore the ballast, and remove orphans."""
        node = self._node
        if not has_orphans:
            self._do(node.ballast.restore)
            return
        now_ms = int(self.runtime.clock.wall_s() * 1000)
        deleted = frozenset(node.metadata.deleted_queues)
        stores = [
            _StoreAndQueues(vhost, vhost.store.msg_store, deleted)
            for vhost in node.vhosts.values()
            if vhost.store.msg_store
        ]
        gone = []
        if len(stores) == len(node.vhosts):  # of a vhost that is down nothing is known
            gone = [no for no in deleted if not any(each.has_messages(no) for each in stores)]
        claimed = {self._folder(name).name for name in node.vhosts}

        def work() -> Callable[[], None]:
            node.ballast.restore()
            for each in stores:
                folder = self._folder(each.vhost.name)
                found, leaving = each.undefined()
                each.due += orphans.due(node.files, folder, found, leaving, now_ms)
            folders = orphans.due_folders(node.files, self._vhosts, claimed, now_ms)
            return lambda: self._checked(stores, folders, gone, now_ms)

        self._do(work)

    def _folder(self, vhost_name: str) -> Path:
        assert self._node.data_dir is not None
        return store_folder(self._node.data_dir, vhost_name)

    def _checked(
        self, stores: list[_StoreAndQueues], folders: list[Path], gone: list[int], now_ms: int
    ) -> None:
        self._gone += gone
        self._orphans += [(each, queue_no) for each in stores for queue_no in each.due]
        self._remove_queues()
        claimed = {self._folder(name) for name in self._node.vhosts}
        removed = []
        for folder in folders:
            if folder in claimed:
                continue
            log.warning("orphan removed folder=%s", folder)
            try:
                # Checked and renamed in one turn: no vhost opens it in between.
                removed.append(orphans.set_aside(self._node.files, folder, now_ms))
            except FileNotFoundError:
                continue  # its vhost has just been deleted
            except OSError as error:
                self._put_off(error)
        if removed:
            self._do(lambda: self._remove(removed))

    def _remove_queues(self) -> None:
        """Remove some orphaned queues and forget some queues that are gone; the others follow in later turns."""
        self._node.metadata.forget_deleted(self._gone[:QUEUES_PER_TURN])
        for each, queue_no in self._orphans[:QUEUES_PER_TURN]:
            if each.vhost.store.msg_store is each.store:
                log.warning("orphan removed vhost=%s queue_no=%d", each.vhost.name, queue_no)
                each.store.delete_queue(queue_no)
        del self._gone[:QUEUES_PER_TURN], self._orphans[:QUEUES_PER_TURN]
        if self._gone or self._orphans:
            self.runtime.again(self.ref, _REMOVE)

    def _remove(self, folders: list[Path]) -> None:
        for folder in folders:
            orphans.remove(folder, self._is_ending.is_set)

    def _do(self, work: Callable[[], object]) -> None:
        """Work in a thread, then call the result on the loop, if it can be called."""
        try:
            self._thread = background.start(
                self._node.gil_yielding,
                self._loop,
                "leveret-maintenance",
                work,
                self._done,
                daemon=True,
            )
        except OSError as error:
            self._put_off(error)

    def _done(self, then: object) -> None:
        self._thread = None
        if self.ref.is_alive:
            self.runtime.run_as(self.ref, self._finish, then)

    def _finish(self, then: object) -> None:
        if isinstance(then, OSError | MemoryError):
            self._put_off(then)
        elif isinstance(then, Exception):
            raise then
        elif callable(then):
            then()

    def _put_off(self, error: Exception) -> None:
        log.warning(
            "maintenance failed, it is tried again in %d s folder=%s error=%s",
            int(PERIOD_S), self._vhosts, error,
        )  # fmt: skip

    def terminate(self, reason: object) -> None:
        self._is_ending.set()
        if self._thread is not None:
            self._thread.join()


class _StoreAndQueues:
    """The contents of a vhost's store and the queues of its topology, as of one moment.

    Attributes:
        due: queues of the store that are to be removed.
    """

    def __init__(self, vhost: VHost, store: MsgStore, deleted: frozenset[int]) -> None:
        self.vhost = vhost
        self.store = store
        self.due: list[int] = []
        self._deleted = deleted
        self._entries = list(vhost.topology.queues.values())
        self._messages = store.message_counts()
        self._leaving = store.leaving()

    def undefined(self) -> tuple[list[int], list[int]]:
        """Return the queue numbers that have messages but no definition, and those being deleted.

        A number without a definition never gets one again, for numbers are given once. Without messages it
        is due at once, and so it is when the queue was deleted.
        """
        missing = self._messages.keys() - {
            no for each in self._entries if each.queue_no for no in queue_nos_of(each)
        }
        filled = [no for no in missing if self._messages[no]]
        for no in missing - self._leaving:
            if not self._messages[no] or no in self._deleted:
                self.due.append(no)
        leaving = [no for no in filled if no in self._leaving]
        gone = self._leaving | self._deleted
        return [no for no in filled if no not in gone], leaving

    def has_messages(self, queue_no: int) -> bool:
        return self._messages.get(queue_no, 0) > 0
