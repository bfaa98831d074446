"""Delayed messages after a restart of the node: real processes, SIGTERM and kill -9."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pika
import pytest

from durable.restarts.test_restarts import ENDS, channel_of, drain, node
from rigs.waiting import wait_until

ARGUMENTS = {"x-delayed-type": "direct"}


def declare(channel: Any, **options: Any) -> None:
    channel.exchange_declare("x", "x-delayed-message", arguments=ARGUMENTS, **options)


def publish(channel: Any, delay_ms: int, number: int, delivery_mode: int = 2) -> None:
    properties = pika.BasicProperties(headers={"x-delay": delay_ms}, delivery_mode=delivery_mode)
    channel.basic_publish("x", "k", str(number).encode(), properties)


def drained(channel: Any, count: int) -> list[int]:
    found: list[int] = []

    def has_all() -> bool:
        found.extend(number for number, _ in drain(channel, "q"))
        return len(found) >= count

    wait_until(has_all, within_s=10)
    return found


@ENDS
def test_messages_keep_their_times_whatever_their_delivery_mode(tmp_path: Path, end: Any) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.confirm_delivery()
        declare(channel, durable=True)
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "x", "k")
        due_s = time.time() + 3.0
        for number, mode in enumerate((2, 1)):
            publish(channel, 3_000, number, mode)
        publish(channel, 10, 2)  # due while the node is down, perhaps
        end(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        # Twice, if the node was killed after it came to the queue and before it left the delay queue.
        assert set(drained(channel, 1)) == {2}
        assert drained(channel, 2) == [0, 1]
        assert time.time() >= due_s


@ENDS
def test_messages_of_a_transient_exchange_wait_for_it(tmp_path: Path, end: Any) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.confirm_delivery()
        declare(channel)
        publish(channel, 4_000, 0)
        end(broker)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no exchange"):
            channel.exchange_declare("x", passive=True)
        another = channel.connection.channel()
        declare(another)
        another.queue_declare("q")
        another.queue_bind("q", "x", "k")
        assert drained(another, 1) == [0]
