"""AmqQueue and time: message TTL, expiration, x-expires, on a virtual clock.

Tests: broker/queue/limits/expiry.py
"""

from __future__ import annotations

import pytest

from leveret.broker import mail, queue_requests
from leveret.broker.queue.limits.expiry import MessageExpiry, alive_at, expired_at
from leveret.broker.queue.publishers.publishers import IDLE_S
from leveret.core.limits import DELIVERY_BATCH_MESSAGES, TURN_MESSAGES
from leveret.testing.virtual_clock import VirtualClock
from rigs.queues.queue_rig import Rig, longs


@pytest.mark.parametrize(
    ("ttl_ms", "expiration_ms", "lifetime_ms"),
    [(None, None, None), (5, None, 5), (None, 7, 7), (5, 7, 5), (5, 3, 3), (5, 0, 0)],
)
def test_a_message_expires_at_the_lesser_of_both(
    ttl_ms: int | None, expiration_ms: int | None, lifetime_ms: int | None
) -> None:
    expiry, clock = MessageExpiry(recovered=False), VirtualClock()
    expiry.ttl_ms = ttl_ms
    now_ms = int(clock.wall_s() * 1000)

    found = expiry.deadlines(expiration_ms, clock, 2)

    assert found == (None if lifetime_ms is None else [now_ms + lifetime_ms] * 2)
    assert expiry.may_expire is (lifetime_ms is not None)
    assert expiry.is_unordered is (expiration_ms is not None)


@pytest.mark.parametrize(
    ("expiry_ms", "is_expired"), [(0, False), (99, True), (100, True), (101, False)]
)
def test_an_entry_expires_at_its_millisecond(expiry_ms: int, is_expired: bool) -> None:
    entry = (0, None, expiry_ms, False)

    assert expired_at(100)(entry) is is_expired
    assert alive_at(100)(entry) is not is_expired


def test_messages_of_a_queue_with_ttl_are_dropped_when_they_expire() -> None:
    rig = Rig(arguments=longs(x_message_ttl=1000))
    channel = rig.channel()
    channel.publish(b"0")
    rig.clock.jump(0.5)
    channel.publish(b"1")

    rig.clock.jump(0.499)
    assert rig.stat() == (2, 0)
    rig.clock.jump(0.002)
    assert rig.stat() == (1, 0)
    rig.clock.jump(0.5)
    assert rig.info()["messages"] == 0


def test_ttl_0_is_delivered_to_ready_consumers_or_dropped() -> None:
    rig = Rig(arguments=longs(x_message_ttl=0))
    channel = rig.channel()
    channel.publish(b"nobody", seqno=1)
    assert rig.stat() == (0, 0)
    assert [c.ranges for c in channel.take(mail.Confirm)] == [[(1, 1)]]

    channel.consume(b"c", prefetch=2)
    channel.publish(b"0", b"1", b"2")

    assert channel.bodies() == [b"0", b"1"]
    assert rig.stat() == (0, 1)


def test_a_run_with_ttl_0_is_delivered_whole_whatever_the_turns_budget() -> None:
    rig = Rig(arguments=longs(x_message_ttl=0))
    channel = rig.channel()
    channel.consume(b"c", no_ack=True)

    channel.publish(*[b"x"] * (2 * DELIVERY_BATCH_MESSAGES))

    assert len(channel.bodies()) == 2 * DELIVERY_BATCH_MESSAGES


def test_a_short_ttl_behind_a_long_one_counts_until_it_is_the_head() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.publish(b"long", expiration_ms=60_000)
    channel.publish(b"short", expiration_ms=100)
    channel.publish(b"none")

    rig.clock.jump(1.0)
    assert rig.stat() == (3, 0)

    assert channel.ask(queue_requests.Get(channel.ref, no_ack=True))[1][2] == b"long"
    assert rig.stat() == (1, 0), "the short one became the head and went"


def test_get_does_not_count_messages_that_have_expired() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.publish(b"long", expiration_ms=60_000)
    channel.publish(b"short", expiration_ms=100)
    channel.publish(b"none")
    rig.clock.jump(1.0)

    assert channel.ask(queue_requests.Get(channel.ref, no_ack=True))[4] == 1


def test_an_expired_message_between_live_ones_is_not_delivered() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.publish(b"0")
    for body, expiration_ms in ((b"gone", 100), (b"1", 60_000), (b"gone", 100)):
        channel.publish(body, expiration_ms=expiration_ms)
    rig.clock.jump(1.0)

    channel.consume(b"c", no_ack=True)

    assert channel.bodies() == [b"0", b"1"]
    assert rig.info()["messages"] == 0


def test_a_requeued_message_that_expired_meanwhile_is_dropped() -> None:
    rig = Rig(arguments=longs(x_message_ttl=1000))
    channel = rig.channel()
    channel.consume(b"c", prefetch=1)
    channel.publish(b"0")
    assert channel.bodies() == [b"0"]
    rig.clock.jump(2.0)

    channel.requeue(b"c", 0)

    assert channel.bodies() == []
    assert rig.info()["messages"] == 0


def test_a_requeued_message_is_dropped_by_the_timer_as_any_other() -> None:
    rig = Rig(arguments=longs(x_message_ttl=1000))
    channel = rig.channel()
    channel.publish(b"0")
    channel.ask(queue_requests.Get(channel.ref, no_ack=False))
    rig.clock.jump(0.5)
    channel.requeue(None, 0)
    assert rig.stat() == (1, 0)

    rig.clock.jump(0.502)

    assert rig.stat() == (0, 0)


def test_the_timer_follows_a_new_head_that_expires_sooner() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.publish(b"long", expiration_ms=60_000)
    rig.settle()
    channel.ask(queue_requests.Get(channel.ref, no_ack=True))
    channel.publish(b"short", expiration_ms=100)

    rig.clock.jump(0.2)

    assert rig.stat() == (0, 0)


def test_many_expired_messages_are_dropped_in_slices() -> None:
    rig = Rig(arguments=longs(x_message_ttl=10))
    channel = rig.channel()
    for _ in range(3):
        channel.publish(*[b"x"] * TURN_MESSAGES)
    channel.publish(b"x")
    rig.settle()
    rig.clock.jump(0.02)

    assert rig.info()["messages"] == 0


def test_no_timer_is_left_when_all_messages_have_expired() -> None:
    rig = Rig(arguments=longs(x_message_ttl=10))
    channel = rig.channel()
    channel.publish(b"x")

    rig.clock.jump(2 * IDLE_S)  # the account of the publisher is closed as well

    assert rig.clock.pending_count == 0


# x-expires.


def test_an_unused_queue_is_deleted() -> None:
    rig = Rig(arguments=longs(x_expires=200))

    rig.clock.jump(0.199)
    assert rig.deleted == []
    rig.clock.jump(0.002)
    assert rig.deleted == [rig.entry]
    assert not rig.sup.is_alive


@pytest.mark.parametrize("use", ["declare", "get"])
def test_declare_and_get_restart_x_expires(use: str) -> None:
    rig = Rig(arguments=longs(x_expires=200))
    channel = rig.channel()
    rig.clock.jump(0.15)

    channel.ask(
        queue_requests.Stat() if use == "declare" else queue_requests.Get(channel.ref, no_ack=True)
    )

    rig.clock.jump(0.15)
    assert rig.deleted == []
    rig.clock.jump(0.051)
    assert rig.deleted == [rig.entry]


@pytest.mark.parametrize("use", ["publish", "status"])
def test_publish_and_info_do_not_restart_x_expires(use: str) -> None:
    rig = Rig(arguments=longs(x_expires=200))
    channel = rig.channel()
    rig.clock.jump(0.15)

    if use == "publish":
        channel.publish(b"0")
    else:
        channel.ask(queue_requests.Stat(touch=False))

    rig.clock.jump(0.051)
    assert rig.deleted == [rig.entry]


@pytest.mark.parametrize("how", ["cancel", "death"])
def test_a_consumer_keeps_the_queue_and_its_end_restarts_x_expires(how: str) -> None:
    rig = Rig(arguments=longs(x_expires=200))
    channel = rig.channel()
    channel.consume(b"c")
    rig.clock.jump(5.0)
    assert rig.deleted == []

    if how == "cancel":
        channel.ask(queue_requests.Cancel(channel.ref, b"c"))
    else:
        channel.die()

    rig.clock.jump(0.199)
    assert rig.deleted == []
    rig.clock.jump(0.002)
    assert rig.deleted == [rig.entry]


def test_a_deleted_queue_leaves_no_timer() -> None:
    rig = Rig(arguments=longs(x_expires=200, x_message_ttl=1000))
    channel = rig.channel()
    channel.publish(b"0")

    channel.ask(queue_requests.Delete())

    assert rig.clock.pending_count == 0
