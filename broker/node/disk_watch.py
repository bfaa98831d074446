"""The disk watch: compares the free space in the data directory with the limit.

Below the limit publishers are blocked (``alarms``). When a message store cannot write, since the disk is full
whatever ``statvfs`` says (a quota, say), or descriptors or memory are used up, the watch checks at once and holds the
alarm until the store can write again. While the disk is short, stores give up messages that they archive for replays
(``msg_store/archive``), as many bytes as are missing at each check.

The less is free above the limit, the sooner is the next check: after 0.1 to 10 seconds, as if the disk could fill
up at 250 MB/s. Source: ``rabbit_disk_monitor``. Differs from RabbitMQ: while the alarm is raised it checks every
second and not every ten, so that publishers resume soon after room was made.

When less than ``RESERVE_BELOW_BYTES`` are free the watch takes the reserve (``msg_store/format/ballast.py``). While
the reserve is used, to start stores or write acks, the disk alarm is raised whatever the limit.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from leveret.actors.gen_server import GenServer
from leveret.broker.connection.alarms import DISK
from leveret.broker.node.resources import DISK_WATCH, CheckNow
from leveret.core.log.loggers import logger
from leveret.core.system import shortage

if TYPE_CHECKING:
    from pathlib import Path

    from leveret.actors.runtime.timers import Timer
    from leveret.broker.node.node import Node

log = logger(__name__)

INTERVAL_MIN_S: Final = 0.1
INTERVAL_MAX_S: Final = 10.0
FAST_BYTES_PER_S: Final = 250_000_000
RAISED_S: Final = 1.0
RESERVE_BELOW_BYTES: Final = 4_000_000_000  # more than fills up between two checks

_CHECK: Final = "check"
_OF_DISK: Final = frozenset(errno.errorcode[number] for number in shortage.DISK)


def interval_s(free_bytes: int, limit_bytes: int, is_raised: bool) -> float:
    """Return the time until the next check."""
    if is_raised:
        return RAISED_S
    ideal_s = 2 * (free_bytes - limit_bytes) / FAST_BYTES_PER_S
    return max(INTERVAL_MIN_S, min(INTERVAL_MAX_S, ideal_s))


class DiskWatch(GenServer):
    """Checks the disk periodically; notes its free space and sets its alarm."""

    def init(self, node: Node) -> None:
        self.runtime.register(DISK_WATCH, self.ref)
        self._node = node
        self._timer: Timer | None = None
        if node.data_dir is not None:
            self._check(node.data_dir)

    def handle_info(self, message: object) -> None:
        assert message == _CHECK
        assert self._node.data_dir is not None
        self._check(self._node.data_dir)

    def handle_cast(self, message: object) -> None:
        """Check at once: the limit was changed, or a store has found the disk full or can write again."""
        if not isinstance(message, CheckNow):
            super().handle_cast(message)
        elif self._node.data_dir is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._check(self._node.data_dir)

    def _check(self, folder: Path) -> None:
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
            self._timer = self.start_timer(INTERVAL_MAX_S, _CHECK)
            return
        stores = [vhost.store.msg_store for vhost in node.vhosts.values()]
        short = {store.shortage for store in stores if store is not None and store.is_short}
        if free_bytes < RESERVE_BELOW_BYTES:
            self._take_reserve()
        is_given_up = node.reserve.is_given_up
        is_raised = free_bytes < limit_bytes or bool(short) or is_given_up
        reason = ",".join(sorted(short)) or "none"
        stats = (
            f"free_bytes={free_bytes} limit_bytes={limit_bytes} store_shortage={reason}"
            f" reserve_is_used={is_given_up}"
        )
        resources.alarms.set(DISK, is_raised, stats)
        self._use_archives(limit_bytes - free_bytes if is_raised else None)
        delay_s = interval_s(free_bytes, limit_bytes, is_raised)
        self._timer = self.start_timer(delay_s, _CHECK)

    def _use_archives(self, missing_bytes: int | None) -> None:
        """Have stores give up archived messages of so many bytes; None: the disk is not short."""
        for vhost in self._node.vhosts.values():
            store = vhost.store.msg_store
            if store is None:
                continue
            if missing_bytes is None:
                store.disk_has_room()
            elif missing_bytes > 0 or store.shortage in _OF_DISK or self._node.reserve.is_given_up:
                missing_bytes -= store.give_up_archive(missing_bytes)

    def _take_reserve(self) -> None:
        try:
            self._node.reserve.restore()
        except OSError as error:  # the next check tries again
            log.warning("no reserve taken on the disk error=%s", error)
