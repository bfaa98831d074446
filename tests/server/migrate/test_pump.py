"""The way of messages from source to target, event by event."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp import kernel, methods, spec
from leveret.amqp.properties import Properties, head_of
from leveret.client.events import Answer, Cancelled, Confirmed, Delivered, Returned
from leveret.server.migrate.pump import MigrationFailed, Pump

HEAD = head_of(Properties(delivery_mode=2), 1)


def delivered(queue: int, tag: int, head: bytes = HEAD, body: bytes = b"x") -> Delivered:
    return Delivered(1, b"%d" % queue, tag, False, head, body)


def published(pump: Pump) -> list[tuple[bytes, bytes, bytes]]:
    runs = kernel.Scanner(131_072, 1 << 30).scan(pump.take_publishes())
    return [message for run in runs if run[0] == spec.PUBLISH for message in run[4]]


def acked(pump: Pump) -> list[int]:
    runs = kernel.Scanner(131_072, 1 << 30).scan(pump.take_acks())
    return [tag for run in runs for tag in run[2]]


def test_a_message_is_acknowledged_when_the_target_has_confirmed_it() -> None:
    pump = Pump(["a", "b"], 131_072)
    for place, tag in ((0, 11), (1, 12), (0, 13)):
        pump.from_source(delivered(place, tag))

    assert [origin for origin, _, _ in published(pump)] == [
        b"\x00\x01a",
        b"\x00\x01b",
        b"\x00\x01a",
    ]
    assert acked(pump) == []
    pump.from_target(Confirmed(1, 2, False, True))
    assert acked(pump) == [12]
    pump.from_target(Confirmed(1, 3, True, True))
    assert acked(pump) == [11, 13]
    assert [(queue.moved, queue.flights) for queue in pump.queues] == [(2, 0), (1, 0)]
    assert pump.flights == 0


def test_a_queue_is_empty_when_the_source_has_nothing_and_nothing_is_on_its_way() -> None:
    pump = Pump(["a"], 131_072)
    (queue,) = pump.queues
    nothing = Answer(1, methods.QueueDeclareOk("a", 0, 1))

    assert pump.poll() == methods.method_frame(1, methods.encode(methods.QueueDeclare("a", True)))
    pump.from_source(nothing)
    assert queue.empty_polls == 1
    pump.from_source(delivered(0, 1))
    assert (queue.empty_polls, pump.poll()) == (0, b"")
    pump.from_source(nothing)
    assert queue.empty_polls == 0
    pump.from_target(Confirmed(1, 1, False, True))
    pump.from_source(Answer(1, methods.QueueDeclareOk("a", 3, 1)))
    assert queue.empty_polls == 0
    for statuses in (1, 2):
        pump.from_source(nothing)
        assert queue.empty_polls == statuses


def test_a_deleted_queue_is_not_asked_for_any_more() -> None:
    pump = Pump(["a", "b"], 131_072)

    pump.from_source(Cancelled(1, "0"))

    assert [queue.is_cancelled for queue in pump.queues] == [True, False]
    assert pump.poll() == methods.method_frame(1, methods.encode(methods.QueueDeclare("b", True)))


def test_copies_are_not_routed_again_and_other_headers_keep_their_bytes() -> None:
    pump = Pump(["a"], 131_072)
    copies = ("A", [("S", b"other")])
    plain = {"n": ("I", 1), "text": ("S", b"\x02CC")}
    heads = [
        head_of(Properties(headers=plain | {"CC": copies, "BCC": copies}, priority=3), 1),
        head_of(Properties(headers=plain, priority=3), 1),
    ]
    for tag, head in enumerate(heads):
        pump.from_source(delivered(0, tag, head))

    assert [head for _, head, _ in published(pump)] == [heads[1], heads[1]]
    assert pump.queues[0].without_cc == 1


def test_what_is_delivered_after_the_stop_stays_at_the_source() -> None:
    pump = Pump(["a"], 131_072)
    pump.from_source(delivered(0, 1))
    pump.is_stopping = True

    pump.from_source(delivered(0, 2))
    pump.from_target(Confirmed(1, 0, True, True))

    assert len(published(pump)) == 1
    assert acked(pump) == [1]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Confirmed(1, 1, False, False), 'refused a message for queue "a"'),
        (Returned(1, "312 NO_ROUTE", b"", HEAD, b"x"), r"no queue .*\(312 NO_ROUTE\)"),
    ],
)
def test_a_target_that_does_not_take_a_message_ends_the_transfer(event: Any, text: str) -> None:
    pump = Pump(["a"], 131_072)
    pump.from_source(delivered(0, 1))

    with pytest.raises(MigrationFailed, match=text):
        pump.from_target(event)
    assert acked(pump) == []


def test_consumers_are_told_apart_by_the_places_of_their_queues() -> None:
    wire = Pump(["a", "b"], 0).consume()

    runs = kernel.Scanner(131_072, 1 << 30).scan(wire)
    found: list[Any] = [methods.decode(run[2], run[3]) for run in runs]
    assert [(method.queue, method.consumer_tag) for method in found] == [("a", "0"), ("b", "1")]
