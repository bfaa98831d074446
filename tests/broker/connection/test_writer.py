"""The way out of a connection: one write per drain, and its end."""

from __future__ import annotations

import pytest

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.amqp import methods as m
from leveret.amqp.body_frames import UNCOPIED_BYTES
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
    return Writer(runtime, wire, lambda: None, lambda: None)


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
