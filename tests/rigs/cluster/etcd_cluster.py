"""Brokers that are one cluster in virtual time, as in ``cluster_rig``, with their metadata in a simulated etcd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from random import Random
from typing import Any

from leveret.broker.cluster.cluster_rows import ClusterRows
from leveret.metadata.etcd.replica import Changed
from leveret.metadata.etcd.session import Session
from leveret.metadata.etcd.session_settings import SessionSettings
from leveret.metadata.interface import Then
from leveret.metadata.tables import Contents, Row
from rigs.cluster.cluster_rig import Cluster, Member
from rigs.metadata.simulated_etcd import SimulatedClient, SimulatedEtcd


class SessionRows:
    """The metadata of one node: ``EtcdMetadata`` without an event loop."""

    def __init__(self, cluster: EtcdCluster, name: str) -> None:
        self._cluster = cluster
        self.rows: ClusterRows | None = None
        clock, random = cluster.clocks[name], Random(cluster.random.random())
        self.client = SimulatedClient(cluster.etcd, clock, cluster.random)
        self.session = Session(
            self.client, clock, name, f"uuid-{name}", self, SessionSettings(), random
        )
        self.session.start()

    def changed(self, changed: Changed) -> None:
        if self.rows is not None:
            self.rows.changed(changed)

    def live(self, is_live: bool) -> None:
        if self.rows is not None:
            self.rows.live(is_live)

    def load(self) -> Contents:
        contents = Contents()
        for entry in self.session.replica.live.values():
            contents.add(copy(entry.row))
        return contents

    def find(self, row: Row) -> Row | None:
        return self.session.find(row)

    def hanging_on(self, row: Row) -> list[Row]:
        return self.session.hanging_on(row)

    def when_applied(self, then: Callable[[], None]) -> None:
        self.session.when_applied(then)

    def write(self, puts: Sequence[Row], deletes: Sequence[Row], then: Then) -> None:
        self.session.write(puts, deletes, then)

    def next_boot_epoch(self) -> int:
        return self._cluster.next_number()

    def next_queue_no(self) -> int:
        return self._cluster.next_number()


class EtcdCluster(Cluster):
    """Nodes by name, all linked, whose rows are in one etcd.

    Attributes:
        etcd: where the rows are.
    """

    def make_stores(self, names: str, first: list[Row]) -> dict[str, Any]:
        self.random = Random(1)
        self.etcd = SimulatedEtcd(self.clock)
        stores = {name: SessionRows(self, name) for name in names}
        self.until(lambda: all(each.session.is_live for each in stores.values()))
        errors: list[Any] = []
        stores[names[0]].write(first, [], errors.append)
        self.until(lambda: bool(errors))
        assert errors == [None]
        return stores

    def next_number(self) -> int:
        self.queue_no += 1
        return self.queue_no

    def filled(self, member: Member) -> None:
        rows = ClusterRows(member.node, self.stores[member.name])
        rows.begin()
        self.stores[member.name].rows = rows

    def restart(self, name: str) -> Member:
        """Kill a node, let its lease end, and start it again."""
        self.members[name].crash()
        self.stores[name].session.abort()
        self.clock.jump(10.0)
        store = self.stores[name] = SessionRows(self, name)
        self.until(lambda: store.session.is_live)
        return self.start(name)

    def until(self, is_so: Callable[[], bool], seconds: float = 60.0, step_s: float = 0.01) -> None:
        """Let time pass, a step after the other, until something is so."""
        for _ in range(round(seconds / step_s)):
            if is_so():
                return
            self.clock.jump(step_s)
        raise AssertionError("it has not come so far")
