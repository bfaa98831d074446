"""Nodes on a simulated network, driven by hand in virtual time."""

from __future__ import annotations

from collections.abc import Coroutine
from random import Random
from typing import Any

from leveret.actors.actor import OtpActor
from leveret.actors.gen_server import GenServer
from leveret.actors.links.limits import LinkLimits
from leveret.actors.links.node import Node
from leveret.actors.links.security import Security
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.testing.links import SimulatedNetwork
from leveret.testing.virtual_clock import VirtualClock

SECRET = Security(b"a secret of tests")


class Noting(OtpActor):
    """Records its mail and senders, and calls callables in it."""

    trap_exits = True

    def init(self) -> None:
        self.seen: list[Any] = []
        self.senders: list[Ref | None] = []

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        if callable(message):
            message(self)
        else:
            self.seen.append(message)
            self.senders.append(sender)


class Client(GenServer):
    """Calls servers as it is told, and keeps their answers."""

    def init(self) -> None:
        self.answers: list[Any] = []

    def handle_cast(self, message: Any) -> None:
        server, request = message
        self.call(server, request, self.answers.append)


class LinkedNodes:
    """Nodes by name, which all listen; each dials those that were there before it."""

    def __init__(
        self, seed: int, names: str = "ab", limits: LinkLimits | None = None, **settings: float
    ) -> None:
        self.clock = VirtualClock()
        self.random = Random(seed)
        self.network = SimulatedNetwork(self.clock, self.random, **settings)
        self.limits = limits
        self.runtimes: dict[str, Runtime] = {}
        self.nodes: dict[str, Node] = {}
        for name in names:
            self.start(name)
        self.clock.jump(1.0)

    def start(self, name: str) -> Node:
        runtime = self.runtimes[name] = Runtime(clock=self.clock, name=name)
        node = self.nodes[name] = Node(runtime, SECRET, self.limits, self.network.port(name))
        now(node.listen(name))
        for other in self.nodes:
            if other != name:
                node.dial(other)
        return node

    def spawn(self, node: str, name: str = "") -> tuple[Ref, Noting]:
        ref = self.runtimes[node].spawn(Noting, name=name)
        return ref, ref.cell.actor

    def ref(self, at: str, actor: Ref) -> Ref:
        """Return the address of an actor at another node."""
        return self.nodes[at].ref(actor.node, actor.num)

    def run(self, seconds: float = 1.0) -> None:
        self.clock.jump(seconds)


def now(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that does not wait."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")
