"""The publisher alone: events in, flights settled.

Tests: spark/publish/report.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp import methods
from leveret.client.errors import BrokerError
from leveret.client.events import Answer, Confirmed, Delivered, Returned
from leveret.spark.publish import edits
from leveret.spark.publish.errors import Nacked, Unroutable
from leveret.spark.publish.identity import Number
from leveret.spark.publish.options import parse
from leveret.spark.publish.publisher import Publisher
from leveret.spark.publish.report import Report
from leveret.spark.publish.rows import Row


def row(place: int, body: bytes = b"", properties: bytes = edits.PERSISTENT) -> Row:
    method = methods.encode(methods.BasicPublish("ex", "key", True))
    return Row(place, None, method, properties, body or b"%d" % place)


def returned(found: Row, properties: bytes | None = None) -> Returned:
    head = edits.head(found.properties if properties is None else properties, len(found.body))
    return Returned(1, "312 NO_ROUTE", found.method[6:-1], head, found.body)


def publisher(rows: list[Row], **options: str) -> tuple[Publisher, Report]:
    report = Report()
    found = Publisher(parse({"uri": "amqp://h"} | options), report, 4096)
    for each in rows:
        found.publish(each, 0.0)
    return found, report


def handle(found: Publisher, *events: Any, now_s: float = 0.0) -> None:
    for event in events:
        found.handle(event, now_s)


def ack(tag: int, multiple: bool = False) -> Confirmed:
    return Confirmed(1, tag, multiple, True)


def nack(tag: int, multiple: bool = False) -> Confirmed:
    return Confirmed(1, tag, multiple, False)


DLX = {"deadLetterExchange": "dlx"}


def test_rows_are_settled_up_to_the_first_gap() -> None:
    found, report = publisher([row(place) for place in range(6)])

    counts = []
    for event in (ack(2), ack(3), ack(1), ack(5, multiple=True), ack(0, multiple=True)):
        handle(found, event)
        counts.append(found.settled_rows)

    assert counts == [0, 0, 3, 5, 6]
    assert (report.sent, found.unsettled) == (6, 0)


def test_a_confirm_that_comes_twice_counts_once() -> None:
    found, report = publisher([row(0), row(1)])

    handle(found, ack(1), ack(1), ack(1, multiple=True))

    assert (report.sent, found.unsettled) == (1, 1)


@pytest.mark.parametrize("event", [ack(3), ack(0), nack(9, multiple=True)])
def test_a_confirm_of_what_was_not_published_is_an_error(event: Confirmed) -> None:
    found, _ = publisher([row(0), row(1)])

    with pytest.raises(BrokerError, match="not published"):
        handle(found, event)


def test_the_window_counts_flights_and_retries() -> None:
    found, _ = publisher([row(0), row(1)], window="2", onNack="retry(1)")

    handle(found, nack(1))
    assert not found.has_room

    handle(found, ack(2))
    assert found.has_room


def test_a_returned_message_is_not_sent_although_it_is_confirmed() -> None:
    rows = [row(0), row(1), row(2)]
    found, report = publisher(rows, onUnroutable="drop")

    handle(found, returned(rows[1]), ack(3, multiple=True))

    assert (report.sent, report.returned, report.dropped) == (2, 1, 1)
    assert found.settled_rows == 3


def test_a_return_belongs_to_the_oldest_equal_flight() -> None:
    rows = [row(0, b"same"), row(1, b"same"), row(2, b"same")]
    found, report = publisher(rows, onUnroutable="drop")

    handle(found, returned(rows[0]), returned(rows[1]), ack(1), ack(2), ack(3))

    assert (report.returned, report.dropped, report.sent) == (2, 2, 1)


def test_a_return_whose_header_lost_its_bcc_is_found_by_its_body() -> None:
    rows = [row(0, b"a"), row(1, b"b")]
    found, report = publisher(rows, onUnroutable="drop")

    handle(found, returned(rows[1], b"\x00\x00"), ack(2, multiple=True))

    assert (report.dropped, report.sent) == (1, 1)


def test_a_return_of_a_foreign_message_is_an_error() -> None:
    found, _ = publisher([row(0)])

    with pytest.raises(BrokerError, match="not awaited"):
        handle(found, returned(row(0, b"foreign")))


def test_an_unroutable_message_fails_the_task_and_names_row_exchange_and_key() -> None:
    found, _ = publisher([row(0)])

    with pytest.raises(
        Unroutable, match=r'row 0 .*exchange "ex" with routing key "key": 312 NO_ROUTE'
    ):
        handle(found, returned(row(0)), ack(1))


def test_a_nacked_message_is_sent_again_later_and_then_settled() -> None:
    found, report = publisher([row(0), row(1)], onNack="retry(2)")
    first = found.take_output()

    handle(found, ack(2), nack(1), now_s=10.0)
    assert (found.take_output(), found.settled_rows, found.next_retry_s) == (b"", 0, 10.1)
    found.send_retries(10.1)
    assert found.take_output() in first
    handle(found, nack(3), now_s=10.1)
    found.send_retries(10.3)
    handle(found, ack(4))

    assert (found.settled_rows, report.sent, report.nacked) == (2, 2, 2)


def test_retries_are_limited() -> None:
    found, _ = publisher([row(0)], onNack="retry(1)")
    handle(found, nack(1))
    found.send_retries(1.0)

    with pytest.raises(Nacked, match="2 times"):
        handle(found, nack(2))


def test_without_retry_a_nack_fails_the_task() -> None:
    found, report = publisher([row(0)])

    with pytest.raises(Nacked, match="once"):
        handle(found, nack(1))
    assert report.nacked == 1


def test_a_dead_letter_settles_its_row_when_it_is_confirmed() -> None:
    found, report = publisher([row(0), row(1)], onUnroutable="deadletter", **DLX)
    found.take_output()

    handle(found, returned(row(0)), ack(2, multiple=True))
    assert (found.settled_rows, report.dead_lettered) == (0, 0)
    sent = found.take_output()
    assert b"\x03dlx\x03key\x01" in sent
    assert b"x-reject-reasonS\x00\x00\x00\x0aunroutable" in sent
    assert b"x-reject-exchangeS\x00\x00\x00\x02ex" in sent
    handle(found, ack(3))

    assert (found.settled_rows, report.dead_lettered, report.sent) == (2, 1, 1)


def test_a_dead_letter_that_reaches_no_queue_fails_the_task() -> None:
    found, _ = publisher([row(0)], onNack="deadletter", **DLX)
    handle(found, nack(1))
    sent = found.take_output()
    letter = found._flights[2]

    with pytest.raises(Unroutable, match='exchange "dlx"'):
        handle(found, Returned(1, "312 NO_ROUTE", letter.method[6:-1], edits.head(letter.properties, 1), b"0"), ack(2))  # fmt: skip
    assert sent


def test_a_dead_letter_has_no_number_of_the_sender() -> None:
    numbered = edits.edited(edits.PERSISTENT, number=Number("p", 1))
    found, _ = publisher([row(0, properties=numbered)], onNack="deadletter", **DLX)
    assert b"x-producer-seq" in found.take_output()

    handle(found, nack(1))

    assert b"x-producer" not in found.take_output()


@pytest.mark.parametrize(
    "event",
    [Answer(1, methods.BasicQosOk()), Delivered(1, b"tag", 1, False, edits.head(b"\0\0", 0), b"")],
)
def test_an_event_that_no_publisher_awaits_is_an_error(event: Any) -> None:
    found, _ = publisher([row(0)])

    with pytest.raises(BrokerError, match="not awaited"):
        handle(found, event)


def test_the_oldest_flight_is_found_behind_confirmed_ones() -> None:
    found, _ = publisher([])
    for place in range(4):
        found.publish(row(place), float(place))

    handle(found, ack(2), ack(1))

    assert found.oldest_s() == 2.0
    found.restart_timers(9.0)
    assert found.oldest_s() == 9.0
    handle(found, ack(4, multiple=True))
    assert found.oldest_s() is None
