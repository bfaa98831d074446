"""The message store of a vhost, as the vhost knows it: the open store, and how it ended last.

The store's actor (``broker/node/store_server.py``) opens, closes and loses the store. The state outlives that
actor, so the successor of a killed one finds the store that it has to close. Whether the vhost serves is in ``states``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from leveret.msg_store.format.journal_frames import DurablePosition
    from leveret.msg_store.store import MsgStore

log = logger(__name__)

CLOSE_RETRY_S: Final = 1.0


class StoreState:
    """The state of one vhost's store.

    Attributes:
        msg_store: the open store; None on a node without a data directory.
        error: of disk, descriptors or memory, by which the store failed last; None while it is open.
        durable_at_failure: its durable position when it failed: the next start reads nothing behind it.
        was_tried: this process has tried to open the store, and may have used a boot epoch.
        in_use: done when no thread has the files of a store that is not open; None if none ever had.
        give_up: ends the actor that stops the store in order, for the vhost is deleted; None if none does.
    """

    def __init__(self) -> None:
        self.msg_store: MsgStore | None = None
        self._is_open = self.was_tried = False
        self.error: Exception | None = None
        self.durable_at_failure: DurablePosition | None = None
        self.in_use: asyncio.Future[None] | None = None
        self.give_up: Callable[[], object] | None = None
        self._waiting: list[Callable[[None], object]] = []

    def when_open(self, then: Callable[[None], object]) -> None:
        """Call when the store is open, unless its actor ends before."""
        if self._is_open:
            then(None)
        else:
            self._waiting.append(then)

    def opened(self, msg_store: MsgStore | None) -> None:
        """Note that the store is open, and call the callbacks that wait for it."""
        self.msg_store = msg_store
        self._is_open = True
        self.error = self.durable_at_failure = None
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(None)

    def closed(self) -> None:
        """Note that the store is not open, and drop the waiting callbacks: its actor has ended."""
        self.msg_store = self.give_up = None
        self._is_open = False
        self._waiting = []

    def when_free(self, then: Callable[[Any], object]) -> bool:
        """Return whether no thread has the files; else call when none has."""
        if self.in_use is None or self.in_use.done():
            return True
        self.in_use.add_done_callback(then)
        return False

    def let_go(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the store as a crash would leave it, if it is open; ``in_use`` says when it is closed."""
        store = self.msg_store
        self.closed()
        if store is not None:
            in_use = self.in_use = loop.create_future()
            _kill(store, in_use, loop)
            if store.durable_at_failure is not None:  # later writes may not be on the disk
                self.durable_at_failure = store.durable_at_failure


def _kill(store: MsgStore, in_use: asyncio.Future[None], loop: asyncio.AbstractEventLoop) -> None:
    def ended() -> None:
        if not in_use.done():
            in_use.set_result(None)

    try:
        store.kill(ended)
    except (OSError, RuntimeError) as error:  # no thread is left
        log.warning("message store not closed, it is tried again in 1 s error=%s", error)
        loop.call_later(CLOSE_RETRY_S, _kill, store, in_use, loop)
