"""SIGHUP: which settings a running ``leveret serve`` reads again, and what it says of the others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pika
import pytest

from rigs.nodes import BrokerUnderTest
from rigs.waiting import wait_until

Start = Callable[..., BrokerUnderTest]


class Settings:
    """A configuration file, and the node that reads it."""

    def __init__(self, folder: Path, own_leveret: Start, text: str) -> None:
        self.file = folder / "leveret.toml"
        self.file.write_text(text)
        self.node = own_leveret("--config", str(self.file))
        assert self.node.log is not None
        self.stderr = self.node.log

    def change(self, text: str, told: str = "settings read again") -> None:
        """Write another file, send SIGHUP, and wait for a line on stderr."""
        self.file.write_text(text)
        before = self.stderr.read_text().count(told)
        assert self.node.pid is not None
        os.kill(self.node.pid, signal.SIGHUP)
        wait_until(lambda: self.stderr.read_text().count(told) > before, self.stderr.read_text)

    def connect(self) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.URLParameters(self.node.url))


def test_levels_of_the_log_change(tmp_path: Path, own_leveret: Start) -> None:
    settings = Settings(tmp_path, own_leveret, '[log]\nlevel = "error"')
    settings.connect().close()
    assert "connection accepted" not in settings.stderr.read_text()

    settings.change('[log]\nlevel = "info"')
    settings.connect().close()

    wait_until(
        lambda: "connection accepted" in settings.stderr.read_text(), settings.stderr.read_text
    )


def test_the_log_file_is_opened_anew(tmp_path: Path, own_leveret: Start) -> None:
    file = tmp_path / "leveret.log"
    text = f'[log]\nfile = "{file}"'
    settings = Settings(tmp_path, own_leveret, text)
    rotated = file.rename(tmp_path / "leveret.log.1")

    settings.change(text)

    wait_until(lambda: file.exists() and "settings read again" in file.read_text(), lambda: "")
    assert "settings read again" not in rotated.read_text()


def test_the_limit_of_connections_changes(tmp_path: Path, own_leveret: Start) -> None:
    settings = Settings(tmp_path, own_leveret, "[limits]\nconnections = 10")
    first = settings.connect()

    settings.change("[limits]\nconnections = 1")

    with pytest.raises(pika.exceptions.AMQPConnectionError):
        settings.connect()
    settings.change("")
    settings.connect().close()
    first.close()


def test_new_connections_get_new_limits(tmp_path: Path, own_leveret: Start) -> None:
    settings = Settings(tmp_path, own_leveret, "")
    before = settings.connect()

    settings.change("[amqp]\nmessage_bytes_max = 10")

    with settings.connect() as after:
        channel = after.channel()
        channel.basic_publish("", "q", bytes(11))
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.queue_declare("q")
    channel = before.channel()
    channel.basic_publish("", "q", bytes(11))
    channel.queue_declare("q")
    before.close()


def test_limits_of_memory_and_disk_change(tmp_path: Path, own_leveret: Start) -> None:
    settings = Settings(tmp_path, own_leveret, "")

    settings.change('[disk]\nfree_limit = "100000GB"', told="alarm raised")

    settings.change('[disk]\nfree_limit = "1MB"', told="alarm cleared")


def test_an_invalid_file_changes_nothing(tmp_path: Path, own_leveret: Start) -> None:
    settings = Settings(tmp_path, own_leveret, "[limits]\nconnections = 1")

    settings.change("[limits]\nconnections = 0\n", told="settings not read again")

    first = settings.connect()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        settings.connect()
    first.close()


def test_other_settings_need_a_restart(tmp_path: Path, own_leveret: Start) -> None:
    settings = Settings(tmp_path, own_leveret, "")

    settings.change('[announce]\nproduct = "Other"', told="setting needs a restart")

    assert "setting needs a restart key=announce.product" in settings.stderr.read_text()
