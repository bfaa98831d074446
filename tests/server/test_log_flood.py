"""A hundred thousand bad logins: the log stays small, tells how many there were, and others are served."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from pathlib import Path

import pytest

from conformance import wire
from conformance.raw import CAPABILITIES, Connection
from leveret.core.addresses import Address
from leveret.core.log.floods import SOURCE_LINES_MAX
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from rigs.nodes import start_leveret, stop_leveret

LOGINS = 100_000
AT_ONCE = 100
PAUSE_S = 0.02  # of the honest client, which takes little time from the broker
LOG_BYTES_PER_MINUTE = 1_000_000

BAD_LOGIN = b"AMQP\0\0\x09\x01" + wire.frame(
    wire.METHOD,
    0,
    wire.method(
        "connection.start-ok",
        client_properties={"capabilities": CAPABILITIES, "connection_name": "x" * 1_000},
        mechanism="PLAIN",
        response="\0guest\0wrong " + "p" * 1_000,
        locale="en_US",
    ),
)


def log_in_badly(address: tuple[str, int]) -> None:
    """Fail to log in, ``AT_ONCE`` times."""
    connections = [Connection(address) for _ in range(AT_ONCE)]
    for each in connections:
        each.send_bytes(BAD_LOGIN)
    for each in connections:
        assert [event.name for event in (each.read(), each.read())][1] == "connection.close"
        each.drop()


class Honest(threading.Thread):
    """A client that is open before, asks again and again, and logs in anew now and then."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self.asked = self.logins = 0
        self.over = threading.Event()
        self.was_served = False
        self._address = address
        self._connection = Connection(address)
        assert self._connection.open().name == "connection.open-ok"

    def run(self) -> None:
        try:
            self._ask()
        finally:
            self._connection.drop()

    def _ask(self) -> None:
        channel = self._connection.channel()
        while not self.over.wait(PAUSE_S):
            channel.ok("queue.declare", queue="honest", exclusive=True)
            self.asked += 1
            if self.asked % 50 == 0:
                other = Connection(self._address)
                assert other.open().name == "connection.open-ok"
                other.close()
                self.logins += 1
        self.was_served = True


@pytest.mark.slow
def test_bad_logins_do_not_fill_the_log(tmp_path: Path) -> None:
    node = start_leveret(tmp_path)
    address = (node.host, node.port)
    honest = Honest(address)
    honest.start()

    began_s = time.monotonic()
    for _ in range(LOGINS // AT_ONCE):
        log_in_badly(address)
    took_s = time.monotonic() - began_s
    honest.over.set()
    honest.join(10)
    stop_leveret(node)

    log = node.log.read_text()
    refused = [line for line in log.splitlines() if "connection refused" in line]
    counted = [int(found) for line in refused for found in re.findall(r"repeated=(\d+)", line)]
    assert len(refused) - len(counted) + sum(counted) == LOGINS
    assert len(log) < LOG_BYTES_PER_MINUTE * max(1.0, took_s / 60)
    assert "wrong" not in log
    assert honest.was_served
    assert honest.logins > 0


async def test_a_service_with_logging_of_its_own_has_counted_lines_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with Broker(Config(listen=(Address("127.0.0.1", 0),))) as broker:
        first = broker.addresses[0]
        await asyncio.to_thread(log_in_badly, (first.host, first.port))

    refused = [line for line in caplog.messages if line.startswith("connection refused")]
    assert len(refused) == SOURCE_LINES_MAX + 1
    assert refused[-1].startswith(f"connection refused repeated={AT_ONCE - SOURCE_LINES_MAX} in_s=")
    assert not any(isinstance(each, threading.Timer) for each in threading.enumerate())
