"""Acks that come one at a time: when a connection is left unread, and for how long."""

from __future__ import annotations

import pytest

from leveret.amqp import methods as m
from leveret.broker.connection.reading.ack_coalescing import AckCoalescing
from leveret.core.batching import AckPauses
from leveret.management.rows import connection_state
from rigs.broker_rig import Client, Rig

POLICY = AckPauses()
PACE_S = 0.0005


def after_a_streak(coalescing: AckCoalescing, pace_s: float = PACE_S) -> float:
    """Return the pause that a streak of single acks ends in."""
    for read in range(POLICY.streak_reads):
        assert coalescing.acked(1, 1.0 + read * pace_s) == 0
    return coalescing.acked(1, 1.0 + POLICY.streak_reads * pace_s)


@pytest.mark.parametrize(
    ("pace_s", "prefetch", "pause_s"),
    [
        (PACE_S, 0, POLICY.pause_s),
        (PACE_S, 200, POLICY.pause_s),
        (PACE_S, 40, 10 * PACE_S),
        (PACE_S, 4 * POLICY.worth_acks, POLICY.worth_acks * PACE_S),
        (PACE_S, 4 * POLICY.worth_acks - 1, 0.0),
        (PACE_S, 1, 0.0),
        (POLICY.pause_s / POLICY.enough_acks / 4, 0, POLICY.pause_s / 4),
        (POLICY.pause_s / POLICY.worth_acks * 0.99, 0, POLICY.pause_s),
        (POLICY.pause_s / POLICY.worth_acks * 1.01, 0, 0.0),
        (POLICY.gap_s * 1.01, 0, 0.0),
        (0.0, 0, 0.0),
    ],
)
def test_the_pause_follows_from_the_pace_of_acks_and_the_prefetch(
    pace_s: float, prefetch: int, pause_s: float
) -> None:
    coalescing = AckCoalescing(POLICY)
    coalescing.limit(prefetch)

    assert after_a_streak(coalescing, pace_s) == pytest.approx(pause_s)


def test_the_smallest_prefetch_counts() -> None:
    coalescing = AckCoalescing(POLICY)
    for prefetch in (0, 40, 200):
        coalescing.limit(prefetch)

    assert after_a_streak(coalescing) == pytest.approx(10 * PACE_S)


def test_anything_else_begins_a_new_streak() -> None:
    coalescing = AckCoalescing(POLICY)
    for read in range(POLICY.streak_reads):
        coalescing.acked(1, 0.5 + read * PACE_S)
    coalescing.other()

    assert after_a_streak(coalescing) == pytest.approx(POLICY.pause_s)


@pytest.mark.parametrize(
    ("acks", "gap_s"), [(POLICY.few_acks + 1, PACE_S), (1, POLICY.gap_s * 1.01)]
)
def test_so_does_a_read_of_many_acks_or_a_late_one(acks: int, gap_s: float) -> None:
    coalescing = AckCoalescing(POLICY)
    for read in range(POLICY.streak_reads):
        coalescing.acked(1, read * PACE_S)
    late_s = (POLICY.streak_reads - 1) * PACE_S + gap_s
    coalescing.acked(acks, late_s)

    later = [
        coalescing.acked(1, late_s + read * PACE_S) for read in range(1, POLICY.streak_reads + 1)
    ]

    assert [bool(pause_s) for pause_s in later] == [False] * (POLICY.streak_reads - 1) + [True]


@pytest.mark.parametrize(("acks", "after_s", "goes_on"), [(20, POLICY.pause_s, True), (POLICY.worth_acks + 1, POLICY.pause_s, True),
    (POLICY.worth_acks - 1, POLICY.pause_s, False), (20, 2 * POLICY.pause_s, False), (2 * POLICY.enough_acks, POLICY.pause_s, True),
    (2 * POLICY.enough_acks + 1, POLICY.pause_s, False)])  # fmt: skip
def test_a_pause_follows_a_pause_that_was_worth_it(
    acks: int, after_s: float, goes_on: bool
) -> None:
    coalescing = AckCoalescing(POLICY)
    after_a_streak(coalescing)

    assert bool(coalescing.acked(acks, 1.0 + POLICY.streak_reads * PACE_S + after_s)) is goes_on


def test_the_next_pause_goes_by_the_rate_of_the_last_one() -> None:
    coalescing = AckCoalescing(POLICY)
    coalescing.limit(100)
    after_a_streak(coalescing)

    assert coalescing.acked(
        40, 1.0 + POLICY.streak_reads * PACE_S + POLICY.pause_s
    ) == pytest.approx(25 * POLICY.pause_s / 40)


@pytest.mark.parametrize("room", [POLICY.enough_acks, 2 * POLICY.enough_acks, 154, 1000])
def test_a_client_that_waits_for_its_socket_is_not_slowed_down(room: int) -> None:
    """It acks every 10 us while its socket takes an ack: no more than ``room`` until the broker reads."""
    coalescing = AckCoalescing(POLICY)
    pace_s, read_s, now_s = 0.00001, 0.00005, 1.0
    acks = 0
    pause_s = 0.0
    while now_s < 3.0:
        waited_s = max(pause_s, read_s)
        now_s += waited_s
        sent = min(room, int(waited_s / pace_s))
        acks += sent
        pause_s = coalescing.acked(sent, now_s)

    assert acks / 2.0 > 0.8 * min(room, read_s / pace_s) / read_s


# Through the broker.


def consuming(rig: Rig, prefetch: int = 0, durable: bool = False) -> tuple[Client, Client]:
    """Return a publisher and a consumer with unlimited or limited prefetch."""
    publisher, consumer = rig.session(), rig.session()
    publisher.ask(1, m.QueueDeclare("q", durable=durable))
    consumer.ask(1, m.BasicQos(0, prefetch, False))
    consumer.ask(1, m.BasicConsume("q", "c"))
    return publisher, consumer


def one_by_one(rig: Rig, publisher: Client, consumer: Client, tags: range) -> None:
    """Have messages delivered and acked, each by itself."""
    for tag in tags:
        publisher.publish(1, "q", b"%d" % tag)
        consumer.send(1, m.BasicAck(tag))
        rig.jump(PACE_S)


def test_a_consumer_that_acks_one_by_one_is_left_unread_for_a_moment(rig: Rig) -> None:
    publisher, consumer = consuming(rig)

    one_by_one(rig, publisher, consumer, range(1, POLICY.streak_reads + 2))
    assert not consumer.wire.is_reading
    publisher.publish(1, "q", b"goes on")
    assert b"goes on" in consumer.bodies()
    rig.jump(POLICY.pause_s)
    assert not consumer.wire.is_reading
    rig.jump(POLICY.pause_s * POLICY.latest - POLICY.pause_s)

    assert consumer.wire.is_reading
    assert publisher.wire.is_reading


def test_it_is_read_again_behind_the_first_delivery_after_that_moment(rig: Rig) -> None:
    publisher, consumer = consuming(rig)
    one_by_one(rig, publisher, consumer, range(1, POLICY.streak_reads + 2))
    timers = rig.clock.pending_count
    rig.jump(POLICY.pause_s)

    publisher.publish(1, "q", b"goes on")

    assert consumer.wire.is_reading
    assert rig.clock.pending_count == timers - 1


def test_not_with_a_small_prefetch(rig: Rig) -> None:
    publisher, consumer = consuming(rig, prefetch=4 * POLICY.worth_acks - 1)

    one_by_one(rig, publisher, consumer, range(1, 4 * POLICY.streak_reads))

    assert consumer.wire.is_reading


def test_not_with_a_small_prefetch_of_the_channel(rig: Rig) -> None:
    publisher, consumer = consuming(rig)
    consumer.ask(1, m.BasicQos(0, 4 * POLICY.worth_acks - 1, True))

    one_by_one(rig, publisher, consumer, range(1, 4 * POLICY.streak_reads))

    assert consumer.wire.is_reading


def test_not_where_an_ack_may_spare_a_message_the_disk(rig: Rig) -> None:
    publisher, consumer = consuming(rig, durable=True)

    one_by_one(rig, publisher, consumer, range(1, 4 * POLICY.streak_reads))

    assert consumer.wire.is_reading


def test_a_connection_that_is_closed_in_a_pause_leaves_no_timer(rig: Rig) -> None:
    publisher, consumer = consuming(rig)
    one_by_one(rig, publisher, consumer, range(1, POLICY.streak_reads + 2))
    timers = rig.clock.pending_count

    consumer.hang_up()

    assert rig.clock.pending_count < timers
    rig.jump(POLICY.pause_s)


def test_a_pause_is_not_shown_as_flow_control(rig: Rig) -> None:
    publisher, consumer = consuming(rig)
    one_by_one(rig, publisher, consumer, range(1, POLICY.streak_reads + 2))

    assert connection_state(rig.node.connections.readers[consumer.reader]) == "running"
