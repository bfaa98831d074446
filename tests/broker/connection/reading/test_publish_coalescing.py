"""Publishes that stream in: when a connection is left unread, and whether that slows the client down."""

from __future__ import annotations

import math

import pytest

from leveret.amqp import methods as m
from leveret.amqp.fields import Method
from leveret.broker.connection.reading.publish_coalescing import PublishCoalescing
from leveret.core.batching import PublishPauses
from rigs.broker_rig import Client, Rig

POLICY = PublishPauses()
GAP_S = 0.0001  # between two reads
READS = round(POLICY.streak_s / GAP_S)  # of a streak
BYTES = 150  # of a message, with its frames


def after_a_streak(
    coalescing: PublishCoalescing,
    messages: int = 20,
    gap_s: float = GAP_S,
    size_bytes: int = BYTES,
    began_s: float = 1.0,
    to_backlogs: int = 0,
) -> float:
    """Return how long a pause follows a streak of reads."""
    reads = math.ceil(POLICY.streak_s / gap_s - 1e-9)
    size_bytes *= messages
    for read in range(reads):
        assert not coalescing.published(messages, size_bytes, began_s + read * gap_s, to_backlogs)
    ended_s = began_s + reads * gap_s + 1e-12
    return coalescing.published(messages, size_bytes, ended_s, to_backlogs)


@pytest.mark.parametrize(
    ("messages", "gap_s", "size_bytes", "pauses"),
    [
        (20, GAP_S, BYTES, True),
        (POLICY.few_messages, GAP_S, BYTES, True),
        (POLICY.few_messages - 1, GAP_S, BYTES, False),
        (POLICY.many_messages, GAP_S, BYTES, True),
        (20, POLICY.pause_s / POLICY.worth * 0.99, BYTES, True),
        (20, POLICY.pause_s / POLICY.worth * 1.01, BYTES, False),
        (20, 10 * POLICY.streak_s, BYTES, False),
        (
            POLICY.few_messages,
            POLICY.pause_s / 8,
            POLICY.bytes_max // 8 // POLICY.few_messages,
            True,
        ),
        (
            POLICY.few_messages,
            POLICY.pause_s / 8,
            POLICY.bytes_max // 8 // POLICY.few_messages + 1,
            False,
        ),
    ],
)
def test_a_pause_must_bring_many_messages_and_not_too_many_bytes(
    messages: int, gap_s: float, size_bytes: int, pauses: bool
) -> None:
    pause_s = after_a_streak(PublishCoalescing(POLICY), messages, gap_s, size_bytes)

    assert pause_s == (POLICY.pause_s if pauses else 0.0)


@pytest.mark.parametrize(
    ("messages", "gap_s", "to_backlogs", "pause_s"),
    [
        (1, GAP_S, 1, POLICY.backlog_pause_s),
        (POLICY.few_messages - 1, GAP_S, POLICY.few_messages - 1, POLICY.backlog_pause_s),
        (POLICY.few_messages, GAP_S, POLICY.few_messages, POLICY.pause_s),
        (POLICY.few_messages - 1, GAP_S, POLICY.few_messages - 2, 0.0),
        (1, POLICY.backlog_pause_s / POLICY.worth * 0.99, 1, POLICY.backlog_pause_s),
        (1, POLICY.backlog_pause_s / POLICY.worth * 1.01, 1, 0.0),
    ],
)
def test_a_few_in_a_read_are_enough_where_all_go_to_backlogs(
    messages: int, gap_s: float, to_backlogs: int, pause_s: float
) -> None:
    coalescing = PublishCoalescing(POLICY)

    assert after_a_streak(coalescing, messages, gap_s, to_backlogs=to_backlogs) == pause_s


def test_a_message_that_a_consumer_waits_for_ends_pauses_of_a_stream_to_a_backlog() -> None:
    coalescing = PublishCoalescing(POLICY)
    assert after_a_streak(coalescing, 1, to_backlogs=1)
    assert coalescing.published(20, 20 * BYTES, 1.1, 1)

    assert not coalescing.published(20, 20 * BYTES, 1.2, 19)

    assert after_a_streak(coalescing, 1, began_s=2.0, to_backlogs=1) == POLICY.backlog_pause_s


def test_it_does_not_end_those_of_a_stream_with_more_in_a_read() -> None:
    coalescing = PublishCoalescing(POLICY)
    assert after_a_streak(coalescing)

    assert coalescing.published(200, 200 * BYTES, 1.1, 0) == POLICY.pause_s


@pytest.mark.parametrize("at", [1, READS // 2, READS])
def test_something_else_begins_a_new_streak(at: int) -> None:
    coalescing = PublishCoalescing(POLICY)
    for read in range(at):
        coalescing.published(20, 20 * BYTES, read * GAP_S)
    coalescing.other()

    assert after_a_streak(coalescing)


def test_something_else_ends_the_pauses() -> None:
    coalescing = PublishCoalescing(POLICY)
    assert after_a_streak(coalescing)
    assert coalescing.published(200, 200 * BYTES, 1.1)
    coalescing.other()

    assert after_a_streak(coalescing, began_s=2.0)


def periods(coalescing: PublishCoalescing, ratio: float) -> int:
    """Return after how many periods of so much of the streak's rate the pauses ended, 3 at most."""
    assert after_a_streak(coalescing)
    messages, now_s = int(20 / GAP_S * POLICY.pause_s * ratio), 1.0 + POLICY.streak_s
    for read in range(1, 3 * POLICY.period_pauses + 1):
        if not coalescing.published(messages, messages * BYTES, now_s + read * POLICY.pause_s):
            return read // POLICY.period_pauses
    return 3


def test_pauses_go_on_while_the_client_publishes_as_fast_as_without() -> None:
    assert periods(PublishCoalescing(POLICY), POLICY.slower * 1.05) == 3


def test_a_client_that_they_slow_down_gets_no_more_for_a_while() -> None:
    coalescing = PublishCoalescing(POLICY)
    assert periods(coalescing, POLICY.slower * 0.95) == 1
    for read in range(POLICY.rest_reads):
        assert not coalescing.published(20, 20 * BYTES, 2.0 + read * GAP_S)

    assert after_a_streak(coalescing, began_s=3.0)


def reads_of_a_rest(coalescing: PublishCoalescing) -> int:
    """Return how many reads go by, behind pauses that slowed the client down, before a streak begins."""
    assert periods(coalescing, POLICY.slower * 0.95) == 1
    reads = 0
    while not coalescing.reads:
        coalescing.published(20, 20 * BYTES, 2.0 + reads * GAP_S)
        reads += 1
    coalescing.other()
    return reads - 1


def test_each_time_that_comes_again_it_is_left_alone_for_twice_as_long() -> None:
    coalescing = PublishCoalescing(POLICY)
    rests = [reads_of_a_rest(coalescing) for _ in range(9)]
    assert rests == [min(POLICY.rest_reads << time, POLICY.rest_reads_max) for time in range(9)]

    assert periods(coalescing, 1.0) == 3
    coalescing.other()

    assert reads_of_a_rest(coalescing) == POLICY.rest_reads


@pytest.mark.parametrize("room", [20, 100, 150, 10_000])
def test_a_client_that_waits_for_its_socket_is_not_slowed_down(room: int) -> None:
    """It publishes every 5 us while its socket takes a message: no more than ``room`` until the broker reads."""
    coalescing = PublishCoalescing(POLICY)
    pace_s, read_s, now_s, sent = 0.000_005, 0.0001, 1.0, 0
    wait_s = read_s
    while now_s < 3.0:
        now_s += wait_s
        messages = min(room, int(wait_s / pace_s))
        sent += messages
        wait_s = (
            POLICY.pause_s if coalescing.published(messages, messages * BYTES, now_s) else read_s
        )

    assert sent / 2.0 > 0.75 * min(room, read_s / pace_s) / read_s


def test_a_client_that_becomes_faster_is_not_held_at_what_its_socket_takes() -> None:
    """Such as one on a JVM, which compiles its code after a second. Its socket takes 100 messages until it is read."""
    coalescing = PublishCoalescing(POLICY)
    room, read_s, now_s, late = 100, 0.0001, 1.0, 0
    wait_s = read_s
    while now_s < 6.0:
        now_s += wait_s
        pace_s = 0.000_016 if now_s < 1.5 else 0.000_005
        messages = min(room, int(wait_s / pace_s))
        if now_s >= 4.0:
            late += messages
        wait_s = (
            POLICY.pause_s if coalescing.published(messages, messages * BYTES, now_s) else read_s
        )

    assert late / 2.0 > 0.75 / 0.000_005


@pytest.mark.parametrize("answer_s", [0.0001, 0.0004, 0.001])
def test_a_client_in_step_with_answers_is_hardly_slowed_down(answer_s: float) -> None:
    """Such as one whose requests are in a backlog: it sends the next one when another connection got the answer."""
    coalescing = PublishCoalescing(POLICY)
    now_s, sent = 1.0, 0
    while now_s < 11.0:
        sent += 1
        pause_s = coalescing.published(1, BYTES, now_s, 1)
        now_s += max(pause_s, answer_s)

    assert sent > 0.9 * 10.0 / answer_s


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
    messages: int = 2 * POLICY.few_messages,
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

    rig.jump(POLICY.pause_s)

    assert publisher.wire.is_reading


@pytest.mark.parametrize("mode", [m.ConfirmSelect(False), m.TxSelect()], ids=["confirms", "tx"])
def test_not_where_it_may_wait_for_an_answer(rig: Rig, publisher: Client, mode: Method) -> None:
    publisher.ask(1, mode)

    stream(rig, publisher, 2 * READS)

    assert publisher.wire.is_reading


@pytest.mark.parametrize("has_consumer", [True, False])
def test_not_where_its_reads_hold_many(rig: Rig, publisher: Client, has_consumer: bool) -> None:
    if has_consumer:
        consuming(rig, "q")

    stream(rig, publisher, 2 * READS, messages=POLICY.many_messages + 1)

    assert publisher.wire.is_reading


def test_not_where_its_reads_hold_few_that_a_consumer_gets(rig: Rig, publisher: Client) -> None:
    consuming(rig, "q")

    stream(rig, publisher, 2 * READS, messages=POLICY.few_messages - 1)

    assert publisher.wire.is_reading


def consuming(rig: Rig, queue: str, prefetch: int = 0) -> Client:
    consumer = rig.session()
    consumer.send(1, m.BasicQos(prefetch_count=prefetch))
    consumer.send(1, m.BasicConsume(queue, "t", no_ack=not prefetch))
    return consumer


def is_left_unread(
    rig: Rig, publisher: Client, *routes: tuple[str, str], reads: int = 3 * READS
) -> bool:
    """Publish one message per read; return whether one of them is followed by a pause."""
    for read in range(reads):
        publisher.feed(publisher.contents(1, (*routes[read % len(routes)], b"%d" % read, {})))
        if not publisher.wire.is_reading:
            return True
        rig.jump(GAP_S)
    return False


TO_Q = ("", "q")
TO_BOTH = ("amq.fanout", "")


@pytest.fixture
def other(publisher: Client) -> str:
    """Another queue; both are bound to ``amq.fanout``."""
    publisher.ask(1, m.QueueDeclare("other"))
    for queue in ("q", "other"):
        publisher.ask(1, m.QueueBind(queue, "amq.fanout", ""))
    return "other"


def test_single_messages_are_left_unread_while_they_go_to_a_backlog(
    rig: Rig, publisher: Client
) -> None:
    assert is_left_unread(rig, publisher, TO_Q)
    rig.jump(POLICY.pause_s)
    assert not publisher.wire.is_reading

    rig.jump(POLICY.backlog_pause_s)

    assert publisher.wire.is_reading


def test_a_consumer_with_a_full_prefetch_does_not_wait_for_them(
    rig: Rig, publisher: Client
) -> None:
    consuming(rig, "q", prefetch=1)

    assert is_left_unread(rig, publisher, TO_Q)


@pytest.mark.parametrize(
    "routes",
    [(TO_Q,), (TO_Q, ("", "other")), (TO_BOTH,)],
    ids=["alone", "in turn with others", "and another queue gets, too"],
)
def test_single_messages_that_a_consumer_waits_for_are_read_at_once(
    rig: Rig, publisher: Client, other: str, routes: tuple[tuple[str, str], ...]
) -> None:
    consuming(rig, "q")

    assert not is_left_unread(rig, publisher, *routes)


def test_two_queues_without_consumers_are_backlogs_of_a_fan_out(
    rig: Rig, publisher: Client, other: str
) -> None:
    assert is_left_unread(rig, publisher, TO_BOTH)


def test_when_a_consumer_has_emptied_the_queue_they_are_read_at_once_again(
    rig: Rig, publisher: Client
) -> None:
    assert is_left_unread(rig, publisher, TO_Q)
    consuming(rig, "q")

    for _ in range(2):  # of one read it only knows that the read before went to a backlog
        rig.jump(POLICY.backlog_pause_s)
        assert is_left_unread(rig, publisher, TO_Q, reads=1)
    rig.jump(POLICY.backlog_pause_s)

    assert not is_left_unread(rig, publisher, TO_Q)


def test_a_connection_that_is_closed_in_a_pause_leaves_no_timer(
    rig: Rig, publisher: Client
) -> None:
    stream(rig, publisher, READS + 2)
    timers = rig.clock.pending_count

    publisher.hang_up()

    assert rig.clock.pending_count < timers
    rig.jump(POLICY.pause_s)
