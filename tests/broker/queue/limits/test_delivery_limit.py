"""Queues that count deliveries: the delivery limit, and the headers of quorum queues."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp.properties import Properties, decode_properties, head_of
from leveret.broker import mail, queue_requests
from leveret.core.limits import TURN_MESSAGES
from rigs.queues.queue_rig import Channel, Rig

HEAD = head_of(Properties(), 1)


def quorum(**arguments: Any) -> Rig:
    given = {name.replace("_", "-"): field for name, field in arguments.items()}
    return Rig(durable=True, arguments={"x-queue-type": ("S", b"quorum"), **given})


def limited(limit: int) -> Rig:
    rig = Rig()
    rig.set_policy(delivery_limit=limit)
    return rig


def headers(channel: Channel) -> list[dict[str, Any] | None]:
    """Take the headers of all deliveries."""
    deliveries = channel.take(mail.Deliver)
    return [decode_properties(head).headers for d in deliveries for _, head, _ in d.messages]


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_policy_gives_classic_queues_a_limit(limit: int) -> None:
    rig = limited(limit)
    channel = rig.channel()
    channel.publish(b"0", head=HEAD)
    channel.consume(b"c")

    for _ in range(limit + 1):
        assert headers(channel) == [None], "classic queues show no count"
        channel.requeue(b"c", 0)

    assert headers(channel) == []
    assert rig.info()["messages"] == 0


def test_a_limit_set_later_counts_from_then_on_and_a_cleared_one_no_more() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.publish(b"0", head=HEAD)
    channel.consume(b"c")
    for _ in range(5):
        channel.requeue(b"c", 0)
    rig.set_policy(delivery_limit=2)
    for _ in range(2):
        channel.requeue(b"c", 0)
    rig.set_policy()
    for _ in range(5):
        channel.requeue(b"c", 0)
    rig.set_policy(delivery_limit=1)
    channel.requeue(b"c", 0)
    assert rig.info()["messages"] == 1

    channel.requeue(b"c", 0)
    assert rig.info()["messages"] == 0


def test_a_lower_limit_gives_up_what_comes_back_next() -> None:
    rig = limited(9)
    channel = rig.channel()
    channel.publish(b"0", head=HEAD)
    channel.consume(b"c")
    for _ in range(4):
        channel.requeue(b"c", 0)

    rig.set_policy(delivery_limit=2)
    assert rig.info()["messages"] == 1
    channel.requeue(b"c", 0)
    assert rig.info()["messages"] == 0


def test_the_end_of_a_channel_counts_for_each_of_its_messages() -> None:
    rig = limited(1)
    channel = rig.channel()
    channel.publish(b"0", b"1", b"2", head=HEAD)
    for left in (2, 1):
        other = rig.channel()
        other.consume(b"c", prefetch=2)
        assert len(other.bodies()) == 2
        other.die()
        assert rig.stat()[0] == 1 + left if left == 2 else rig.stat()[0] == 1


def test_very_many_that_come_back_at_once_are_all_counted() -> None:
    rig = limited(0)
    channel = rig.channel()
    count = TURN_MESSAGES + 10
    channel.publish(*[b"%d" % number for number in range(count)], head=HEAD)
    channel.consume(b"c")
    channel.bodies()
    channel.requeue(b"c", *range(count))

    assert rig.info()["messages"] == 0
    assert rig.stat() == (0, 1)


def test_a_quorum_queue_shows_the_count() -> None:
    rig = quorum()
    channel = rig.channel()
    channel.publish(b"0", head=HEAD)
    channel.consume(b"c")

    shown = []
    for _ in range(3):
        shown += headers(channel)
        channel.requeue(b"c", 0)

    assert shown == [None, {"x-delivery-count": ("l", 1)}, {"x-delivery-count": ("l", 2)}]


def test_only_messages_that_came_back_are_marked() -> None:
    rig = quorum()
    channel = rig.channel()
    channel.publish(b"0", b"1", b"2", head=HEAD)
    channel.consume(b"c")
    channel.bodies()
    channel.ask(queue_requests.Cancel(channel.ref, b"c"))
    channel.requeue(None, 1)
    channel.publish(b"3", head=HEAD)

    channel.consume(b"d", no_ack=True)

    assert headers(channel) == [{"x-delivery-count": ("l", 1)}, None]
    channel.requeue(None, 0, 2)
    assert headers(channel) == [{"x-delivery-count": ("l", 1)}] * 2


def test_get_shows_it_the_first_time_as_well() -> None:
    rig = quorum()
    channel = rig.channel()
    channel.publish(b"0", head=HEAD)

    for count in range(3):
        _, (_, head, _), seq, redelivered, _ = channel.ask(
            queue_requests.Get(channel.ref, count == 2)
        )
        assert decode_properties(head).headers == {"x-delivery-count": ("l", count)}
        assert redelivered is (count > 0)
        if seq is not None:
            channel.requeue(None, seq)
    assert rig.info()["messages"] == 0


def counted(rig: Rig) -> int:
    return len(rig.queue.cell.actor.backing.counts)  # type: ignore[attr-defined]


def test_what_is_given_up_does_not_come_back_while_its_letter_is_under_way() -> None:
    rig = limited(0)
    channel = rig.channel()
    channel.publish(b"0", b"1", head=HEAD)
    channel.ask(queue_requests.Get(channel.ref, False))
    dead_letters: list[list[int]] = []
    rig.queue.cell.actor.backing.counts._give_up = dead_letters.append  # type: ignore[attr-defined]

    channel.requeue(None, 0)

    info = rig.info()
    assert (dead_letters, info["messages_ready"], info["messages_unacknowledged"]) == ([[0]], 1, 1)


@pytest.mark.parametrize("how", ["ack", "reject", "expire", "purge", "get", "no_ack", "limit"])
def test_no_count_outlives_its_message(how: str) -> None:
    rig = quorum(x_delivery_limit=("l", 1), x_message_ttl=("l", 60_000))
    channel = rig.channel()
    channel.publish(b"0", head=HEAD)
    channel.ask(queue_requests.Get(channel.ref, False))
    channel.requeue(None, 0)
    assert counted(rig) == 1

    if how == "expire":
        rig.clock.jump(61)
        rig.settle()
    elif how == "purge":
        channel.ask(queue_requests.Purge())
    elif how == "no_ack":
        channel.consume(b"n", no_ack=True)
    elif how == "get":
        channel.ask(queue_requests.Get(channel.ref, True))
    else:
        channel.ask(queue_requests.Get(channel.ref, False))
        if how == "limit":
            channel.requeue(None, 0)
        else:
            kind = mail.Ack if how == "ack" else mail.Reject
            channel.send(kind(channel.ref, None, [0]))
    rig.settle()

    assert (counted(rig), rig.info()["messages"]) == (0, 0)
