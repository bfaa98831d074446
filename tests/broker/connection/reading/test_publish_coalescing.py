"""Publishes that stream in: when a connection is left unread, and whether that slows the client down."""

from __future__ import annotations

import math

import pytest

from leveret.amqp import methods as m
from leveret.amqp.fields import Method
from leveret.broker.connection.reading.publish_coalescing import (
    BYTES_MAX,
    FEW,
    MANY,
    PAUSE_S,
    PERIOD,
    REST,
    SLOWER,
    STREAK_S,
    WORTH,
    PublishCoalescing,
)
from rigs.broker_rig import Client, Rig

GAP_S = 0.0001  # between two reads
READS = round(STREAK_S / GAP_S)  # of a streak
BYTES = 150  # of a message, with its frames


def after_a_streak(
    coalescing: PublishCoalescing,
    messages: int = 20,
    gap_s: float = GAP_S,
    size_bytes: int = BYTES,
    began_s: float = 1.0,
) -> bool:
    """Return whether a pause follows a streak of reads."""
    reads = math.ceil(STREAK_S / gap_s - 1e-9)
    for read in range(reads):
        assert not coalescing.published(messages, messages * size_bytes, began_s + read * gap_s)
    ended_s = began_s + reads * gap_s + 1e-12
    return coalescing.published(messages, messages * size_bytes, ended_s)


@pytest.mark.parametrize(
    ("messages", "gap_s", "size_bytes", "pauses"),
    [
        (20, GAP_S, BYTES, True),
        (FEW, GAP_S, BYTES, True),
        (FEW - 1, GAP_S, BYTES, False),
        (MANY, GAP_S, BYTES, True),
        (20, PAUSE_S / WORTH * 0.99, BYTES, True),
        (20, PAUSE_S / WORTH * 1.01, BYTES, False),
        (20, 10 * STREAK_S, BYTES, False),
        (FEW, PAUSE_S / 8, BYTES_MAX // 8 // FEW, True),
        (FEW, PAUSE_S / 8, BYTES_MAX // 8 // FEW + 1, False),
    ],
)
def test_a_pause_must_bring_many_messages_and_not_too_many_bytes(
    messages: int, gap_s: float, size_bytes: int, pauses: bool
) -> None:
    assert after_a_streak(PublishCoalescing(), messages, gap_s, size_bytes) is pauses


@pytest.mark.parametrize("at", [1, READS // 2, READS])
def test_something_else_begins_a_new_streak(at: int) -> None:
    coalescing = PublishCoalescing()
    for read in range(at):
        coalescing.published(20, 20 * BYTES, read * GAP_S)
    coalescing.other()

    assert after_a_streak(coalescing)


def test_something_else_ends_the_pauses() -> None:
    coalescing = PublishCoalescing()
    assert after_a_streak(coalescing)
    assert coalescing.published(200, 200 * BYTES, 1.1)
    coalescing.other()

    assert after_a_streak(coalescing, began_s=2.0)


def periods(coalescing: PublishCoalescing, ratio: float) -> int:
    """Return after how many periods of so much of the streak's rate the pauses ended, 3 at most."""
    assert after_a_streak(coalescing)
    messages, now_s = int(20 / GAP_S * PAUSE_S * ratio), 1.0 + STREAK_S
    for read in range(1, 3 * PERIOD + 1):
        if not coalescing.published(messages, messages * BYTES, now_s + read * PAUSE_S):
            return read // PERIOD
    return 3


def test_pauses_go_on_while_the_client_publishes_as_fast_as_without() -> None:
    assert periods(PublishCoalescing(), SLOWER * 1.05) == 3


def test_a_client_that_they_slow_down_gets_no_more_for_a_while() -> None:
    coalescing = PublishCoalescing()
    assert periods(coalescing, SLOWER * 0.95) == 1
    for read in range(REST):
        assert not coalescing.published(20, 20 * BYTES, 2.0 + read * GAP_S)

    assert after_a_streak(coalescing, began_s=3.0)


@pytest.mark.parametrize("room", [20, 100, 150, 10_000])
def test_a_client_that_waits_for_its_socket_is_not_slowed_down(room: int) -> None:
    """It publishes every 5 us while its socket takes a message: no more than ``room`` until the broker reads."""
    coalescing = PublishCoalescing()
    pace_s, read_s, now_s, sent = 0.000_005, 0.0001, 1.0, 0
    wait_s = read_s
    while now_s < 3.0:
        now_s += wait_s
        messages = min(room, int(wait_s / pace_s))
        sent += messages
        wait_s = PAUSE_S if coalescing.published(messages, messages * BYTES, now_s) else read_s

    assert sent / 2.0 > 0.75 * min(room, read_s / pace_s) / read_s


def test_a_client_that_becomes_faster_is_not_held_at_what_its_socket_takes() -> None:
    """Such as one on a JVM, which compiles its code after a second. Its socket takes 100 messages until it is read."""
    coalescing = PublishCoalescing()
    room, read_s, now_s, late = 100, 0.0001, 1.0, 0
    wait_s = read_s
    while now_s < 6.0:
        now_s += wait_s
        pace_s = 0.000_016 if now_s < 1.5 else 0.000_005
        messages = min(room, int(wait_s / pace_s))
        if now_s >= 4.0:
            late += messages
        wait_s = PAUSE_S if coalescing.published(messages, messages * BYTES, now_s) else read_s

    assert late / 2.0 > 0.75 / 0.000_005


# Through the broker.


@pytest.fixture
def publisher(rig: Rig) -> Client:
    client = rig.session()
    client.ask(1, m.QueueDeclare("q"))
    return client


def stream(
    rig: Rig,
    publisher: Client,
    reads: int,
    keys: tuple[str, ...] = ("q",),
    messages: int = 2 * FEW,
) -> None:
    for read in range(reads):
        contents = [("", keys[no % len(keys)], b"%d.%d" % (read, no), {}) for no in range(messages)]
        publisher.feed(publisher.contents(1, *contents))
        rig.jump(GAP_S)


@pytest.mark.parametrize("keys", [("q",), ("q", "other")], ids=["one key", "two keys"])
def test_a_connection_whose_publishes_stream_in_is_left_unread_for_a_moment(
    rig: Rig, publisher: Client, keys: tuple[str, ...]
) -> None:
    stream(rig, publisher, READS, keys)
    assert publisher.wire.is_reading
    stream(rig, publisher, 2, keys)
    assert not publisher.wire.is_reading

    rig.jump(PAUSE_S)

    assert publisher.wire.is_reading


@pytest.mark.parametrize("mode", [m.ConfirmSelect(False), m.TxSelect()], ids=["confirms", "tx"])
def test_not_where_it_may_wait_for_an_answer(rig: Rig, publisher: Client, mode: Method) -> None:
    publisher.ask(1, mode)

    stream(rig, publisher, 2 * READS)

    assert publisher.wire.is_reading


@pytest.mark.parametrize("messages", [FEW - 1, MANY + 1])
def test_not_where_its_reads_hold_few_or_many(rig: Rig, publisher: Client, messages: int) -> None:
    stream(rig, publisher, 2 * READS, messages=messages)

    assert publisher.wire.is_reading


@pytest.mark.parametrize("other", [m.BasicQos(0, 1, False), m.BasicAck(1)], ids=["method", "ack"])
def test_not_where_it_does_other_things_between(rig: Rig, publisher: Client, other: Method) -> None:
    publisher.publish(1, "q", b"to be acked")
    publisher.send(1, m.BasicGet("q", False))
    stream(rig, publisher, READS)

    publisher.send(1, other)
    stream(rig, publisher, READS)

    assert publisher.wire.is_reading


def test_a_connection_that_is_closed_in_a_pause_leaves_no_timer(
    rig: Rig, publisher: Client
) -> None:
    stream(rig, publisher, READS + 2)
    timers = rig.clock.pending_count

    publisher.hang_up()

    assert rig.clock.pending_count < timers
    rig.jump(PAUSE_S)
