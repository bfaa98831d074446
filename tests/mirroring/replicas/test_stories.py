"""Single stories of replicas: those that Kafka's replication once lost messages in, and what a slow mirror does.

Tests: mirroring/replicas/master.py, mirroring/replicas/mirror.py, mirroring/replicas/changes.py
"""

from __future__ import annotations

from random import Random
from typing import Any

from leveret.mirroring.replicas.master import SPARE_SEQS, Master
from leveret.mirroring.replicas.messages import (
    Copies,
    Direct,
    Durable,
    Fetch,
    HandOut,
    Publish,
    Remove,
    State,
)
from leveret.mirroring.replicas.mirror import Mirror, Phase
from leveret.mirroring.replicas.record import QueueRecord, Replica, Stored
from leveret.mirroring.replicas.seq_runs import ALL_SEQS, first_seq_of
from rigs.mirroring.cluster import LAG_MAX_S, Cluster, SimulatedNode


def started(count: int, in_sync_min: int = 1) -> tuple[Cluster, list[SimulatedNode]]:
    """Return a cluster of which all replicas are in sync; the first node has the master."""
    cluster = Cluster(Random("stories"), count, in_sync_min)
    nodes = list(cluster.nodes.values())
    for node in nodes:
        node.start()
        cluster.clock.jump(1.0)
    assert in_sync(cluster) == [node.name for node in nodes]
    return cluster, nodes


def in_sync(cluster: Cluster) -> list[str]:
    record = cluster.etcd.stored.record
    assert record is not None
    return [each.node for each in record.in_sync]


def master_of(node: SimulatedNode) -> Master:
    assert node.master is not None
    return node.master


def next_no(mirror: Mirror) -> int:
    assert mirror.last_no is not None
    return mirror.last_no + 1


def contents(cluster: Cluster) -> list[list[int]]:
    return [
        [node.content.messages[seq] for seq in sorted(node.content.messages)]
        for node in cluster.nodes.values()
    ]


def test_a_mirror_that_starts_again_and_becomes_master_has_what_was_confirmed() -> None:
    """Kafka before KIP-101 truncated to the high watermark, which the follower knew too late."""
    cluster, (one, two) = started(2)
    cluster.publish(master_of(one), 3)
    cluster.clock.jump(1.0)
    assert cluster.confirmed == {0, 1, 2}

    two.crash()
    two.start()
    one.crash()
    cluster.clock.jump(2.0)

    assert two.master is not None
    assert list(two.content.messages.values()) == [0, 1, 2]


def test_replicas_of_equal_length_with_different_messages_become_equal() -> None:
    """Kafka before KIP-101 compared lengths, and let both messages stay."""
    cluster, (one, two) = started(2)
    cluster.cut.add(frozenset(("n0", "n1")))
    cluster.publish(master_of(one))  # 0, on the first node only
    one.disk.sync(len(one.disk.journal))
    one.crash()
    cluster.clock.jump(1.0)
    cluster.publish(master_of(two))  # 1
    cluster.clock.jump(1.0)
    assert cluster.confirmed == {1}

    cluster.cut.clear()
    one.start()
    cluster.clock.jump(2.0)

    assert contents(cluster) == [[1], [1]]
    assert in_sync(cluster) == ["n1", "n0"]


def test_what_has_changed_is_copied_and_nothing_else() -> None:
    cluster, (one, two) = started(2)
    cluster.publish(master_of(one), 1_000)
    cluster.clock.jump(1.0)
    two.crash()
    cluster.publish(master_of(one), 5)
    cluster.clock.jump(1.0)

    copied: list[int] = []
    two.start()
    insert = two.content.insert
    two.content.insert = lambda messages: insert(  # type: ignore[method-assign]
        [copied.append(each) or (seq, each) for seq, each in messages]  # type: ignore[func-returns-value]
    )
    cluster.clock.jump(3.0)

    assert copied == [1_000, 1_001, 1_002, 1_003, 1_004]
    assert contents(cluster) == [list(range(1_005))] * 2


def test_a_mirror_that_is_late_leaves_and_comes_back() -> None:
    cluster, (one, two) = started(2)
    cluster.cut.add(frozenset(("n0", "n1")))
    cluster.publish(master_of(one))
    cluster.clock.jump(LAG_MAX_S - 0.1)
    assert (in_sync(cluster), cluster.confirmed) == (["n0", "n1"], set())
    cluster.clock.jump(1.0)
    assert (in_sync(cluster), cluster.confirmed) == (["n0"], {0})

    cluster.cut.clear()
    assert isinstance(two.replica, Mirror)
    two.replica.rejoined()
    cluster.clock.jump(1.0)
    assert in_sync(cluster) == ["n0", "n1"]


def test_with_too_few_in_sync_nothing_is_confirmed_until_one_comes_back() -> None:
    cluster, (one, two) = started(2, in_sync_min=2)
    two.crash()
    cluster.publish(master_of(one))
    cluster.clock.jump(2.0)
    assert (in_sync(cluster), cluster.confirmed) == (["n0"], set())

    two.start()
    cluster.clock.jump(2.0)
    assert (in_sync(cluster), cluster.confirmed) == (["n0", "n1"], {0})


def test_a_late_mirror_does_not_come_back_before_it_has_what_it_was_late_for() -> None:
    """With too few in sync the confirms stand still, so the mirror lacks nothing that was confirmed."""
    cluster, (one, _) = started(2, in_sync_min=2)
    cluster.cut.add(frozenset(("n0", "n1")))
    cluster.publish(master_of(one))
    cluster.clock.jump(2.0)
    revision = cluster.etcd.stored.revision
    cluster.clock.jump(10.0)

    assert in_sync(cluster) == ["n0"]
    assert cluster.etcd.stored.revision == revision


def test_a_master_without_etcd_confirms_nothing_after_its_successor_has_begun() -> None:
    cluster, (one, two, _) = started(3)
    one.reaches_etcd = False
    cluster.etcd.expire(one.me)
    cluster.clock.jump(1.0)
    assert two.master is not None
    before = master_of(one)
    cluster.publish(before)
    cluster.clock.jump(1.0)

    assert cluster.confirmed == set()
    one.reaches_etcd = True
    cluster.clock.jump(1.0)
    assert before.has_ended
    assert in_sync(cluster) == ["n1", "n2", "n0"]


def test_a_change_whose_outcome_is_unknown_counts_until_another_has_been_made() -> None:
    """The change could take effect late, when the mirror in it has missed a message."""
    cluster, (one, two) = started(2)
    two.crash()
    cluster.clock.jump(1.0)
    assert in_sync(cluster) == ["n0"]
    master, write = master_of(one), cluster.etcd.write
    asked: list[int] = []
    cluster.etcd.write = lambda *change: asked.append(change[-1])  # type: ignore[method-assign]
    two.start()
    cluster.clock.jump(1.0)
    assert asked == [cluster.etcd.stored.revision], "to let the mirror in"

    two.crash()
    master.living(frozenset({one.me}))
    cluster.publish(master)
    cluster.clock.jump(1.0)
    assert cluster.confirmed == set(), "the change is under way"
    master.written(None)
    master.seen(cluster.etcd.stored)  # it has had no effect yet
    cluster.clock.jump(1.0)
    assert cluster.confirmed == set(), "the mirror may be in sync"
    assert asked[1:] == asked[:1], "another change, of the same revision"

    cluster.etcd.write = write  # type: ignore[method-assign]
    master.written(None)
    cluster.clock.jump(1.0)
    assert cluster.confirmed == {0}


def test_messages_of_an_older_epoch_change_nothing() -> None:
    cluster, (one, two) = started(2)
    cluster.publish(master_of(one), 3)
    cluster.clock.jump(1.0)
    one.crash()
    cluster.clock.jump(1.0)
    one.start()
    cluster.clock.jump(1.0)
    assert in_sync(cluster) == ["n1", "n0"]
    master, mirror = master_of(two), one.replica
    assert isinstance(mirror, Mirror)
    assert master.epoch == 2
    cluster.cut.add(frozenset(("n0", "n1")))
    cluster.publish(master)
    cluster.clock.jump(0.1)

    master.receive(one.me, Durable(1, 5))
    assert cluster.confirmed == {0, 1, 2}
    first = first_seq_of(1)
    mirror.instruct(Remove(1, next_no(mirror), ((first, first + 1),)))
    mirror.rejoined()
    for request in range(10):
        mirror.receive(two.me, State(request, 1, 9, 0, ALL_SEQS, (), True, 0))
    assert list(one.content.messages.values()) == [0, 1, 2]


def test_a_message_that_is_removed_while_it_is_copied_does_not_come_back() -> None:
    """The instruction comes round the ring, the copy comes from the master."""
    cluster, (one, two) = started(2)
    two.crash()
    cluster.publish(master_of(one), 2)
    sent: list[Any] = []
    send = two.send
    two.send = lambda to, message: sent.append(message) or send(to, message)  # type: ignore[method-assign,func-returns-value]
    two.start()
    while not sent or not isinstance(sent[-1], Fetch):
        cluster.clock.jump(0.001)
    mirror, fetch = two.replica, sent[-1]
    assert isinstance(mirror, Mirror)

    first = first_seq_of(fetch.epoch)
    mirror.instruct(Remove(fetch.epoch, next_no(mirror), ((first, first + 1),)))
    copies = (first, "removed"), (first + 1, "copied")
    mirror.receive(one.me, Copies(fetch.epoch, fetch.piece, first + 2, copies))

    assert two.content.messages == {first + 1: "copied"}


def test_a_mirror_that_asks_to_replace_a_new_master_does_not_go_on_in_its_epoch() -> None:
    cluster, (one, two, three) = started(3)
    cluster.publish(master_of(one))
    cluster.clock.jump(1.0)
    mirror, sent = two.replica, []
    assert isinstance(mirror, Mirror)
    cluster.etcd.write = lambda *_: None  # type: ignore[method-assign]
    two.send = lambda to, message: sent.append(message)  # type: ignore[method-assign]
    mirror.living(frozenset({one.me, two.me}))

    record = QueueRecord(2, three.me, (three.me, two.me))
    mirror.seen(Stored(record, cluster.etcd.stored.revision + 1))
    mirror.instruct(Publish(2, 1, first_seq_of(2), (1,)))
    mirror.tick()
    cluster.clock.jump(0.1)

    assert list(two.content.messages.values()) == [0, 1]
    assert not any(isinstance(each, Durable) for each in sent)


def test_what_nobody_can_have_had_is_new_at_the_next_master() -> None:
    cluster, (one, two) = started(2)
    cluster.publish(master_of(one), 5)
    cluster.hand_out(master_of(one), 2)
    cluster.clock.jump(1.0)
    assert cluster.delivered == {0, 1}

    one.crash()
    cluster.clock.jump(2.0)

    assert master_of(two).redelivered_below == first_seq_of(1) + 2
    assert master_of(two).deliverable_below == first_seq_of(1) + 2


def test_a_mark_of_what_was_handed_out_ends_with_its_epoch() -> None:
    """The mirror alone knows of it, and the seqs are those of other messages later."""
    cluster, (one, two, _) = started(3)
    cluster.cut |= {frozenset(("n0", "n1")), frozenset(("n0", "n2"))}
    cluster.publish(master_of(one), 5)
    cluster.hand_out(master_of(one), 5)
    one.disk.sync(len(one.disk.journal))
    one.crash()
    cluster.clock.jump(1.0)
    cluster.publish(master_of(two), 5)
    cluster.cut.clear()
    one.start()
    cluster.clock.jump(2.0)

    assert one.content.messages == two.content.messages
    assert one.content.handed_out == two.content.handed_out == 0


def test_a_mirror_that_was_away_while_it_asked_takes_no_answer_from_before() -> None:
    cluster, (one, two) = started(2)
    two.crash()
    sent: list[Any] = []
    send = one.send

    def late(to: Replica, message: Direct) -> None:
        if isinstance(message, State):
            sent.append(message)
        else:
            send(to, message)

    one.send = late  # type: ignore[method-assign]
    two.start()
    while not sent:
        cluster.clock.jump(0.001)
    cluster.cut.add(frozenset(("n0", "n1")))
    cluster.publish(master_of(one))
    cluster.cut.clear()
    mirror = two.replica
    assert isinstance(mirror, Mirror)
    mirror.rejoined()
    mirror.receive(one.me, sent[-1])
    one.send = send  # type: ignore[method-assign]
    cluster.clock.jump(2.0)

    assert contents(cluster) == [[0], [0]]


def test_a_mirror_comes_in_sync_under_load() -> None:
    """The master's disk is ahead of what a mirror can have acknowledged, unless the master waits for it."""
    cluster, (one, two) = started(2)
    two.crash()
    cluster.clock.jump(1.0)
    two.start()
    for _ in range(300):
        cluster.publish(master_of(one))
        cluster.clock.jump(0.001)

    assert in_sync(cluster) == ["n0", "n1"]
    cluster.clock.jump(1.0)
    assert cluster.confirmed == set(range(300))


def test_what_was_handed_out_while_too_few_are_in_sync_counts_for_a_mirror_that_joins() -> None:
    cluster, (one, two) = started(2, in_sync_min=2)
    two.crash()
    cluster.clock.jump(1.0)
    master, mirror = master_of(one), Replica("n1", 2)
    cluster.publish(master)
    cluster.hand_out(master, 1)
    cluster.clock.jump(1.0)
    assert (cluster.confirmed, cluster.delivered) == (set(), {0})
    asked: list[int] = []
    cluster.etcd.write = lambda *change: asked.append(change[-1])  # type: ignore[method-assign]

    master.living(frozenset({one.me, mirror}))
    master.receive(mirror, Durable(1, master.last_no - 1))
    assert not asked
    master.receive(mirror, Durable(1, master.last_no))
    assert len(asked) == 1


def test_a_mirror_that_is_late_while_it_joins_holds_nobody_up() -> None:
    cluster, (one, two) = started(2)
    two.crash()
    cluster.clock.jump(1.0)
    master, mirror = master_of(one), Replica("n1", 2)
    one.watch = lambda *_: None  # type: ignore[method-assign]
    master.living(frozenset({one.me, mirror}))
    cluster.publish(master)
    cluster.clock.jump(0.1)
    master.receive(mirror, Durable(1, 0))
    cluster.publish(master)
    cluster.clock.jump(0.1)
    assert (in_sync(cluster), cluster.confirmed) == (["n0"], {0})

    master.check_lag(cluster.now_s() + 1.0, 0.5)
    assert (in_sync(cluster), cluster.confirmed) == (["n0"], {0, 1})


def test_a_late_mirror_that_acknowledges_old_instructions_stays_out() -> None:
    cluster, (one, two) = started(2)
    master = master_of(one)
    one.watch = lambda *_: None  # type: ignore[method-assign]
    cluster.cut.add(frozenset(("n0", "n1")))
    cluster.publish(master)
    asked: list[QueueRecord] = []
    cluster.etcd.write = lambda *change: asked.append(change[1])  # type: ignore[method-assign]

    master.check_lag(cluster.now_s() + 1.0, 0.5)
    master.receive(two.me, Durable(1, 0))
    master.written(None)

    assert [each.in_sync for each in asked] == [(one.me,), (one.me,)]


FIRST = first_seq_of(1)


def asking() -> tuple[Cluster, SimulatedNode, SimulatedNode, Mirror, State]:
    """Return a mirror that has asked, and the answer, which it has not got; the master has two messages."""
    cluster, (one, two) = started(2)
    cluster.fetched = 1_000
    two.crash()
    cluster.clock.jump(1.0)
    cluster.publish(master_of(one), 2)
    sent: list[Any] = []
    send = one.send
    one.send = lambda to, message: sent.append(message)  # type: ignore[method-assign]
    two.start()
    while not sent:
        cluster.clock.jump(0.001)
    one.send = send  # type: ignore[method-assign]
    mirror, state = two.replica, sent[-1]
    assert isinstance(mirror, Mirror)
    assert isinstance(state, State)
    return cluster, one, two, mirror, state


def test_what_is_handed_out_while_a_mirror_asks_counts() -> None:
    _, one, two, mirror, state = asking()

    mirror.instruct(HandOut(1, state.no + 1, FIRST + 1))
    mirror.receive(one.me, state)

    assert two.content.handed_out == FIRST + 1


def test_a_mirror_that_missed_instructions_while_it_asked_asks_anew() -> None:
    cluster, one, _, mirror, state = asking()

    mirror.instruct(Publish(1, state.no + 2, FIRST + 3, (3,)))
    mirror.receive(one.me, state)
    assert mirror.phase is Phase.ASKING
    cluster.publish(master_of(one), 2)
    cluster.clock.jump(2.0)

    assert contents(cluster) == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert in_sync(cluster) == ["n0", "n1"]


def test_copies_that_are_faster_than_the_instruction_are_not_added_again() -> None:
    _, one, two, mirror, state = asking()
    later = State(state.request, 1, state.no, 0, FIRST + 4, ((FIRST, FIRST + 4),), True, 0)
    mirror.receive(one.me, later)
    copies = (FIRST, 0), (FIRST + 1, 1), (FIRST + 3, 3)
    mirror.receive(one.me, Copies(1, mirror_piece(mirror), FIRST + 4, copies))

    mirror.instruct(Publish(1, state.no + 1, FIRST + 2, (2, 3)))

    assert two.content.messages == {FIRST + at: at for at in range(4)}


def test_an_answer_to_an_earlier_question_is_no_copy_of_the_next() -> None:
    cluster, one, _, mirror, state = asking()
    mirror.receive(one.me, state)

    mirror.receive(one.me, Copies(1, mirror_piece(mirror) - 1, FIRST + 2, ()))
    cluster.clock.jump(2.0)

    assert contents(cluster) == [[0, 1], [0, 1]]


def mirror_piece(mirror: Mirror) -> int:
    """Return the number of the piece that a mirror waits for."""
    return mirror._piece


def test_an_instruction_that_comes_twice_is_applied_once() -> None:
    cluster, (one, two) = started(2)
    cluster.publish(master_of(one))
    cluster.clock.jump(1.0)
    mirror = two.replica
    assert isinstance(mirror, Mirror)
    mirror.instruct(Remove(1, next_no(mirror), ((FIRST, FIRST + 1),)))

    mirror.instruct(Publish(1, 1, FIRST, (0,)))

    assert two.content.messages == {}


def test_a_master_near_the_end_of_its_seqs_takes_the_next_epoch() -> None:
    cluster, (one, _) = started(2)
    cluster.publish(master_of(one))
    cluster.clock.jump(1.0)
    master_of(one).next_seq = first_seq_of(2) - SPARE_SEQS

    cluster.publish(master_of(one))
    cluster.clock.jump(2.0)
    cluster.publish(master_of(one))
    cluster.clock.jump(2.0)

    assert master_of(one).epoch == 2
    assert max(one.content.messages) == first_seq_of(2)
    assert contents(cluster) == [[0, 1, 2], [0, 1, 2]]
    assert in_sync(cluster) == ["n0", "n1"]


def test_a_mirror_that_misses_an_instruction_asks_anew() -> None:
    _, (_, two) = started(2)
    mirror = two.replica
    assert isinstance(mirror, Mirror)
    assert mirror.phase is Phase.COMPLETE

    mirror.instruct(Publish(1, next_no(mirror) + 1, FIRST + 1, (1,)))

    assert mirror.phase is Phase.ASKING


def test_a_master_reads_a_piece_once_however_often_a_mirror_asks() -> None:
    cluster, (one, two) = started(2)
    master = master_of(one)
    cluster.publish(master)
    reads: list[Any] = []
    one.content.read = lambda seqs, found: reads.append(found)  # type: ignore[method-assign]
    fetch = Fetch(1, 7, ((FIRST, FIRST + 1),))

    master.receive(two.me, fetch)
    master.receive(two.me, fetch)
    assert len(reads) == 1
    reads[0](FIRST + 1, [(FIRST, 0)])
    master.receive(two.me, fetch)

    assert len(reads) == 2, "the answer may have been lost"
