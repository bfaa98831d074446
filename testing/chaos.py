"""Chaos: faults for actors of a running broker, by path: crash, kill, cut, pause, slow.

::

    chaos = Chaos(broker, seed=7)
    chaos.kill("queue:orders > backing")
    with chaos.slow("connection:*", 0.1):
        ...
    print(chaos.report())

Every fault is recorded with its time and its actor, and all random choices come from the seed, so a failed run can
be reported and repeated. Paths: ``testing/tree_paths.py``.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leveret.actors.runtime.signals import KILL
from leveret.broker.connection.reader import Reader
from leveret.core.errors import LeveretError
from leveret.supervisors.tree_view import Node, render, walk
from leveret.testing.faults import ActorGate, Fault, Run, Slow, SocketGate, Still
from leveret.testing.tree_paths import Path, find_all, is_restarted, mortal

if TYPE_CHECKING:
    import asyncio

    from leveret.actors.runtime.ref import Ref
    from leveret.server.broker import Broker

T = TypeVar("T")

_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER 0: the peer sees a reset, not an orderly close


class ChaosError(LeveretError):
    """Raised in an actor by ``crash``, and raised when an actor cannot have the fault."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One fault that was injected."""

    at_s: float  # by the broker's clock, since the chaos began
    verb: str
    path: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.at_s:>12.3f} s  {self.verb:<6}  {self.path}  {self.detail}".rstrip()


def _here(function: Callable[[], T]) -> T:
    return function()


class Chaos:
    """Injects faults into a running broker.

    Each verb takes a path. A path with ``*`` may match many actors, and the fault hits all of them; any other
    path must match exactly one actor, else ``PathError`` is raised.

    Args:
        broker: a running broker.
        seed: of all random choices.
        run: calls a function in the broker's thread; by default the caller's thread.
    """

    def __init__(self, broker: Broker, seed: int | str = 0, run: Run = _here) -> None:
        self._broker = broker
        self._runtime = broker.runtime
        self._run = run
        self._began_s = self._runtime.clock.monotonic_s()
        self.seed = seed
        self.random = random.Random(seed)  # also for the test's own choices
        self.deeds: list[Deed] = []

    def __repr__(self) -> str:
        return f"<chaos with seed {self.seed}, {len(self.deeds)} faults>"

    # The tree.

    def nodes(self) -> list[Node]:
        """Return the whole tree, parents first."""
        return self._run(self._nodes)

    def paths(self, path: Path = "*") -> list[str]:
        """Return the full paths of the running actors that a path matches."""
        return [node.path for node in self._run(lambda: find_all(self._nodes(), path))]

    def find(self, path: Path) -> Ref:
        """Return the address of one actor, the first match if the path has a ``*``.

        Raises:
            PathError: no actor matches, it does not run, or several match a path without a ``*``.
        """
        found = self._run(lambda: find_all(self._nodes(), path))[0].ref
        assert found is not None
        return found

    def tree(self) -> str:
        return render(self.nodes())

    def mortal_nodes(self) -> list[Node]:
        """Return the actors whose death does not end the whole broker, parents first."""
        return self._run(lambda: mortal(self._runtime, self._root()))

    def mortal_paths(self) -> list[str]:
        return sorted(node.path for node in self.mortal_nodes())

    def choose(self, path: Path | None = None) -> Node:
        """Return a random actor that a path matches.

        Without a path the choice is among the actors that may die and are then restarted, so that it does not
        depend on the open connections.
        """

        def candidates() -> list[Node]:
            if path is not None:
                return find_all(self._nodes(), path)
            mortals = mortal(self._runtime, self._root())
            return [node for node in mortals if node.ref is not None and is_restarted(node.ref)]

        return self.random.choice(sorted(self._run(candidates), key=lambda node: node.labels))

    # Faults.

    def crash(self, path: Path, error: Exception | None = None) -> None:
        """Raise an error in the actor, as a fault in its code would."""
        error = error or ChaosError("crashed by chaos")
        self._each("crash", path, lambda ref: self._runtime.run_as(ref, _raise, error), repr(error))

    def exit(self, path: Path, reason: object) -> None:
        """Send an exit signal; an actor that traps exits (as supervisors do) gets it as mail."""
        self._each("exit", path, lambda ref: self._runtime.exit(ref, reason), repr(reason))

    def kill(self, path: Path) -> None:
        """Kill the actor; it gets no chance to clean up."""
        self._each("kill", path, lambda ref: self._runtime.exit(ref, KILL))

    def kill9(self, path: Path) -> None:
        """Send SIGKILL to the operating system process that the actor runs in or represents.

        Raises:
            ChaosError: the actor runs in the broker's process. To kill that, run the broker in a process of
                its own: ``leveret.testing.broker_process``.
        """
        self._each("kill9", path, _kill9)

    def cut(self, path: Path) -> None:
        """Cut the socket of a connection (``connection:NAME``, ``reader``): both sides see a reset.

        Raises:
            ChaosError: the actor has no socket.
        """
        self._each("cut", path, self._cut)

    def pause(self, path: Path) -> Fault:
        """Hold the actor's mail back, or leave a connection's socket unread, until ``resume`` or the end of the block.

        Exit signals still act, and so do inline calls: a ``backing`` still works for its amqqueue. A successor
        of the actor is not paused.
        """
        return self._inject("pause", path, Still)

    def slow(self, path: Path, delay_s: float) -> Fault:
        """Give the actor one turn every ``delay_s``, or a connection's socket one read."""
        slow = partial(Slow, clock=self._runtime.clock, delay_s=delay_s)
        return self._inject("slow", path, slow, f"{delay_s} s")

    # The record.

    def report(self) -> str:
        deeds = list(map(str, self.deeds)) or ["  nothing was done"]
        return "\n".join([f"chaos with seed {self.seed}", *deeds])

    # Inside: in the broker's thread.

    def _root(self) -> Ref:
        root = self._broker.root
        if root is None:
            raise ChaosError("the broker has ended")
        return root

    def _nodes(self) -> list[Node]:
        return list(walk(self._runtime, self._root()))

    def _each(
        self, verb: str, path: Path, act: Callable[[Ref], object], detail: str = ""
    ) -> list[Any]:
        def done() -> list[Any]:
            results = []
            for node in find_all(self._nodes(), path):
                if node.ref is None or not node.ref.is_alive:
                    continue  # the actor before it has taken it along
                at_s = self._runtime.clock.monotonic_s() - self._began_s
                results.append(act(node.ref))
                self.deeds.append(Deed(at_s, verb, node.path, detail))
            return results

        return self._run(done)

    def _inject(
        self,
        verb: str,
        path: Path,
        fault: Callable[[ActorGate | SocketGate], Any],
        detail: str = "",
    ) -> Fault:
        def fault_of(ref: Ref) -> Any:
            reader = self._reader_of(ref)
            if reader is None:
                return fault(ActorGate(self._runtime, ref))
            return fault(SocketGate(self._runtime, reader.ref, reader.read_control))

        return Fault(self._each(verb, path, fault_of, detail), self._run)

    def _reader_of(self, ref: Ref) -> Reader | None:
        """Return the reader of a connection; ``ref`` is the reader's or its channel supervisor's."""
        if isinstance(ref.cell.actor, Reader):
            return ref.cell.actor
        readers = self._broker.node.connections.readers.values()
        return next((reader for reader in readers if reader.channels_sup is ref), None)

    def _cut(self, ref: Ref) -> None:
        reader = self._reader_of(ref)
        transport = self._transport_of(reader) if reader is not None else None
        if transport is None:
            raise ChaosError(f"{ref!r} has no socket to cut; a connection has")
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()

    def _transport_of(self, reader: Reader) -> asyncio.Transport | None:
        return self._broker.node.sockets.accepted.get(reader.protocol)


def _raise(error: Exception) -> None:
    raise error


def _kill9(ref: Ref) -> None:
    pid = getattr(ref.cell.actor, "os_pid", None)
    if pid is None:
        raise ChaosError(
            f"{ref!r} has no process of its own: it runs in the broker's, {os.getpid()}"
        )
    os.kill(pid, signal.SIGKILL)
