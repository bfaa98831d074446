"""Acks that come one at a time: when a connection is left unread, and for how long."""

from __future__ import annotations

import pytest

from leveret.amqp import methods as m
from leveret.broker.connection.reading.ack_coalescing import (
    ENOUGH,
    FEW,
    GAP_S,
    LATEST,
    PAUSE_S,
    STREAK,
    WORTH,
    AckCoalescing,
)
from leveret.management.rows import connection_state
from rigs.broker_rig import Client, Rig

PACE_S = 0.0005


def after_a_streak(coalescing: AckCoalescing, pace_s: float = PACE_S) -> float:
    """Return the pause that a streak of single acks ends in."""
    for read in range(STREAK):
        assert coalescing.acked(1, 1.0 + read * pace_s) == 0
    return coalescing.acked(1, 1.0 + STREAK * pace_s)


@pytest.mark.parametrize(
    ("pace_s", "prefetch", "pause_s"),
    [
        (PACE_S, 0, PAUSE_S),
        (PACE_S, 200, PAUSE_S),
        (PACE_S, 40, 10 * PACE_S),
        (PACE_S, 4 * WORTH, WORTH * PACE_S),
        (PACE_S, 4 * WORTH - 1, 0.0),
        (PACE_S, 1, 0.0),
        (PAUSE_S / ENOUGH / 4, 0, PAUSE_S / 4),
        (PAUSE_S / WORTH * 0.99, 0, PAUSE_S),
        (PAUSE_S / WORTH * 1.01, 0, 0.0),
        (GAP_S * 1.01, 0, 0.0),
        (0.0, 0, 0.0),
    ],
)
def test_the_pause_follows_from_the_pace_of_acks_and_the_prefetch(
    pace_s: float, prefetch: int, pause_s: float
) -> None:
    coalescing = AckCoalescing()
    coalescing.limit(prefetch)

    assert after_a_streak(coalescing, pace_s) == pytest.approx(pause_s)


def test_the_smallest_prefetch_counts() -> None:
    coalescing = AckCoalescing()
    for prefetch in (0, 40, 200):
        coalescing.limit(prefetch)

    assert after_a_streak(coalescing) == pytest.approx(10 * PACE_S)


def test_anything_else_begins_a_new_streak() -> None:
    coalescing = AckCoalescing()
    for read in range(STREAK):
        coalescing.acked(1, 0.5 + read * PACE_S)
    coalescing.other()

    assert after_a_streak(coalescing) == pytest.approx(PAUSE_S)


@pytest.mark.parametrize(("acks", "gap_s"), [(FEW + 1, PACE_S), (1, GAP_S * 1.01)])
def test_so_does_a_read_of_many_acks_or_a_late_one(acks: int, gap_s: float) -> None:
    coalescing = AckCoalescing()
    for read in range(STREAK):
        coalescing.acked(1, read * PACE_S)
    late_s = (STREAK - 1) * PACE_S + gap_s
    coalescing.acked(acks, late_s)

    later = [coalescing.acked(1, late_s + read * PACE_S) for read in range(1, STREAK + 1)]

    assert [bool(pause_s) for pause_s in later] == [False] * (STREAK - 1) + [True]


@pytest.mark.parametrize(("acks", "after_s", "goes_on"), [(20, PAUSE_S, True), (WORTH + 1, PAUSE_S, True),
    (WORTH - 1, PAUSE_S, False), (20, 2 * PAUSE_S, False), (2 * ENOUGH, PAUSE_S, True),
    (2 * ENOUGH + 1, PAUSE_S, False)])  # fmt: skip
def test_a_pause_follows_a_pause_that_was_worth_it(
    acks: int, after_s: float, goes_on: bool
) -> None:
    coalescing = AckCoalescing()
    after_a_streak(coalescing)

    assert bool(coalescing.acked(acks, 1.0 + STREAK * PACE_S + after_s)) is goes_on


def test_the_next_pause_goes_by_the_rate_of_the_last_one() -> None:
    coalescing = AckCoalescing()
    coalescing.limit(100)
    after_a_streak(coalescing)

    assert coalescing.acked(40, 1.0 + STREAK * PACE_S + PAUSE_S) == pytest.approx(25 * PAUSE_S / 40)


@pytest.mark.parametrize("room", [ENOUGH, 2 * ENOUGH, 154, 1000])
def test_a_client_that_waits_for_its_socket_is_not_slowed_down(room: int) -> None:
    """It acks every 10 us while its socket takes an ack: no more than ``room`` until the broker reads."""
    coalescing = AckCoalescing()
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

    one_by_one(rig, publisher, consumer, range(1, STREAK + 2))
    assert not consumer.wire.is_reading
    publisher.publish(1, "q", b"goes on")
    assert b"goes on" in consumer.bodies()
    rig.jump(PAUSE_S)
    assert not consumer.wire.is_reading
    rig.jump(PAUSE_S * LATEST - PAUSE_S)

    assert consumer.wire.is_reading
    assert publisher.wire.is_reading


def test_it_is_read_again_behind_the_first_delivery_after_that_moment(rig: Rig) -> None:
    publisher, consumer = consuming(rig)
    one_by_one(rig, publisher, consumer, range(1, STREAK + 2))
    timers = rig.clock.pending_count
    rig.jump(PAUSE_S)

    publisher.publish(1, "q", b"goes on")

    assert consumer.wire.is_reading
    assert rig.clock.pending_count == timers - 1


def test_not_with_a_small_prefetch(rig: Rig) -> None:
    publisher, consumer = consuming(rig, prefetch=4 * WORTH - 1)

    one_by_one(rig, publisher, consumer, range(1, 4 * STREAK))

    assert consumer.wire.is_reading


def test_not_with_a_small_prefetch_of_the_channel(rig: Rig) -> None:
    publisher, consumer = consuming(rig)
    consumer.ask(1, m.BasicQos(0, 4 * WORTH - 1, True))

    one_by_one(rig, publisher, consumer, range(1, 4 * STREAK))

    assert consumer.wire.is_reading


def test_not_where_an_ack_may_spare_a_message_the_disk(rig: Rig) -> None:
    publisher, consumer = consuming(rig, durable=True)

    one_by_one(rig, publisher, consumer, range(1, 4 * STREAK))

    assert consumer.wire.is_reading


def test_a_connection_that_is_closed_in_a_pause_leaves_no_timer(rig: Rig) -> None:
    publisher, consumer = consuming(rig)
    one_by_one(rig, publisher, consumer, range(1, STREAK + 2))
    timers = rig.clock.pending_count

    consumer.hang_up()

    assert rig.clock.pending_count < timers
    rig.jump(PAUSE_S)


def test_a_pause_is_not_shown_as_flow_control(rig: Rig) -> None:
    publisher, consumer = consuming(rig)
    one_by_one(rig, publisher, consumer, range(1, STREAK + 2))

    assert connection_state(rig.node.connections.readers[consumer.reader]) == "running"
