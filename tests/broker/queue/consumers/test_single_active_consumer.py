"""Queues with ``x-single-active-consumer``: who is active, who takes over, and that nobody else gets anything.

Tests: broker/queue/consumers/waiting_consumers.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp.errors import AccessRefused
from leveret.broker import mail, queue_requests
from leveret.broker.queue.consumers.consumers import Consumers
from leveret.broker.queue.consumers.waiting_consumers import WaitingConsumers
from rigs.queues.queue_rig import Channel, Rig
from rigs.refs import named
from rigs.wire.consumers import QUEUE, consume


def single_active() -> Rig:
    return Rig(arguments={"x-single-active-consumer": ("t", True)})


def active(rig: Rig) -> Any:
    return rig.info()["single_active_consumer_tag"]


def cancel(channel: Channel, tag: bytes) -> None:
    channel.ask(queue_requests.Cancel(channel.ref, tag))


def test_only_the_first_consumer_gets_messages() -> None:
    rig = single_active()
    first, second = rig.channel(), rig.channel()
    first.consume(b"a")
    second.consume(b"b", priority=10)
    second.consume(b"c")

    for _ in range(3):
        second.publish(b"0", b"1")

    assert len(first.bodies(b"a")) == 6
    assert second.bodies() == []
    assert active(rig) == "a"
    assert rig.info()["single_active_consumer_pid"] == str(first.ref)
    assert rig.stat() == (0, 3)


def test_the_highest_priority_takes_over_then_the_oldest() -> None:
    rig = single_active()
    channel = rig.channel()
    for tag, priority in ((b"a", 0), (b"b", 1), (b"c", 5), (b"d", 5), (b"e", 1)):
        channel.consume(tag, priority=priority)

    order = []
    for _ in range(5):
        order.append(active(rig))
        cancel(channel, order[-1].encode())

    assert order == ["a", "c", "d", "b", "e"]
    assert active(rig) == ""


def test_messages_that_wait_go_to_who_takes_over() -> None:
    rig = single_active()
    channel, other = rig.channel(), rig.channel()
    channel.consume(b"a", prefetch=1)
    other.consume(b"b")
    channel.publish(b"0", b"1", b"2")

    assert channel.bodies() == [b"0"]
    assert other.bodies() == [], "one that has no room does not let others in"
    cancel(channel, b"a")
    assert other.bodies() == [b"1", b"2"]
    channel.requeue(b"a", 0)
    assert other.deliveries() == [(b"0", 0, True)]


def test_a_consumer_that_waits_for_room_stays_active_and_goes_on() -> None:
    rig = single_active()
    channel, other = rig.channel(), rig.channel()
    channel.consume(b"a", prefetch=1)
    other.consume(b"b")
    channel.publish(b"0", b"1")
    channel.bodies()
    other.gate.is_open = False
    other.gate.is_open = True
    other.send(mail.Resume(other.ref))

    assert other.bodies() == []
    channel.ack(b"a", 0)
    assert channel.bodies() == [b"1"]


@pytest.mark.parametrize("how", ["leaves", "dies"])
def test_the_end_of_a_channel_makes_none_of_its_own_active(how: str) -> None:
    rig = single_active()
    channel, other = rig.channel(), rig.channel()
    for tag in (b"a", b"b"):
        channel.consume(tag, priority=9)
    other.consume(b"c")
    channel.publish(b"0", b"1")
    assert len(channel.bodies(b"a")) == 2

    if how == "leaves":
        channel.ask(queue_requests.Leave(channel.ref))
    else:
        channel.die()

    assert active(rig) == "c"
    assert other.deliveries() == [(b"0", 0, True), (b"1", 1, True)]


def test_unacked_messages_come_back_before_the_next_gets_younger_ones() -> None:
    rig = single_active()
    channel, other = rig.channel(), rig.channel()
    channel.consume(b"a", prefetch=2)
    other.consume(b"b")
    channel.publish(*[b"%d" % number for number in range(5)])
    channel.bodies()

    channel.die()

    assert other.bodies() == [b"0", b"1", b"2", b"3", b"4"]


def test_a_tag_that_is_used_again_waits_although_its_old_messages_are_acked() -> None:
    rig = single_active()
    channel, other = rig.channel(), rig.channel()
    channel.consume(b"a", prefetch=1)
    other.consume(b"b")
    channel.publish(b"0")
    channel.bodies()
    cancel(channel, b"a")
    channel.consume(b"a", prefetch=1)
    channel.ack(b"a", 0)

    channel.publish(b"1")

    assert (channel.bodies(), other.bodies()) == ([], [b"1"])


def test_a_get_is_answered_beside_the_active_consumer() -> None:
    rig = single_active()
    channel, other = rig.channel(), rig.channel()
    channel.consume(b"a", prefetch=1)
    channel.publish(b"0", b"1")

    assert other.ask(queue_requests.Get(other.ref, True))[1][2] == b"1"


def test_no_consumer_may_be_exclusive_not_even_the_first() -> None:
    rig = single_active()
    channel = rig.channel()

    for _ in range(2):
        refused = channel.consume(b"x", exclusive=True)
        assert isinstance(refused, AccessRefused)
        assert str(refused) == "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"
        channel.consume(b"a")


def test_consumers_that_do_and_do_not_acknowledge_stand_beside_each_other() -> None:
    rig = single_active()
    channel, other = rig.channel(), rig.channel()
    channel.publish(b"0", b"1")
    channel.consume(b"a", no_ack=True)
    other.consume(b"b")
    channel.publish(b"2")
    assert channel.deliveries() == [(b"0", None, False), (b"1", None, False), (b"2", None, False)]

    cancel(channel, b"a")
    channel.publish(b"3")

    assert [body for body, *_ in other.deliveries()] == [b"3"]
    assert rig.info()["messages_unacknowledged"] == 1


def test_after_a_crash_the_first_to_come_back_is_the_only_active_one() -> None:
    rig = single_active()
    one, two = rig.channel(), rig.channel()
    one.consume(b"a")
    two.consume(b"b")
    rig.runtime.exit(rig.queue, "crash")
    rig.settle()

    two.consume(b"b")
    one.consume(b"a")
    one.publish(b"0", b"1")

    assert active(rig) == "b"
    assert (one.bodies(), two.bodies()) == ([], [b"0", b"1"])


def test_the_queue_ends_with_the_last_of_its_consumers() -> None:
    rig = Rig(auto_delete=True, arguments={"x-single-active-consumer": ("t", True)})
    channel = rig.channel()
    channel.consume(b"a")
    channel.consume(b"b")

    cancel(channel, b"a")
    assert rig.entry.state == "running"
    cancel(channel, b"b")
    rig.settle()
    assert rig.entry.state == "deleted"


def test_a_consumer_that_does_not_wait_is_not_taken_out() -> None:
    consumers = Consumers(QUEUE, has_single_active=True)
    first = consumers.add(consume(named("ch"), b"a", priority=3))
    second = consumers.add(consume(named("ch"), b"b", priority=3))
    waiting = WaitingConsumers()

    assert not waiting.discard(first)
    waiting.add(second)
    assert not waiting.discard(first)
    assert waiting.discard(second)
    assert waiting.take_first() is None
