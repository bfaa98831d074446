"""A connection after open-ok: what may be said on it, heartbeats, and how it ends."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from conformance import wire
from conformance.conftest import Connect, Dial
from conformance.raw import Connection, error_of, hard, is_there
from rigs.nodes import BrokerUnderTest
from rigs.waiting import wait_until

NOT_NOW = "CHANNEL_ERROR - unexpected method in connection state running"


@pytest.mark.parametrize(
    ("method", "channel", "error"),
    [
        ("connection.open", 0, hard(504, NOT_NOW, "connection.open")),
        ("connection.start-ok", 0, hard(504, NOT_NOW, "connection.start-ok")),
        ("connection.close-ok", 0, hard(504, NOT_NOW, "connection.close-ok")),
        ("connection.blocked", 0, hard(504, NOT_NOW, "connection.blocked")),
        ("channel.open", 0, hard(504, NOT_NOW, "channel.open")),
        ("queue.declare", 0, hard(504, NOT_NOW, "queue.declare")),
        (
            "connection.close",
            1,
            hard(503, "COMMAND_INVALID - unimplemented method", "connection.close"),
        ),
    ],
)
def test_a_method_that_has_no_place(
    connect: Connect, method: str, channel: int, error: tuple[str, int, str, str]
) -> None:
    connection = connect()
    connection.channel(1)

    connection.send(method, channel)

    assert error_of(connection.read()) == error


def test_connection_close_is_answered_with_close_ok(connect: Connect) -> None:
    connection = connect()
    connection.channel()

    assert connection.call("connection.close", reply_code=200).name == "connection.close-ok"


def test_frames_after_close_are_not_heard(connect: Connect, name: str) -> None:
    connection, witness = connect(), connect().channel()
    connection.channel()

    connection.send_bytes(
        wire.frame(1, 0, wire.method("connection.close", reply_code=200))
        + wire.frame(1, 1, wire.method("queue.declare", queue=name))
    )

    assert connection.read().name == "connection.close-ok"
    assert witness.call("queue.declare", queue=name, passive=True).name == "channel.close"


def test_every_close_is_answered_and_the_socket_left_to_the_client(connect: Connect) -> None:
    connection = connect()
    connection.channel()
    close = wire.frame(1, 0, wire.method("connection.close", reply_code=200))

    connection.send_bytes(close * 3)
    answers = [connection.read() for _ in range(3)]
    connection.send_bytes(close)
    answers.append(connection.read())

    assert [answer.name for answer in answers] == ["connection.close-ok"] * 4
    assert not connection.ended


def test_what_is_sent_behind_close_does_not_cost_the_answer(connect: Connect, name: str) -> None:
    connection = connect()
    connection.channel()
    close = wire.frame(1, 0, wire.method("connection.close", reply_code=200))
    publish = wire.frame(1, 1, wire.method("basic.publish", exchange="", routing_key=name))
    content = publish + wire.frame(2, 1, wire.head(0, {}))

    connection.send_bytes(close + content * 20_000)

    assert connection.read().name == "connection.close-ok"
    for _ in range(10):  # nobody has reset the connection
        connection.send_bytes(content * 1000)


def test_an_exclusive_queue_is_gone_when_close_ok_arrives(connect: Connect, name: str) -> None:
    owner, witness = connect(), connect().channel()
    owner.channel().ok("queue.declare", queue=name, exclusive=True)

    owner.close()

    error = witness.error("queue.declare", queue=name, passive=True)
    assert error[1:3] == (404, f"NOT_FOUND - no queue '{name}' in vhost '/'")


def test_an_exclusive_queue_is_gone_soon_after_the_connection_is_lost(
    connect: Connect, name: str
) -> None:
    owner, witness = connect(), connect()
    owner.channel().ok("queue.declare", queue=name, exclusive=True)

    owner.drop()

    wait_until(lambda: not is_there(witness, name))


def test_update_secret(connect: Connect) -> None:
    reply = connect().call("connection.update-secret", new_secret="guest", reason="it is time")

    assert reply.name == "connection.update-secret-ok"


@pytest.mark.parametrize("secret", ["", "wrong", "x" * 2_000])
def test_a_secret_means_nothing_to_users_with_passwords(connect: Connect, secret: str) -> None:
    """It is for tokens that expire: it is neither checked nor does it change the password."""
    connection = connect()
    channel = connection.channel()
    for reason in ("", "r" * 255):
        reply = connection.call("connection.update-secret", new_secret=secret, reason=reason)
        assert reply.name == "connection.update-secret-ok"

    assert channel.ok("queue.declare", exclusive=True).name == "queue.declare-ok"
    assert connect().channel().ok("channel.flow", active=True).active


def test_a_vhost_that_is_deleted_takes_its_connections_along(
    connect: Connect, broker: BrokerUnderTest, name: str
) -> None:
    broker.control("add_vhost", name)
    broker.control("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
    connection = connect(vhost=name)

    broker.control("delete_vhost", name)

    forced = hard(320, f"CONNECTION_FORCED - vhost '{name}' is deleted")
    down = hard(
        320, f"CONNECTION_FORCED - vhost '{name}' is down"
    )  # RabbitMQ's, when it loses a race
    assert error_of(connection.read()) in broker.expected(
        rabbitmq=(forced, down), leveret=(forced,)
    )


def test_a_user_that_is_deleted_loses_the_connections(
    connect: Connect, broker: BrokerUnderTest, name: str
) -> None:
    broker.control("add_user", name, "secret")
    broker.control("set_permissions", name, ".*", ".*", ".*")
    connection = connect(user=name, password="secret")

    broker.control("delete_user", name)

    forced = f"CONNECTION_FORCED - user '{name}' is deleted"
    assert error_of(connection.read()) == hard(320, forced)


def test_an_operator_closes_a_connection_with_a_reason(
    connect: Connect, broker: BrokerUnderTest
) -> None:
    connection = connect()
    port = str(connection.socket.getsockname()[1])
    rows = [
        row.split("\t")
        for row in broker.control("list_connections", "peer_port", "pid").splitlines()
    ]
    (pid,) = [row[1] for row in rows if row[0] == port]

    broker.control("close_connection", pid, "maintenance!")

    assert error_of(connection.read()) == hard(320, "CONNECTION_FORCED - maintenance!")
    connection.send("connection.close-ok")
    assert connection.read_until_closed() == []


def test_a_broker_that_stops_says_so(own_leveret: Callable[..., BrokerUnderTest]) -> None:
    node = own_leveret()
    connection = Connection((node.host, node.port))
    assert connection.open().name == "connection.open-ok"

    node.process.send_signal(signal.SIGTERM)

    forced = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
    assert error_of(connection.read()) == hard(320, forced)
    assert connection.read_until_closed() == []
    assert node.process.wait(10) == 0
    with pytest.raises(ConnectionRefusedError):
        Connection((node.host, node.port))
    connection.drop()


def test_heartbeats_come_twice_as_often_and_the_silent_are_cut(connect: Connect) -> None:
    connection = connect(heartbeat=1)
    started = time.monotonic()

    assert connection.read_until_closed() == []

    assert 1.9 <= time.monotonic() - started <= 4
    gaps = [b - a for a, b in zip(connection.heartbeats, connection.heartbeats[1:], strict=False)]
    assert len(connection.heartbeats) >= 3
    assert all(0.3 <= gap <= 1.2 for gap in gaps)


def test_heartbeats_keep_a_connection_open(connect: Connect) -> None:
    """In real time, as RabbitMQ has no other; the silent are cut after two seconds."""
    connection = connect(heartbeat=1)
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.5):
            connection.send_bytes(wire.frame(wire.HEARTBEAT, 0, b""))

    thread = threading.Thread(target=beat)
    thread.start()
    with pytest.raises(TimeoutError):
        connection.read(timeout_s=4)
    stop.set()
    thread.join()

    assert connection.channel().number == 1


def test_no_heartbeats_when_the_client_wants_none(connect: Connect) -> None:
    """In real time, as RabbitMQ has no other."""
    connection = connect(heartbeat=0)

    with pytest.raises(TimeoutError):
        connection.read(timeout_s=1.5)

    assert connection.heartbeats == []


@pytest.mark.parametrize(
    ("channel", "payload", "error"),
    [
        (0, b"abc", hard(501, 'FRAME_ERROR - type 8, all octets = <<"abc">>: unknown_frame')),
        (1, b"", hard(505, "UNEXPECTED_FRAME - type 8, all octets = <<>>")),
    ],
)
def test_a_heartbeat_that_is_none(
    connect: Connect, channel: int, payload: bytes, error: tuple[str, int, str, str]
) -> None:
    connection = connect()
    connection.channel(1)

    connection.send_bytes(wire.frame(wire.HEARTBEAT, channel, payload))

    assert error_of(connection.read()) == error


def test_crossing_closes(connect: Connect) -> None:
    connection = connect()
    connection.send("connection.open")
    assert connection.read().name == "connection.close"

    connection.send("connection.close", reply_code=200)

    assert connection.read().name == "connection.close-ok"


def test_a_client_that_never_answers_a_close_loses_its_socket(connect: Connect) -> None:
    """In real time, as RabbitMQ has no other: after its heartbeat, thirty seconds at most."""
    connection = connect(heartbeat=2)
    connection.send("connection.open")
    assert connection.read().name == "connection.close"
    started = time.monotonic()

    while not connection.ended and time.monotonic() - started < 10:
        with suppress(TimeoutError):
            connection.read(timeout_s=0.5)
        with suppress(OSError):  # the client is there, and silent about the close
            connection.send_bytes(wire.frame(wire.HEARTBEAT, 0, b""))

    assert 1.5 <= time.monotonic() - started <= 5


def test_a_health_check_that_connects_and_leaves(dial: Dial, connect: Connect) -> None:
    for _ in range(5):
        dial().drop()

    assert connect().channel().number == 1
