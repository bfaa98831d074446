"""The caretaker: what is done on the disk every minute, beside everything else.

* The ballast is made, for the first time a minute after the start, and again when there is room after
  it was given up.
* Messages and folders that no definition names are listed, and removed after a week (``orphans``).

The disk is a thread's; what concerns vhosts is done here, on the loop. Only with a data directory.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.actors.gen_server import GenServer
from leveret.broker import orphans
from leveret.broker.backings import queue_nos_of
from leveret.broker.store_server import store_folder

if TYPE_CHECKING:
    from leveret.broker.node import Node
    from leveret.broker.vhosts import VHost
    from leveret.msg_store.msg_store import MsgStore

log = logging.getLogger(__name__)

PERIOD_S: Final = 60.0
_LOOK: Final = "look"


class Caretaker(GenServer):
    """Looks after the node's data directory."""

    def init(self, node: Node) -> None:
        """Wait for the first time."""
        self._node = node
        self._thread: threading.Thread | None = None
        self._is_ending = threading.Event()
        if node.data_dir is not None and self.runtime.loop is not None:
            self._vhosts = node.data_dir / "vhosts"
            self._loop = self.runtime.loop
            self.start_timer(PERIOD_S, _LOOK)

    def handle_info(self, message: object) -> None:
        """Look, unless the last look is not over."""
        assert message == _LOOK
        if self._thread is None:
            self.look()
        self.start_timer(PERIOD_S, _LOOK)

    def look(self) -> None:
        """Begin to do what is to be done."""
        now_ms, node = int(self.runtime.clock.wall_s() * 1000), self._node
        stores = [
            (
                vhost,
                vhost.msg_store,
                self._undefined(vhost, vhost.msg_store),
                vhost.msg_store.leaving(),
            )
            for vhost in node.vhosts.values()
            if vhost.msg_store is not None
        ]
        claimed = {self._folder(name).name for name in node.vhosts}

        def work() -> Callable[[], None]:
            node.ballast.restore()
            due = [
                (
                    vhost,
                    store,
                    orphans.due(node.files, self._folder(vhost.name), found, leaving, now_ms),
                )
                for vhost, store, found, leaving in stores
            ]
            folders = orphans.due_folders(node.files, self._vhosts, claimed, now_ms)
            return lambda: self._looked(due, folders, now_ms)

        self._do(work)

    def _folder(self, vhost_name: str) -> Path:
        assert self._node.data_dir is not None
        return store_folder(self._node.data_dir, vhost_name)

    def _undefined(self, vhost: VHost, store: MsgStore) -> list[int]:
        """Return the queues of a store that are not there; those without messages go at once."""
        defined: set[int] = set()
        for entry in vhost.topology.queues.values():
            defined.update(queue_nos_of(entry))
        undefined = store.queues() - defined
        filled = undefined & store.queue_nos()
        for queue_no in undefined - filled:
            store.delete_queue(queue_no)
        return sorted(filled)

    def _looked(
        self, due: list[tuple[VHost, MsgStore, list[int]]], folders: list[Path], now_ms: int
    ) -> None:
        for vhost, store, queue_nos in due:
            if vhost.msg_store is store:
                for queue_no in queue_nos:
                    log.warning("orphan removed vhost=%s queue_no=%d", vhost.name, queue_no)
                    store.delete_queue(queue_no)
        claimed = {self._folder(name) for name in self._node.vhosts}
        removed = []
        for folder in folders:
            if folder not in claimed:  # checked and renamed in one turn: nobody opens it between
                log.warning("orphan removed folder=%s", folder)
                removed.append(orphans.set_aside(self._node.files, folder, now_ms))
        if removed:
            self._do(lambda: self._remove(removed))

    def _remove(self, folders: list[Path]) -> Callable[[], None]:
        for folder in folders:
            orphans.remove(folder, self._is_ending.is_set)
        return _nothing

    def _do(self, work: Callable[[], Callable[[], None]]) -> None:
        """Do something in a thread, and what it returns on the loop."""

        def run() -> None:
            try:
                then = work()
            except OSError as error:  # the next look may be luckier
                log.warning("data directory not looked after error=%s", error)
                then = _nothing
            with suppress(RuntimeError):  # the loop is closed: the broker has ended
                self._loop.call_soon_threadsafe(self._done, then)

        self._thread = threading.Thread(target=run, name="leveret-caretaker", daemon=True)
        self._thread.start()

    def _done(self, then: Callable[[], None]) -> None:
        self._thread = None
        if self.ref.is_alive:
            self.runtime.run_as(self.ref, then)

    def terminate(self, reason: object) -> None:
        """Leave no thread behind."""
        self._is_ending.set()
        if self._thread is not None:
            self._thread.join()


def _nothing() -> None:
    """There is nothing to be done."""
