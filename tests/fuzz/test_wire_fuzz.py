"""Bad bytes before and after login: the node goes on serving, and its memory stays where it was.

The default run takes seconds; ``--slow`` goes on for ten minutes. ``--seed`` repeats a run. With
``--rabbitmq`` the same input goes to RabbitMQ, which proves the harness more than the peer.
"""

from __future__ import annotations

import random
import resource
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conformance import wire
from conformance.raw import ANSWER_TIMEOUT_S, Channel, Connection
from fuzz import sessions
from rigs.nodes import BrokerUnderTest, rabbitmq, start_leveret, stop_leveret

CODES = {320, 402, 403, 404, 405, 406, 501, 502, 503, 504, 505, 506, 530, 540}
GROWTH_BYTES_MAX = 64 << 20
AT_ONCE = 8
QUICK_ROUNDS = 40
LONG_S = 600


@pytest.fixture(scope="module")
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerUnderTest]:
    """A node for this file alone, so that its memory is that of the fuzz."""
    if address := request.config.getoption("--rabbitmq"):
        yield rabbitmq(address)
        return
    node = start_leveret(tmp_path_factory.mktemp("fuzzed"))
    yield node
    stop_leveret(node)


@pytest.fixture
def healthy(target: BrokerUnderTest, name: str) -> Iterator[Callable[[], None]]:
    """A client that must be served all the time; each call publishes and consumes something."""
    connection = Connection((target.host, target.port))
    assert connection.open().name == "connection.open-ok"
    channel = connection.channel()
    channel.ok("queue.declare", queue=name, exclusive=True)
    channel.ok("confirm.select")
    channel.ok("basic.consume", queue=name, no_ack=True)

    def check() -> None:
        _serve_once(channel, name)

    yield check
    check()
    connection.drop()


def _serve_once(channel: Channel, queue: str) -> None:
    channel.publish(queue, "are you there?")
    assert sorted(channel.read().name for _ in range(2)) == ["basic.ack", "basic.deliver"]


def _resident_bytes(target: BrokerUnderTest) -> int:
    """Return the resident memory of the node; 0 for a peer whose process is not ours."""
    if target.pid is None:
        return 0
    status = Path(f"/proc/{target.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) << 10


def _attack(target: BrokerUnderTest, data: bytes, *, login: bool) -> list[int]:
    """Send the bytes; return the codes of the connection.close and channel.close that came."""
    connection = Connection((target.host, target.port))
    if login:
        assert connection.open().name == "connection.open-ok"
    codes = []
    # RabbitMQ closes some sockets seconds after their end, and its codes are not checked.
    patience_s = target.expected(rabbitmq=0.05, leveret=ANSWER_TIMEOUT_S)
    try:
        connection.send_bytes(data)
        connection.socket.shutdown(socket.SHUT_WR)
        while (event := connection._next(time.monotonic() + patience_s)).name != "closed":
            if event.name in {"connection.close", "channel.close"}:
                codes.append(event.reply_code)
    except (TimeoutError, ConnectionError, BrokenPipeError, OSError):
        codes.append(0)
    finally:
        connection.drop()
    return codes


def _one_round(target: BrokerUnderTest, seed: int) -> list[int]:
    rng = random.Random(seed)
    session = rng.choice(sessions.SESSIONS)
    match rng.randrange(6):
        case 0:
            return _attack(target, rng.randbytes(rng.randint(1, 200)), login=False)
        case 1:
            return _attack(target, sessions.spoiled(rng, sessions.handshake()), login=False)
        case 2:
            frames = [*sessions.handshake(), *session]
            return _attack(target, sessions.spoiled(rng, frames), login=False)
        case 3:
            return _attack(target, sessions.invented(rng), login=True)
        case _:
            return _attack(target, sessions.spoiled(rng, session), login=True)


def _fuzz(
    target: BrokerUnderTest, healthy: Callable[[], None], seed: int, go_on: Callable[[int], bool]
) -> int:
    """Attack from several sockets at once until ``go_on(rounds)`` is false; return the attacks."""
    rng = random.Random(seed)
    rounds = 0
    before = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while go_on(rounds):
            seeds = [rng.randrange(1 << 48) for _ in range(AT_ONCE)]
            for used, codes in zip(
                seeds, pool.map(lambda one: _one_round(target, one), seeds), strict=True
            ):
                unknown = set(codes) - CODES - {0}
                assert target.kind == "rabbitmq" or not unknown, f"{unknown} with round seed {used}"
            healthy()
            rounds += 1
            before = before or _resident_bytes(target) * (rounds >= QUICK_ROUNDS // 4)
    assert _resident_bytes(target) - before < GROWTH_BYTES_MAX
    return rounds * AT_ONCE


def test_bad_bytes(target: BrokerUnderTest, healthy: Callable[[], None], seed: int) -> None:
    attacks = _fuzz(target, healthy, seed, lambda rounds: rounds < QUICK_ROUNDS)

    assert attacks == QUICK_ROUNDS * AT_ONCE


@pytest.mark.slow
def test_ten_minutes_of_bad_bytes(
    target: BrokerUnderTest, healthy: Callable[[], None], seed: int
) -> None:
    deadline = time.monotonic() + LONG_S

    assert _fuzz(target, healthy, seed, lambda _: time.monotonic() < deadline) > LONG_S


@pytest.mark.parametrize("depth", [50, 10_000])
def test_tables_in_tables(target: BrokerUnderTest, healthy: Callable[[], None], depth: int) -> None:
    """Decoding is not recursive: a deep table is refused or taken, and nothing else happens."""
    declare = wire.method("queue.declare", queue="deep", exclusive=True)[:-4]
    deep = sessions.nested_table(depth)

    opened = wire.frame(wire.METHOD, 1, wire.method("channel.open"))
    codes = _attack(target, opened + wire.frame(wire.METHOD, 1, declare + deep), login=True)

    assert set(codes) <= CODES | {0}
    healthy()


def test_a_body_that_is_announced_and_never_comes(
    target: BrokerUnderTest, healthy: Callable[[], None]
) -> None:
    """A hundred clients announce 100 MiB each; nobody reserves memory for words."""
    before = _resident_bytes(target)
    publish = wire.frame(1, 1, wire.method("channel.open"))
    publish += wire.frame(1, 1, wire.method("basic.publish", routing_key="nowhere"))
    publish += wire.frame(2, 1, wire.head(100 << 20)) + struct.pack(">BHI", 3, 1, 100_000)
    connections = [Connection((target.host, target.port)) for _ in range(100)]

    for connection in connections:
        assert connection.open().name == "connection.open-ok"
        connection.send_bytes(publish)
    healthy()

    assert _resident_bytes(target) - before < 32 << 20
    for connection in connections:
        connection.drop()


def test_a_thousand_sockets_that_never_log_in(
    target: BrokerUnderTest, healthy: Callable[[], None]
) -> None:
    """They cost at most 10 MB and are closed at the handshake time-out of 10 s."""
    if target.kind == "rabbitmq":
        pytest.skip("a RabbitMQ with 1,024 file descriptors loses its memory monitor over this")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    before, started = _resident_bytes(target), time.monotonic()
    sockets = []
    for number in range(1000):
        sockets.append(socket.create_connection((target.host, target.port)))
        sockets[-1].sendall(sessions.PROTOCOL_HEADER[: number % 9])
        if number % 50 == 49:  # the listen queue is shorter than a thousand
            healthy()

    grown = _resident_bytes(target) - before
    last = _wait_until_all_are_closed(sockets, started + 20) - started

    assert grown <= 10_000_000
    assert 9 <= last <= 15
    healthy()


def _wait_until_all_are_closed(sockets: list[socket.socket], deadline: float) -> float:
    """Return when the last one was closed by the other side."""
    with selectors.DefaultSelector() as selector:
        for one in sockets:
            one.setblocking(False)
            selector.register(one, selectors.EVENT_READ)
        while selector.get_map():
            assert time.monotonic() < deadline, f"{len(selector.get_map())} are still open"
            for key, _ in selector.select(1):
                if _is_closed(key.fileobj):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
    return time.monotonic()


def _is_closed(one: socket.socket) -> bool:
    try:
        return not one.recv(4096)
    except ConnectionResetError:
        return True
