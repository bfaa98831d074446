"""One node and its cluster: joining, serving, being taken for dead, writes under faults; in virtual time.

Tests: metadata/etcd/nodes.py, metadata/etcd/row_writes.py, metadata/etcd/transactor.py,
    metadata/etcd/writes.py
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from leveret.core.errors import ConfigError, StoreError
from leveret.etcd.gateway_txns import OPERATIONS_MAX
from leveret.etcd.key_values import Event
from leveret.metadata.etcd.codec import packed_entry
from leveret.metadata.etcd.session import EVENTS_PER_TURN, ROWS_PER_TURN
from leveret.metadata.etcd.session_settings import SessionSettings
from leveret.metadata.etcd.writes import WRITES_MAX
from leveret.metadata.interface import ConflictError
from leveret.metadata.tables import (
    BindingRow,
    DeletedQueueRow,
    ExchangeRow,
    ParameterRow,
    PermissionRow,
    QueueRow,
    UserRow,
    VhostRow,
)
from rigs.cluster.shared_metadata import SETTINGS, Cluster, Node, live_rows


def queue(name: str, number: int = 1, durable: bool = True) -> QueueRow:
    return QueueRow("/", name, durable, queue_no=number)


def both(cluster: Cluster) -> tuple[Node, Node]:
    one, two = cluster.nodes.values()
    return one, two


def test_a_write_is_on_every_node_when_it_is_answered() -> None:
    cluster = Cluster(1, 3)
    for number, node in enumerate(list(cluster.nodes.values()) * 5):
        assert cluster.write(node, [queue(f"q{number}", number)]) is None
        assert all(each.queue(f"q{number}") for each in cluster.nodes.values())


def test_a_write_that_changes_nothing_is_answered_and_has_no_node_taken_for_dead() -> None:
    cluster = Cluster(1, 3)
    one, *_ = cluster.nodes.values()
    before = {key: cluster.etcd.rows[key].lease for key in cluster.etcd.rows if "/nodes/" in key}
    assert cluster.write(one, [queue("q")]) is None
    for rows in ([queue("q")], [queue("q")], []):
        answers: list[object] = []
        one.session.write([], rows, answers.append)
        cluster.clock.jump(0.5)
        assert answers == [None], rows
    cluster.clock.jump(5.0)

    after = {key: cluster.etcd.rows[key].lease for key in cluster.etcd.rows if "/nodes/" in key}
    assert after == before, "all nodes are there as before"


def test_the_writes_of_a_node_take_effect_in_their_order_also_on_the_same_row() -> None:
    cluster = Cluster(1, 2)
    one, two = both(cluster)
    answers: list[object] = []
    for number in range(50):
        one.session.write([queue("q", number)], [], answers.append)
        one.session.write([], [queue("q")], answers.append)
    one.session.write([queue("q", 77)], [], answers.append)
    cluster.clock.jump(3.0)

    assert answers == [None] * 101
    assert two.queue("q") == queue("q", 77)


def test_a_large_write_is_made_in_several_turns_parents_first() -> None:
    cluster = Cluster(1, 2)
    one, two = both(cluster)
    rows = [queue(f"q{number}", number + 1) for number in range(3 * ROWS_PER_TURN)]
    bound = [BindingRow("/", "amq.topic", "queue", row.name, b"k") for row in rows]

    assert cluster.write(one, [*bound, *rows]) is None

    assert live_rows(two.session.replica) == live_rows(one.session.replica)
    assert len(live_rows(two.session.replica)) == len(rows) + len(bound) + 1


def test_what_is_changed_during_a_large_write_stays() -> None:
    cluster = Cluster(1, 2)
    one, _ = both(cluster)
    rows = [queue(f"q{number}", number + 1) for number in range(3 * ROWS_PER_TURN)]
    answers: list[object] = []
    one.session.write(rows, [], answers.append)
    last = rows[-1].name
    one.session.write([queue(last, 9_999)], [], answers.append)
    cluster.clock.jump(5.0)

    assert sorted(type(each).__name__ for each in answers) == ["ConflictError", "NoneType"]
    assert one.queue(last) == queue(last, 9_999)
    assert one.queue(rows[0].name) == rows[0]


def test_a_deletion_of_what_is_gone_waits_for_nobody() -> None:
    cluster = Cluster(1, 3)
    node = next(iter(cluster.nodes.values()))
    cluster.write(node, [queue("q")])
    answers: list[object] = []
    for _ in range(3):
        node.session.write([], [queue("q")], answers.append)
    cluster.clock.jump(0.1)

    assert answers == [None] * 3


def test_many_revisions_at_once_are_applied_in_several_turns() -> None:
    cluster = Cluster(1, 1)
    session = next(iter(cluster.nodes.values())).session
    first = session.replica.applied + 1
    revisions = range(first, first + 3 * EVENTS_PER_TURN)
    session.received(
        [
            Event(session.keys.row(row), packed_entry(row, 1, ()), revision)
            for revision in revisions
            for row in [UserRow(f"u{revision}")]
        ]
    )

    assert session.replica.applied == first + EVENTS_PER_TURN - 1
    assert session.received_to == revisions[-1], "the watch has told of them and is not begun again"
    cluster.clock.jump(0.0)
    assert session.replica.applied == session.received_to == revisions[-1]
    assert len(session.replica.live) == len(revisions) + 1


def test_a_damaged_row_among_many_is_found_in_its_turn() -> None:
    cluster = Cluster(1, 1)
    session = next(iter(cluster.nodes.values())).session
    first = session.replica.applied + 1
    rows = [UserRow(f"u{number}") for number in range(EVENTS_PER_TURN)]
    events = [
        Event(session.keys.row(row), packed_entry(row, 1, ()), first + at)
        for at, row in enumerate(rows)
    ]
    damaged = Event(session.keys.row(UserRow("damaged")), b"x", first + len(rows))
    session.received([*events, damaged])
    assert session.is_live
    cluster.clock.jump(0.0)

    assert "damaged" in session.trouble
    assert not session.is_live


def test_a_burst_of_writes_takes_few_transactions() -> None:
    cluster = Cluster(1, 1)
    (node,) = cluster.nodes.values()
    before, answers = cluster.etcd.revision, []
    for number in range(WRITES_MAX * 3):
        node.session.write([queue(f"q{number}", number)], [], answers.append)
    cluster.clock.jump(3.0)

    assert answers == [None] * (WRITES_MAX * 3)
    assert cluster.etcd.revision - before <= 5


def test_a_write_above_a_transaction_is_made_in_parts_parents_first() -> None:
    cluster = Cluster(1, 2)
    one, two = both(cluster)
    count = OPERATIONS_MAX * 3
    rows = [BindingRow("v", "amq.topic", "queue", f"q{at}") for at in range(count)]
    rows += [QueueRow("v", f"q{at}", queue_no=at) for at in range(count)]
    assert cluster.write(one, [*rows, VhostRow("v")]) is None
    assert sum(key.startswith(two.session.keys.rows + "bindings/") for key in two.told) == count

    assert cluster.write(two, [], [VhostRow("v"), *rows]) is None
    assert live_rows(one.session.replica) == {
        one.session.keys.row(VhostRow("/")): repr(VhostRow("/"))
    }
    cluster.clock.jump(10.0)
    assert not one.session.replica.dead, "garbage is collected"


def test_a_large_write_ends_with_its_first_conflict() -> None:
    cluster = Cluster(1, 2)
    one, two = both(cluster)
    cluster.clients["n0"].faults.watch_delay_s = 0.5
    two.session.write([queue("q150", 9)], [], lambda _: None)
    error = cluster.write(one, [queue(f"q{at:03}", at) for at in range(400)])

    assert isinstance(error, ConflictError)
    cluster.clock.jump(5.0)
    assert two.queue("q125"), "the first part was made"
    assert two.queue("q150") == queue("q150", 9)
    assert two.queue("q399") is None


def test_a_large_write_may_take_longer_than_a_time_out_as_long_as_etcd_goes_on() -> None:
    cluster = Cluster(1, 1)
    (node,) = cluster.nodes.values()
    cluster.clients["n0"].faults.delay_s = 0.4
    begun_s = cluster.clock.monotonic_s()
    rows = [DeletedQueueRow(at) for at in range(WRITES_MAX * 50)]

    assert cluster.write(node, rows, seconds=60.0) is None
    assert cluster.clock.monotonic_s() - begun_s > SETTINGS.write_timeout_s


def test_a_row_whose_parent_is_missing_is_refused() -> None:
    cluster = Cluster(1, 1)
    (node,) = cluster.nodes.values()
    for row in (
        QueueRow("none", "q"),
        BindingRow("/", "amq.topic", "queue", "none"),
        BindingRow("/", "none", "exchange", "amq.topic"),
        PermissionRow("nobody", "/", "", "", ""),
    ):
        error = cluster.write(node, [row])
        assert isinstance(error, ConflictError), row
        assert "is not there" in str(error)
    assert cluster.write(node, [UserRow("u"), PermissionRow("u", "/", "", "", "")]) is None


def test_a_binding_that_crosses_the_deletion_of_its_queue_is_a_conflict() -> None:
    cluster = Cluster(3, 2)
    one, two = both(cluster)
    assert cluster.write(one, [queue("q")]) is None
    cluster.clients["n1"].faults.watch_delay_s = 0.6
    one.session.write([], [queue("q")], lambda _: None)
    cluster.clock.jump(0.05)
    assert two.queue("q") is not None, "it does not know yet"
    error = cluster.write(two, [BindingRow("/", "amq.topic", "queue", "q")])

    assert isinstance(error, ConflictError)
    cluster.clock.jump(5.0)
    assert live_rows(one.session.replica) == live_rows(two.session.replica)
    assert not any("bindings" in key for key in cluster.etcd.rows)


@pytest.mark.parametrize("seed", range(8))
def test_a_binding_was_made_although_its_queue_is_deleted_before_that_is_answered(
    seed: int,
) -> None:
    cluster = Cluster(seed, 2)
    one, two = both(cluster)
    assert cluster.write(one, [queue("q")]) is None
    cluster.clients["n0"].faults.delay_s = 0.8
    answers: list[object] = []
    binding = BindingRow("/", "amq.topic", "queue", "q")
    one.session.write([binding], [], answers.append)
    while two.row(binding) is None:
        cluster.clock.jump(0.01)
    two.session.write([], [queue("q")], lambda _: None)
    cluster.clock.jump(5.0)

    assert answers == [None]
    assert one.row(binding) is None


def test_a_conflict_is_answered_when_its_node_has_what_was_in_the_way() -> None:
    cluster = Cluster(1, 2)
    one, two = both(cluster)
    cluster.clients["n1"].faults.is_silent = True
    one.session.write([queue("q", 1)], [], lambda _: None)
    cluster.clock.jump(0.05)
    assert two.queue("q") is None
    cluster.clients["n1"].faults.is_silent = False
    seen: list[object] = []
    two.session.write([queue("q", 2)], [], lambda error: seen.extend((error, two.queue("q"))))
    cluster.clock.jump(5.0)

    assert isinstance(seen[0], ConflictError)
    assert seen[1] == queue("q", 1)


def test_a_vhost_made_again_has_nothing_of_the_former_one() -> None:
    cluster = Cluster(1, 1)
    (node,) = cluster.nodes.values()
    row, binding = QueueRow("v", "q"), BindingRow("v", "amq.topic", "queue", "q")
    assert cluster.write(node, [VhostRow("v"), row, binding]) is None
    answers: list[object] = []
    node.session.write([], [VhostRow("v")], answers.append)
    node.session.write([VhostRow("v")], [], answers.append)
    node.session.write([row], [], answers.append)
    cluster.clock.jump(5.0)

    assert answers == [None] * 3
    assert node.row(row) == row
    assert node.row(binding) is None


def test_numbers_that_are_asked_for_at_once_differ() -> None:
    cluster = Cluster(1, 1)
    (node,) = cluster.nodes.values()
    taken: list[int | StoreError] = []
    for _ in range(3):
        node.session.take_numbers(node.session.keys.queue_no, 100, taken.append)
    cluster.clock.jump(1.0)

    assert taken == [100, 200, 300]


def test_values_that_cannot_be_stored_are_refused_alone() -> None:
    cluster = Cluster(1, 1)
    (node,) = cluster.nodes.values()
    answers: list[object] = []
    node.session.write([ParameterRow("/", "c", "n", 1 << 70)], [], answers.append)
    node.session.write([queue("q")], [], answers.append)
    cluster.clock.jump(3.0)

    assert isinstance(answers[0], StoreError)
    assert answers[1:] == [None]


def test_a_node_serves_only_when_it_has_applied_its_own_key() -> None:
    cluster = Cluster(1, 1)
    late = cluster.start("n1")
    cluster.clients["n1"].faults.is_silent = True
    cluster.clock.jump(0.5)
    assert late.session.keys.own in cluster.etcd.rows
    assert not late.session.is_live, "others have written since it loaded, perhaps"

    cluster.clients["n1"].faults.is_silent = False
    cluster.until_live()


# Nodes that end.


def test_queues_of_a_node_that_crashes_end_with_its_lease_and_take_their_bindings() -> None:
    cluster = Cluster(1, 2)
    one, two = both(cluster)
    assert cluster.write(one, [queue("mine", 1, durable=False), queue("kept", 2)]) is None
    binding = BindingRow("/", "amq.topic", "queue", "mine")
    assert cluster.write(two, [binding]) is None
    rows, keys = cluster.etcd.rows, one.session.keys
    assert rows[keys.row(binding)].lease == rows[keys.own].lease, "it ends with its queue"
    one.session.abort()
    cluster.clock.jump(SETTINGS.lease_s + 2.0)

    assert two.queue("mine") is None
    assert two.queue("kept") is not None
    cluster.clock.jump(5.0)
    assert not two.session.replica.entries.keys() - two.session.replica.live.keys()
    assert cluster.write(two, [queue("mine", 3)]) is None


def test_a_node_that_leaves_holds_nobody_up() -> None:
    cluster = Cluster(1, 2)
    one, two = both(cluster)
    assert cluster.write(one, [queue("mine", 1, durable=False)]) is None
    left: list[bool] = []
    one.session.write([queue("last", 2)], [], lambda _: None)
    one.session.stop(lambda: left.append(True))
    cluster.clock.jump(0.3)

    assert left == [True]
    assert not one.session.is_live
    assert (two.queue("mine"), two.queue("last")) == (None, queue("last", 2))
    assert cluster.write(two, [queue("q")], [], 0.2) is None


@pytest.mark.parametrize("seed", range(10))
def test_a_node_that_leaves_ends_when_its_lease_has(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    cluster = Cluster(seed, 2)
    one, _ = both(cluster)
    (own,) = [row for key, row in cluster.etcd.rows.items() if key == one.session.keys.own]
    revoked: list[int] = []
    revoke = cluster.etcd.revoke
    monkeypatch.setattr(cluster.etcd, "revoke", lambda n: [revoked.append(n), revoke(n)][1])
    cluster.clients["n0"].faults.watch_delay_s = 0.02
    one.session.stop(lambda: revoked.append(-1))
    cluster.clock.jump(1.0)

    assert revoked == [own.lease, -1]


def test_a_node_that_hangs_holds_a_writer_up_once_and_serves_nobody_meanwhile() -> None:
    cluster = Cluster(1, 3)
    one, two, three = cluster.nodes.values()
    cluster.clients["n2"].faults.is_cut = True
    answered_at: list[float] = []
    begun_s = cluster.clock.monotonic_s()

    def answered(error: StoreError | None) -> None:
        assert error is None
        assert not three.session.is_live
        answered_at.append(cluster.clock.monotonic_s() - begun_s)

    one.session.write([queue("q")], [], answered)
    cluster.clock.jump(10.0)
    assert SETTINGS.suspect_s < answered_at[0] < SETTINGS.suspect_s + SETTINGS.valid_s + 1.5
    assert two.queue("q") is not None
    assert cluster.write(two, [queue("r")], [], 0.2) is None

    cluster.clients["n2"].faults.is_cut = False
    cluster.until_live()
    assert three.queue("r") is not None
    assert three.lives[-3:] == [True, False, True]


def test_a_node_whose_watch_has_fallen_silent_follows_again() -> None:
    cluster = Cluster(1, 2)
    one, two = both(cluster)
    cluster.clients["n1"].faults.is_silent = True
    cluster.etcd.put("/leveret/metadata/other", b"")
    cluster.clients["n1"].faults.is_silent = False
    one.session.write([queue("q")], [], lambda _: None)
    cluster.clock.jump(20.0)

    assert two.queue("q") is not None
    assert two.lives == [True], "nobody has taken it for dead"


def test_a_node_whose_watch_was_compacted_away_loads_again_and_never_goes_back() -> None:
    cluster = Cluster(1, 2)
    one, two = both(cluster)
    cluster.clients["n1"].faults.watch_delay_s = 0.4
    for number in range(10):
        one.session.write([queue(f"q{number}", number)], [], lambda _: None)
        cluster.clock.jump(0.02)
    cluster.etcd.compact()
    cluster.clock.jump(20.0)

    assert two.told == live_rows(cluster.reference())
    assert two.revisions == sorted(set(two.revisions))
    assert two.lives == [True], "nobody has taken it for dead"


@pytest.mark.parametrize("has_own_key", [True, False])
def test_an_etcd_that_was_restored_from_a_backup_is_refused_until_a_restart(
    has_own_key: bool,
) -> None:
    cluster = Cluster(1, 2)
    one, two = both(cluster)
    etcd = cluster.etcd
    cluster.clock.jump(10.0)
    kept = etcd.revision if has_own_key else 2
    backup = dict(etcd.rows) if has_own_key else {}
    for number in range(3):
        assert cluster.write(two, [queue(f"q{number}", number)]) is None
    etcd.revision, etcd.rows, etcd.history = kept, backup, etcd.history[:kept]
    cluster.clock.jump(20.0)

    for node in (one, two):
        assert not node.session.is_live
        assert "restored from a backup" in node.session.trouble
        assert node.queue("q2") is not None, "what a client has seen does not go back"
    for _ in range(100):
        etcd.put("/another", b"")
    cluster.clock.jump(20.0)
    assert not one.session.is_live, "also when later writes have passed what was seen"
    cluster.start("n0")
    cluster.start("n1")
    cluster.until_live()


def test_a_node_of_the_same_name_with_another_data_directory_is_refused() -> None:
    cluster = Cluster(1, 1)
    (node,) = cluster.nodes.values()
    stranger = Node("n0", cluster.clients["n0"], cluster.clock, 5, SETTINGS, "another")
    cluster.clock.jump(5.0)
    assert not stranger.session.is_live
    assert "is another node, of the data directory uuid-n0" in stranger.session.trouble
    assert node.session.is_live


def test_a_copy_of_a_data_directory_is_refused_and_the_node_serves_on() -> None:
    cluster = Cluster(1, 1)
    (node,) = cluster.nodes.values()
    store, clock = cluster.clients["n0"], cluster.clock
    copy = Node("n0", store, clock, 5, SETTINGS, directory="elsewhere")
    lease = cluster.etcd.rows[node.session.keys.own].lease
    clock.jump(60.0)

    assert not copy.session.is_live
    assert "runs already, with another copy of this data directory" in copy.session.taken
    assert node.session.is_live
    assert node.lives == [True], "it never lost its place"
    assert cluster.etcd.rows[node.session.keys.own].lease == lease

    node.session.abort()  # its machine is lost, and the copy is that of a backup
    clock.jump(SETTINGS.lease_s + 5.0)
    assert copy.session.is_live
    assert copy.session.taken == ""


def test_a_node_that_was_taken_for_dead_does_not_drive_out_the_copy_that_came() -> None:
    cluster = Cluster(1, 1)
    (node,) = cluster.nodes.values()
    store, clock = cluster.clients["n0"], cluster.clock
    copy = Node("n0", store, clock, 5, SETTINGS, directory="elsewhere")
    cluster.etcd.revoke(cluster.etcd.rows[node.session.keys.own].lease)
    clock.jump(60.0)

    serving = [each for each in (node, copy) if each.session.is_live]
    assert len(serving) == 1
    (other,) = {node, copy} - set(serving)
    assert "runs already" in other.session.trouble
    assert len(serving[0].lives) <= 3, "at most one change"


def test_a_node_that_is_started_again_takes_the_place_of_its_former_process() -> None:
    cluster = Cluster(1, 1)
    assert cluster.write(cluster.nodes["n0"], [queue("mine", 1, durable=False)]) is None
    fresh = cluster.start("n0")
    cluster.until_live(seconds=1.0)

    assert fresh.queue("mine") is None


def test_a_node_that_was_started_again_has_no_node_taken_for_dead_that_knows_all_rows() -> None:
    cluster = Cluster(1, 3)
    one, two, three = cluster.nodes.values()
    assert cluster.write(one, [queue("q")]) is None
    cluster.clock.jump(10.0)
    leases = [cluster.etcd.rows[each.session.keys.own].lease for each in (two, three)]
    one = cluster.start("n0")
    cluster.until_live()
    received: list[float] = []
    one.session.when_applied(lambda: received.append(cluster.clock.monotonic_s()))
    cluster.clock.jump(5.0)

    assert len(received) == 1
    assert [cluster.etcd.rows[each.session.keys.own].lease for each in (two, three)] == leases


def test_without_etcd_a_node_serves_nobody_after_a_while_and_writes_are_refused() -> None:
    cluster = Cluster(1, 1)
    (node,) = cluster.nodes.values()
    cluster.clients["n0"].faults.is_cut = True
    error = cluster.write(node, [queue("q")])

    assert isinstance(error, StoreError)
    assert "etcd has taken nothing for 10.0 s" in str(error)
    assert node.lives == [True, False]
    cluster.clients["n0"].faults.is_cut = False
    cluster.until_live()
    assert cluster.write(node, [queue("q")]) is None


def test_a_damaged_row_stops_a_node_until_it_is_repaired() -> None:
    cluster = Cluster(1, 1)
    (node,) = cluster.nodes.values()
    assert cluster.write(node, [queue("q")]) is None
    key = node.session.keys.row(queue("q"))
    sound = cluster.etcd.rows[key].value
    cluster.etcd.put(key, b"damage")
    cluster.clock.jump(5.0)
    assert not node.session.is_live
    assert f"{key} is damaged" in node.session.trouble

    cluster.etcd.put(key, sound)
    cluster.until_live()
    assert node.queue("q") == queue("q")


def test_exchanges_that_are_not_durable_end_with_the_last_node() -> None:
    cluster = Cluster(1, 2)
    one, two = both(cluster)
    assert cluster.write(one, [ExchangeRow("/", "x", "topic", durable=False)]) is None
    cluster.start("n0")
    cluster.until_live()
    assert two.row(ExchangeRow("/", "x", "topic")) is not None, "the other node was there"

    for node in cluster.nodes.values():
        node.session.abort()
    cluster.clock.jump(SETTINGS.lease_s + 1.0)
    cluster.etcd.end_leases()
    fresh = cluster.start("n0")
    del cluster.nodes["n1"]
    cluster.until_live()
    cluster.clock.jump(5.0)
    assert fresh.row(ExchangeRow("/", "x", "topic")) is None


def test_numbers_are_taken_once_by_all_nodes_also_when_answers_are_lost() -> None:
    cluster = Cluster(1, 3)
    taken: list[int | StoreError] = []
    for client in cluster.clients.values():
        client.faults.lost = 0.2
    for _ in range(10):
        for node in cluster.nodes.values():
            node.session.take_numbers(node.session.keys.queue_no, 100, taken.append)
        cluster.clock.jump(1.0)
    cluster.clock.jump(20.0)

    numbers = [each for each in taken if isinstance(each, int)]
    assert len(set(numbers)) == len(numbers) > 20
    assert all(number % 100 == 0 for number in numbers)


@pytest.mark.parametrize("seed", range(10))
def test_a_write_whose_answer_is_lost_is_made_once_or_not_at_all(seed: int) -> None:
    cluster = Cluster(seed, 2)
    one, two = both(cluster)
    cluster.clients["n0"].faults.lost = 0.6
    answers: dict[int, object] = {}
    for number in range(30):
        one.session.write(
            [queue(f"q{number}", number)], [], lambda e, n=number: answers.update({n: e})
        )
        cluster.clock.jump(0.3)
    cluster.clients["n0"].faults.lost = 0.0
    cluster.clock.jump(30.0)

    assert len(answers) == 30
    for number, error in answers.items():
        assert not isinstance(error, ConflictError), "nobody else writes"
        if error is None:
            assert two.queue(f"q{number}") == queue(f"q{number}", number)
    puts = [
        event.key
        for events in cluster.etcd.history
        for event in events
        if event.value is not None and "/queues/" in event.key
    ]
    assert len(puts) == len(set(puts))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"renew_s": 0.0}, "renew_s is 0.0"),
        ({"suspect_s": float("inf")}, "suspect_s is inf"),
        ({"valid_s": 0.9}, "at least twice renew_s"),
        ({"lease_s": 1}, "not below valid_s"),
        ({"lease_s": 3.5}, "whole seconds"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(SessionSettings(), **change)


def test_conflicts_with_writes_on_their_way_are_answered_when_the_node_has_what_was_in_the_way() -> (
    None
):
    cluster = Cluster(1, 2)
    one, two = both(cluster)
    assert cluster.write(one, [queue("q")]) is None
    cluster.clients["n1"].faults.is_silent = True
    one.session.write([], [queue("q")], lambda _: None)
    cluster.clock.jump(0.05)
    assert two.queue("q") is not None, "it does not know yet"
    seen: list[object] = []
    for puts, deletes in (
        ([], [queue("q")]),
        ([queue("q", 2)], [queue("q")]),  # builds on the deletion
        ([BindingRow("/", "amq.topic", "queue", "q")], []),  # on the queue that is put
        ([], [queue("q", 2)]),
        ([BindingRow("/", "amq.topic", "queue", "q")], []),  # on the one that is being deleted
    ):
        two.session.write(puts, deletes, lambda error: seen.extend((type(error), two.queue("q"))))
    cluster.clients["n1"].faults.is_silent = False
    cluster.clock.jump(5.0)

    assert seen == [ConflictError, None] * 5


def test_a_binding_to_a_queue_whose_lease_has_ended_is_refused_when_its_node_knows_that() -> None:
    cluster = Cluster(1, 2)
    one, two = both(cluster)
    assert cluster.write(one, [queue("q", durable=False)]) is None
    cluster.clients["n1"].faults.is_silent = True
    one.session.abort()
    cluster.clock.jump(0.01)
    cluster.etcd.revoke(cluster.etcd.rows[one.session.keys.own].lease)
    seen: list[object] = []
    binding = BindingRow("/", "amq.topic", "queue", "q")
    two.session.write([binding], [], lambda error: seen.extend((type(error), two.queue("q"))))
    cluster.clients["n1"].faults.is_silent = False
    cluster.clock.jump(5.0)

    assert seen == [ConflictError, None]
