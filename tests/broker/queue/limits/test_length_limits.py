"""Length limits: what fits, and how a queue is shortened in turns.

Tests: broker/queue/limits/overflow.py, broker/queue/storage/factory.py
"""

from __future__ import annotations

from typing import Any

from leveret.amqp.properties import Properties, head_of
from leveret.broker import mail
from leveret.broker.queue.limits.length_limits import LengthLimits
from leveret.broker.queue.storage.factory import priority_of
from leveret.core.limits import DELIVERY_BATCH_MESSAGES, TURN_MESSAGES
from leveret.core.message import Message
from leveret.queue_backing.priority_queue import PriorityQueue
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.testing.virtual_clock import VirtualClock
from rigs.queues.fake_index import FakeIndex
from rigs.queues.queue_rig import Rig, longs


def bodies(*sizes: int) -> list[Message]:
    return [(b"", b"", b"x" * size) for size in sizes]


def test_what_fits_adds_up() -> None:
    limits = LengthLimits(5, 10, "reject-publish")

    assert limits.leading(bodies(4, 4, 3, 1), 0, 0) == (True, 2)
    assert limits.leading(bodies(3, 1), 2, 8) == (False, 1)
    assert limits.leading(bodies(1), 3, 8) == (True, 1)
    assert limits.leading(bodies(1, 1, 1), 4, 0) == (True, 1)
    assert limits.leading(bodies(1, 1, 1), 5, 0) == (False, 3)
    assert limits.leading(bodies(11, 12), 0, 0) == (False, 2)


def test_parts_of_a_run_keep_their_publishers_and_numbers() -> None:
    rig = Rig()
    one, other = rig.channel().ref, rig.channel().ref
    messages = [(b"", b"head", b"%d" % n) for n in range(5)]
    run = mail.Publish(messages, True, [(one, 2, 10, 7), (other, 3, 15, 0)], 60_000, 100, 20)

    parts = mail.PublishParts(run)
    first, rest = parts.take(3), parts.take(2)

    assert first.messages + rest.messages == messages
    assert first.publishers == [(one, 2, 10, 7), (other, 1, 1, 0)]
    assert rest.publishers == [(other, 2, 14, 0)]
    assert (first.head_bytes, rest.head_bytes) == (8, 12)
    assert (first.first_msg_no, rest.first_msg_no) == (100, 103)
    assert first.expiration_ms == rest.expiration_ms == 60_000
    parts = mail.PublishParts(run)
    assert parts.take(1).publishers == [(one, 1, 1, 7)]
    assert parts.take(4).publishers == [(one, 1, 9, 8), (other, 3, 15, 0)]
    assert mail.PublishParts(run).take(5) is run


def test_parts_of_a_run_cost_no_more_than_their_own_messages() -> None:
    channel = Rig().channel().ref
    looks = [0]

    class Counted(list[Any]):
        def __getitem__(self, at: Any) -> Any:
            found = super().__getitem__(at)
            looks[0] += len(found) if isinstance(at, slice) else 1
            return found

    count = 4_000
    messages = Counted([(b"", b"head", b"x" * (n % 2)) for n in range(count)])
    run = mail.Publish(messages, False, [(channel, 1, 5, n + 1) for n in range(count)])
    limits, parts = LengthLimits(None, 1, "reject-publish"), mail.PublishParts(run)
    numbers = []

    while parts.at < count:
        _, size = limits.leading(messages, 1, 1, parts.at)
        numbers += [owner[3] for owner in parts.take(size).publishers]

    assert numbers == [*range(1, count + 1)]
    assert looks[0] < 10 * count


def test_a_long_queue_is_shortened_in_turns_without_a_wait() -> None:
    rig = Rig()
    channel = rig.channel()
    for _ in range(3):
        channel.publish(*[b"x"] * TURN_MESSAGES)
        rig.settle()

    rig.set_policy(max_length=1)

    assert rig.stat() == (1, 0)
    assert rig.info()["messages_unacknowledged"] == 0


def test_consumers_that_wait_get_a_whole_run_before_any_is_dropped() -> None:
    rig = Rig(arguments=longs(x_max_length=1))
    channel = rig.channel()
    channel.consume(b"c", no_ack=True)

    channel.publish(*[b"x"] * (2 * DELIVERY_BATCH_MESSAGES))

    assert len(channel.bodies()) == 2 * DELIVERY_BATCH_MESSAGES


def test_a_message_dropped_at_once_does_not_count_against_those_behind_it() -> None:
    rig = Rig(
        make_backing=lambda _: PriorityQueue([VariableQueue(), VariableQueue()], priority_of),
        arguments=longs(x_max_priority=1, x_max_length_bytes=10),
    )
    channel = rig.channel()
    run = [
        (b"\0\0", head_of(Properties(priority=priority), size), b"x" * size)
        for priority, size in ((0, 11), (1, 1))
    ]

    channel.send(mail.Publish(run, False, [(channel.ref, 2, 12, 0)]))

    assert rig.stat() == (1, 0)


def test_many_requeued_messages_are_dropped_when_all_are_back() -> None:
    rig = Rig(arguments=longs(x_max_length=3))
    channel, other = rig.channel(), rig.channel()
    channel.consume(b"c")
    count = TURN_MESSAGES + 10
    for start in range(0, count, 1_000):
        run = range(start, min(count, start + 1_000))
        channel.publish(*[b"%d" % n for n in run])
        rig.settle()
    channel.bodies()

    channel.die()

    other.consume(b"c")
    assert other.bodies() == [b"%d" % n for n in range(count - 3, count)]


def test_a_limit_that_goes_lets_messages_in_again() -> None:
    rig = Rig(arguments={"x-overflow": ("S", b"reject-publish")})
    channel = rig.channel()
    rig.set_policy(max_length=0)
    channel.publish(b"0", seqno=1)
    assert [each.ok for each in channel.take(mail.Confirm)] == [False]

    rig.set_policy()
    channel.publish(b"1", seqno=2)

    assert [each.ok for each in channel.take(mail.Confirm)] == [True]
    assert rig.stat() == (1, 0)


def test_refused_messages_leave_the_store() -> None:
    index = FakeIndex()
    rig = Rig(
        make_backing=lambda _: VariableQueue(index, VirtualClock()),
        durable=True,
        queue_no=1,
        arguments=longs(x_max_length=1) | {"x-overflow": ("S", b"reject-publish")},
    )
    channel = rig.channel()
    index.route(1, [(b"origin", b"head", body) for body in (b"0", b"1", b"2")])

    channel.publish(b"0", b"1", b"2", persistent=True)

    assert rig.stat() == (1, 0)
    assert index.discarded == [2, 3]
