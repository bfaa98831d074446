"""The memory watch: compares the memory that the process uses with the high watermark.

Above it publishers are blocked (``alarms``); from the paging ratio on, half of it, queues are told how many
seconds of traffic they may keep in RAM (``queue_backing/memory_monitor.py``), and page out the rest.

It looks every 2.5 s as RabbitMQ does, and sooner the nearer the paging ratio is: as if memory could fill up
at ``FAST_BYTES_PER_S`` from now on. Queues in use report every 5 s, and more often where memory is short; how
often depends on how many they are, so that asking them stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.actors.gen_server import GenServer
from leveret.broker.connection.alarms import MEMORY
from leveret.broker.node.resources import MEMORY_WATCH, LookAgain, Resources
from leveret.core.log import logger
from leveret.queue_backing.actor import ReportRamDuration, SetRamDurationTarget
from leveret.queue_backing.memory_monitor import INTERVAL_S

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.timers import Timer

log = logger(__name__)

PRESSED_S: Final = 0.1  # between two looks when queues page
ALARMED_S: Final = 1.0  # so that publishers are not blocked and let go many times a second
FAST_BYTES_PER_S: Final = 250_000_000
REPORT_S: Final = 5.0
PRESSED_REPORT_S: Final = 0.25
REPORTS_PER_S: Final = 10_000  # from all queues together
QUEUES_PER_S: Final = 50_000  # that are looked at
GIVE_BACK_S: Final = 5.0  # between two times that free memory is given back
GIVE_BACK_SHARE: Final = 0.05  # of the time at most; a heap of 1 GB takes 0.1 s

_LOOK: Final = "look"
_REPORT: Final = ReportRamDuration()


def interval_s(used_bytes: int, limit_bytes: int, paging_ratio: float, queues: int) -> float:
    """Return when to look again; ``queues`` is how many there are that may have to be told."""
    if used_bytes > limit_bytes:
        return ALARMED_S
    headroom_bytes = paging_ratio * limit_bytes - used_bytes
    pressed_s = max(PRESSED_S, queues / QUEUES_PER_S)
    return min(INTERVAL_S, max(pressed_s, headroom_bytes / FAST_BYTES_PER_S))


def report_interval_s(queues: int, is_pressed: bool) -> float:
    """Return how often queues in use should report."""
    return max(PRESSED_REPORT_S, queues / REPORTS_PER_S) if is_pressed else REPORT_S


class MemoryWatch(GenServer):
    """Looks at the memory, for ever; sets its alarm and tells the queues."""

    def init(self, resources: Resources) -> None:
        self.runtime.register(MEMORY_WATCH, self.ref)
        self._resources = resources
        self._reported_s = float("-inf")
        self._gives_back_from_s = float("-inf")
        self._timer: Timer | None = None
        if resources.machine.used_bytes() is None:
            log.warning("memory is not watched: this system does not tell how much a process uses")
        else:
            self._look()

    def handle_info(self, message: object) -> None:
        assert message == _LOOK
        self._look()

    def handle_cast(self, message: object) -> None:
        if isinstance(message, LookAgain):
            if self._timer is not None:
                self._timer.cancel()
                self._look()
        else:
            super().handle_cast(message)

    def _look(self) -> None:
        resources, memory = self._resources, self._resources.memory
        limit_bytes = resources.memory_limit_bytes
        used_bytes = self._used_bytes(limit_bytes)
        figures = f"used_bytes={used_bytes} limit_bytes={limit_bytes}"
        resources.alarms.set(MEMORY, used_bytes > limit_bytes, figures)
        self._tell_queues(used_bytes, limit_bytes)
        delay_s = interval_s(used_bytes, limit_bytes, memory.paging_ratio, memory.count)
        self._timer = self.start_timer(delay_s, _LOOK)

    def _used_bytes(self, limit_bytes: int) -> int:
        """Return the bytes in use; above the limit, after the allocator has given free memory back."""
        machine, clock = self._resources.machine, self.runtime.clock
        used_bytes, now_s = machine.used_bytes() or 0, clock.monotonic_s()
        if used_bytes <= limit_bytes or now_s < self._gives_back_from_s:
            return used_bytes
        machine.give_back()
        done_s = clock.monotonic_s()
        self._gives_back_from_s = done_s + max(GIVE_BACK_S, (done_s - now_s) / GIVE_BACK_SHARE)
        return machine.used_bytes() or 0

    def _tell_queues(self, used_bytes: int, limit_bytes: int) -> None:
        resources, runtime = self._resources, self.runtime
        memory = resources.memory
        for queue, target_s in memory.update(used_bytes, limit_bytes, resources.alarms.has_disk):
            runtime.send_bulk(queue, SetRamDurationTarget(target_s))
        now_s = runtime.clock.monotonic_s()
        is_pressed = used_bytes >= memory.paging_ratio * limit_bytes
        period_s = report_interval_s(len(memory.active), is_pressed)
        if now_s - self._reported_s >= period_s:
            self._reported_s = now_s
            memory.forget_where(_has_ended)
            for queue in memory.take_active():
                runtime.send_bulk(queue, _REPORT)


def _has_ended(queue: Ref) -> bool:
    return not queue.is_alive
