"""Quorum queues and delivery counts after a restart of the node: real processes, SIGTERM and kill -9."""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Any

import pika
import pytest

from durable.restarts.test_restarts import ENDS, channel_of, drain, node, publish
from leveret.msg_store.format.count_file import NAME
from leveret.msg_store.format.file_header import HEADER_BYTES
from rigs.nodes import start_leveret, stop_leveret
from rigs.waiting import wait_until

QUORUM = {"x-queue-type": "quorum"}
TRANSIENT = pika.BasicProperties(delivery_mode=1)
COUNT = Struct("<IIQI")  # crc, queue_no, seq, count


@ENDS
def test_all_that_was_confirmed_is_kept_whatever_its_delivery_mode(
    tmp_path: Path, end: Any
) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.queue_declare("quorum", durable=True, arguments=QUORUM)
        channel.queue_declare("classic", durable=True)
        for queue in ("quorum", "classic"):
            channel.queue_bind(queue, "amq.fanout")
        publish(channel, "quorum", range(3), TRANSIENT)
        publish(channel, "quorum", range(3, 6))
        channel.basic_publish("amq.fanout", "", b"6", TRANSIENT)
        channel.basic_publish("amq.fanout", "", b"7", pika.BasicProperties(delivery_mode=2))
        end(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        assert [number for number, _ in drain(channel, "quorum")] == list(range(8))
        assert [number for number, _ in drain(channel, "classic")] == [7]
        channel.queue_declare("quorum", durable=True, arguments=QUORUM)


def _counts(channel: Any, queue: str) -> dict[bytes, int]:
    """Get all messages, give them back; return how often they had come back."""
    found, tags = {}, []
    while True:
        method, properties, body = channel.basic_get(queue)
        if method is None:
            break
        found[body] = properties.headers["x-delivery-count"]
        tags.append(method.delivery_tag)
    for tag in tags:
        channel.basic_nack(tag)
    return found


def _written(folder: Path) -> list[int]:
    """Return the counts in the file of the store, ascending: of messages that have one."""
    found: dict[tuple[int, int], int] = {}
    for file in (folder / "data").glob(f"vhosts/*/{NAME}"):
        records = file.read_bytes()[HEADER_BYTES:]
        whole = records[: len(records) // COUNT.size * COUNT.size]
        for _, queue_no, seq, count in COUNT.iter_unpack(whole):
            found[queue_no, seq] = count
    return sorted(filter(None, found.values()))


@ENDS
def test_counts_survive_a_restart(tmp_path: Path, end: Any) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.queue_declare("q", durable=True, arguments=QUORUM)
        publish(channel, "q", range(3))
        method, _, _ = channel.basic_get("q")
        channel.basic_nack(method.delivery_tag)
        for expected in ({b"0": 1, b"1": 0, b"2": 0}, {b"0": 2, b"1": 1, b"2": 1}):
            assert _counts(channel, "q") == expected
        method, _, _ = channel.basic_get("q")
        channel.basic_ack(method.delivery_tag)
        channel.queue_declare("after", durable=True)
        publish(channel, "after", range(1))  # its confirm says that the ack is on the disk
        wait_until(lambda: _written(tmp_path) == [2, 2], lambda: _written(tmp_path), within_s=60)
        end(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        assert _counts(channel, "q") == {b"1": 2, b"2": 2}
        assert _counts(channel, "q") == {b"1": 3, b"2": 3}


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_a_limit_by_policy_counts_what_was_before_a_restart(
    tmp_path: Path, queue_type: str
) -> None:
    broker = start_leveret(tmp_path)
    broker.control("set_policy", "limit", "", '{"delivery-limit":2}', "--apply-to", "queues")
    with channel_of(broker) as channel:
        channel.queue_declare("q", durable=True, arguments={"x-queue-type": queue_type})
        publish(channel, "q", range(2))
        method, _, _ = channel.basic_get("q")
        channel.basic_nack(method.delivery_tag)
        channel.queue_declare("q", passive=True)
    stop_leveret(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        for left in ([0, 1], [0, 1], [1]):
            assert [number for number, _ in drain(channel, "q", auto_ack=False)] == left
            channel.basic_nack(0, multiple=True)
        assert drain(channel, "q") == []


def test_a_deleted_queue_leaves_no_counts_to_the_next(tmp_path: Path) -> None:
    for _ in range(2):
        with node(tmp_path) as broker, channel_of(broker) as channel:
            channel.queue_declare("q", durable=True, arguments=QUORUM)
            publish(channel, "q", range(1))
            assert _counts(channel, "q") == {b"0": 0}
            assert _counts(channel, "q") == {b"0": 1}
            channel.queue_delete("q")
            channel.queue_declare("q", durable=True, arguments=QUORUM)
            publish(channel, "q", range(1))
            assert _counts(channel, "q") == {b"0": 0}
            channel.queue_delete("q")


@ENDS
def test_what_a_transaction_has_committed_is_kept(tmp_path: Path, end: Any) -> None:
    with node(tmp_path) as broker, channel_of(broker) as confirmed:
        confirmed.queue_declare("q", durable=True, arguments=QUORUM)
        channel = confirmed.connection.channel()
        channel.tx_select()
        publish(channel, "q", range(5), TRANSIENT)
        channel.tx_commit()
        end(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        assert [number for number, _ in drain(channel, "q")] == list(range(5))


@ENDS
def test_dead_letters_are_kept_whatever_their_delivery_mode(tmp_path: Path, end: Any) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.queue_declare("dead", durable=True, arguments=QUORUM)
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("source", arguments=letters)
        publish(channel, "source", range(3), TRANSIENT)
        assert len(drain(channel, "source", auto_ack=False)) == 3
        channel.basic_nack(0, multiple=True, requeue=False)
        wait_until(lambda: _is_empty(channel, "source", broker))
        end(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        assert [number for number, _ in drain(channel, "dead")] == list(range(3))


def _is_empty(channel: Any, queue: str, broker: Any) -> bool:
    """Whether the queue has given all its messages up: their letters have arrived."""
    return f"{queue}\t0" in broker.control("list_queues", "-q", "name", "messages")
