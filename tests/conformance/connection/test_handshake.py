"""From the first byte to connection.open-ok.

What RabbitMQ refuses without a word it refuses after three seconds; those sessions run side by side.
Differs from RabbitMQ: where the client can take it (authentication_failure_close), Leveret says why
before it closes, after the same delay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from conformance import wire
from conformance.conftest import Dial
from conformance.raw import Connection, Event, error_of, hard
from rigs.nodes import BrokerUnderTest

REFUSED = b"AMQP\0\0\x09\x01"
LOGIN_REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism {}."
    " For details see the broker logfile."
)
NINE_CAPABILITIES = {
    "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
    "connection.blocked", "consumer_priorities", "authentication_failure_close", "per_consumer_qos",
    "direct_reply_to",
}  # fmt: skip


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"AMQP\0\0\x09\0",
        b"AMQP\0\0\x09\x02",
        b"AMQP\0\x01\0\0",
        b"\0" * 8,
    ],
)
def test_another_protocol_is_told_ours(dial: Dial, sent: bytes) -> None:
    connection = dial()

    connection.send_bytes(sent)

    assert connection.read().name == "closed"
    assert bytes(connection.buffer) == REFUSED


@pytest.mark.parametrize("header", [b"AMQP\0\0\x09\x01", b"AMQP\x01\x01\0\x09"])
def test_connection_start(dial: Dial, header: bytes) -> None:
    connection = dial()

    connection.send_bytes(header)

    start = connection.read()
    assert (start.name, start.major, start.minor) == ("connection.start", 0, 9)
    assert set(start.mechanisms.split()) >= {"PLAIN", "AMQPLAIN"}
    assert start.locales == "en_US"
    capabilities = start.server_properties["capabilities"]
    assert {name for name, on in capabilities.items() if on is True} == NINE_CAPABILITIES
    assert (start.server_properties["product"], start.server_properties["version"]) == (
        "RabbitMQ",
        "3.10.8",
    )


def test_connection_tune(dial: Dial) -> None:
    connection = dial()
    connection.send_bytes(REFUSED)
    connection.read()

    connection.send("connection.start-ok", mechanism="PLAIN", response="\0guest\0guest", locale="x")

    tune = connection.read()
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


@pytest.mark.parametrize(
    "options",
    [
        {"channel_max": 1},
        {"heartbeat": 600},
        {"frame_max": 4096},
        {
            "mechanism": "AMQPLAIN",
            "response": wire.table({"LOGIN": "guest", "PASSWORD": "guest"})[4:],
        },
        {
            "mechanism": "AMQPLAIN",
            "response": wire.table({"PASSWORD": "guest", "LOGIN": "guest"})[4:],
        },
        {"capabilities": {}},
    ],
)
def test_connection_open_is_answered_whatever_was_negotiated(
    dial: Dial, options: dict[str, Any]
) -> None:
    reply = dial().open(**options)

    assert (reply.name, reply.r1) == ("connection.open-ok", "")


def test_a_handshake_in_segments_of_one_byte(dial: Dial) -> None:
    connection = dial()
    start_ok = wire.method(
        "connection.start-ok", mechanism="PLAIN", response="\0guest\0guest", locale="en_US"
    )

    for byte in REFUSED + wire.frame(wire.METHOD, 0, start_ok):
        connection.send_bytes(bytes([byte]))

    assert [connection.read().name for _ in range(2)] == ["connection.start", "connection.tune"]


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", "\0guest\0wrong"),
        ("PLAIN", "\0nobody\0guest"),
        ("PLAIN", "\0guest\0"),
        ("AMQPLAIN", wire.table({"LOGIN": "guest", "PASSWORD": "wrong"})[4:]),
    ],
)
def test_wrong_credentials_are_answered_at_once(
    dial: Dial, mechanism: str, response: str | bytes
) -> None:
    started = time.monotonic()
    reply = dial().open(mechanism=mechanism, response=response)

    assert error_of(reply) == hard(403, LOGIN_REFUSED.format(mechanism))
    assert time.monotonic() - started < 2


def test_an_unknown_vhost(dial: Dial) -> None:
    reply = dial().open(vhost="/nope")

    assert error_of(reply) == hard(530, "NOT_ALLOWED - vhost /nope not found", "connection.open")


def test_a_frame_of_more_than_4096_before_tune(dial: Dial) -> None:
    connection = dial()
    connection.send_bytes(REFUSED)
    connection.read()

    connection.send_bytes(
        wire.frame(wire.METHOD, 0, wire.method("connection.start-ok") + b"x" * 4096)
    )

    closing = connection.read()
    if closing.name != "closed":
        assert closing.reply_code == 501


# Sessions that end without any frame, and when: name -> (what the client does, seconds).


def _login(**changes: Any) -> Callable[[Connection], Event]:
    return lambda connection: connection.open(capabilities={}, **changes)


def _tune(**changes: int) -> Callable[[Connection], Event]:
    return lambda connection: connection.open(capabilities={}, **changes)


def _instead_of_start_ok(name: str, channel: int) -> Callable[[Connection], Event]:
    def act(connection: Connection) -> Event:
        connection.send_bytes(REFUSED)
        connection.read()
        connection.send(name, channel)
        return connection.read()

    return act


def _say(data: bytes) -> Callable[[Connection], Event]:
    def act(connection: Connection) -> Event:
        connection.send_bytes(data)
        return connection.read(timeout_s=20)

    return act


def _silent_after_start(connection: Connection) -> Event:
    connection.send_bytes(REFUSED)
    connection.read()
    return connection.read(timeout_s=20)


SILENT: dict[str, tuple[Callable[[Connection], Event], float]] = {
    "wrong password, no capability": (_login(password="wrong"), 3),
    "unknown mechanism": (_login(mechanism="NOPE"), 3),
    "PLAIN without NULs": (_login(response="guest"), 3),
    "PLAIN with authzid": (_login(response="a\0guest\0guest"), 3),
    "PLAIN with three parts": (_login(response="\0guest\0guest\0x"), 3),
    "connection.open for start-ok": (_instead_of_start_ok("connection.open", 0), 3),
    "channel.open for start-ok": (_instead_of_start_ok("channel.open", 1), 3),
    "frame_max 4095": (_tune(frame_max=4095), 3),
    "frame_max 131073": (_tune(frame_max=131073), 3),
    "frame_max 0": (_tune(frame_max=0), 3),
    "channel_max 0": (_tune(channel_max=0), 3),
    "channel_max 2048": (_tune(channel_max=2048), 3),
    "four bytes": (_say(b"AMQP"), 10),
    "nothing": (_say(b""), 10),
    "protocol header only": (_silent_after_start, 10),
}


@pytest.fixture(scope="module")
def silent_ends(broker: BrokerUnderTest) -> Iterator[dict[str, tuple[Event, float]]]:
    """Run all of SILENT side by side; return what came and after how long."""

    def run(case: str) -> tuple[Event, float]:
        connection = Connection(broker.place, broker.tls)
        started = time.monotonic()
        event = SILENT[case][0](connection)
        took = time.monotonic() - started
        connection.drop()
        return event, took

    with ThreadPoolExecutor(len(SILENT)) as pool:
        yield dict(zip(SILENT, pool.map(run, SILENT), strict=True))


@pytest.mark.parametrize("case", SILENT)
def test_refused_without_a_word(silent_ends: dict[str, tuple[Event, float]], case: str) -> None:
    event, took = silent_ends[case]

    assert event.name == "closed"
    assert SILENT[case][1] - 0.5 <= took <= SILENT[case][1] + 2


def test_no_permission_in_the_vhost(dial: Dial, broker: BrokerUnderTest, name: str) -> None:
    broker.control("add_user", name, "secret")
    try:
        reply = dial().open(user=name, password="secret")
    finally:
        broker.control("delete_user", name)

    refused = f"NOT_ALLOWED - access to vhost '/' refused for user '{name}'"
    assert error_of(reply) == hard(530, refused, "connection.open")
