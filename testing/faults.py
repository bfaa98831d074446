"""Faults of the chaos module: paused and slow actors, unread and slowly read sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from leveret.broker.channel.session import Block
from leveret.core.errors import ConfigError

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.connection.read_control import ReadControl
    from leveret.core.clock import TimerHandle

T = TypeVar("T")

READ_S: Final = 0.001  # how long the socket of a slow connection is read each time


class Run(Protocol):
    """Calls a function in the broker's thread."""

    def __call__(self, function: Callable[[], T], /) -> T: ...


class Undoable(Protocol):
    """A fault of one actor."""

    def undo(self) -> None:
        """Remove the fault; harmless when the actor has ended."""


class Fault:
    """Faults of some actors, removed by ``resume`` or at the end of the block.

    Args:
        parts: one for each actor.
        run: calls a function in the broker's thread.
    """

    def __init__(self, parts: Sequence[Undoable], run: Run) -> None:
        self._parts = list(parts)
        self._run = run

    def resume(self) -> None:
        """Remove the faults; a second call does nothing."""
        parts, self._parts = self._parts, []
        if parts:
            self._run(partial(_undo, parts))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.resume()


def _undo(parts: list[Undoable]) -> None:
    for part in parts:
        part.undo()


class StillActor:
    """An actor whose mail is held back."""

    def __init__(self, runtime: Runtime, ref: Ref) -> None:
        self._runtime, self._ref = runtime, ref
        runtime.suspend(ref)

    def undo(self) -> None:
        self._runtime.resume(self._ref)


class StillSocket:
    """A connection whose socket is not read."""

    def __init__(self, runtime: Runtime, reader: Ref, read_control: ReadControl) -> None:
        self._reader, self._read_control = reader, read_control
        read_control.block(Block.HELD_RUNS)

    def undo(self) -> None:
        if self._reader.is_alive:
            self._read_control.unblock(Block.HELD_RUNS)


class SlowActor:
    """An actor with one turn every ``delay_s``."""

    def __init__(self, runtime: Runtime, ref: Ref, delay_s: float) -> None:
        self._runtime, self._ref = runtime, ref
        self._delay_s = _checked(delay_s)
        self._timer: TimerHandle | None = None
        self._wait()

    def _wait(self) -> None:
        """Suspend the actor, unless it has ended or the fault is removed."""
        if self._ref.is_alive and self._delay_s:
            self._runtime.suspend(self._ref)
            self._timer = self._runtime.clock.call_later(self._delay_s, self._turn)

    def _turn(self) -> None:
        self._runtime.resume(self._ref)
        self._runtime.after_drain(self._wait)

    def undo(self) -> None:
        self._delay_s = 0.0
        if self._timer is not None:
            self._timer.cancel()
        self._runtime.resume(self._ref)


class SlowSocket:
    """A connection whose socket is read once every ``delay_s``."""

    def __init__(
        self, runtime: Runtime, reader: Ref, read_control: ReadControl, delay_s: float
    ) -> None:
        self._clock = runtime.clock
        self._reader, self._read_control = reader, read_control
        self._delay_s = _checked(delay_s)
        self._is_shut = False
        self._timer: TimerHandle | None = None
        self._shut()

    def _shut(self) -> None:
        if self._reader.is_alive:
            self._is_shut = True
            self._read_control.block(Block.HELD_RUNS)
            self._timer = self._clock.call_later(self._delay_s, self._open)

    def _open(self) -> None:
        if self._reader.is_alive:
            self._is_shut = False
            self._read_control.unblock(Block.HELD_RUNS)
            self._timer = self._clock.call_later(READ_S, self._shut)

    def undo(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_shut and self._reader.is_alive:
            self._is_shut = False
            self._read_control.unblock(Block.HELD_RUNS)


def _checked(delay_s: float) -> float:
    if delay_s <= 0:
        raise ConfigError(f"delay_s is {delay_s}, must be more than 0")
    return delay_s
