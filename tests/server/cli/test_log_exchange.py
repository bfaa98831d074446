"""``log.exchange``: lines of the log as messages of ``amq.rabbitmq.log``.

Tests: broker/node/log_exchange.py, broker/node/own_publisher.py
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from pathlib import Path

import pika
import pytest

from leveret.amqp.properties import decode_properties
from leveret.broker.node import own_publisher
from leveret.broker.node.log_exchange import LogExchange
from leveret.core.limits import LOG_EXCHANGE_LINES_MAX
from rigs.nodes import BrokerUnderTest
from rigs.waiting import wait_until

Start = Callable[..., BrokerUnderTest]
Got = tuple[str, pika.BasicProperties, bytes]


def connect(node: BrokerUnderTest) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(node.url))


def lines(channel: object, queue: str, wanted: str) -> list[Got]:
    """Get lines until one has the wanted text."""
    found: list[Got] = []

    def is_there() -> bool:
        method, properties, body = channel.basic_get(queue, auto_ack=True)  # type: ignore[attr-defined]
        if method is not None:
            assert method.exchange == "amq.rabbitmq.log"
            found.append((method.routing_key, properties, body))
        return bool(found) and wanted in found[-1][2].decode()

    wait_until(is_there, lambda: str(found))
    return found


def test_a_queue_gets_the_lines_of_its_levels(tmp_path: Path, own_leveret: Start) -> None:
    config = tmp_path / "leveret.toml"
    config.write_text('[log]\nexchange = true\nlevel = "error"\nexchange_level = "info"')
    node = own_leveret("--config", str(config))
    with connect(node) as connection:
        channel = connection.channel()
        channel.queue_declare("all", durable=True)
        channel.queue_bind("all", "amq.rabbitmq.log", "#")
        channel.queue_declare("errors")
        channel.queue_bind("errors", "amq.rabbitmq.log", "error")
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            pika.BlockingConnection(
                pika.URLParameters(node.url.replace("guest:guest", "guest:wrong"))
            )
        connect(node).close()

        infos = lines(channel, "all", "connection authenticated")
        refused = lines(channel, "errors", "refused")

        key, properties, body = infos[-1]
        assert key == "info"
        assert properties.content_type == "text/plain"
        assert abs(properties.timestamp - time.time()) < 60
        assert re.fullmatch(r"leveret@.+", properties.headers["node"])
        assert re.match(rb"\d{4}-\d\d-\d\dT[\d:.]+Z info leveret\.", body)
        assert {each[0] for each in refused} == {"error"}

        channel.basic_publish("amq.rabbitmq.log", "info", b"forged")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            channel.queue_declare("all", passive=True, durable=True)
        assert closed.value.reply_code == 403


class Loop:
    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        self.calls.append(callback)


def record(name: str = "leveret.x", level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord(name, level, "", 0, "text n=%d", (1,), None)


def exchange(loop: Loop) -> LogExchange:
    return LogExchange("/", "leveret@here", loop, lambda: None)  # type: ignore[arg-type]


def test_the_first_line_wakes_the_publisher() -> None:
    loop = Loop()
    handler = exchange(loop)

    handler.handle(record())
    handler.handle(record(level=logging.ERROR))
    first, second = handler.next(), handler.next()

    assert len(loop.calls) == 1
    assert first is not None
    assert second is not None
    assert (first.exchange, first.routing_key, first.body) == (
        "amq.rabbitmq.log",
        b"info",
        b"text n=1",
    )
    assert second.routing_key == b"error"
    assert decode_properties(first.head).content_type == "text/plain"
    assert handler.next() is None
    handler.handle(record())
    assert len(loop.calls) == 2


def test_lines_of_the_publisher_itself_are_not_published() -> None:
    handler = exchange(Loop())

    handler.handle(record(own_publisher.__name__))

    assert handler.next() is None


def test_lines_beyond_the_limit_are_counted() -> None:
    handler = exchange(Loop())

    for _ in range(LOG_EXCHANGE_LINES_MAX + 3):
        handler.handle(record())

    assert handler.dropped == 3
    assert sum(1 for _ in iter(handler.next, None)) == LOG_EXCHANGE_LINES_MAX
