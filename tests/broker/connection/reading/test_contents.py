"""Contents that no channel has got, while memory is short: who is read, who is closed, and what is forgotten.

Tests: broker/connection/input.py
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.broker.connection.reading.read_sizes import FIRST_READ_BYTES
from rigs.broker_rig import Client, Rig, Wire

MB = 1024 * 1024


def part_of_a_message(client: Client, size_bytes: int, channel: int = 1) -> None:
    """Send so much of a message that is a little longer."""
    head = struct.pack(">HHQH", 60, 0, size_bytes + 1, 0)
    client.feed(
        m.method_frame(channel, m.encode(m.BasicPublish("", "q")))
        + struct.pack(">BHI", 2, channel, len(head))
        + head
        + b"\xce"
    )
    piece = bytes(100_000)
    for start in range(0, size_bytes, len(piece)):
        body = piece[: size_bytes - start]
        client.feed(struct.pack(">BHI", 3, channel, len(body)) + body + b"\xce")


def held_bytes(rig: Rig) -> int:
    return sum(each.contents_bytes for each in rig.node.connections.readers.values())


def publisher(rig: Rig) -> Client:
    client = rig.session()
    client.ask(1, m.QueueDeclare("q"))
    return client


def test_the_largest_incomplete_contents_are_given_up_until_few_bytes_are_held(rig: Rig) -> None:
    clients = [publisher(rig) for _ in range(4)]
    for client, size in zip(clients, (3 * MB, MB, 2 * MB, MB), strict=True):
        part_of_a_message(client, size)
    assert held_bytes(rig) == 7 * MB

    assert rig.node.connections.give_up_contents(2 * MB) == 2
    rig.settle()

    assert held_bytes(rig) == 2 * MB
    closes: list[list[Any]] = [client.take() for client in clients]
    assert [len(each) for each in closes] == [1, 0, 1, 0]
    assert closes[0][0] == m.ConnectionClose(
        506, "RESOURCE_ERROR - message dropped: memory is short", 0, 0
    )
    assert rig.node.connections.give_up_contents(2 * MB) == 0


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_connection_that_an_alarm_blocks_is_closed_like_any_other(
    rig: Rig, is_whole: bool
) -> None:
    client = publisher(rig)
    part_of_a_message(client, MB)
    rig.node.resources.alarms.set("memory", True, "")
    client.feed(b"\x03\0\x01\0\0\0\x01x" + b"\xce" * is_whole)
    assert not client.wire.is_reading
    assert rig.node.connections.readers[client.reader].contents_bytes > MB

    rig.node.connections.give_up_contents(0)
    rig.settle()

    assert held_bytes(rig) <= 8  # the head of a frame
    assert [type(each) for each in client.take()] == [m.ConnectionClose]
    client.feed(b"" if is_whole else b"\xce")
    client.send(0, m.ConnectionCloseOk())
    assert client.wire.state == "closed"
    rig.node.resources.alarms.set("memory", False, "")
    rig.settle()
    assert rig.session().ask(1, m.QueueDeclare("q", passive=True)).message_count == 0


def test_bytes_of_a_message_that_was_given_up_are_skipped_until_close_ok(rig: Rig) -> None:
    client = publisher(rig)
    part_of_a_message(client, MB)
    rig.node.connections.give_up_contents(0)
    rig.settle()

    client.feed(b"\x03\0\x01\0\0\0\x01x\xce")
    client.send(0, m.ConnectionCloseOk())

    assert client.wire.state == "closed"


@pytest.mark.parametrize("what", ["a part of a message", "whole messages"])
def test_one_that_floods_is_not_read_once_more_when_an_alarm_is_raised(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(Wire, "max_size", FIRST_READ_BYTES, raising=False)
    client = publisher(rig)
    body = bytes(100_000 if what == "a part of a message" else 1000)
    data = b"".join(client.contents(1, ("", "q", body, {})) for _ in range(100))
    client.protocol.data_received(data[:FIRST_READ_BYTES])  # a full read
    assert not client.wire.is_reading, "it waits for its turn"
    rig.node.resources.alarms.set("memory", True, "")

    rig.settle()

    assert not client.wire.is_reading
    assert rig.node.connections.readers[client.reader].read_control.throttle.is_blocked
    rig.node.resources.alarms.set("memory", False, "")
    rig.settle()
    assert client.wire.is_reading


@pytest.mark.parametrize("missing_bytes", [0, 1, FIRST_READ_BYTES // 4])
def test_large_reads_are_counted_for_the_memory_watch(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, missing_bytes: int
) -> None:
    monkeypatch.setattr(Wire, "max_size", FIRST_READ_BYTES, raising=False)
    looks: list[bool] = []
    client = publisher(rig)
    rig.node.resources.alarms.check_after(FIRST_READ_BYTES, lambda: looks.append(True))
    body = bytes(130_000)
    data = b"".join(client.contents(1, ("", "q", body, {})) for _ in range(20))
    seen = []
    for number in range(4):
        read_control = rig.node.connections.readers[client.reader].read_control
        size = read_control.read_bytes - missing_bytes
        client.feed(data[number * size : (number + 1) * size])
        seen.append(len(looks))

    assert seen == [0, 1, 1, 1], "once; then the watch says when again"
