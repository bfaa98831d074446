"""The memory watch (RabbitMQ's ``vm_memory_monitor``): compares the memory that the process uses with the watermark.

Above it publishers are blocked (``alarms``); from the paging ratio on, half of it, queues are sent how many
seconds of traffic they may keep in RAM (``queue_backing/memory_monitor.py``), and page out the rest.

It checks once a second, and sooner the nearer the paging ratio is: as if memory could fill up at
``FAST_BYTES_PER_S`` from now on. Clients that send large messages can be faster than that, so it also checks
when large reads have brought a quarter of the room below the limit. It also reads the size of the RAM, since the
limit of a control group can change. Queues in use report every 5 s, more often
where memory is short, and less often where they are many, so that asking them stays cheap. Mails to many queues
are sent in several turns.

Freed memory that the allocator keeps counts as used, so from the paging ratio on the watch gives it back, in passes of
short steps (``core/system/heap.py``), one every ``GIVE_BACK_S`` while that gains anything. Queues page only when a
first pass is over or has taken ``WAIT_S``. The alarm does not wait for a pass: the allocator uses its free memory
before the process grows, so a process above the limit needs the memory; and a publish that follows a new limit must be
blocked.

Contents that have come in part would otherwise raise the alarm, and hold it raised for as long as their clients like.
So from ``CONTENTS_RELIEF_SHARE`` of the limit on the largest are given up, until the others take no more than
``CONTENTS_SHARE`` of it (or ``CONTENTS_BYTES_MIN``), and their connections are closed. No channel has got any of
them, so none is confirmed.

``leveret serve`` lets the interpreter make no full garbage collection, as it stops everything for up to seconds. Should
there be such garbage after all, the watch has it collected when the alarm has lasted for ``COLLECT_AFTER_S``, at most
once in ``COLLECT_S``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.gen_server import GenServer
from leveret.broker.connection.alarms import MEMORY
from leveret.broker.node.resources import MEMORY_WATCH, CheckNow, Resources
from leveret.core.limits import CONTENTS_BYTES_MIN, CONTENTS_RELIEF_SHARE, CONTENTS_SHARE
from leveret.core.log.loggers import logger
from leveret.queue_backing.actor import ReportRamDuration, SetRamDurationTarget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.timers import Timer
    from leveret.broker.connection.connections import Connections

log = logger(__name__)

INTERVAL_S: Final = 1.0  # RabbitMQ's is 2.5
PRESSED_S: Final = 0.1  # between two checks when queues page
ALARMED_S: Final = 1.0  # so that publishers are not blocked and let go many times a second
FAST_BYTES_PER_S: Final = 250_000_000
REPORT_S: Final = 5.0
PRESSED_REPORT_S: Final = 0.25
REPORTS_PER_S: Final = 2_000  # from all queues together, so that asking takes 1 % of the time
PRESSED_REPORTS_PER_S: Final = 10_000
QUEUES_PER_S: Final = 50_000  # that are checked
QUEUES_PER_TURN: Final = 200  # that are sent mail
QUEUES_PER_CHECK: Final = 250  # that are forgotten if they have ended without a word
READ_SHARE: Final = 4  # of the room below the limit is read before the next check
READ_BYTES_MIN: Final = 1024 * 1024  # a check costs as much as 50 KiB of them
RELIEF_S: Final = 0.05  # between two times, for each goes through all connections
GIVE_BACK_S: Final = 0.02  # between two steps of a pass, and between two passes
COLLECT_S: Final = 600.0  # between two full garbage collections
COLLECT_AFTER_S: Final = (
    60.0  # above the limit; what queues page out and clients take mostly ends it before
)
WAIT_S: Final = 1.0  # for the end of the first pass; in that time some GB go back
GIVE_BACK_SHARE: Final = (
    0.02  # of the time at most for passes that gain less than ``GIVE_BACK_GAIN_BYTES``
)
GIVE_BACK_GAIN_BYTES: Final = 8 * 1024 * 1024

_CHECK: Final = "check"
_GIVE_BACK: Final = "give back"
_SEND_MORE: Final = "send_more"
_REPORT: Final = ReportRamDuration()


def interval_s(used_bytes: int, limit_bytes: int, paging_ratio: float, queues: int) -> float:
    """Return the time until the next check; ``queues`` is how many may get a new target."""
    if used_bytes > limit_bytes:
        return ALARMED_S
    headroom_bytes = paging_ratio * limit_bytes - used_bytes
    pressed_s = max(PRESSED_S, queues / QUEUES_PER_S)
    return min(INTERVAL_S, max(pressed_s, headroom_bytes / FAST_BYTES_PER_S))


def report_interval_s(queues: int, is_pressed: bool) -> float:
    """Return how often queues in use should report."""
    if is_pressed:
        return max(PRESSED_REPORT_S, queues / PRESSED_REPORTS_PER_S)
    return max(REPORT_S, queues / REPORTS_PER_S)


class MemoryWatch(GenServer):
    """Checks the memory periodically; sets its alarm and sends the queues their targets."""

    def init(self, resources: Resources, connections: Connections[Any]) -> None:
        self.runtime.register(MEMORY_WATCH, self.ref)
        self._resources = resources
        self._connections = connections
        self._relieves_from_s = float("-inf")
        self._reported_s = float("-inf")
        self._gives_back = False  # a pass is under way, or a timer for the next one
        self._has_given_back = False  # a pass has ended since less than the paging ratio was in use
        self._waits_until_s = 0.0  # for the end of the first pass
        self._steps: Iterator[None] | None = None  # of the pass under way
        self._pass_used_bytes = 0  # at the beginning of the pass
        self._pass_took_s = 0.0
        self._collects_from_s = float("-inf")
        self._timer: Timer | None = None
        self._targets: deque[tuple[Ref, float]] = deque()  # to be sent
        self._asked: deque[Ref] = deque()  # to be sent requests for reports
        self._is_sending = False
        self._used_last_bytes = 0
        try:
            is_known = resources.machine.used_bytes() is not None
        except OSError:
            is_known = True  # it may be known later
        if is_known:
            self._check()
        else:
            log.warning("memory is not watched: this system does not tell how much a process uses")

    def handle_info(self, message: object) -> None:
        if message == _GIVE_BACK:
            self._give_back()
        else:
            assert message == _CHECK
            self._check()

    def handle_cast(self, message: object) -> None:
        if isinstance(message, CheckNow):
            if self._timer is not None:
                self._timer.cancel()
                self._check()
        elif message == _SEND_MORE:
            self._is_sending = False
            self._send_some()
        else:
            super().handle_cast(message)

    def _check(self) -> None:
        resources, memory = self._resources, self._resources.memory
        resources.measure_total()
        limit_bytes = resources.memory_limit_bytes
        used_bytes = self._set_alarm(limit_bytes)
        self._update_targets(used_bytes, limit_bytes)
        delay_s = interval_s(used_bytes, limit_bytes, memory.paging_ratio, memory.count)
        self._timer = self.start_timer(delay_s, _CHECK)

    def _set_alarm(self, limit_bytes: int) -> int:
        """Raise or clear the alarm; return the bytes in use."""
        alarms, used_bytes = self._resources.alarms, self._used_bytes(limit_bytes)
        is_short = used_bytes > limit_bytes
        alarms.set(MEMORY, is_short, f"used_bytes={used_bytes} limit_bytes={limit_bytes}")
        if used_bytes > CONTENTS_RELIEF_SHARE * limit_bytes:
            self._relieve(limit_bytes)
        if not is_short:
            room_bytes = (limit_bytes - used_bytes) // READ_SHARE
            alarms.check_after(max(READ_BYTES_MIN, room_bytes), self._read_enough)
        return used_bytes

    def _relieve(self, limit_bytes: int) -> None:
        """Give up contents if they take too much of the memory."""
        now_s = self.runtime.clock.monotonic_s()
        if now_s < self._relieves_from_s:
            return
        self._relieves_from_s = now_s + RELIEF_S
        kept_bytes = max(CONTENTS_BYTES_MIN, int(CONTENTS_SHARE * limit_bytes))
        given_up = self._connections.give_up_contents(kept_bytes)
        if given_up:
            log.warning(
                "unfinished messages dropped, memory is short: connections closed connections=%d",
                given_up,
            )

    def _read_enough(self) -> None:
        """Check before the timer: clients have sent much since the last check."""
        if self.ref.is_alive:
            self._set_alarm(self._resources.memory_limit_bytes)

    def _used_bytes(self, limit_bytes: int) -> int:
        """Return the bytes in use; from the paging ratio on, have free memory given back."""
        used_bytes, now_s = self._measured(), self.runtime.clock.monotonic_s()
        if used_bytes <= limit_bytes:
            self._collects_from_s = max(self._collects_from_s, now_s + COLLECT_AFTER_S)
        if not self._is_pressed(used_bytes, limit_bytes):
            self._has_given_back = False
        elif not self._gives_back:
            self._waits_until_s = now_s + WAIT_S
            self._give_back()
            used_bytes = self._measured()
        return used_bytes

    @property
    def _has_waited(self) -> bool:
        """Whether free memory that has been there for long has been given back, or should have been."""
        now_s = self.runtime.clock.monotonic_s()
        return self._has_given_back or now_s >= self._waits_until_s

    def _is_pressed(self, used_bytes: int, limit_bytes: int) -> bool:
        return used_bytes >= self._resources.memory.paging_ratio * limit_bytes

    def _give_back(self) -> None:
        """Take a step of the pass under way, or of a new one if the paging ratio is in use."""
        resources, clock = self._resources, self.runtime.clock
        began_s = clock.monotonic_s()
        if self._steps is None:
            self._gives_back = self._is_pressed(self._measured(), resources.memory_limit_bytes)
            if not self._gives_back:
                return
            if began_s >= self._collects_from_s:
                self._collects_from_s = began_s + COLLECT_S
                resources.machine.collect_garbage()
            self._pass_used_bytes, self._pass_took_s = self._used_last_bytes, 0.0
            self._steps = resources.machine.give_back_in_steps()
        is_over = next(self._steps, self) is self
        self._pass_took_s += clock.monotonic_s() - began_s
        pause_s = GIVE_BACK_S
        if is_over:
            self._steps = None
            gain_bytes = self._pass_used_bytes - self._measured()
            if gain_bytes < GIVE_BACK_GAIN_BYTES:
                pause_s = max(pause_s, self._pass_took_s / GIVE_BACK_SHARE)
            if not self._has_given_back:
                self._has_given_back = True
                self.runtime.again(self.ref, CheckNow())
        self.start_timer(pause_s, _GIVE_BACK)

    def _measured(self) -> int:
        """Return the bytes in use; those of the last check when the system refuses to tell."""
        try:
            self._used_last_bytes = self._resources.machine.used_bytes() or 0
        except OSError as error:
            log.error("memory in use unknown, the alarm stays as it is error=%s", error)
        return self._used_last_bytes

    def _update_targets(self, used_bytes: int, limit_bytes: int) -> None:
        resources, runtime = self._resources, self.runtime
        memory = resources.memory
        is_pressed = self._is_pressed(used_bytes, limit_bytes)
        if not is_pressed or self._has_waited:
            self._targets += memory.update(used_bytes, limit_bytes, resources.alarms.has_disk)
        now_s = runtime.clock.monotonic_s()
        period_s = report_interval_s(len(memory.active), is_pressed)
        memory.forget_some(QUEUES_PER_CHECK, _has_ended)
        if now_s - self._reported_s >= period_s:
            self._reported_s = now_s
            self._asked += memory.take_active()
        if not self._is_sending:
            self._send_some()

    def _send_some(self) -> None:
        """Send so many queues their mail that others need not wait; the rest follows in later turns."""
        send, targets, asked = self.runtime.send_bulk, self._targets, self._asked
        left = QUEUES_PER_TURN
        while targets and left:
            queue, target_s = targets.popleft()
            send(queue, SetRamDurationTarget(target_s))
            left -= 1
        while asked and left:
            send(asked.popleft(), _REPORT)
            left -= 1
        if targets or asked:
            self._is_sending = True
            self.runtime.again(self.ref, _SEND_MORE)


def _has_ended(queue: Ref) -> bool:
    return not queue.is_alive
