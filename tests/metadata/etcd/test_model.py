"""Nodes under concurrent writers and faults never differ, never go back, and explain their histories."""

from __future__ import annotations

from random import Random

import pytest

from leveret.etcd.key_values import Row as Stored
from leveret.metadata.etcd.codec import Keys
from leveret.metadata.etcd.replica import Replica
from leveret.metadata.tables import BindingRow, ExchangeRow, QueueRow, Row, VhostRow
from rigs.cluster.shared_metadata import Cluster, Histories, Node, live_rows
from rigs.metadata.linearizability import is_linearizable

QUEUES = ("a", "b", "c")
MANY_SEEDS = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 40)]


def some_row(random: Random) -> Row:
    """A row of few names, so that nodes meet."""
    queue, exchange = random.choice(QUEUES), random.choice(("x", "y"))
    kind = random.randrange(4)
    if kind == 0:
        number = random.getrandbits(31)
        return ExchangeRow("/", exchange, "topic", arguments={"number": ("I", number)})
    if kind == 1:
        return BindingRow("/", exchange, "queue", queue, b"%d" % random.randrange(3))
    if kind == 2:
        return BindingRow("/", "amq.topic", "queue", queue, b"%d" % random.randrange(3))
    return VhostRow("other", str(random.random()))


def act(cluster: Cluster, histories: Histories, random: Random) -> None:
    """One client of one node does something."""
    node = random.choice(list(cluster.nodes.values()))
    if not node.session.is_live:
        return
    action = random.random()
    if action < 0.4:
        histories.declare(node, random.choice(QUEUES))
    elif action < 0.6:
        histories.delete(node, random.choice(QUEUES))
    else:
        row = some_row(random)
        if random.random() < 0.6:
            node.session.write([row], [], lambda error: _answered(cluster, node, row, error))
        else:
            node.session.write([], [row], lambda _: None)


def _answered(cluster: Cluster, node: Node, row: Row, error: object) -> None:
    """What was answered to a client is on all nodes that serve: they have applied its revision."""
    if error is None:
        revision = _revision_of(cluster, node.session.keys, row)
        for each in cluster.nodes.values():
            assert not each.session.is_live or each.session.replica.applied >= revision


def _revision_of(cluster: Cluster, keys: Keys, row: Row) -> int:
    """The first revision with which a row was put; 0: it was not."""
    key = keys.row(row)
    for revision, events in enumerate(cluster.etcd.history, 1):
        for each in events:
            if each.key == key and each.value is not None:
                stored = keys.entry(Stored(key, each.value, revision))
                if stored.row == row:
                    return revision
    return 0


def disturb(cluster: Cluster, random: Random) -> None:
    """Something goes wrong, or is well again."""
    name = random.choice(list(cluster.nodes))
    faults = cluster.clients[name].faults
    match random.randrange(9):
        case 0:
            faults.is_cut = True
        case 1 | 2:
            faults.is_cut = faults.is_silent = False
        case 3:
            faults.is_silent = True
        case 4:
            cluster.etcd.compact()
        case 5:
            faults.lost = random.choice((0.0, 0.1, 0.5))
        case 6:
            faults.broken = random.choice((0.0, 0.2))
        case 7:
            faults.watch_delay_s = random.choice((0.005, 0.3, 3.0))
        case 8 if random.random() < 0.3:
            cluster.start(name)
        case _:
            pass


def heal(cluster: Cluster) -> None:
    for client in cluster.clients.values():
        faults = client.faults
        faults.is_cut = faults.is_silent = False
        faults.lost = faults.broken = 0.0
        faults.watch_delay_s = 0.005


def check_each_revision(cluster: Cluster) -> dict[int, dict[str, str]]:
    """The rows of each revision, by the whole history of etcd."""
    replica, found = Replica(Keys("/leveret", "reference")), {}
    for revision, events in enumerate(cluster.etcd.history, 1):
        replica.apply(events, revision)
        found[revision] = live_rows(replica)
    return found


class Watcher:
    """Notes what each node shows at each revision, and that revisions only go up."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, int, dict[str, str]]] = []

    def follow(self, node: Node) -> None:
        tell = node.changed

        def changed(change: object) -> None:
            tell(change)  # type: ignore[arg-type]
            replica = node.session.replica
            self.shown.append((node.name, replica.applied, live_rows(replica)))

        node.changed = changed  # type: ignore[method-assign]


@pytest.mark.parametrize("nodes", [2, 3, 4])
@pytest.mark.parametrize("seed", [*range(4), *MANY_SEEDS])
def test_nodes_never_differ_and_explain_their_histories(nodes: int, seed: int) -> None:
    cluster, histories, watcher = Cluster(seed, nodes), Histories(), Watcher()
    random = cluster.random
    followed: set[int] = set()
    for _ in range(400):
        for node in cluster.nodes.values():
            if id(node) not in followed:
                followed.add(id(node))
                watcher.follow(node)
        act(cluster, histories, random)
        if random.random() < 0.15:
            disturb(cluster, random)
        cluster.clock.jump(random.choice((0.0, 0.002, 0.01, 0.01, 0.5)))
    heal(cluster)
    cluster.clock.jump(40.0)
    cluster.until_live()
    cluster.clock.jump(5.0)

    reference = live_rows(cluster.reference())
    for node in cluster.nodes.values():
        assert live_rows(node.session.replica) == node.told == reference
        assert node.revisions == sorted(node.revisions)
        assert not node.session.replica.dead, "garbage is collected"
    canonical = check_each_revision(cluster)
    for name, revision, rows in watcher.shown:
        assert rows == canonical[revision], f"{name} differs at {revision}"
    for name, operations in histories.operations.items():
        answered = sum(each.answered_at is not None for each in operations)
        assert answered, name
        assert is_linearizable(operations), name


@pytest.mark.parametrize("seed", range(20))
def test_of_two_different_declarations_at_once_exactly_one_wins(seed: int) -> None:
    cluster = Cluster(seed, 2)
    one, two = cluster.nodes.values()
    outcomes: dict[str, object] = {}
    one.session.write([QueueRow("/", "q", queue_no=1)], [], lambda e: outcomes.update(one=e))
    two.session.write([QueueRow("/", "q", queue_no=2)], [], lambda e: outcomes.update(two=e))
    cluster.clock.jump(5.0)

    assert sorted(type(error).__name__ for error in outcomes.values()) == [
        "ConflictError",
        "NoneType",
    ]
    found = [node.queue("q") for node in (one, two)]
    assert found[0] == found[1]
    assert found[0] is not None
    assert outcomes["one" if found[0].queue_no == 1 else "two"] is None
