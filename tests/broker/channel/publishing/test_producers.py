"""Predecessors: what a channel says it has sent a queue before; and runs of numbered messages on a whole broker.

Tests: amqp/producer_headers.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.broker.channel.publishing.producers import KNOWN_MAX, Predecessors
from leveret.broker.mail import NO_PREDECESSOR
from leveret.broker.registry.registry import QueueEntry
from rigs.broker_rig import Client, Rig

Q, OTHER = QueueEntry("/", "q"), QueueEntry("/", "other")


def after(known: Predecessors, queue: QueueEntry, *sent: tuple[int, int] | None) -> list[Any]:
    """Return the predecessors of messages ``(epoch, seq)`` of one producer."""
    producer_seqs = known.number(queue, [each and (b"p", *each) for each in sent])
    return [each and each[3] for each in producer_seqs]


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ([(0, 1), (0, 2), (0, 9)], [NO_PREDECESSOR, 1, 2]),
        ([(0, 1), None, (0, 2)], [NO_PREDECESSOR, None, 1]),
        ([(0, 1), (0, 3), (0, 1), (0, 3)], [NO_PREDECESSOR, 1, NO_PREDECESSOR, 1]),  # sent again
        ([(0, 1), (0, 1)], [NO_PREDECESSOR, NO_PREDECESSOR]),
        ([(0, 1), (0, 2), (0, 3), (0, 1), (0, 4)], [NO_PREDECESSOR, 1, 2, NO_PREDECESSOR, 3]),
        ([(0, 1), (0, 4), (0, 2), (0, 3), (0, 5)], [NO_PREDECESSOR, 1, NO_PREDECESSOR, 2, 4]),
        ([(0, 1), (1, 2), (1, 3)], [NO_PREDECESSOR, NO_PREDECESSOR, 2]),  # another epoch
    ],
)
def test_the_predecessor_is_what_was_sent_last_in_this_epoch(
    sent: list[tuple[int, int] | None], found: list[Any]
) -> None:
    assert after(Predecessors(), Q, *sent) == found


def test_each_queue_has_its_own() -> None:
    known = Predecessors()
    after(known, Q, (0, 1), (0, 2))

    assert after(known, OTHER, (0, 3)) == [NO_PREDECESSOR]
    assert after(known, Q, (0, 4)) == [2]


def test_without_confirms_nothing_is_asked_for() -> None:
    known, queues = Predecessors(), [QueueEntry("/", name) for name in ("q", "other", "none")]
    for queue in queues[:2]:
        queue.ended = "down"
    sent = [(b"p", 0, 1), None, (b"p", 0, 2)]

    numbered = [(b"p", 0, 1, NO_PREDECESSOR), None, (b"p", 0, 2, NO_PREDECESSOR)]
    assert known.by_queue(queues, sent, False) == dict.fromkeys(queues[:2], numbered)
    assert after(known, queues[0], (0, 3)) == [NO_PREDECESSOR]


def test_a_channel_remembers_a_bounded_number() -> None:
    known = Predecessors()
    sent = [(b"%d" % number, 0, 1) for number in range(KNOWN_MAX + 1)]
    known.number(Q, sent)

    assert len(known._last) == 1


def numbers(seq: int, **more: Any) -> dict[str, Any]:
    headers = {"x-producer-id": ("S", b"p"), "x-producer-seq": ("l", seq), **more}
    return {"headers": headers, "delivery_mode": 2}


@pytest.fixture
def client(rig: Rig) -> Client:
    client = rig.session(channels=2)
    client.ask(1, m.QueueDeclare("q"))
    client.ask(1, m.ConfirmSelect())
    return client


def test_numbered_and_other_messages_of_a_read_keep_their_order(rig: Rig, client: Client) -> None:
    contents = [
        ("", "q", b"a", {}),
        ("", "q", b"b", numbers(1)),
        ("", "q", b"c", {"headers": {"x": ("S", b"y")}, "delivery_mode": 2}),
        ("", "q", b"d", numbers(2)),
        ("", "q", b"e", numbers(1)),
        ("", "q", b"f", {}),
    ]
    client.feed(client.contents(1, *contents))
    client.take()
    client.send(2, m.BasicConsume("q", "c", no_ack=True))

    assert client.bodies() == [b"a", b"b", b"c", b"d", b"f"]


def test_a_mail_that_waits_takes_in_no_numbered_messages(rig: Rig, client: Client) -> None:
    queue = rig.queues["q"].ref
    rig.runtime.suspend(queue)
    plain = {"delivery_mode": 2}
    for body, properties in ((b"a", plain), (b"b", numbers(1)), (b"c", plain), (b"b", numbers(1))):
        client.publish(1, "q", body, **properties)
    rig.runtime.resume(queue)
    rig.settle()
    client.take()
    client.send(2, m.BasicConsume("q", "c", no_ack=True))

    assert client.bodies() == [b"a", b"b", b"c"]


def test_a_fan_out_over_many_turns_is_filtered_in_every_queue(rig: Rig, client: Client) -> None:
    for number in range(1_100):
        client.send(1, m.QueueDeclare(f"q{number}"), m.QueueBind(f"q{number}", "amq.fanout", ""))
    client.take()
    for _ in range(2):
        client.publish(1, "", b"x", exchange="amq.fanout", **numbers(1))
        rig.settle()

    acks = [each for each in client.take() if isinstance(each, m.BasicAck)]
    assert acks
    assert acks[-1].delivery_tag == 2
    for number in (0, 500, 1_099):
        passive = client.ask(1, m.QueueDeclare(f"q{number}", passive=True))
        assert passive.message_count == 1


def test_a_zombie_whose_channel_is_busy_is_closed_when_it_is_not(rig: Rig, client: Client) -> None:
    client.publish(1, "q", b"new", **numbers(1, **{"x-producer-epoch": ("l", 2)}))
    client.take()
    queue = rig.queues["q"].ref
    rig.runtime.suspend(queue)
    client.publish(1, "q", b"old", **numbers(9))
    client.send(1, m.QueueDeclare("q", passive=True))  # the channel waits for the queue
    rig.runtime.resume(queue)
    rig.settle()

    answers = client.take()
    assert isinstance(answers[-1], m.ChannelClose)
    assert answers[-1].reply_code == 406
