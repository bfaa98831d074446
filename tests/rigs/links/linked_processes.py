"""A parent and its processes on a simulated network, driven by hand in virtual time; all are in this process."""

from __future__ import annotations

from random import Random
from typing import Any

from leveret.actors.actor import OtpActor
from leveret.actors.processes.host import HostInbox
from leveret.actors.processes.link import PARENT, ROOT, ProcessLink
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.testing.links import SimulatedNetwork
from leveret.testing.virtual_clock import VirtualClock
from rigs.links.linked_nodes import Noting


class Host(OtpActor):
    """Stands for the root of a process, as ``ProcessHost`` does."""

    trap_exits = True


class LinkedProcess:
    """One process and its host.

    Attributes:
        runtime: of the process.
        root: its first actor, in its runtime.
        noting: the actor itself.
        host: the root's address in the parent.
        link: the process's end.
        host_link: the parent's end.
        told: what the process has told its host.
        ends: reasons for which the root has ended.
        lost: "process" and "host", as they have lost the link.
    """

    def __init__(
        self, nodes: LinkedProcesses, runtime: Runtime, is_connected: bool, root_class: type
    ) -> None:
        self.name = runtime.routes.new_child()
        creation = int(runtime.node.rpartition("/")[2])
        self.runtime = Runtime(clock=nodes.clock, name=self.name, creation=creation)
        self.told: list[Any] = []
        self.ends: list[object] = []
        self.lost: list[str] = []
        self.host = runtime.spawn(Host)
        self.host_link = ProcessLink(
            runtime, self.runtime.node, lambda: self.lost.append("host"), self.host
        )
        self.link = ProcessLink(self.runtime, runtime.node, lambda: self.lost.append("process"))
        self.runtime.routes.parent = self.link.peer
        parent = self.runtime.spawn(Noting)
        self.root = self.runtime.start_link(parent, root_class, (), lambda _: None)
        assert (parent.num, self.root.num) == (PARENT, ROOT)
        self.noting: Any = self.root.cell.actor
        self.link.peer.stand_for(self.host.num, self.root)
        inbox = HostInbox(self.host_link.peer, None, self.told.append)
        self.host_link.peer.adopt(self.host, inbox, self.ends.append)
        self._nodes = nodes
        if is_connected:
            self.connect()

    def connect(self) -> None:
        self._nodes.network.listen(self.name, lambda: self.host_link)
        self._nodes.network.dial("process", self.name, self.link)

    def spawn(self) -> tuple[Ref, Noting]:
        ref = self.runtime.spawn(Noting)
        return ref, ref.cell.actor


class LinkedProcesses:
    """A runtime and processes of it."""

    def __init__(self, seed: int, **settings: float) -> None:
        self.clock = VirtualClock()
        self.network = SimulatedNetwork(self.clock, Random(seed), **settings)
        self.runtime = Runtime(clock=self.clock, name="p")

    def start(
        self, under: Runtime | None = None, is_connected: bool = True, root_class: type = Noting
    ) -> LinkedProcess:
        process = LinkedProcess(self, under or self.runtime, is_connected, root_class)
        if is_connected:
            self.run(0.5)
        return process

    def spawn(self) -> tuple[Ref, Noting]:
        ref = self.runtime.spawn(Noting)
        return ref, ref.cell.actor

    def address(self, at: LinkedProcess, actor: Ref) -> Ref:
        """Return the address that a process has of an actor of any other."""
        return at.runtime.routes.ref(actor.node, actor.num)

    def run(self, seconds: float = 5.0) -> None:
        self.clock.jump(seconds)
