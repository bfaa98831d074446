"""From the protocol header to connection.open: steps accepted, refused aloud, refused in silence.

Tests: broker/connection/connections.py, core/settings.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from leveret.actors.runtime.ref import Cell, Ref
from leveret.amqp import methods as m
from leveret.amqp.tables import encode_table
from leveret.broker.connection import connections
from leveret.broker.connection.connections import (
    CONNECTIONS,
    STEPS_PER_DRAIN,
    CloseConnection,
    registered,
)
from leveret.broker.connection.handshake import server_properties
from leveret.broker.connection.sockets import ConnectionProtocol
from leveret.broker.connection.states import State
from leveret.broker.vhost.states import Event
from leveret.core.limits import SILENT_CLOSE_S
from leveret.core.settings import BrokerSettings
from leveret.metadata.tables import PermissionRow, UserRow
from rigs.broker_rig import HEADER, Client, Rig, Wire

LOGIN = b"\0guest\0guest"
TELLS = {"capabilities": ("F", {"authentication_failure_close": ("t", True)})}


def plain(response: bytes = LOGIN, properties: Any = None, mechanism: str = "PLAIN") -> m.Method:
    return m.ConnectionStartOk(properties or {}, mechanism, response)


# The header.


@pytest.mark.parametrize("header", [HEADER, b"AMQP\x01\x01\x00\x09"])
def test_these_headers_are_answered_with_start(rig: Rig, header: bytes) -> None:
    client = rig.client()
    for octet in header:
        assert client.take() == []
        client.feed(bytes([octet]))
    (start,) = client.take()

    assert isinstance(start, m.ConnectionStart)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert (start.mechanisms, start.locales) == (b"AMQPLAIN PLAIN", b"en_US")


def test_a_header_that_comes_before_the_reader_has_begun_is_answered(rig: Rig) -> None:
    wire = Wire()
    protocol = ConnectionProtocol(rig.node.sockets)
    wire.set_protocol(protocol)
    protocol.connection_made(wire)  # type: ignore[arg-type]
    wire.received(HEADER[:2])
    wire.received(HEADER[2:5])
    rig.settle()
    assert not wire.out
    wire.received(HEADER[5:])
    rig.settle()

    assert wire.out.startswith(b"\x01\x00\x00")


@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x00\x00\x09\x00",
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00",
        b"AMQP\x01\x01\x08\x00",
        b"GET / HT",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        bytes(8),
    ],
)
def test_any_other_header_is_answered_with_ours_and_the_end(rig: Rig, header: bytes) -> None:
    client = rig.client()
    client.feed(header + b"TP/1.1\r\n\r\n")

    assert bytes(client.wire.out) == HEADER
    assert client.wire.state == "finished"
    client.hang_up()
    assert not client.reader.is_alive


def test_all_may_come_in_one_piece(rig: Rig) -> None:
    client = rig.client()
    sent = [plain(), m.ConnectionTuneOk(5, 8192, 0), m.ConnectionOpen("/")]
    data = HEADER + b"".join(m.method_frame(0, m.encode(each)) for each in sent)
    client.feed(data + m.method_frame(3, m.encode(m.ChannelOpen())))

    said = [type(each) for each in client.take()]
    assert said == [m.ConnectionStart, m.ConnectionTune, m.ConnectionOpenOk, m.ChannelOpenOk]


def test_short_work_of_open_connections_goes_before_the_steps_of_many_logins(rig: Rig) -> None:
    client = rig.session()
    logins = [rig.client() for _ in range(20)]
    for each in logins:
        each.wire.received(HEADER)
    client.wire.received(m.method_frame(1, m.encode(m.QueueDeclare("q"))))
    waiting = rig.runtime.turns.scheduler._bulk
    assert waiting.count == 21 - STEPS_PER_DRAIN
    first = waiting.take()

    assert cast("Cell", first).account == client.reader.cell.account
    waiting.put(waiting.account, first)


# Announced properties.


def test_the_server_calls_itself_what_it_is_told_to() -> None:
    table = server_properties(BrokerSettings(product="P", product_version="7"), "c@h")

    assert table["product"] == ("S", b"P")
    assert table["version"] == ("S", b"7")
    assert table["cluster_name"] == ("S", b"c@h")
    assert set(table["capabilities"][1]) == {
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    }


def test_tune_offers_what_the_settings_say() -> None:
    client = Rig(channel_max=7, frame_max=8192, heartbeat_s=33).client()
    client.feed(HEADER)
    client.take()

    assert [client.ask(0, plain())] == [m.ConnectionTune(7, 8192, 33)]


# Login.


def amqplain(user: str, password: str) -> bytes:
    table = {"LOGIN": ("S", user.encode()), "PASSWORD": ("S", password.encode())}
    return encode_table(table)[4:]


@pytest.mark.parametrize(
    ("mechanism", "response"), [("PLAIN", LOGIN), ("AMQPLAIN", amqplain("guest", "guest"))]
)
def test_both_mechanisms_log_in(rig: Rig, mechanism: str, response: bytes) -> None:
    client = rig.client()
    client.feed(HEADER)
    client.take()

    assert isinstance(client.ask(0, plain(response, None, mechanism)), m.ConnectionTune)


REFUSED_LOGINS: list[tuple[str, bytes, str]] = [
    ("PLAIN", b"\0guest\0wrong", "127.0.0.1"),
    ("PLAIN", b"\0nobody\0guest", "127.0.0.1"),
    ("PLAIN", b"\0guest\0", "127.0.0.1"),
    ("PLAIN", LOGIN, "192.0.2.7"),  # guest is a loopback user
    ("PLAIN", LOGIN, "::2"),
    ("AMQPLAIN", amqplain("guest", "wrong"), "127.0.0.1"),
]


@pytest.mark.parametrize(("mechanism", "response", "peer"), REFUSED_LOGINS)
def test_a_refused_login_is_told_to_who_wants_to_know(
    rig: Rig, mechanism: str, response: bytes, peer: str
) -> None:
    client = rig.client(peer)
    client.feed(HEADER)
    client.take()
    closed = client.ask(0, plain(response, TELLS, mechanism))

    assert (closed.reply_code, closed.class_id, closed.method_id) == (403, 0, 0)
    assert closed.reply_text == (
        f"ACCESS_REFUSED - Login was refused using authentication mechanism {mechanism}."
        " For details see the broker logfile."
    )
    client.send(0, m.ConnectionCloseOk())
    assert client.wire.state == "closed"


@pytest.mark.parametrize(("mechanism", "response", "peer"), REFUSED_LOGINS)
def test_and_to_nobody_else(rig: Rig, mechanism: str, response: bytes, peer: str) -> None:
    client = rig.client(peer)
    client.feed(HEADER)
    client.take()
    client.send(0, plain(response, None, mechanism))

    assert_silence(rig, client)


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_guest_may_come_from_the_machine_itself(rig: Rig, peer: str) -> None:
    client = rig.client(peer)
    client.log_in()

    assert isinstance(client.take()[-1], m.ConnectionOpenOk)


# Silence: no frame, and the end three seconds later.


def assert_silence(rig: Rig, client: Client) -> None:
    assert client.take() == []
    client.feed(m.method_frame(0, m.encode(m.ConnectionOpen("/"))))  # is not looked at
    rig.jump(2.9)
    assert client.is_up
    rig.jump(0.2)
    assert client.take() == []
    assert client.wire.state == "closed"
    assert not client.reader.is_alive


@pytest.mark.parametrize(
    "first",
    [
        m.ConnectionTuneOk(10, 131_072, 0),
        m.ConnectionOpen("/"),
        m.ConnectionCloseOk(),
        m.ConnectionClose(200, "bye"),
        m.ChannelOpen(),
        plain(mechanism="EXTERNAL"),
        plain(mechanism=""),
        plain(b"guest guest"),
        plain(b"", None, "AMQPLAIN"),
    ],
    ids=str,
)
def test_instead_of_start_ok_this_is_met_with_silence(rig: Rig, first: m.Method) -> None:
    client = rig.client()
    client.feed(HEADER)
    client.take()
    client.send(0, first)

    assert_silence(rig, client)


def test_start_ok_on_another_channel_is_met_with_silence(rig: Rig) -> None:
    client = rig.client()
    client.feed(HEADER)
    client.take()
    client.send(1, plain())

    assert_silence(rig, client)


@pytest.mark.parametrize(
    ("tuned", "accepted"),
    [
        ((2047, 131_072, 60), True),
        ((1, 4_096, 0), True),
        ((2047, 131_072, 600), True),  # the client's heartbeat wins
        ((0, 131_072, 0), False),
        ((2048, 131_072, 0), False),
        ((2047, 4_095, 0), False),
        ((2047, 131_073, 0), False),
        ((2047, 0, 0), False),
    ],
)
def test_tune_ok_must_keep_to_what_was_offered(
    rig: Rig, tuned: tuple[int, int, int], accepted: bool
) -> None:
    client = rig.client()
    client.feed(HEADER)
    client.send(0, plain())
    client.take()
    client.send(0, m.ConnectionTuneOk(*tuned))
    if accepted:
        assert isinstance(client.ask(0, m.ConnectionOpen("/")), m.ConnectionOpenOk)
    else:
        assert_silence(rig, client)


@pytest.mark.parametrize("tuned", [(0, 0), (5, 0), (0, 4_096), (65_535, 2**31 - 1)])
def test_without_limits_offered_anything_is_agreed(tuned: tuple[int, int]) -> None:
    client = Rig(channel_max=0, frame_max=0).client()
    client.feed(HEADER)
    client.send(0, plain(), m.ConnectionTuneOk(*tuned, 0))
    client.take()

    assert isinstance(client.ask(0, m.ConnectionOpen("/")), m.ConnectionOpenOk)


# The vhost.


def tell_open(rig: Rig, vhost: str, user: str = "guest") -> Any:
    client = rig.client()
    client.feed(HEADER)
    client.send(0, plain(f"\0{user}\0guest".encode()), m.ConnectionTuneOk(10, 131_072, 0))
    client.take()
    return client.ask(0, m.ConnectionOpen(vhost))


def another_user(rig: Rig) -> None:
    guest = rig.node.access.users["guest"].row
    rig.node.access.put(UserRow("hare", guest.password_hash))


def limit_vhost(rig: Rig) -> None:
    rig.node.vhosts["/"].limits = {"max-connections": 0}


def stop_vhost(rig: Rig) -> None:
    rig.node.vhosts["/"].state.enter(Event.PART_ENDED)


@pytest.mark.parametrize(
    ("before", "user", "vhost", "code", "text"),
    [
        (None, "guest", "v", 530, "NOT_ALLOWED - vhost v not found"),
        (None, "guest", "", 530, "NOT_ALLOWED - vhost  not found"),
        (another_user, "hare", "/", 530, "NOT_ALLOWED - access to vhost '/' refused for user 'hare'"),
        (limit_vhost, "guest", "/", 530,
         "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (0) is reached"),
        (stop_vhost, "guest", "/", 541,
         "INTERNAL_ERROR - access to vhost '/' refused for user 'guest': vhost '/' is down"),
    ],
    ids=["missing", "empty", "no permission", "limit", "down"],
)  # fmt: skip
def test_open_is_refused(
    rig: Rig, before: Callable[[Rig], None] | None, user: str, vhost: str, code: int, text: str
) -> None:
    if before is not None:
        before(rig)
    closed = tell_open(rig, vhost, user)

    assert (closed.reply_code, closed.reply_text) == (code, text)
    assert (closed.class_id, closed.method_id) == (10, 40)


def test_a_permission_opens_the_vhost(rig: Rig) -> None:
    another_user(rig)
    rig.node.access.put(PermissionRow("hare", "/", "", "", ""))

    assert tell_open(rig, "/", "hare") == m.ConnectionOpenOk()


# Objects of a connection.


def test_before_open_there_is_one_actor_and_behind_it_a_supervisor(rig: Rig) -> None:
    before = rig.runtime.actor_count
    client = rig.client()
    client.feed(HEADER)
    assert rig.runtime.actor_count == before + 1
    client.send(0, plain(), m.ConnectionTuneOk(10, 131_072, 0), m.ConnectionOpen("/"))
    assert rig.runtime.actor_count == before + 2
    client.hang_up()

    assert rig.runtime.actor_count == before


def test_a_client_that_hangs_up_early_leaves_nothing(rig: Rig) -> None:
    before = rig.runtime.actor_count
    for sent in ([], [plain()], [plain(), m.ConnectionTuneOk(10, 131_072, 0)]):
        client = rig.client()
        client.feed(HEADER)
        for method in sent:
            client.send(0, method)
        client.hang_up()

    assert rig.runtime.actor_count == before
    assert rig.clock.pending_count == 0


def opening(rig: Rig) -> tuple[Client, Ref]:
    """A client that has said open, and whom the answer must wait for."""
    client = rig.client()
    client.feed(HEADER)
    client.send(0, plain(), m.ConnectionTuneOk(10, 131_072, 0))
    client.take()
    rig.runtime.suspend(registered(rig.runtime, CONNECTIONS))
    client.send(0, m.ConnectionOpen("/"))
    assert client.take() == []
    return client, registered(rig.runtime, CONNECTIONS)


def test_a_connection_that_is_being_opened_can_be_closed(rig: Rig) -> None:
    before = rig.runtime.actor_count
    client, supervisor = opening(rig)
    client.send(1, m.ChannelOpen())
    (reader,) = rig.node.connections.readers
    rig.runtime.send(reader, CloseConnection("vhost '/' is deleted"))
    rig.settle()
    rig.runtime.resume(supervisor)
    rig.settle()

    text = "CONNECTION_FORCED - vhost '/' is deleted"
    assert client.take() == [m.ConnectionClose(320, text, 0, 0)]
    client.send(0, m.ConnectionCloseOk())
    assert not client.is_up
    client.hang_up()
    assert (rig.node.connections.readers, rig.runtime.actor_count) == ({}, before)


@pytest.mark.parametrize("limits", [{}, {"max-connections": 5}])
def test_other_nodes_are_told_of_connections_that_have_a_limit_only(
    rig: Rig, limits: dict[str, int]
) -> None:
    changes: list[None] = []
    rig.node.connections.remote_counts.on_change = lambda: changes.append(None)
    rig.node.vhosts["/"].limits = limits
    rig.session().hang_up()

    assert len(changes) == (2 if limits else 0)


def test_a_login_without_limits_looks_at_no_other_connection(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.session()
    seen: list[Ref] = []
    vhost_of, user_of = connections.vhost_of, connections.user_of
    monkeypatch.setattr(
        connections, "vhost_of", lambda each: seen.append(each.ref) or vhost_of(each)
    )
    monkeypatch.setattr(connections, "user_of", lambda each: seen.append(each.ref) or user_of(each))

    assert {rig.session().reader} == set(seen)


def test_a_connection_that_is_being_opened_counts(rig: Rig) -> None:
    rig.node.vhosts["/"].limits = {"max-connections": 1}
    first, supervisor = opening(rig)
    other = rig.client()
    other.log_in()
    rig.runtime.resume(supervisor)
    rig.settle()

    assert first.take() == [m.ConnectionOpenOk()]
    closed = other.take()[-1]
    assert (type(closed), closed.reply_code) == (m.ConnectionClose, 530)


def test_a_client_that_hangs_up_while_it_is_let_in_leaves_nothing(rig: Rig) -> None:
    before = rig.runtime.actor_count
    client, supervisor = opening(rig)
    client.hang_up()
    rig.runtime.resume(supervisor)
    rig.settle()

    assert (rig.node.connections.readers, rig.runtime.actor_count) == ({}, before)


def test_a_content_before_the_login_is_not_waited_for(rig: Rig) -> None:
    client = rig.client()
    client.feed(HEADER)
    client.take()
    content = client.contents(1, ("", "q", bytes(1 << 20), {}))
    client.feed(content[:1000])

    (reader,) = [
        each.actor for each in rig.runtime.cells() if type(each.actor).__name__ == "Reader"
    ]
    assert reader.state.now is State.REFUSED
    client.feed(content[1000:100_000])
    rig.jump(SILENT_CLOSE_S)
    assert not client.is_up


def test_a_few_steps_of_handshakes_are_answered_at_once_in_each_drain(rig: Rig) -> None:
    """The others have turns of their own: thousands of clients that connect at once are no turn of seconds."""
    for _ in range(2):
        clients = [rig.client() for _ in range(20)]
        for each in clients:
            each.protocol.data_received(HEADER)

        answered = [bool(each.wire.out) for each in clients]
        assert answered == [True] * STEPS_PER_DRAIN + [False] * (20 - STEPS_PER_DRAIN)
        rig.settle()
        assert all(each.wire.out for each in clients)


def test_a_client_that_sends_more_than_a_step_waits(rig: Rig) -> None:
    *others, client = [rig.client() for _ in range(STEPS_PER_DRAIN + 1)]
    for each in others:
        each.protocol.data_received(HEADER)
    client.protocol.data_received(HEADER[:4])
    client.protocol.data_received(HEADER[4:])
    assert not client.wire.is_reading

    rig.settle()

    assert client.wire.is_reading
    assert client.take()


def test_what_a_client_sent_before_it_hung_up_is_looked_at(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    client = rig.client()
    client.protocol.data_received(b"GET / HTTP/1.1\r\n\r\n")
    client.hang_up()

    assert "no AMQP 0-9-1 header" in caplog.text
