"""State after a restart of the node: real processes, real clients, SIGTERM and kill -9."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from rigs.nodes import BrokerUnderTest, kill_leveret, start_leveret, stop_leveret
from rigs.waiting import wait_until

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@contextmanager
def node(folder: Path, **environment: str) -> Iterator[BrokerUnderTest]:
    broker = start_leveret(folder, **environment)
    try:
        yield broker
    finally:
        assert broker.process is not None
        if broker.process.poll() is None:
            stop_leveret(broker)


@contextmanager
def channel_of(broker: BrokerUnderTest) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    with suppress(pika.exceptions.AMQPError):  # the node may have ended
        connection.close()


def publish(channel: Any, queue: str, bodies: range, properties: Any = PERSISTENT) -> None:
    for number in bodies:
        channel.basic_publish("", queue, b"%d" % number, properties)


def drain(channel: Any, queue: str, auto_ack: bool = True) -> list[tuple[int, bool]]:
    """Get everything: bodies as numbers, and whether they came before."""
    got = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack)
        if method is None:
            return got
        got.append((int(body), method.redelivered))


ENDS = pytest.mark.parametrize("end", [stop_leveret, kill_leveret], ids=["stopped", "killed"])


@ENDS
def test_confirmed_messages_are_there_after_a_restart_in_order(tmp_path: Path, end: Any) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.queue_declare("kept", durable=True)
        publish(channel, "kept", range(300))
        end(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        assert channel.queue_declare("kept", passive=True).method.message_count == 300
        got = drain(channel, "kept")
        assert [number for number, _ in got] == list(range(300))
        assert {again for _, again in got} == {end is kill_leveret}  # who was killed cannot tell


@ENDS
def test_transient_messages_and_queues_are_gone(tmp_path: Path, end: Any) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.queue_declare("durable", durable=True)
        channel.queue_declare("transient")
        publish(channel, "durable", range(3), pika.BasicProperties(delivery_mode=1))
        publish(channel, "durable", range(3, 5))
        publish(channel, "transient", range(3))
        end(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        assert [number for number, _ in drain(channel, "durable")] == [3, 4]
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.queue_declare("transient", passive=True)
        assert caught.value.reply_code == 404


@ENDS
def test_what_was_not_acknowledged_comes_back_redelivered(tmp_path: Path, end: Any) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.queue_declare("q", durable=True)
        publish(channel, "q", range(10))
        for number in range(6):
            method, _, _ = channel.basic_get("q")
            if number % 2:
                channel.basic_ack(method.delivery_tag)
        publish(channel, "q", range(10, 12))  # confirmed behind the acks, so those are on disk, too
        end(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        got = drain(channel, "q")
        assert [number for number, _ in got] == [0, 2, 4, 6, 7, 8, 9, 10, 11]
        if end is stop_leveret:
            assert [again for _, again in got] == [True] * 3 + [False] * 6


@ENDS
def test_a_fan_out_is_kept_once_for_every_queue(tmp_path: Path, end: Any) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        for name in ("one", "two", "three"):
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, "amq.fanout")
        for number in range(100):
            channel.basic_publish("amq.fanout", "", b"%d" % number, PERSISTENT)
        drain(channel, "two")
        channel.basic_publish("amq.fanout", "", b"100", PERSISTENT)
        end(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        assert [number for number, _ in drain(channel, "one")] == list(range(101))
        assert [number for number, _ in drain(channel, "two")] == [100]
        assert [number for number, _ in drain(channel, "three")] == list(range(101))


@ENDS
def test_purged_and_deleted_stays_so(tmp_path: Path, end: Any) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        for name in ("purged", "deleted"):
            channel.queue_declare(name, durable=True)
            publish(channel, name, range(50))
        channel.queue_purge("purged")
        channel.queue_delete("deleted")
        channel.queue_declare("deleted", durable=True)
        publish(channel, "purged", range(50, 53))
        end(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        assert [number for number, _ in drain(channel, "purged")] == [50, 51, 52]
        assert drain(channel, "deleted") == []


def test_a_long_purge_is_not_undone_by_a_kill(tmp_path: Path) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.queue_declare("q", durable=True)
        without_confirms = channel.connection.channel()
        publish(without_confirms, "q", range(10_000))
        without_confirms.close()
        channel.queue_declare("after", durable=True)
        publish(
            channel, "after", range(1)
        )  # its confirm says that all earlier messages are on the disk
        for _ in range(3):
            channel.basic_get("q")
        channel.queue_purge("q")
        publish(channel, "q", range(10_000, 10_001))  # confirmed: the purge is on the disk
        kill_leveret(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        assert [number for number, _ in drain(channel, "q")] == [0, 1, 2, 10_000]


def test_ten_lives_of_a_node(tmp_path: Path) -> None:
    expected: list[int] = []
    for life in range(10):
        with node(tmp_path) as broker, channel_of(broker) as channel:
            channel.queue_declare("q", durable=True)
            publish(channel, "q", range(life * 20, life * 20 + 20))
            expected += range(life * 20, life * 20 + 20)
            for _ in range(7):
                method, _, body = channel.basic_get("q")
                assert int(body) == expected.pop(0)
                channel.basic_ack(method.delivery_tag)
            publish(channel, "q", range(1000 + life, 1001 + life))
            expected.append(1000 + life)
            (kill_leveret if life % 3 else stop_leveret)(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        assert [number for number, _ in drain(channel, "q")] == expected


@ENDS
def test_priorities_are_kept(tmp_path: Path, end: Any) -> None:
    arguments = {"x-max-priority": 5}
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.queue_declare("q", durable=True, arguments=arguments)
        for number in range(12):
            properties = pika.BasicProperties(delivery_mode=2, priority=number % 4)
            publish(channel, "q", range(number, number + 1), properties)
        method, _, body = channel.basic_get("q")
        assert body == b"3"
        channel.basic_ack(method.delivery_tag)
        publish(channel, "q", range(12, 13))
        end(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.queue_declare("q", durable=True, arguments=arguments)
        order = [7, 11, 2, 6, 10, 1, 5, 9, 0, 4, 8, 12]
        assert [number for number, _ in drain(channel, "q")] == order


@ENDS
def test_dead_letters_go_to_blind_copies_after_a_restart(tmp_path: Path, end: Any) -> None:
    blind = pika.BasicProperties(delivery_mode=2, headers={"BCC": ["copy"]})
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.queue_declare("copy", durable=True)
        channel.queue_declare("q", durable=True, arguments={"x-dead-letter-exchange": ""})
        publish(channel, "q", range(1), blind)
        publish(channel, "q", range(1, 2))
        end(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        assert [number for number, _ in drain(channel, "copy")] == [0]
        for _ in range(2):
            channel.basic_reject(channel.basic_get("q")[0].delivery_tag, requeue=False)
        wait_until(lambda: channel.queue_declare("q", passive=True).method.message_count == 2)
        assert [number for number, _ in drain(channel, "copy")] == [0]


@ENDS
def test_what_a_restart_brings_back_expires_in_its_time(tmp_path: Path, end: Any) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.queue_declare("q", durable=True)
        for expiration in ("50", "3600000"):
            expires = pika.BasicProperties(delivery_mode=2, expiration=expiration)
            publish(channel, "q", range(1), expires)
        end(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        wait_until(lambda: channel.queue_declare("q", passive=True).method.message_count == 1)
        assert [number for number, _ in drain(channel, "q")] == [0]
