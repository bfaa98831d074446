"""The way out of a connection: one write per drain, and its end.

Tests: broker/connection/pending_writes.py
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.amqp import methods as m
from leveret.amqp.body_frames import UNCOPIED_BYTES
from leveret.broker.connection.pending_writes import MANY, PendingWrites
from leveret.broker.connection.writer import FLUSH_BYTES, Writer
from rigs.broker_rig import Rig, Wire


class Writing(OtpActor):
    """Writes the mail it gets."""

    def init(self, writer: Writer) -> None:
        self.writer = writer

    def handle_mail(self, message: bytes, sender: Ref | None) -> None:
        self.writer.write(message)


@pytest.fixture
def writer(runtime: Runtime, wire: Wire) -> Writer:
    return Writer(runtime, PendingWrites(runtime).add, wire, lambda: None, lambda: None)


def test_what_many_actors_write_in_one_drain_is_one_write(
    runtime: Runtime, wire: Wire, writer: Writer
) -> None:
    actors = [runtime.spawn(Writing, writer) for _ in range(10)]
    for number, actor in enumerate(actors):
        runtime.send(actor, b"%d" % number)
    assert wire.out == b""
    runtime.run_until_idle()

    assert (bytes(wire.out), wire.writes) == (b"0123456789", 1)


def test_each_drain_has_its_own_write(runtime: Runtime, wire: Wire, writer: Writer) -> None:
    for piece in (b"a", b"b"):
        writer.write(piece)
        runtime.run_until_idle()

    assert (bytes(wire.out), wire.writes) == (b"ab", 2)


def test_what_waits_is_written_before_other_callbacks_of_the_drain(
    runtime: Runtime, wire: Wire, writer: Writer
) -> None:
    out: list[bytes] = []
    runtime.after_drain(lambda: out.append(bytes(wire.out)))  # a flush of the store, say
    writer.write(b"answer")
    runtime.run_until_idle()

    assert out == [b"answer"]


def test_a_large_amount_goes_at_once(wire: Wire, writer: Writer) -> None:
    writer.write(b"a")
    writer.write(b"b" * (FLUSH_BYTES - 2))
    assert wire.writes == 0
    writer.write(b"c")
    assert wire.writes == 1
    writer.write(b"d" * FLUSH_BYTES)

    assert wire.writes == 2
    assert len(wire.out) == 2 * FLUSH_BYTES


def test_unsent_bytes_are_those_here_and_those_in_the_transport(wire: Wire, writer: Writer) -> None:
    wire.unread_bytes = 100
    writer.write(b"12345")

    assert writer.unsent_bytes == 105


def test_wrote_says_whether_anything_went_out(runtime: Runtime, writer: Writer) -> None:
    writer.flush()
    assert not writer.wrote
    writer.write(b"a")
    assert not writer.wrote
    runtime.run_until_idle()
    assert writer.wrote


def test_close_sends_what_waits(runtime: Runtime, wire: Wire, writer: Writer) -> None:
    writer.write(b"last")
    writer.close()
    writer.close()
    writer.abort()
    writer.write(b"too late")
    runtime.run_until_idle()

    assert (bytes(wire.out), wire.state) == (b"last", "closed")
    assert writer.unsent_bytes == 0


def test_abort_drops_what_waits(runtime: Runtime, wire: Wire, writer: Writer) -> None:
    writer.write(b"last")
    writer.abort()
    writer.close()
    runtime.run_until_idle()

    assert (bytes(wire.out), wire.state) == (b"", "aborted")


def test_a_peer_that_has_reset_the_connection_is_told_nothing(
    writer: Writer, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reset() -> None:
        raise OSError(107, "Transport endpoint is not connected")

    monkeypatch.setattr(wire, "write_eof", reset)
    writer.write(b"last word")

    writer.finish()

    assert bytes(wire.out) == b"last word"
    writer.close()
    assert wire.state == "closed"


def test_parts_are_not_joined(runtime: Runtime, wire: Wire, writer: Writer) -> None:
    given: list[object] = []
    wire.writelines = given.extend  # type: ignore[method-assign]
    body = bytes(UNCOPIED_BYTES)

    writer.write(b"a")
    writer.write_parts([b"b", body])
    writer.write(b"c")
    runtime.run_until_idle()
    writer.write(b"d")
    runtime.run_until_idle()

    assert given == [b"a", b"b", body, b"c"]
    assert given[2] is body
    assert bytes(wire.out) == b"d"


def test_a_body_is_one_object_from_its_read_to_all_of_its_writes(rig: Rig) -> None:
    parts: list[bytes] = []
    clients = [rig.session() for _ in range(3)]
    for number, client in enumerate(clients):
        client.send(1, m.QueueDeclare(f"q{number}"), m.QueueBind(f"q{number}", "amq.fanout", ""))
        client.send(1, m.BasicConsume(f"q{number}", no_ack=True))
        client.wire.writelines = parts.extend  # type: ignore[method-assign]
    body = bytes(range(256)) * (UNCOPIED_BYTES // 256)

    clients[0].publish(1, "", body, exchange="amq.fanout")

    written = [part for part in parts if part == body]
    assert len(written) == len(clients)
    assert len({id(part) for part in written}) == 1


# Plain sockets, to which the kernel sends.


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The broker's end of a connection, which does not block, and the client's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def plain(runtime: Runtime, wire: Wire, ends: tuple[socket.socket, socket.socket]) -> Writer:
    wire.socket = ends[0]
    return Writer(runtime, PendingWrites(runtime).add, wire, lambda: None, lambda: None)


def test_to_a_plain_socket_the_kernel_sends(
    runtime: Runtime, wire: Wire, plain: Writer, ends: tuple[socket.socket, socket.socket]
) -> None:
    flushed: list[str] = []
    plain.after_flush = lambda: flushed.append("flushed")
    plain.write(b"a")
    plain.write(b"b")
    assert (plain.unsent_bytes, plain.wrote) == (2, False)
    runtime.run_until_idle()

    assert (ends[1].recv(9), bytes(wire.out), flushed) == (b"ab", b"", ["flushed"])
    assert (plain.unsent_bytes, plain.wrote) == (0, True)


def test_the_kernel_sends_before_other_callbacks_of_the_drain(
    runtime: Runtime, plain: Writer
) -> None:
    unsent: list[int] = []
    runtime.after_drain(lambda: unsent.append(plain.unsent_bytes))
    plain.write(b"answer")
    runtime.run_until_idle()

    assert unsent == [0]


def test_what_the_socket_does_not_take_goes_to_the_transport_and_all_behind_it(
    runtime: Runtime, wire: Wire, plain: Writer, ends: tuple[socket.socket, socket.socket]
) -> None:
    written = b""
    while not wire.out:
        piece = b"%d " % len(written) * 10_000
        plain.write(piece)
        written += piece
        runtime.run_until_idle()
    wire.unread_bytes = len(wire.out)
    plain.write(b"behind it")
    runtime.run_until_idle()
    wire.unread_bytes = 0
    ends[0].shutdown(socket.SHUT_WR)
    sent = b""
    while piece := ends[1].recv(1 << 20):
        sent += piece

    assert sent + bytes(wire.out) == written + b"behind it"


def test_it_is_sent_to_again_when_the_transport_is_empty(
    runtime: Runtime, wire: Wire, plain: Writer, ends: tuple[socket.socket, socket.socket]
) -> None:
    plain.write(b"to the transport")
    plain.flush()
    plain.write(b"and")
    wire.unread_bytes = 16
    runtime.run_until_idle()
    assert bytes(wire.out) == b"to the transportand"
    wire.unread_bytes = 0
    plain.write(b"to the socket")
    runtime.run_until_idle()

    assert (bytes(wire.out), ends[1].recv(99)) == (b"to the transportand", b"to the socket")


def test_nothing_is_sent_to_the_socket_of_a_transport_that_closes(
    runtime: Runtime, wire: Wire, plain: Writer, ends: tuple[socket.socket, socket.socket]
) -> None:
    plain.write(b"late")
    wire.state = "aborted"
    wire.write = lambda data: None  # type: ignore[method-assign]
    runtime.run_until_idle()
    ends[0].close()

    assert ends[1].recv(9) == b""


def test_many_connections_do_not_wait_for_the_end_of_a_long_drain(
    runtime: Runtime, ends: tuple[socket.socket, socket.socket]
) -> None:
    pending_writes, wires = PendingWrites(runtime), [Wire() for _ in range(2 * MANY + 1)]
    for number, wire in enumerate(wires):
        wire.socket = ends[0]
        writer = Writer(runtime, pending_writes.add, wire, lambda: None, lambda: None)
        writer.write(b"%4d" % number)
    ends[1].setblocking(False)
    assert ends[1].recv(1 << 16) == b"".join(b"%4d" % number for number in range(2 * MANY))
    runtime.run_until_idle()

    assert ends[1].recv(1 << 16) == b"%4d" % (2 * MANY)


def test_the_connection_that_was_written_to_last_is_sent_to_first(
    runtime: Runtime, ends: tuple[socket.socket, socket.socket]
) -> None:
    pending_writes, wires = PendingWrites(runtime), [Wire(), Wire()]
    for wire, data in zip(wires, (b"delivery", b"confirm"), strict=True):
        wire.socket = ends[0]
        Writer(runtime, pending_writes.add, wire, lambda: None, lambda: None).write(data)
    runtime.run_until_idle()

    assert ends[1].recv(99) == b"confirmdelivery"


def test_a_connection_that_cannot_write_does_not_keep_the_others_from_it(
    runtime: Runtime,
    wire: Wire,
    ends: tuple[socket.socket, socket.socket],
    caplog: pytest.LogCaptureFixture,
) -> None:
    pending_writes, broken = PendingWrites(runtime), Wire()
    broken.socket = wire.socket = ends[0]
    writers = [
        Writer(runtime, pending_writes.add, each, lambda: None, lambda: None)
        for each in (broken, wire)
    ]
    writers[0].write(b"x")
    writers[1].write(b"fine")
    broken.state = "closed"
    runtime.run_until_idle()

    assert ends[1].recv(9) == b"fine"
    assert "a connection cannot write" in caplog.text
