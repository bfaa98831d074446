"""The disk watch: compares the free space in the data directory with the limit.

Below it publishers are blocked (``alarms``). A message store that finds the disk full, whatever ``statvfs``
says (a quota, say), has the watch look at once and counts as below the limit, until it can write again.

The less is free above the limit, the sooner it looks again: after 0.1 to 10 seconds, as if the disk could fill
up at 250 MB/s. Source: ``rabbit_disk_monitor``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.actors.gen_server import GenServer
from leveret.broker.connection.alarms import DISK
from leveret.broker.node.resources import DISK_WATCH, LookAgain
from leveret.core.log import logger

if TYPE_CHECKING:
    from pathlib import Path

    from leveret.actors.runtime.timers import Timer
    from leveret.broker.node.node import Node

log = logger(__name__)

INTERVAL_MIN_S: Final = 0.1
INTERVAL_MAX_S: Final = 10.0
FAST_BYTES_PER_S: Final = 250_000_000

_LOOK: Final = "look"


def interval_s(free_bytes: int, limit_bytes: int, is_raised: bool) -> float:
    """Return when to look again."""
    if is_raised:
        return INTERVAL_MAX_S
    ideal_s = 2 * (free_bytes - limit_bytes) / FAST_BYTES_PER_S
    return max(INTERVAL_MIN_S, min(INTERVAL_MAX_S, ideal_s))


class DiskWatch(GenServer):
    """Looks at the disk, for ever; notes its free space and sets its alarm."""

    def init(self, node: Node) -> None:
        self.runtime.register(DISK_WATCH, self.ref)
        self._node = node
        self._timer: Timer | None = None
        if node.data_dir is not None:
            self._look(node.data_dir)

    def handle_info(self, message: object) -> None:
        assert message == _LOOK
        assert self._node.data_dir is not None
        self._look(self._node.data_dir)

    def handle_cast(self, message: object) -> None:
        """Look at once: the limit was changed, or a store has found the disk full or can write again."""
        if not isinstance(message, LookAgain):
            super().handle_cast(message)
        elif self._node.data_dir is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._look(self._node.data_dir)

    def _look(self, folder: Path) -> None:
        node, resources = self._node, self._node.resources
        limit_bytes = resources.disk_limit_bytes
        try:
            resources.disk_free_bytes = free_bytes = node.files.free_bytes(folder)
        except OSError as error:
            log.error(
                "free disk space unknown, the alarm stays as it is folder=%s error=%s",
                folder,
                error,
            )
            self._timer = self.start_timer(INTERVAL_MAX_S, _LOOK)
            return
        stores = [vhost.msg_store for vhost in node.vhosts.values()]
        is_full = any(store is not None and store.is_full for store in stores)
        is_raised = free_bytes < limit_bytes or is_full
        figures = f"free_bytes={free_bytes} limit_bytes={limit_bytes} store_is_full={is_full}"
        resources.alarms.set(DISK, is_raised, figures)
        delay_s = interval_s(free_bytes, limit_bytes, is_raised)
        self._timer = self.start_timer(delay_s, _LOOK)
