"""An event loop and threads that a test drives by hand: nothing happens but what it asks for.

``StepLoop`` fulfils ``flush_threads.Loop``. Work for other threads stands in lines; ``step`` does a piece
of the first of one line, ``run`` all there is, in an order that the test's generator draws.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from leveret.testing.virtual_clock import VirtualClock, VirtualTimer

Piece = Callable[[], Iterator[str]]


class StepLoop:
    """Calls of the loop in order, work of the threads at the test's word, time of its own."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.clock = VirtualClock()
        self.soon: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self.lines: list[Line] = []

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> object:
        self.soon.append((callback, args))
        return None

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> object:
        return self.call_soon(callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> VirtualTimer:
        return self.clock.call_later(delay_s, callback, *args)

    def line(self) -> Line:
        """Return a thread of its own."""
        self.lines.append(Line(self))
        return self.lines[-1]

    def turn(self) -> None:
        """Make the calls that are due, and those that they bring about."""
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
    """One thread: ``Background``, and pieces that are done point by point."""

    def __init__(self, loop: StepLoop) -> None:
        self._loop = loop
        self._work: deque[Piece] = deque()
        self._current: Iterator[str] | None = None

    def __bool__(self) -> bool:
        return bool(self._work) or self._current is not None

    def do(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        def piece() -> Iterator[str]:
            result = work()
            self._loop.call_soon_threadsafe(then, result)
            yield from ()

        self._work.append(piece)

    def do_steps(self, piece: Piece) -> None:
        """Have a generator run, a step at a time."""
        self._work.append(piece)

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
            self._current.close()  # type: ignore[attr-defined]
            self._current = None
