"""Reads of bodies: from a buffer that is used again, and from a socket right to where they stay."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leveret.amqp.kernel import ERROR, PUBLISH
from leveret.amqp.methods import BasicPublish, encode

BODY_MAX = 1 << 24
METHOD = encode(BasicPublish("", "q"))
compiled = pytest.importorskip("leveret.amqp._kernel_c")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The client's end of a connection, and the broker's, which does not block."""
    client, broker = socket.socketpair()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    broker.setblocking(False)
    with client, broker:
        yield client, broker


def body_of(size: int) -> bytes:
    return bytes(number * 7 % 251 for number in range(size))


def published(kernel: Any, size: int, frame_max: int) -> bytes:
    head = b"\x00\x3c\x00\x00" + size.to_bytes(8, "big") + b"\x00\x00"
    wire: bytes = kernel.content(1, METHOD, frame_max, head, body_of(size))
    return wire


def bodies(runs: list[Any]) -> list[bytes]:
    assert all(run[0] == PUBLISH for run in runs), runs
    return [message[2] for run in runs for message in run[4]]


def test_nothing_of_a_buffer_is_kept(scanning: Any, kernel: Any) -> None:
    scanner, found = scanning(0, BODY_MAX), []
    wire = published(kernel, 5_000, 0) * 3
    for at in range(0, len(wire), 1_700):
        buffer = bytearray(wire[at : at + 1_700])
        with memoryview(buffer) as view:
            found += bodies(scanner.scan(view))
        buffer[:] = bytes(len(buffer))

    assert found == [body_of(5_000)] * 3


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    size=st.integers(1, 3_000),
    part_max=st.integers(1, 1_000),
    scanned=st.integers(0, 4_000),
    pieces=st.lists(st.integers(1, 1_000), min_size=1, max_size=10),
    bytes_max=st.integers(1, 2_000),
)
def test_what_is_read_to_its_place_is_what_a_scan_makes(
    ends: tuple[socket.socket, socket.socket],
    size: int,
    part_max: int,
    scanned: int,
    pieces: list[int],
    bytes_max: int,
) -> None:
    client, broker = ends
    wire = published(compiled, size, part_max + 8) * 2
    scanner = compiled.Scanner(0, BODY_MAX)
    found = bodies(scanner.scan(wire[:scanned]))
    wire = wire[scanned:]
    for piece in [*pieces, len(wire)]:
        client.sendall(wire[:piece])
        wire = wire[piece:]
        found += bodies(scanner.read_body(broker.fileno(), bytes_max))
        try:
            found += bodies(scanner.scan(broker.recv(1 << 16)))
        except BlockingIOError:
            continue

    assert found == [body_of(size)] * 2
    assert (scanner.awaited, scanner.buffered) == (0, 0)


def test_a_read_ends_with_the_body(ends: tuple[socket.socket, socket.socket]) -> None:
    client, broker = ends
    wire = published(compiled, 300_000, 131_072)
    scanner = compiled.Scanner(131_072, BODY_MAX)
    scanner.scan(wire[:1_000])
    awaited = scanner.awaited
    client.sendall(wire[1_000:] + b"next")

    assert bodies(scanner.read_body(broker.fileno(), 1 << 20)) == [body_of(300_000)]
    assert 290_000 < awaited < 300_000
    assert scanner.awaited == 0
    assert broker.recv(100) == b"next"


def test_a_read_of_frames_of_one_byte_ends_early(ends: tuple[socket.socket, socket.socket]) -> None:
    client, broker = ends
    wire = published(compiled, 1 << 20, 9)
    at = wire.index(b"\x03")  # of the first body frame
    scanner = compiled.Scanner(0, BODY_MAX)
    scanner.scan(wire[: at + 7])
    client.sendall(wire[at + 7 : at + 90_007])

    assert scanner.read_body(broker.fileno(), 1 << 20) == []
    rest = broker.recv(1 << 20)
    assert len(rest) == 90_000 - 9 * (1 << 20) // 4_096
    scanner.scan(rest + wire[at + 90_007 :][:7])
    assert scanner.frames == len(rest) // 9


def test_a_frame_that_ends_wrong_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    client, broker = ends
    wire = published(compiled, 1_000, 0)
    as_scanned = compiled.Scanner(0, BODY_MAX)
    scanner = compiled.Scanner(0, BODY_MAX)
    wrong = wire[:-1] + b"\x00"
    scanner.scan(wire[:100])
    client.sendall(wrong[100:])

    ((kind, error),) = scanner.read_body(broker.fileno(), 1 << 20)

    ((_, expected),) = as_scanned.scan(wrong)
    assert (kind, str(error)) == (ERROR, str(expected))
    assert scanner.read_body(broker.fileno(), 1 << 20) == []


def test_without_a_body_nothing_is_read(ends: tuple[socket.socket, socket.socket]) -> None:
    client, broker = ends
    client.sendall(b"something")
    scanner = compiled.Scanner(0, BODY_MAX)
    wire = published(compiled, 1_000, 0)
    scanner.scan(wire[:100])
    scanner.swallow()

    assert scanner.awaited == 0
    assert scanner.read_body(broker.fileno(), 1 << 20) == []
    assert broker.recv(100) == b"something"


def test_the_end_of_the_stream_is_left_to_others(ends: tuple[socket.socket, socket.socket]) -> None:
    client, broker = ends
    scanner = compiled.Scanner(0, BODY_MAX)
    scanner.scan(published(compiled, 1_000, 0)[:100])
    client.shutdown(socket.SHUT_WR)

    assert scanner.read_body(broker.fileno(), 1 << 20) == []
    assert broker.recv(100) == b""
