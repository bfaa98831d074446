"""The log lines of connections that are accepted, open and closed, and of floods of them.

Tests: broker/connection/reader.py
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from leveret.actors.runtime.signals import SHUTDOWN
from leveret.amqp import methods as m
from leveret.broker.connection.connections import CloseConnection
from leveret.core.log.floods import SOURCE_LINES_MAX, WINDOW_S
from leveret.core.log.loggers import FLOODS
from rigs.broker_rig import HEADER, Client, Rig

NAME = '"127.0.0.1:40000 -> 127.0.0.1:5672"'
OF_GUEST = f'connection closed name={NAME} connection_name="" user=guest vhost=/'
OF_NOBODY = f'connection closed name={NAME} connection_name="" user="" vhost=""'


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "leveret.broker")


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    found = [
        (record.levelname.lower(), record.getMessage())
        for record in caplog.records
        if record.getMessage().startswith(("connection ", "channel "))
    ]
    caplog.clear()
    return found


def text(value: str) -> tuple[str, Any]:
    return ("S", value.encode("utf-8", "surrogateescape"))


def test_a_login_tells_who_comes_from_where(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    properties = {
        "connection_name": text("billing 7\x1b[31m"),
        "product": text("pika"),
        "version": text("1.3.2"),
        "platform": text("Python 3.11"),
    }
    client = rig.client()
    client.feed(HEADER)
    client.send(0, m.ConnectionStartOk(properties, "PLAIN", b"\0guest\0guest"))
    client.send(0, m.ConnectionTuneOk(10, 131_072, 0), m.ConnectionOpen("/"))

    assert lines(caplog) == [
        ("info", f"connection accepted name={NAME}"),
        (
            "info",
            f"connection authenticated name={NAME} user=guest vhost=/ mechanism=PLAIN"
            r' connection_name="billing 7\x1b[31m" product=pika version=1.3.2 platform="Python 3.11"',
        ),
    ]


def closes(client: Client) -> None:
    client.send(0, m.ConnectionClose(200, "bye"))
    client.hang_up()


def is_reset(client: Client) -> None:
    client.protocol.connection_lost(ConnectionResetError(104, "Connection reset by peer"))
    client.rig.settle()


def is_silent(client: Client) -> None:
    client.rig.jump(31)


def fails(client: Client) -> None:
    client.send(0, m.ChannelOpen())
    client.send(0, m.ConnectionCloseOk())


def is_closed_by_an_operator(client: Client) -> None:
    (reader,) = client.rig.node.connections.readers
    client.rig.runtime.send(reader, CloseConnection("maintenance"))
    client.rig.settle()
    client.hang_up()


def sees_the_broker_stop(client: Client) -> None:
    client.rig.node.connections.is_stopping = True
    client.rig.runtime.exit(client.rig.root, SHUTDOWN)
    client.rig.settle()


@pytest.mark.parametrize(
    ("end", "level", "reason"),
    [
        (closes, "info", '"closed by the client"'),
        (Client.hang_up, "warning", '"the client closed the socket unexpectedly"'),
        (is_reset, "warning", '"socket lost: [Errno 104] Connection reset by peer"'),
        (is_silent, "error", '"missed heartbeats of the client, timeout 10 s"'),
        (fails, "info", '"504 CHANNEL_ERROR"'),
        (is_closed_by_an_operator, "info", '"320 CONNECTION_FORCED"'),
        (sees_the_broker_stop, "info", '"the broker stops"'),
    ],
)
def test_a_closed_connection_tells_why_and_how_long_it_lived(
    rig: Rig,
    caplog: pytest.LogCaptureFixture,
    end: Callable[[Client], None],
    level: str,
    reason: str,
) -> None:
    client = rig.session(heartbeat_s=10)
    rig.jump(2.5)
    caplog.clear()
    end(client)

    *_, (found, line) = lines(caplog)
    assert found == level
    assert re.fullmatch(re.escape(f"{OF_GUEST} reason={reason} lived_s=") + r"\d+\.\d{3}", line)
    assert line.endswith("=2.500") or end is is_silent


def test_a_connection_that_ends_before_it_is_open_is_closed_too(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    client = rig.client()
    client.feed(HEADER)
    client.hang_up()

    reason = 'reason="the client closed the socket unexpectedly" lived_s=0.000'
    assert lines(caplog)[1:] == [("warning", f"{OF_NOBODY} {reason}")]


def test_a_check_that_only_connects_is_silent(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.client().hang_up()

    assert [level for level, _ in lines(caplog)] == ["debug"]


def test_a_node_that_is_full_says_so(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(connections_max=1)
    rig.session()
    caplog.clear()
    with pytest.raises(AssertionError):
        rig.session()

    assert lines(caplog) == [
        (
            "error",
            "connection refused at once peer=127.0.0.1:40000"
            ' reason="connections_max: 1 connections are open"',
        )
    ]


def test_arguments_without_effect_are_warned_of_where_they_are_set(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    client = rig.session()
    arguments = {
        "x-dead-letter-exchange": ("S", b"dead"),
        "x-max-length": ("l", 5),
        "x-queue-version": ("l", 2),
        "x-message-ttl": ("l", 5),
    }
    for name in ("orders", "plain", "orders"):
        client.send(1, m.QueueDeclare(name, arguments={} if name == "plain" else arguments))

    found = [each for each in caplog.records if "without effect" in each.getMessage()]
    assert [(each.levelname, each.getMessage()) for each in found] == [
        (
            "WARNING",
            "queue arguments are without effect so far queue=orders vhost=/ user=guest"
            f" name={NAME}"
            " arguments=x-queue-version",
        )
    ]
    assert all(type(each) is m.QueueDeclareOk for each in client.take())


def test_names_in_errors_are_printable(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    client = rig.session()
    caplog.clear()
    client.send(1, m.QueueDeclare("a\x1b[2J\x85\u202e\r\nb", passive=True))

    ((level, line),) = lines(caplog)
    assert level == "error"
    assert line.isprintable()
    assert r"no queue 'a\x1b[2J\x85\u202eb' in vhost '/'" in line.replace("\\\\", "\\")


@pytest.mark.parametrize("secret", ["correct horse", "wr\udcffong"])
def test_no_line_holds_a_password(rig: Rig, caplog: pytest.LogCaptureFixture, secret: str) -> None:
    response = b"\0guest\0" + secret.encode("utf-8", "surrogateescape")
    for sent in (response, response[1:], response + b"\0", b"\0" + response):
        client = rig.client()
        client.feed(HEADER)
        client.send(0, m.ConnectionStartOk({}, "PLAIN", sent))
        client.hang_up()

    text = " ".join(line for _, line in lines(caplog))
    assert "refused" in text
    assert not any(word in text for word in ("correct", "horse", "ong"))


def test_a_flood_of_bad_logins_and_of_channel_errors_is_counted(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(300):
        client = rig.client()
        client.feed(HEADER)
        client.send(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0x"))
        client.hang_up()
    good = rig.session()
    for _ in range(300):
        good.send(1, m.QueueDeclare("missing", passive=True))
        good.send(1, m.ChannelCloseOk())
        good.send(1, m.ChannelOpen())
    found = lines(caplog)
    FLOODS.flush()
    counted = lines(caplog)

    assert len(found) == 3 * SOURCE_LINES_MAX + 1  # accepted, refused, channel error; logged in
    assert sorted(line.partition(" in_s=")[0] for _, line in counted) == [
        f"channel error repeated={300 - SOURCE_LINES_MAX}",
        f"connection accepted repeated={301 - SOURCE_LINES_MAX}",
        f"connection refused repeated={300 - SOURCE_LINES_MAX}",
    ]
    assert WINDOW_S == 10.0
