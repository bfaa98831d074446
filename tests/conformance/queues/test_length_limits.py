"""x-max-length, x-max-length-bytes and x-overflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.raw import Channel, Event
from rigs.nodes import BrokerUnderTest
from rigs.waiting import wait_until

Declare = Callable[..., str]


@pytest.fixture(params=[False, True], ids=["transient", "durable"])
def limited(
    request: pytest.FixtureRequest, channel: Channel, name: str, litter: Callable[..., None]
) -> Declare:
    """Declare the queue with limits: ``limited(max_length=3)``."""

    def declare(short: str = "", **limits: Any) -> str:
        queue = name + short
        arguments = {f"x-{key.replace('_', '-')}": value for key, value in limits.items()}
        channel.ok("queue.declare", queue=queue, durable=request.param, arguments=arguments)
        litter(queue)
        return queue

    return declare


def left_in(channel: Channel, queue: str) -> list[bytes]:
    """Return the bodies that are ready, in order; they are gone then."""
    bodies = []
    while (event := channel.get(queue)).name == "basic.get-ok":
        bodies.append(event.body)
    return bodies


def publish_all(channel: Channel, queue: str, *bodies: str, **properties: Any) -> None:
    for body in bodies:
        channel.publish(queue, body, delivery_mode=2, **properties)


def answers(channel: Channel, count: int) -> dict[int, str]:
    """Read confirms for the numbers 1 to ``count``: ack or nack for each."""
    found: dict[int, str] = {}
    while len(found) < count:
        event: Event = channel.read()
        assert event.name in {"basic.ack", "basic.nack"}, event
        first = 1 if event.multiple else event.delivery_tag
        for number in range(first, event.delivery_tag + 1):
            found.setdefault(number, event.name.partition(".")[2])
    return dict(sorted(found.items()))


def test_the_oldest_are_dropped(channel: Channel, limited: Declare) -> None:
    queue = limited(max_length=3)

    publish_all(channel, queue, "0", "1", "2", "3", "4")

    assert channel.ready(queue) == 3
    assert left_in(channel, queue) == [b"2", b"3", b"4"]


def test_bytes_are_those_of_bodies_and_a_message_above_all_empties_the_queue(
    channel: Channel, limited: Declare
) -> None:
    queue = limited(max_length_bytes=10)

    publish_all(channel, queue, "aaaa", "bbbb", "cc", type="t" * 100)
    assert channel.ready(queue) == 3
    publish_all(channel, queue, "d")
    assert channel.ready(queue) == 3
    publish_all(channel, queue, "e" * 11)

    assert channel.ready(queue) == 0


def test_both_limits_hold(channel: Channel, limited: Declare) -> None:
    queue = limited(max_length=2, max_length_bytes=5)

    publish_all(channel, queue, "a", "b", "c")
    assert channel.ready(queue) == 2
    publish_all(channel, queue, "ddddd")

    assert left_in(channel, queue) == [b"ddddd"]


def test_a_limit_of_0_leaves_nothing_but_to_a_consumer_that_waits(
    channel: Channel, limited: Declare
) -> None:
    queue = limited(max_length=0)
    publish_all(channel, queue, "nobody")
    assert channel.ready(queue) == 0

    channel.ok("basic.qos", prefetch_count=2)
    channel.ok("basic.consume", queue=queue, consumer_tag="c")
    publish_all(channel, queue, "0", "1", "2", "3")

    assert channel.bodies(2) == [b"0", b"1"]
    assert channel.ready(queue) == 0


def test_unacked_messages_do_not_count_until_they_are_requeued(
    channel: Channel, limited: Declare
) -> None:
    queue = limited(max_length=1)
    publish_all(channel, queue, "0")
    first = channel.get(queue, no_ack=False)
    publish_all(channel, queue, "1")
    assert channel.ready(queue) == 1

    channel.send("basic.reject", delivery_tag=first.delivery_tag, requeue=True)

    wait_until(lambda: channel.ready(queue) == 1)
    assert left_in(channel, queue) == [b"1"]


def test_all_dropped_messages_are_confirmed(channel: Channel, limited: Declare) -> None:
    queue = limited(max_length=1)
    channel.ok("confirm.select")

    publish_all(channel, queue, *"01234")

    assert set(answers(channel, 5).values()) == {"ack"}
    assert left_in(channel, queue) == [b"4"]


def test_of_a_queue_with_priorities_the_highest_is_dropped(
    channel: Channel, limited: Declare
) -> None:
    queue = limited(max_length=2, max_priority=5)

    for priority in (5, 1, 2):
        channel.publish(queue, b"%d" % priority, priority=priority)

    assert channel.ready(queue) == 2
    assert left_in(channel, queue) == [b"2", b"1"]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_messages_above_the_limit_are_refused(
    channel: Channel, limited: Declare, overflow: str
) -> None:
    queue = limited(max_length=2, overflow=overflow)
    channel.ok("confirm.select")

    publish_all(channel, queue, *"01234")

    expected = {1: "ack", 2: "ack", 3: "nack", 4: "nack", 5: "nack"}
    assert answers(channel, 5) == expected
    assert left_in(channel, queue) == [b"0", b"1"]


def test_a_small_message_fits_behind_one_that_does_not(channel: Channel, limited: Declare) -> None:
    queue = limited(max_length_bytes=5, overflow="reject-publish")
    channel.ok("confirm.select")

    publish_all(channel, queue, "aaa", "bbb", "cc", "d")

    assert answers(channel, 4) == {1: "ack", 2: "nack", 3: "ack", 4: "nack"}
    assert left_in(channel, queue) == [b"aaa", b"cc"]


def test_without_confirms_a_refusal_is_silent(channel: Channel, limited: Declare) -> None:
    queue = limited(max_length=1, overflow="reject-publish")

    publish_all(channel, queue, *"012")

    assert channel.settle(queue) == []
    assert left_in(channel, queue) == [b"0"]


def test_a_limit_of_0_refuses_all_also_when_a_consumer_waits(
    channel: Channel, limited: Declare
) -> None:
    queue = limited(max_length=0, overflow="reject-publish")
    channel.ok("confirm.select")
    channel.ok("basic.consume", queue=queue, consumer_tag="c")

    publish_all(channel, queue, "0")

    assert channel.read().name == "basic.nack"


def test_a_refused_message_goes_to_the_other_queues(
    channel: Channel, limited: Declare, queue: str, exchange: Callable[..., str]
) -> None:
    full = limited("-full", max_length=0, overflow="reject-publish")
    fanout = exchange("fanout")
    for each in (full, queue):
        channel.ok("queue.bind", queue=each, exchange=fanout)
    channel.ok("confirm.select")

    channel.publish(exchange=fanout, body="x")

    assert channel.read().name == "basic.nack"
    assert left_in(channel, queue) == [b"x"]


def test_a_consumer_makes_room_for_more(channel: Channel, limited: Declare) -> None:
    queue = limited(max_length=2, overflow="reject-publish")
    channel.ok("confirm.select")
    channel.ok("basic.consume", queue=queue, consumer_tag="c", no_ack=True)

    for body in "0123456789":
        channel.publish(queue, body)
        names = {channel.read().name, channel.read().name}
        assert names == {"basic.ack", "basic.deliver"}


@pytest.fixture
def policy(broker: BrokerUnderTest, name: str) -> Iterator[Callable[..., None]]:
    """Set one policy, or operator policy, for the test's queues: ``policy('{"max-length": 1}')``."""
    kinds = set()

    def put(definition: str, kind: str = "policy") -> None:
        broker.control(f"set_{kind}", f"{name}-p", f"^{name}", definition)
        kinds.add(kind)

    yield put
    for kind in kinds:
        broker.control(f"clear_{kind}", f"{name}-p")


def test_the_lesser_of_argument_and_policies_holds(
    channel: Channel, limited: Declare, policy: Callable[..., None]
) -> None:
    queues = {own: limited(f"-{own}", max_length=own) for own in (5, 2)}
    queues[0] = limited("-none")
    policy('{"max-length": 3}')

    wait_until(lambda: _fill_and_count(channel, queues) == {5: 3, 2: 2, 0: 3})
    policy('{"max-length": 1}', "operator_policy")

    wait_until(lambda: _fill_and_count(channel, queues) == {5: 1, 2: 1, 0: 1})


def _fill_and_count(channel: Channel, queues: dict[int, str]) -> dict[int, int]:
    for queue in queues.values():
        publish_all(channel, queue, *"0123456")
    return {own: channel.ready(queue) for own, queue in queues.items()}


def test_a_policy_shortens_a_queue_that_is_there(
    channel: Channel, limited: Declare, policy: Callable[..., None]
) -> None:
    queue = limited()
    publish_all(channel, queue, *"0123456789")
    assert channel.ready(queue) == 10

    policy('{"max-length": 4}')

    wait_until(lambda: channel.ready(queue) == 4)
    assert left_in(channel, queue) == [b"6", b"7", b"8", b"9"]


def test_an_overflow_by_policy_takes_effect(
    channel: Channel, limited: Declare, policy: Callable[..., None]
) -> None:
    queue = limited(max_length=1)
    policy('{"overflow": "reject-publish"}')

    def is_refused() -> bool:
        left_in(channel, queue)
        publish_all(channel, queue, "0", "1")
        return left_in(channel, queue) == [b"0"]

    wait_until(is_refused)
