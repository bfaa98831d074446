"""A broker in a process of its own keeps its confirmed messages over kill -9."""

from __future__ import annotations

import signal
from pathlib import Path

import pika
import pytest

from leveret.testing.broker_process import BrokerProcess, BrokerProcessError

KEPT = pika.BasicProperties(delivery_mode=2)


def test_what_was_confirmed_is_there_after_kill9(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("orders", durable=True)
            channel.confirm_delivery()
            channel.basic_publish("", "orders", b"kept", KEPT)

        broker.kill9()

        assert broker.process.returncode == -signal.SIGKILL
        assert not broker.is_running
        broker.start()
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            assert connection.channel().basic_get("orders", auto_ack=True)[2] == b"kept"
        broker.stop()
        assert broker.process.returncode == 0
        broker.stop()


def test_a_broker_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(BrokerProcessError, match="frobnicate"):
        BrokerProcess(tmp_path, "--frobnicate").start()
