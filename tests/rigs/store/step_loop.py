"""An event loop and threads that a test drives by hand.

``StepLoop`` fulfils ``threads.worker.Loop``. Work for other threads stands in lines; ``step`` does a piece
of the first of one line, ``run`` all there is, in an order that the test's generator draws.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from leveret.msg_store.drivers import Drivers
from leveret.msg_store.threads.worker import Reached, Steps
from leveret.msg_store.threads.worker import Then as WorkerThen
from leveret.msg_store.threads.writers import SyncTimes, Then, Work
from leveret.testing.virtual_clock import VirtualClock, VirtualTimer

Piece = Callable[[], Generator[str, None, None]]


class StepLoop:
    """Calls of the loop in order, work of the threads at the test's word, time of its own."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.clock = VirtualClock()
        self.soon: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self.lines: list[Line] = []
        self.pieces = 0  # of work for threads, since the start

    def time(self) -> float:
        return self.clock.monotonic_s()

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> object:
        self.soon.append((callback, args))
        return None

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> object:
        return self.call_soon(callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> VirtualTimer:
        return self.clock.call_later(delay_s, callback, *args)

    def line(self, name: str = "") -> Line:
        """Return a thread of its own."""
        self.lines.append(Line(self, name))
        return self.lines[-1]

    def named(self, name: str) -> Line:
        """Return the thread with this name."""
        (line,) = [line for line in self.lines if line.name == name]
        return line

    def turn(self) -> None:
        """Make the calls that are due, and the calls that these bring about."""
        while self.soon:
            callback, args = self.soon.popleft()
            callback(*args)

    def step(self) -> bool:
        """Let one of the threads do a piece of its work; return whether there was any."""
        busy = [line for line in self.lines if line]
        if not busy:
            return False
        self.rng.choice(busy).step()
        return True

    def run(self, jumps: int = 3) -> None:
        """Do all there is; let time pass when nothing else helps, so many times."""
        for _ in range(100_000):
            self.turn()
            if self.step():
                continue
            if not jumps or not self.clock.pending_count:
                return
            self.clock.jump(1.0)
            jumps -= 1
        raise AssertionError("it does not come to rest")

    def kill(self) -> None:
        """Forget everything, as the end of a process does."""
        self.soon.clear()
        for line in self.lines:
            line.kill()
        self.lines.clear()
        self.clock = VirtualClock()


class Line:
    """One thread: generators, done point by point, one behind the other."""

    def __init__(self, loop: StepLoop, name: str) -> None:
        self.name = name
        self._loop = loop
        self._work: deque[Piece] = deque()
        self._current: Generator[str, None, None] | None = None

    def __bool__(self) -> bool:
        return bool(self._work) or self._current is not None

    def add(self, piece: Piece) -> None:
        """Have a generator run when those before it have."""
        self._loop.pieces += 1
        self._work.append(piece)

    def submit(self, work: Callable[[], Any], then: Callable[[Any], None] | None = None) -> None:
        """Fulfil the part of ``rows.ReadThread``."""

        def piece() -> Generator[str, None, None]:
            result = work()
            if then is not None:
                self._loop.call_soon_threadsafe(then, result)
            yield from ()

        self.add(piece)

    def step(self) -> None:
        if self._current is None:
            self._current = self._work.popleft()()
        try:
            next(self._current)
        except StopIteration:
            self._current = None

    def finish(self) -> None:
        while self:
            self.step()

    def kill(self) -> None:
        self._work.clear()
        if self._current is not None:
            self._current.close()
            self._current = None


class StepWorker:
    """``worker.Worker`` on a line; ``worker.MakeWorker`` makes it."""

    def __init__(
        self,
        loop: Any,
        name: str,
        at_end: Callable[[], None] | None = None,
        reached: Reached | None = None,
    ) -> None:
        self._loop: StepLoop = loop
        self._line = self._loop.line(name)
        self._at_end = at_end
        self._reached = reached

    def submit(self, job: Callable[[], Steps[Any]], then: WorkerThen[Any] | None = None) -> None:
        def piece() -> Generator[str, None, None]:
            outcome: tuple[Any, Exception | None]
            try:
                outcome = (yield from self._points(job())), None
            except Exception as error:  # noqa: BLE001  as the thread does
                outcome = None, error
            if then is not None:
                self._loop.call_soon_threadsafe(then, *outcome)

        self._line.add(piece)

    def _points(self, steps: Steps[Any]) -> Steps[Any]:
        if self._reached is None:
            return (yield from steps)
        while True:
            try:
                point = next(steps)
            except StopIteration as end:
                return end.value
            self._reached(point)
            yield point

    def end(self) -> None:
        """The line ends when it is empty."""

    def close(self) -> None:
        self._line.finish()
        if self._at_end is not None:
            self._at_end()


class StepWriters:
    """``threads.writers.Writers`` on two lines."""

    def __init__(self, loop: StepLoop, syncs: SyncTimes) -> None:
        self._loop = loop
        self._lines = loop.line("leveret-rdq"), loop.line("leveret-journal")
        self._syncs = syncs
        self._left = 0
        self._errors: list[Exception] = []

    def submit(self, rdq: Work, journal: Work, then: Then) -> None:
        self._left, self._errors = 2 if rdq else 1, []
        for line, work in zip(self._lines, (rdq, journal), strict=True):
            if work:
                line.add(partial(self._piece, work, then))

    def _piece(self, work: Work, then: Then) -> Generator[str, None, None]:
        try:
            for log, job in work:
                for point in log.run(job):
                    self._syncs.reached(point)
                    yield point
        except OSError as error:
            self._errors.append(error)
        self._left -= 1
        if not self._left:
            self._loop.call_soon(then, self._errors)

    def end(self) -> None:
        """Work in flight is reported all the same, too late."""

    def close(self) -> None:
        for line in self._lines:
            line.finish()


def drivers_on(loop: StepLoop, **others: Any) -> Drivers:
    """Return what drives a store on a loop, step by step."""
    return Drivers(lambda _, syncs: StepWriters(loop, syncs), StepWorker, **others)
