"""Partitions published to a real Leveret, and to a scripted broker that does what a real one rarely does.

Tests: spark/publish/identity.py, spark/publish/rejects.py
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pika
import pyarrow.parquet as pq
import pytest

from leveret.amqp import methods
from leveret.amqp.properties import Properties, encode_properties
from leveret.core.message import Message
from leveret.spark.errors import OptionError
from leveret.spark.publish import edits
from leveret.spark.publish.errors import ConnectionFailed, LedgerError, Nacked, RowError, Unroutable
from leveret.spark.publish.identity import Number, Partition
from leveret.spark.publish.job import publish_batches, publish_partition
from leveret.spark.publish.options import parse
from leveret.spark.publish.report import Report
from leveret.spark.publish.target import parse_uri
from leveret.testing.vhost import FreshVhost
from rigs.sink_rows import batch, keyed
from rigs.wire.scripted_broker import Peer, scripted

TO_Q = {"exchange": "", "routingKey": "q"}


@pytest.fixture
def declare(amqp_broker: FreshVhost) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(amqp_broker.url))
    yield connection.channel()
    connection.close()


def publish(to: str, batches: Any, **options: str) -> Report:
    return publish_batches(batches, {"uriFile": "-"} | TO_Q | options, target=parse_uri(to, "test"))


def counts(report: Report) -> dict[str, Any]:
    return {name: value for name, value in report.as_dict().items() if value and name != "seconds"}


# Against Leveret.


def test_rows_reach_their_queues_in_order(amqp_broker: FreshVhost, declare: Any) -> None:
    declare.queue_declare("q")
    declare.queue_declare("r")
    rows = [
        {"body": b"%d" % number, "routing_key": "r" if number % 3 else None}
        for number in range(9_000)
    ]

    report = publish(amqp_broker.url, [batch(rows[:5_000]), batch(rows[5_000:])])

    assert counts(report) == {"sent": 9_000}
    assert amqp_broker.queue("q").bodies == [b"%d" % number for number in range(0, 9_000, 3)]
    assert amqp_broker.queue("r").depth == 6_000


def test_large_and_empty_bodies_pass(amqp_broker: FreshVhost, declare: Any) -> None:
    declare.queue_declare("q")
    bodies = [b"", b"x" * 3_000_000, b"y" * 131_072, b"z" * 131_064]

    publish(amqp_broker.url, [batch([{"body": body} for body in bodies])], window="2")

    assert amqp_broker.queue("q").bodies == bodies


@pytest.mark.parametrize("policy", ["fail", "drop", "deadletter"])
def test_messages_that_reach_no_queue_follow_the_policy(
    amqp_broker: FreshVhost, declare: Any, tmp_path: Path, policy: str
) -> None:
    declare.queue_declare("q")
    declare.exchange_declare("dlx", "fanout")
    declare.queue_declare("dead")
    declare.queue_bind("dead", "dlx")
    rows = [
        {"body": b"%d" % number, "routing_key": "q" if number % 2 else "none"}
        | {"vhost": "/", "queue": "a", "seq_id": number}
        for number in range(20)
    ]
    options = {"onUnroutable": policy, "ledger": str(tmp_path / "ledger"), "ledgerStep": "5"}
    if policy == "deadletter":
        options["deadLetterExchange"] = "dlx"

    if policy == "fail":
        with pytest.raises(Unroutable, match=r'queue "a" of vhost "/", seq_id 0\).*bind a queue'):
            publish(amqp_broker.url, [batch(rows)], **options)
        return
    report = publish(amqp_broker.url, [batch(rows)], **options)
    again = publish(amqp_broker.url, [batch(rows)], **options)

    handled = "dropped" if policy == "drop" else "dead_lettered"
    assert counts(report) == {"sent": 10, "returned": 10, handled: 10}
    assert counts(again) == {"skipped": 20}
    dead = amqp_broker.queue("dead").messages()
    assert [message.body for message in dead] == [
        b"%d" % number for number in range(0, 20, 2) if policy == "deadletter"
    ]
    if policy == "deadletter":
        assert dead[0].headers == {"x-reject-reason": "unroutable", "x-reject-exchange": ""}
        assert dead[0].routing_key == "none"
        table = pq.read_table(tmp_path / "ledger" / "rejects").to_pydict()
        assert sorted(table["seq_id"]) == list(range(0, 20, 2))
        assert set(table["reply"]) == {"312 NO_ROUTE"}


def test_a_full_queue_nacks_and_reject_files_take_what_it_refused(
    amqp_broker: FreshVhost, declare: Any, tmp_path: Path
) -> None:
    declare.queue_declare("q", arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    ledger = tmp_path / "ledger"

    report = publish(amqp_broker.url, keyed(range(12)), onNack="deadletter", ledger=str(ledger))

    assert counts(report) == {"sent": 5, "nacked": 7, "dead_lettered": 7}
    refused = pq.read_table(ledger / "rejects").to_pydict()
    assert sorted(refused["body"]) == sorted(b"%d" % number for number in range(5, 12))
    assert set(refused["reason"]) == {"nacked"}


def test_a_queue_that_has_room_again_takes_the_retries(
    amqp_broker: FreshVhost, declare: Any
) -> None:
    declare.queue_declare("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})

    def drain() -> None:
        amqp_broker.queue("q").wait_until(lambda queue: queue.ready == 1)
        connection = pika.BlockingConnection(pika.URLParameters(amqp_broker.url))
        consumed = connection.channel().consume("q", auto_ack=True, inactivity_timeout=20)
        bodies.extend(next(consumed)[2] for _ in range(3))
        connection.close()

    bodies: list[bytes] = []
    drainer = threading.Thread(target=drain)
    drainer.start()
    report = publish(amqp_broker.url, keyed(range(3)), onNack="retry(50)")
    drainer.join(30)

    assert report.sent == 3
    assert sorted(bodies) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"user": "nobody"}, "403"),
        ({"vhost": "nowhere"}, "not found|530"),
        ({"port": 1}, "cannot connect"),
    ],
)
def test_a_target_that_refuses_is_named_without_its_password(
    amqp_broker: FreshVhost, change: dict[str, Any], text: str
) -> None:
    good = parse_uri(amqp_broker.url, "test")
    target = (
        replace(good, password="hunter2", **change) if "user" in change else replace(good, **change)
    )

    with pytest.raises(ConnectionFailed, match=text) as caught:
        publish_batches(keyed(range(3)), {"uriFile": "-"} | TO_Q, target=target)

    assert "hunter2" not in str(caught.value)


def test_a_missing_exchange_ends_the_job_with_the_brokers_text(amqp_broker: FreshVhost) -> None:
    with pytest.raises(ConnectionFailed, match="404 NOT_FOUND - no exchange 'nowhere'"):
        publish(amqp_broker.url, keyed(range(3)), exchange="nowhere")


def test_nothing_connects_when_there_is_nothing_to_send() -> None:
    assert counts(publish("amqp://127.0.0.1:1", [])) == {}


def test_a_row_that_is_no_message_is_named(amqp_broker: FreshVhost, declare: Any) -> None:
    declare.queue_declare("q")
    rows = [
        {"body": b"1", "properties_raw": b"\x00\x00"},
        {"body": b"2", "properties_raw": b"\xff"},
    ]

    with pytest.raises(RowError, match="row 1 of the partition: properties_raw"):
        publish(amqp_broker.url, [batch(rows)])


# Against a scripted broker.


def test_raw_properties_arrive_byte_for_byte_and_edits_change_only_headers() -> None:
    raw = encode_properties(
        Properties(headers={"i": ("I", -1), "l": ("l", 5), "d": ("D", (2, 7)), "x": ("x", b"\x00")}, priority=3)
    )  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"body": b"a", "properties_raw": raw, "headers_set": None, "headers_remove": None},
        {
            "body": b"b",
            "properties_raw": raw,
            "headers_set": [("new", "é")],
            "headers_remove": ["d"],
        },
    ]

    with scripted() as broker:
        publish(broker.uri, [batch(rows)])

    expected = encode_properties(
        Properties(
            headers={
                "i": ("I", -1),
                "l": ("l", 5),
                "x": ("x", b"\x00"),
                "new": ("S", "é".encode()),
            },
            priority=3,
        )
    )
    assert [head for _, head, _ in broker.messages] == [edits.head(raw, 1), edits.head(expected, 1)]


def test_a_producer_numbers_rows_by_their_keys() -> None:
    options = {"dedup": "producer", "producerId": "job", "producerEpoch": "2"}

    with scripted() as broker:
        publish(broker.uri, keyed([3, 9, 1000]), **options)

    expected = [
        edits.edited(edits.PERSISTENT, number=Number(*number), epoch=2)
        for number in (("job/0/1://a", 3), ("job/0/1://a", 9), ("job/0/1://b", 1000))
    ]
    assert [head[12:] for _, head, _ in broker.messages] == expected


def test_rows_of_two_priorities_with_one_seq_are_two_messages(tmp_path: Path) -> None:
    rows = [
        {"body": b"%d" % number, "vhost": "/", "queue": "q", "queue_no": number, "seq_id": 7}
        for number in (5, 6)
    ]
    options = {"ledger": str(tmp_path / "l"), "dedup": "producer", "producerId": "job"}

    with scripted() as broker:
        report = publish(broker.uri, [batch(rows)], **options)
        again = publish(broker.uri, [batch(rows)], **options)

    assert (counts(report), counts(again)) == ({"sent": 2}, {"skipped": 2})
    assert [head[12:] for _, head, _ in broker.messages] == [
        edits.edited(edits.PERSISTENT, number=Number(f"job/0/{number}/1://q", 7))
        for number in (5, 6)
    ]


def test_a_stream_numbers_rows_by_batch_and_place() -> None:
    options = parse({"uriFile": "-", "dedup": "producer"} | TO_Q)
    rows = batch([{"body": b"a"}, {"body": b"b"}])

    with scripted() as broker:
        place = Partition(4, "batch-3", "query-id", 3)
        publish_partition([rows], options, parse_uri(broker.uri, "test"), place)

    assert [head[12:] for _, head, _ in broker.messages] == [
        edits.edited(edits.PERSISTENT, number=Number("query-id/4", (3 << 40) + place))
        for place in range(2)
    ]


def test_message_ids_are_added_where_they_are_missing() -> None:
    with scripted() as broker:
        publish(broker.uri, keyed([7]), dedup="message_id")

    assert broker.messages[0][1][12:] == edits.with_message_id(edits.PERSISTENT, "1://a/7")


def die_at(when: int) -> Callable[[Peer, int, Message], None]:
    """Confirm all but the last, and hang up at a message of the first connection."""

    def script(peer: Peer, tag: int, _message: Message) -> None:
        if peer.number == 1 and tag == when:
            peer.hang_up()
        elif peer.number > 1 or tag % 3 or tag >= 30:
            peer.ack(tag, multiple=True)

    return script


@pytest.mark.parametrize("when", [1, 2, 3, 7, 20, 29, 30])
def test_a_connection_that_ends_loses_nothing_and_doubles_at_most_window_and_step(
    tmp_path: Path, when: int
) -> None:
    options = {"ledger": str(tmp_path / "ledger"), "ledgerStep": "4", "window": "5"}

    with scripted(die_at(when)) as broker:
        with pytest.raises(ConnectionFailed, match=r"closed|unconfirmed|lost"):
            publish(broker.uri, keyed(range(30)), **options)
        report = publish(broker.uri, keyed(range(30)), **options)
        again = publish(broker.uri, keyed(range(30)), **options)

    assert set(broker.bodies) == {b"%d" % number for number in range(30)}
    assert len(broker.bodies) - 30 <= 5 + 4
    assert report.sent + report.skipped == 30
    assert counts(again) == {"skipped": 30}


@pytest.mark.parametrize(
    ("request_", "answer", "text"),
    [
        (methods.ConnectionStartOk, methods.ConnectionClose(403, "ACCESS_REFUSED - no"), "403 ACCESS_REFUSED"),
        (methods.ConnectionOpen, methods.ConnectionClose(530, "NOT_ALLOWED - vhost"), "530 NOT_ALLOWED"),
        (methods.ChannelOpen, methods.ConnectionClose(504, "CHANNEL_ERROR"), "504 CHANNEL_ERROR"),
        (methods.ConfirmSelect, methods.ChannelClose(540, "NOT_IMPLEMENTED"), "540 NOT_IMPLEMENTED"),
        (methods.ConfirmSelect, methods.BasicQosOk(), "answered confirm.select with basic.qos-ok"),
    ],
)  # fmt: skip
def test_a_close_at_every_point_of_the_login_is_reported(
    request_: Any, answer: Any, text: str
) -> None:
    with (
        scripted(answers={request_: answer}) as broker,
        pytest.raises(ConnectionFailed, match=text),
    ):
        publish(broker.uri, keyed([1]), connectTimeout="0.3")


def test_a_close_of_the_channel_between_confirms_keeps_those_before_it(tmp_path: Path) -> None:
    def script(peer: Peer, tag: int, _message: Message) -> None:
        peer.ack(tag)
        if tag == 8:
            peer.send(methods.ChannelClose(406, "PRECONDITION_FAILED - fenced", 60, 40))

    with (
        scripted(script) as broker,
        pytest.raises(ConnectionFailed, match=r"406 PRECONDITION_FAILED.*\d+ messages unconfirmed"),
    ):
        publish(broker.uri, keyed(range(30)), ledger=str(tmp_path / "ledger"), ledgerStep="4")

    entry = json.loads((tmp_path / "ledger" / "part-00000.json").read_text())
    assert (entry["rows"], entry["key"]) == (8, ["/", "a", 0, 7])


def test_a_nack_fails_the_task_by_default_and_the_ledger_stays_before_it(tmp_path: Path) -> None:
    def script(peer: Peer, tag: int, _message: Message) -> None:
        if tag == 6:
            peer.nack(tag)
        else:
            peer.ack(tag)

    with scripted(script) as broker, pytest.raises(Nacked, match="seq_id 5"):
        publish(broker.uri, keyed(range(30)), ledger=str(tmp_path / "ledger"), ledgerStep="2")

    assert json.loads((tmp_path / "ledger" / "part-00000.json").read_text())["rows"] == 4


def test_retries_go_on_until_all_is_confirmed() -> None:
    def script(peer: Peer, tag: int, _message: Message) -> None:
        if tag % 2:
            peer.nack(tag)
        else:
            peer.ack(tag)

    with scripted(script) as broker:
        report = publish(broker.uri, keyed(range(6)), onNack="retry(9)")

    assert report.sent == 6
    assert report.nacked == len(broker.bodies) - 6 > 0


def test_without_a_confirm_in_time_the_task_fails() -> None:
    with (
        scripted(lambda *_: None) as broker,
        pytest.raises(ConnectionFailed, match=r"no confirm for 0\.2 s with 3 messages unconfirmed"),
    ):
        publish(broker.uri, keyed(range(3)), confirmTimeout="0.2")


def test_a_blocked_connection_is_waited_for_and_its_time_is_not_a_late_confirm() -> None:
    def script(peer: Peer, tag: int, _message: Message) -> None:
        if tag == 1:
            peer.send(methods.ConnectionBlocked("low on memory"), 0)
            time.sleep(0.6)  # longer than confirmTimeout
            seen.append(tag)
            peer.send(methods.ConnectionUnblocked(), 0)
        peer.ack(tag)

    seen: list[int] = []
    with scripted(script) as broker:
        report = publish(broker.uri, keyed(range(30)), window="1", confirmTimeout="0.3")

    assert (counts(report), seen) == ({"sent": 30}, [1])


def test_a_broker_that_stays_blocked_fails_the_task_with_its_reason() -> None:
    def script(peer: Peer, _tag: int, _message: Message) -> None:
        peer.send(methods.ConnectionBlocked("low on disk"), 0)

    with scripted(script) as broker, pytest.raises(ConnectionFailed, match="low on disk"):
        publish(broker.uri, keyed(range(3)), window="1", blockedTimeout="0.2")


def test_blocked_publishers_send_nothing() -> None:
    def script(peer: Peer, tag: int, _message: Message) -> None:
        peer.ack(tag)
        if tag == 2:
            peer.send(methods.ConnectionBlocked("low"), 0)

    with scripted(script) as broker, pytest.raises(ConnectionFailed, match="has blocked"):
        publish(broker.uri, keyed(range(30), 1), window="1", blockedTimeout="0.2")

    assert len(broker.bodies) in {2, 3}  # one may be on its way when the broker blocks


def test_the_rate_is_shared_by_the_publishers() -> None:
    options = parse({"uriFile": "-", "maxRate": "200", "publishers": "2"} | TO_Q)
    with scripted() as broker:
        report = publish_partition(
            keyed(range(31)), options, parse_uri(broker.uri, "test"), Partition(1)
        )

    assert report.seconds >= 0.29  # 30 intervals of 1/100 s
    with pytest.raises(OptionError, match="more partitions"):
        publish_partition([], options, parse_uri("amqp://h", "test"), Partition(2))


def test_rows_in_another_order_fail_before_they_are_lost(tmp_path: Path) -> None:
    options = {"ledger": str(tmp_path / "ledger"), "ledgerStep": "3"}
    with scripted(die_at(10)) as broker:
        with pytest.raises(ConnectionFailed):
            publish(broker.uri, keyed(range(20)), window="4", **options)
        with pytest.raises(LedgerError, match="are others"):
            publish(broker.uri, keyed(range(1, 20)), **options)
        with pytest.raises(LedgerError, match="comes after"):
            publish(broker.uri, keyed([0, 2, 1]), **options)
        with pytest.raises(LedgerError, match="belongs to another job"):
            publish(broker.uri, keyed(range(20)), plan="another", **options)


def test_an_input_that_fails_leaves_a_ledger_of_what_was_settled(tmp_path: Path) -> None:
    def failing() -> Iterator[Any]:
        yield from keyed(range(14), 7)
        raise ZeroDivisionError

    with scripted() as broker:
        with pytest.raises(ZeroDivisionError):
            publish(broker.uri, failing(), ledger=str(tmp_path / "l"), ledgerStep="5", window="2")
        report = publish(
            broker.uri, keyed(range(14), 7), ledger=str(tmp_path / "l"), ledgerStep="5"
        )

    assert report.skipped >= 10
    assert set(broker.bodies) == {b"%d" % number for number in range(14)}


def test_a_peer_that_speaks_no_amqp_is_named(tmp_path: Path) -> None:
    def script(peer: Peer, _tag: int, _message: Message) -> None:
        peer.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(64))

    with scripted(script) as broker, pytest.raises(ConnectionFailed, match="does not speak AMQP"):
        publish(broker.uri, keyed([1]))


def test_the_login_is_plain(tmp_path: Path) -> None:
    with scripted() as broker:
        file = tmp_path / "uri"
        file.write_text(f"amqp://us%2Fer:p%40ss@127.0.0.1:{broker.port}/")
        publish_batches(keyed([1]), {"uriFile": str(file)} | TO_Q)

    assert broker.logins == [b"\0us/er\0p@ss"]
