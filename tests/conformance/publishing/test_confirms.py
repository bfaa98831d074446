"""Publisher confirms: every number is answered once; how they are bundled is the broker's affair."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Connect
from conformance.raw import Channel, Event


def covered(events: list[Event], first: int = 1) -> list[int]:
    """Return the numbers that acks cover, in order; each must be covered once."""
    pending: list[int] = []
    settled: list[int] = []
    highest = max((event.delivery_tag for event in events if event.name == "basic.ack"), default=0)
    pending = list(range(first, highest + 1))
    for event in events:
        if event.name == "basic.ack":
            mine = [n for n in pending if n == event.delivery_tag]
            if event.multiple:
                mine = [n for n in pending if n <= event.delivery_tag]
            assert mine, f"{event} covers nothing"
            pending = [n for n in pending if n not in mine]
            settled += mine
    assert pending == []
    return sorted(settled)


def _read_acks(channel: Channel, last: int, first: int = 1) -> list[Event]:
    events: list[Event] = []
    seen: set[int] = set()
    while len(seen) < last - first + 1:
        events.append(channel.read())
        event = events[-1]
        if event.name == "basic.ack":
            low = first if event.multiple else event.delivery_tag
            seen |= set(range(low, event.delivery_tag + 1))
    return events


def test_select_twice(channel: Channel) -> None:
    for _ in range(2):
        assert channel.ok("confirm.select").name == "confirm.select-ok"


def test_numbers_start_at_select(channel: Channel, queue: str) -> None:
    channel.publish(queue, "before")
    channel.ok("confirm.select")

    channel.publish(queue, "after")

    ack = channel.read()
    assert (ack.name, ack.delivery_tag, ack.multiple) == ("basic.ack", 1, False)


def test_a_return_comes_before_its_ack(channel: Channel, name: str) -> None:
    channel.ok("confirm.select")

    channel.publish(name, "m", mandatory=True)

    assert [channel.read().name for _ in range(2)] == ["basic.return", "basic.ack"]


def test_what_goes_nowhere_is_acked(channel: Channel, name: str) -> None:
    channel.ok("confirm.select")

    channel.publish(name, "m")

    assert channel.read().name == "basic.ack"


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("durable", [False, True])
def test_one_publish_gets_one_ack(channel: Channel, name: str, mode: int, durable: bool) -> None:
    queue = channel.ok("queue.declare", queue=name, durable=durable).queue
    channel.ok("confirm.select")

    for number in (1, 2, 3):
        channel.publish(queue, "m", delivery_mode=mode)
        ack = channel.read()
        assert (ack.name, ack.delivery_tag, ack.multiple) == ("basic.ack", number, False)

    assert channel.ok("queue.delete", queue=name).message_count == 3


def test_who_wants_confirms_gets_them_where_others_want_none(
    connect: Connect, channel: Channel, name: str, litter: Callable[..., None]
) -> None:
    queue, other = f"{name}.1", f"{name}.2"
    litter(queue, other)
    for each in (queue, other):
        channel.ok("queue.declare", queue=each, durable=True)
    confirmed = connect().channel()
    confirmed.ok("confirm.select")

    for number in (1, 3, 5):
        channel.publish(queue, "m", delivery_mode=2)
        channel.ready(queue)
        confirmed.publish(other, "m", delivery_mode=2)  # synced, and with it what came before
        assert confirmed.read().delivery_tag == number
        confirmed.publish(queue, "m", delivery_mode=2)
        ack = confirmed.read()
        assert (ack.name, ack.delivery_tag) == ("basic.ack", number + 1)


@pytest.mark.parametrize("mode", [1, 2])
def test_many_publishes_are_all_acked_once(channel: Channel, name: str, mode: int) -> None:
    channel.ok("queue.declare", queue=name, durable=True)
    channel.ok("confirm.select")

    for number in range(2000):
        # every third goes nowhere, so acks come from two sides
        channel.publish(name if number % 3 else "nowhere", "m", delivery_mode=mode)

    events = _read_acks(channel, 2000)
    channel.ok("queue.delete", queue=name)
    assert covered(events) == list(range(1, 2001))


def test_acks_are_bundled(channel: Channel, queue: str) -> None:
    channel.ok("confirm.select")

    channel.connection.hold()  # in one write: a quick broker acks each message of a slow client by itself
    for _ in range(2000):
        channel.publish(queue, "m")
    channel.connection.release()

    events = _read_acks(channel, 2000)
    assert len(events) < 1500
    assert any(event.multiple for event in events)


def test_a_fan_out_is_acked_once(channel: Channel) -> None:
    queues = [channel.ok("queue.declare", exclusive=True).queue for _ in range(3)]
    for queue in queues:
        channel.ok("queue.bind", queue=queue, exchange="amq.fanout")
    channel.ok("confirm.select")

    for _ in range(10):
        channel.publish("", "m", exchange="amq.fanout")

    events = _read_acks(channel, 10)
    assert covered(events) == list(range(1, 11))
    assert channel.settle(*queues) == []


def test_a_message_that_is_consumed_at_once_is_acked(channel: Channel, queue: str) -> None:
    channel.ok("basic.consume", queue=queue, no_ack=True)
    channel.ok("confirm.select")

    channel.publish(queue, "m", delivery_mode=2)

    assert sorted(channel.read().name for _ in range(2)) == ["basic.ack", "basic.deliver"]


def test_publishes_before_a_deletion_are_acked(channel: Channel, queue: str) -> None:
    channel.ok("confirm.select")
    for _ in range(50):
        channel.publish(queue, "m", delivery_mode=2)

    channel.ok("queue.delete", queue=queue)

    events = channel.settle()
    assert {event.name for event in events} == {"basic.ack"}
    assert covered(events) == list(range(1, 51))
