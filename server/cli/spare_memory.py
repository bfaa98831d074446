"""Gives memory back that a burst of work has left behind; ``leveret serve`` only.

Freed objects are not free memory yet. The interpreter keeps small objects in arenas of 1 MiB, and an arena that holds
one of them is kept whole: garbage that nobody has collected, or one of the ten thousand tuples, lists and dicts that
the interpreter's free lists keep for their next use. A burst of a gigabyte leaves hundreds of MiB so. A collection of
all generations frees the garbage and what the free lists keep. ``core/system/free_pools.py`` gives back the free memory
around the objects that stay, and ``core/system/heap.py`` that of the allocator of large blocks (glibc).

All three stop the event loop. Giving back takes some 0.1 ms per MiB and is done in steps; a collection looks at every
container.
And what went back has to be taken anew: a page fault for each 4 KiB, which makes the next burst of messages a tenth
slower. So they run in the idle process only, when memory was spare for a while (a shorter one once
work has ended), less and less often while they gain nothing, and seldom while there is some traffic. With traffic, or
where there are many objects, the collection frees the free lists only: it passes over *frozen* containers.

After a burst many arenas hold one or two objects that the broker makes anew all the time, such as those of timers and
of the messages of others. An object that takes its place from a free list is made where the one before it was. So the
free lists are emptied again and again for seconds (a *sweep*), and the objects move to arenas in use. While rounds gain
an arena they follow soon.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leveret.core.system.machine import Machine

CHECK_S: Final = 0.5
SWEEP_S: Final = 0.05  # between two sweeps
STEP_S: Final = 0.01  # between two steps in which memory is given back
SPARE_BYTES: Final = 32 * 1024 * 1024  # above the least in use so far: less is left alone
SPARE_S: Final = 3.0  # memory is spare for so long before a round: bursts may follow one another
ENDED_S: Final = 2.0  # the same once work has ended: after five seconds its memory is gone
SWEEPS_S: Final = 10.0  # how long free lists are swept once work has ended
BURST_BYTES: Final = 8 * 1024 * 1024  # after a round that gained it there is no rest
GAIN_BYTES: Final = (
    1024 * 1024
)  # an arena: what is made anew every second has left it, and may leave others
PAUSE_S_MAX: Final = 16.0  # after rounds that gain nothing
IDLE_SHARE: Final = 0.5  # of a processor; a busier process needs its free memory
SERVING_SHARE: Final = 0.05  # of a processor; in a less busy process clients hardly do anything
ROUND_SHARE: Final = 0.02  # of the time
SERVING_ROUND_SHARE: Final = 0.005  # so that rounds delay fewer than one message in a hundred
FAULTS_S_PER_BYTE: Final = 0.25e-3 / (1024 * 1024)  # to take anew what a round gave back
BLOCKS_MAX: Final = 280_000  # collected in some 20 ms; a broker without clients has 170,000


class Wait:
    """When to begin a round because memory is spare."""

    def __init__(self) -> None:
        self._is_spare = False
        self._until_s = self._not_before_s = 0.0

    def check(self, now_s: float, spare_bytes: int, was_busy: bool, ends: bool) -> bool:
        """Return whether it is time; work that has just ended may have left memory behind."""
        was_spare, self._is_spare = self._is_spare, spare_bytes > SPARE_BYTES
        ended_s = max(now_s + ENDED_S, self._not_before_s)
        if self._is_spare and not was_spare:
            self._until_s = max(self._until_s, now_s + SPARE_S)
        if was_busy:
            self._until_s = ended_s
        elif ends:
            self._until_s = min(self._until_s, ended_s)
        return self._is_spare and now_s >= self._until_s

    def round_ended(self, now_s: float, pause_s: float, rest_s: float) -> None:
        """Wait for ``pause_s``, or ``rest_s`` when work ends before."""
        self._until_s = now_s + max(pause_s, rest_s)
        self._not_before_s = now_s + rest_s


class SpareMemory:
    """Decides when free memory is given back.

    A *round* is a collection and then the steps in which the allocator gives memory back. A *sweep* empties the
    interpreter's free lists.

    Attributes:
        rounds: done so far.
    """

    def __init__(self, machine: Machine) -> None:
        self.rounds = 0
        self._machine = machine
        self._least_bytes = sys.maxsize
        self._seen_bytes = 0  # in use at the last check
        self._before_bytes = 0  # of the round under way
        self._steps: Iterator[None] | None = None  # of the round under way
        self._took_s = 0.0
        self._pause_s = CHECK_S
        self._wait = Wait()
        self._is_serving = self._is_busy = False
        self._checked_s = self._worked_s = self._sweep_until_s = 0.0

    async def run(self) -> None:
        """Check twice a second, for ever, and carry out the steps of a round, and sweeps, in between."""
        while True:
            began_s = time.monotonic()
            self.check(began_s, time.process_time())
            while self._steps is not None:
                await asyncio.sleep(STEP_S)
                self.step()
            while (left_s := began_s + CHECK_S - time.monotonic()) > 0.0:
                is_sweeping = self.sweep(time.monotonic())
                await asyncio.sleep(min(SWEEP_S, left_s) if is_sweeping else left_s)

    def check(self, now_s: float, worked_s: float) -> None:
        """Give memory back if it is time; ``worked_s`` is the CPU time of the process."""
        busy_s, elapsed_s = worked_s - self._worked_s, now_s - self._checked_s
        was_serving, self._is_serving = self._is_serving, busy_s >= SERVING_SHARE * elapsed_s
        was_busy, self._is_busy = self._is_busy, busy_s >= IDLE_SHARE * elapsed_s
        self._checked_s, self._worked_s = now_s, worked_s
        try:
            used_bytes = self._machine.used_bytes()
        except OSError:
            return  # another time
        if used_bytes is None or self._is_busy:
            return
        self._least_bytes = min(self._least_bytes, used_bytes)
        spare_bytes = used_bytes - self._least_bytes
        rests = was_serving and not self._is_serving
        has_freed = self._seen_bytes - used_bytes > SPARE_BYTES
        self._seen_bytes = used_bytes
        ends = rests or has_freed
        if (was_busy or ends) and spare_bytes > SPARE_BYTES:
            self._sweep_until_s = now_s + SWEEPS_S
        is_time = self._wait.check(now_s, spare_bytes, was_busy, ends)
        if is_time and self._steps is None:
            self._before_bytes = used_bytes
            self._took_s = timed(self.collect)
            self._steps = self._machine.give_back_in_steps()

    def sweep(self, now_s: float) -> bool:
        """Empty the free lists if work has ended a short time ago; return whether that is to be done again soon."""
        if now_s >= self._sweep_until_s:
            return False
        free_lists()
        return True

    def step(self) -> bool:
        """Give a part back; return whether more is left of the round."""
        if self._steps is None:
            return False
        steps, is_over = self._steps, False

        def step() -> None:
            nonlocal is_over
            is_over = next(steps, self) is self

        self._took_s += timed(step)
        if is_over:
            self._finish()
        return not is_over

    def _finish(self) -> None:
        self._steps = None
        self.rounds += 1
        self._seen_bytes = self._machine.used_bytes() or 0
        gain_bytes = self._before_bytes - self._seen_bytes
        self._pause_s = CHECK_S if gain_bytes >= GAIN_BYTES else min(PAUSE_S_MAX, 2 * self._pause_s)
        rest_s = 0.0 if gain_bytes >= BURST_BYTES else self._took_s / ROUND_SHARE
        cost_s = self._took_s + max(0, gain_bytes) * FAULTS_S_PER_BYTE
        cost_pause_s = cost_s / (SERVING_ROUND_SHARE if self._is_serving else ROUND_SHARE)
        self._wait.round_ended(self._checked_s, max(self._pause_s, cost_pause_s), rest_s)

    def collect(self) -> None:
        """Free garbage and the interpreter's free lists; with traffic, or many objects, those lists only."""
        if not self._is_serving and sys.getallocatedblocks() <= BLOCKS_MAX:
            gc.collect()
        else:
            free_lists()


def free_lists() -> None:
    """Empty the interpreter's free lists, in some 10 us: the collection passes over frozen containers."""
    gc.freeze()
    try:
        gc.collect()
    finally:
        gc.unfreeze()


def timed(function: Callable[[], None]) -> float:
    """Return the CPU time of a call, in seconds."""
    began_s = time.thread_time()
    function()
    return time.thread_time() - began_s
