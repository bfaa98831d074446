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


COME_S = 60.0  # on a machine with much else to do


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
        ended_s = time.time()

    found: list[int] = []

    def has_all() -> bool:
        got = [number for number, _ in drain(channel, "q")]
        assert time.time() >= due_s or set(got) <= {2}  # none comes early
        found.extend(got)
        return set(found) == {0, 1, 2}

    with node(tmp_path) as broker, channel_of(broker) as channel:
        wait_until(has_all, lambda: found, within_s=COME_S)
        # Twice, if the node was killed after it came to the queue and before it left the delay queue.
        late = [number for number in found if number != 2]
        assert list(dict.fromkeys(late)) == [0, 1]
        assert len(late) == 2 or ended_s >= due_s


@ENDS
def test_messages_of_a_transient_exchange_wait_for_it(tmp_path: Path, end: Any) -> None:
    delay_s = 4
    while not _came_back(tmp_path / str(delay_s), end, delay_s):  # due before the node was up
        delay_s *= 4


def _came_back(folder: Path, end: Any, delay_s: int) -> bool:
    """Return whether exchange and binding were back in time; then the message has come."""
    folder.mkdir()
    with node(folder) as broker, channel_of(broker) as channel:
        channel.confirm_delivery()
        declare(channel)
        due_s = time.time() + delay_s
        publish(channel, delay_s * 1_000, 0)
        end(broker)

    with node(folder) as broker, channel_of(broker) as channel:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no exchange"):
            channel.exchange_declare("x", passive=True)
        another = channel.connection.channel()
        declare(another)
        another.queue_declare("q")
        another.queue_bind("q", "x", "k")
        if time.time() >= due_s:
            return False
        wait_until(lambda: [number for number, _ in drain(another, "q")] == [0], within_s=COME_S)
        return True
