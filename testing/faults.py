"""Faults of the chaos module: paused and slow actors, unread and slowly read sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from leveret.broker.channel.session import Block
from leveret.core.errors import ConfigError

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.connection.reading.read_control import ReadControl
    from leveret.core.clock import Clock, TimerHandle

T = TypeVar("T")

READ_S: Final = 0.001  # how long the socket of a slow connection is read each time


class Run(Protocol):
    """Calls a function in the broker's thread."""

    def __call__(self, function: Callable[[], T], /) -> T: ...


class Fault:
    """Faults of some actors, removed by ``resume`` or at the end of the block."""

    def __init__(self, parts: Sequence[Still | Slow], run: Run) -> None:
        self._parts = list(parts)
        self._run = run

    def resume(self) -> None:
        """Remove the faults; a second call does nothing."""
        parts, self._parts = self._parts, []
        if parts:
            self._run(lambda: [part.undo() for part in parts])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.resume()


class ActorGate:
    """Mail to an actor, which a fault holds back."""

    def __init__(self, runtime: Runtime, ref: Ref) -> None:
        self._runtime, self._ref = runtime, ref

    def close(self) -> bool:
        """Hold the mail back; return False if the actor has ended."""
        if self._ref.is_alive:
            self._runtime.suspend(self._ref)
        return self._ref.is_alive

    def open(self) -> None:
        self._runtime.resume(self._ref)

    def after_turn(self, then: Callable[[], None]) -> None:
        self._runtime.after_drain(then)


class SocketGate:
    """The socket of a connection, which a fault leaves unread; the connection may have blocks of its own."""

    def __init__(self, runtime: Runtime, reader: Ref, read_control: ReadControl) -> None:
        self._clock = runtime.clock
        self._reader, self._read_control = reader, read_control
        self._is_closed = False

    def close(self) -> bool:
        """Stop reading; return False if the connection has ended."""
        if self._reader.is_alive:
            self._is_closed = True
            self._read_control.block(Block.HELD_RUNS)
        return self._reader.is_alive

    def open(self) -> None:
        if self._is_closed and self._reader.is_alive:
            self._is_closed = False
            self._read_control.unblock(Block.HELD_RUNS)

    def after_turn(self, then: Callable[[], None]) -> None:
        self._clock.call_later(READ_S, then)


class Still:
    """A gate that stays closed."""

    def __init__(self, gate: ActorGate | SocketGate) -> None:
        self.undo = gate.open
        gate.close()


class Slow:
    """A gate that is open for one turn, or one read, every ``delay_s``."""

    def __init__(self, gate: ActorGate | SocketGate, clock: Clock, delay_s: float) -> None:
        self._gate, self._clock = gate, clock
        self._delay_s = _checked(delay_s)
        self._timer: TimerHandle | None = None
        self._close()

    def _close(self) -> None:
        """Close the gate for a while, unless its actor has ended or the fault is removed."""
        if self._delay_s and self._gate.close():
            self._timer = self._clock.call_later(self._delay_s, self._turn)

    def _turn(self) -> None:
        self._gate.open()
        self._gate.after_turn(self._close)

    def undo(self) -> None:
        self._delay_s = 0.0
        if self._timer is not None:
            self._timer.cancel()
        self._gate.open()


def _checked(delay_s: float) -> float:
    if delay_s <= 0:
        raise ConfigError(f"delay_s is {delay_s}, must be more than 0")
    return delay_s
