"""Memory and disk of the node: how much there is, the limits, and the alarms.

A plain object. Its watches (``memory_watch``, ``disk_watch``) measure the machine and raise the alarms;
operators set the limits, message stores report a full disk.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.connection.alarms import Alarms
from leveret.queue_backing.memory_monitor import MemoryMonitor

if TYPE_CHECKING:
    from leveret.actors.runtime.runtime import Runtime
    from leveret.core.settings import BrokerSettings
    from leveret.core.sizes import SizeLimit
    from leveret.core.system.machine import Machine

MEMORY_WATCH: Final = "memory_watch"
DISK_WATCH: Final = "disk_watch"

# As RabbitMQ assumes on a system that it does not know.
MEMORY_OF_UNKNOWN_BYTES: Final = 8 * 1024**3


class CheckNow:
    """To a watch: check at once, a limit or the disk has changed."""


class Resources:
    """Memory and disk of one node.

    Attributes:
        memory: how many seconds of traffic queues keep in RAM.
        memory_total_bytes: the RAM of the machine, or the amount in the settings.
        memory_limit: high watermark of memory in use.
        disk_free_bytes: as of the disk watch's last check.
    """

    def __init__(self, runtime: Runtime, settings: BrokerSettings, machine: Machine) -> None:
        self._runtime = runtime
        self._settings = settings
        self.machine = machine
        self.alarms = Alarms(runtime)
        self.memory = MemoryMonitor(settings.memory_paging_ratio)
        self.memory_total_bytes = self._memory_total_bytes()
        self.memory_limit: SizeLimit = settings.memory_high_watermark
        self.disk_limit: SizeLimit = settings.disk_free_limit
        self.disk_free_bytes: int | None = None

    def _memory_total_bytes(self) -> int:
        configured = self._settings.memory_total_bytes
        return configured or self.machine.total_bytes() or MEMORY_OF_UNKNOWN_BYTES

    def measure_total(self) -> None:
        """Measure the RAM again: the limit of a control group can change."""
        with suppress(OSError):  # it is as it was
            self.memory_total_bytes = self._memory_total_bytes()

    @property
    def memory_limit_bytes(self) -> int:
        """The high watermark: with more in use publishers are blocked."""
        return self.memory_limit.of(self.memory_total_bytes)

    @property
    def disk_limit_bytes(self) -> int:
        """With less free in the data directory publishers are blocked."""
        return self.disk_limit.of(self.memory_total_bytes)

    def set_limits(self, memory: SizeLimit | None = None, disk: SizeLimit | None = None) -> None:
        """Set other limits until the node ends; alarms follow at once."""
        self.measure_total()
        self.memory_limit = memory or self.memory_limit
        self.disk_limit = disk or self.disk_limit
        self._check_now(MEMORY_WATCH, DISK_WATCH)

    def shortage_changed(self) -> None:
        """A message store has met a shortage, or can write again."""
        self._check_now(DISK_WATCH)

    def _check_now(self, *watches: str) -> None:
        for name in watches:
            watch = self._runtime.whereis(name)
            if watch is not None:  # else its successor begins with a check
                self._runtime.send(watch, CheckNow())

    def _used_bytes(self) -> int | None:
        try:
            return self.machine.used_bytes()
        except OSError:
            return None

    def stats(self) -> dict[str, Any]:
        return {
            "alarms": list(self.alarms.raised),
            "memory": {
                "used_bytes": self._used_bytes(),
                "limit_bytes": self.memory_limit_bytes,
                "total_bytes": self.memory_total_bytes,
            },
            "disk": {"free_bytes": self.disk_free_bytes, "limit_bytes": self.disk_limit_bytes},
        }
