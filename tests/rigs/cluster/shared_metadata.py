"""Nodes that share metadata in a simulated etcd, and clients of theirs whose histories are judged."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import TYPE_CHECKING

from leveret.core.errors import StoreError
from leveret.metadata.etcd.codec import Keys
from leveret.metadata.etcd.replica import Changed, Replica
from leveret.metadata.etcd.session import Session
from leveret.metadata.etcd.session_settings import SessionSettings
from leveret.metadata.interface import ConflictError
from leveret.metadata.tables import QueueRow, Row, VhostRow
from leveret.testing.virtual_clock import VirtualClock
from rigs.metadata.linearizability import DECLARE, DELETE, Operation
from rigs.metadata.simulated_etcd import SimulatedClient, SimulatedEtcd

if TYPE_CHECKING:
    from leveret.core.clock import Clock
    from leveret.etcd.key_values import WatchedStore

SETTINGS = SessionSettings()
ATTEMPTS = 20


def live_rows(replica: Replica) -> dict[str, str]:
    """The rows of a replica, to be compared."""
    return {key: repr(entry.row) for key, entry in replica.live.items()}


class Node:
    """One node: its session, what it was told, and its clients' operations.

    Attributes:
        told: the rows, made from what the session has told only.
        revisions: of all changes that were told.
    """

    def __init__(
        self,
        name: str,
        store: WatchedStore,
        clock: Clock,
        seed: int,
        settings: SessionSettings,
        uuid: str = "",
        directory: str = "",
    ) -> None:
        self.name = name
        self.told: dict[str, str] = {}
        self.revisions: list[int] = []
        self.lives: list[bool] = []
        self.busy: set[str] = set()  # queues with a write on its way
        self.clock = clock
        uuid = uuid or f"uuid-{name}"
        self.session = Session(
            store, clock, name, uuid, self, settings, Random(seed), directory=directory
        )
        self.session.start()

    def changed(self, changed: Changed) -> None:
        for row in changed.deletes:
            del self.told[self.session.keys.row(row)]
        for row in changed.puts:
            self.told[self.session.keys.row(row)] = repr(row)
        self.revisions.append(changed.revision)
        assert self.told == live_rows(self.session.replica)

    def live(self, is_live: bool) -> None:
        self.lives.append(is_live)

    def row(self, row: Row) -> Row | None:
        entry = self.session.replica.live.get(self.session.keys.row(row))
        return None if entry is None else entry.row

    def queue(self, name: str) -> QueueRow | None:
        found = self.row(QueueRow("/", name))
        assert found is None or isinstance(found, QueueRow)
        return found


class Histories:
    """Operations of clients on queues, by name, as they were called and answered."""

    def __init__(self) -> None:
        self.operations: dict[str, list[Operation]] = {}
        self._moments = count()
        self._identities = count(1)

    def declare(self, node: Node, name: str) -> None:
        """Declare a queue as a broker does: look, write, look again on a conflict."""
        row = QueueRow("/", name, queue_no=next(self._identities))
        self._look(node, self._called(name, DECLARE, row.queue_no), row, ATTEMPTS)

    def delete(self, node: Node, name: str) -> None:
        self._look(node, self._called(name, DELETE, None), QueueRow("/", name), ATTEMPTS)

    def _called(self, name: str, kind: str, identity: int | None) -> Operation:
        operation = Operation(kind, identity, next(self._moments))
        self.operations.setdefault(name, []).append(operation)
        return operation

    def _look(self, node: Node, operation: Operation, row: QueueRow, attempts: int) -> None:
        if not node.session.is_live:
            return  # its client is told so; what is not answered may have any outcome
        if row.name in node.busy:
            node.clock.call_later(0.01, self._look, node, operation, row, attempts)
            return
        found = node.queue(row.name)
        identity = None if found is None else found.queue_no

        def written(error: StoreError | None) -> None:
            node.busy.discard(row.name)
            if error is None:
                self._answer(operation, row.queue_no if operation.kind == DECLARE else identity)
            elif isinstance(error, ConflictError) and attempts:
                self._look(node, operation, row, attempts - 1)

        if operation.kind == DECLARE and found is None:
            node.busy.add(row.name)
            node.session.write([row], [], written)
        elif operation.kind == DELETE and found is not None:
            node.busy.add(row.name)
            node.session.write([], [row], written)
        else:
            node.session.when_applied(lambda: self._synced(node, operation, identity))

    def _synced(self, node: Node, operation: Operation, identity: int | None) -> None:
        if node.session.is_live:
            self._answer(operation, identity)

    def _answer(self, operation: Operation, answer: int | None) -> None:
        operation.answered_at, operation.answer = next(self._moments), answer


class Cluster:
    """A simulated etcd and nodes."""

    def __init__(
        self, seed: int, nodes: int, settings: SessionSettings = SETTINGS, *, fills: bool = True
    ) -> None:
        self.clock = VirtualClock()
        self.random = Random(seed)
        self.etcd = SimulatedEtcd(self.clock)
        self.clients: dict[str, SimulatedClient] = {}
        self.nodes: dict[str, Node] = {}
        self._settings = settings
        for number in range(nodes):
            self.start(f"n{number}")
        if fills:
            self.until_live()
            outcome = self.write(next(iter(self.nodes.values())), [VhostRow("/")])
            assert outcome is None

    def start(self, name: str) -> Node:
        """Start a node; one of that name that runs ends as by a crash."""
        if name in self.nodes:
            self.nodes[name].session.abort()
        client = SimulatedClient(self.etcd, self.clock, self.random)
        self.clients[name] = client
        node = Node(name, client, self.clock, self.random.getrandbits(32), self._settings)
        self.nodes[name] = node
        return node

    def until_live(self, seconds: float = 60.0) -> None:
        """Let time pass until all nodes serve."""
        for _ in range(int(seconds * 10)):
            if all(node.session.is_live for node in self.nodes.values()):
                return
            self.clock.jump(0.1)
        raise AssertionError({name: each.session.trouble for name, each in self.nodes.items()})

    def write(
        self, node: Node, puts: list[Row], deletes: list[Row] | None = None, seconds: float = 30.0
    ) -> StoreError | None:
        """Write, and let time pass until that is answered; return the error."""
        outcomes: list[StoreError | None] = []
        node.session.write(puts, deletes or [], outcomes.append)
        for _ in range(int(seconds * 100)):
            if outcomes:
                return outcomes[0]
            self.clock.jump(0.01)
        raise AssertionError(f"not answered: {node.session.trouble}")

    def reference(self) -> Replica:
        """The rows as etcd has them now, loaded at once."""
        replica = Replica(Keys(self._settings.prefix, "reference"))
        replica.load(self.etcd.scan(self._settings.prefix).rows, self.etcd.revision)
        return replica
