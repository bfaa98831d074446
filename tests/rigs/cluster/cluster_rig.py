"""Brokers that are one cluster, without sockets: broker rigs on one virtual clock and a simulated network.

Their metadata is in memory: each node has all rows, and hears of what the others write a little later.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from leveret.actors.links.node import Node as LinkedNode
from leveret.actors.links.security import Security
from leveret.actors.runtime.runtime import Runtime
from leveret.broker.cluster.other_changes import apply_changes
from leveret.broker.cluster.other_settings import SettingsUpdater
from leveret.broker.cluster.queue_directory import QueueDirectory
from leveret.broker.node import bootstrap
from leveret.broker.node.node import Node
from leveret.core.settings import BrokerSettings
from leveret.metadata.interface import Then
from leveret.metadata.memory import MemoryStore
from leveret.metadata.tables import Row
from leveret.supervisors.spec import ChildSpec
from leveret.testing.links import SimulatedNetwork
from leveret.testing.virtual_clock import VirtualClock
from rigs import broker_rig
from rigs.cluster.stoppable_clock import StoppableClock
from rigs.links.linked_nodes import now

SECRET = Security(b"a secret of tests")
TOLD_S = 0.002  # from a write to the other nodes


class SharedRows(MemoryStore):
    """The metadata of one node; ``others`` hear of what it writes."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(lambda run: cluster.clock.call_later(0, run))
        self._cluster = cluster
        self._name = name

    def next_queue_no(self) -> int:
        self._cluster.queue_no += 1
        return self._cluster.queue_no

    def write(self, puts: Sequence[Row], deletes: Sequence[Row], then: Then) -> None:
        super().write(puts, deletes, then)
        for name in self._cluster.stores:
            if name != self._name:
                self._cluster.clock.call_later(TOLD_S, self._tell, name, puts, deletes)

    def _tell(self, name: str, puts: Sequence[Row], deletes: Sequence[Row]) -> None:
        cluster = self._cluster
        MemoryStore.write(cluster.stores[name], puts, deletes, lambda _: None)
        member = cluster.members.get(name)
        if member is not None:
            apply_changes(member.node, puts, deletes)


class Member(broker_rig.Rig):
    """One node of the cluster."""

    def __init__(self, cluster: Cluster, name: str, **settings: Any) -> None:
        self.cluster = cluster
        self.name = name
        self.readers = []
        self.clock = cluster.clock
        cluster.creation += (
            1  # a random one is of another length at times, and the network cuts elsewhere
        )
        self.runtime = Runtime(clock=cluster.clocks[name], name=name, creation=cluster.creation)
        self.links = LinkedNode(self.runtime, SECRET, None, cluster.network.port(name))
        self.store = cluster.stores[name]
        self.node = Node(self.runtime, BrokerSettings(**settings), self.store, links=self.links)
        self.node.epochs.begin()
        bootstrap.fill(self.node, self.store.load())
        cluster.filled(self)
        directory = ChildSpec("queue_directory", QueueDirectory, (self.node,))
        self.start_tree(ChildSpec("updater", SettingsUpdater, (self.node,)), directory)
        now(self.links.listen(name))

    def settle(self) -> None:
        """Let happen what goes over the network, too."""
        self.clock.jump(self.cluster.settle_s)

    def crash(self) -> None:
        """End the node without a word, as ``kill -9``."""
        self.cluster.members.pop(self.name)
        self.cluster.network.crash(self.name)
        self.runtime.exit(self.root, "kill")
        self.clock.jump(0)


class Cluster:
    """Nodes by name, all linked.

    Attributes:
        creation: of the node that was started last.
        settle_s: that ``settle`` lets pass; network and metadata take less.
        clocks: of the nodes.
    """

    settle_s = 0.5

    def __init__(self, names: str = "ab", seed: int = 1, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.clocks = {name: StoppableClock(self.clock) for name in names}
        self.network = SimulatedNetwork(self.clock, Random(seed), delay_s=0.001)
        self.queue_no = 0
        self.creation = 1_000_000_000
        self.settings = settings
        self.stores = self.make_stores(names, bootstrap.first_rows(BrokerSettings(**settings)))
        self.members: dict[str, Member] = {}
        for name in names:
            self.start(name)
        self.clock.jump(1.0)

    def make_stores(self, names: str, first: list[Row]) -> dict[str, Any]:
        """Return the metadata of each node, with the first rows."""
        stores = {name: SharedRows(self, name) for name in names}
        for store in stores.values():
            MemoryStore.write(store, first, [], lambda _: None)
        return stores

    def filled(self, member: Member) -> None:
        """A node has the rows that were loaded."""

    def start(self, name: str) -> Member:
        member = self.members[name] = Member(self, name, **self.settings)
        for other in self.stores:
            if other != name:
                member.links.dial(other)
        return member

    def stop(self, name: str) -> None:
        """Stop a node as SIGSTOP does; its clients must leave it alone, and no other link may be silent."""
        self.clocks[name].stop()
        for other in self.members:
            if other != name:
                self.network.silence(name, other)

    def resume(self, name: str) -> None:
        """Let a node that was stopped go on."""
        self.clocks[name].resume()
        self.network.heal()

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def settle(self) -> None:
        self.clock.jump(self.settle_s)
