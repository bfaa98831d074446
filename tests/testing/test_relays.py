"""Connections over relays are cut, delayed, reset and healed, between processes of any kind."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random

import pytest

from leveret.testing.relays import RelayError, Relays
from rigs.waiting import wait_until

SHORT_S = 0.05  # long enough for bytes on a way that is open
LONG_S = 20.0


@pytest.fixture
def relays(seed: int) -> Iterator[Relays]:
    with Relays(Random(seed)) as relays:
        yield relays


class Pair:
    """A connection that ``ann`` has made to ``bob``, and both its ends."""

    def __init__(self, relays: Relays, stack: ExitStack) -> None:
        self.server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.server.settimeout(LONG_S)
        relays.place("bob", f"127.0.0.1:{self.server.getsockname()[1]}")
        self.relays, self.stack = relays, stack

    def dial(self) -> socket.socket:
        host, _, port = self.relays.address("ann", "bob").rpartition(":")
        return self._own(socket.create_connection((host, int(port)), LONG_S))

    def accept(self) -> socket.socket:
        return self._own(self.server.accept()[0])

    def _own(self, end: socket.socket) -> socket.socket:
        end.settimeout(LONG_S)
        return self.stack.enter_context(end)

    def ends(self) -> tuple[socket.socket, socket.socket]:
        return self.dial(), self.accept()


@pytest.fixture
def pair(relays: Relays) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(relays, stack)


def whole(receiver: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (piece := receiver.recv(size - len(data))):
        data += piece
    return bytes(data)


def arrives(sender: socket.socket, receiver: socket.socket, data: bytes = b"x") -> None:
    sender.sendall(data)
    assert whole(receiver, len(data)) == data


def is_silent(receiver: socket.socket) -> bool:
    receiver.settimeout(SHORT_S)
    try:
        receiver.recv(1)
    except TimeoutError:
        return True
    finally:
        receiver.settimeout(LONG_S)
    return False


def test_everything_is_carried_in_both_directions_and_so_is_the_end(pair: Pair) -> None:
    ann, bob = pair.ends()
    data = Random(1).randbytes(10_000_000)
    with ThreadPoolExecutor() as pool:
        sent = [pool.submit(end.sendall, data) for end in (ann, bob)]
        read = [pool.submit(whole, end, len(data)) for end in (ann, bob)]
        assert all(each.result(LONG_S) == data for each in read)
        for each in sent:
            each.result(LONG_S)
    ann.shutdown(socket.SHUT_WR)

    assert bob.recv(1) == b""
    arrives(bob, ann)
    bob.close()
    assert ann.recv(1) == b""
    wait_until(lambda: pair.relays.count("ann", "bob") == 0)


def test_the_address_of_a_pair_stays_the_same_and_differs_from_others(relays: Relays) -> None:
    first = relays.address("ann", "bob")

    assert relays.address("ann", "bob") == first
    assert relays.address("bob", "ann") != first


def test_what_is_sent_into_a_cut_arrives_when_it_is_healed(pair: Pair) -> None:
    ann, bob = pair.ends()
    arrives(ann, bob)
    pair.relays.cut("ann", ["bob", "etcd"])
    ann.sendall(b"later")
    bob.sendall(b"too")
    ann.shutdown(socket.SHUT_WR)

    assert is_silent(bob)
    assert is_silent(ann)
    pair.relays.heal()
    assert whole(bob, 5) == b"later"
    assert bob.recv(1) == b""
    assert whole(ann, 3) == b"too"


@pytest.mark.parametrize("silent", ["ann", "bob"])
def test_a_cut_of_one_direction_lets_the_other_through(pair: Pair, silent: str) -> None:
    ends = dict(zip(("ann", "bob"), pair.ends(), strict=True))
    other = "bob" if silent == "ann" else "ann"
    pair.relays.cut(silent, other, is_one_way=True)
    ends[silent].sendall(b"x")

    arrives(ends[other], ends[silent])
    assert is_silent(ends[other])
    pair.relays.heal()
    assert ends[other].recv(1) == b"x"


def test_a_cut_leaves_others_alone(pair: Pair) -> None:
    ann, bob = pair.ends()
    pair.relays.cut("ann", "etcd")
    pair.relays.cut(["cem", "dan"], ["ann", "bob"])

    arrives(ann, bob)
    arrives(bob, ann)


def test_a_connection_made_during_a_cut_is_made_when_it_is_healed(pair: Pair) -> None:
    pair.relays.cut("ann", "bob")
    ann = pair.dial()
    ann.sendall(b"hello")
    pair.server.settimeout(SHORT_S)
    with pytest.raises(TimeoutError):
        pair.server.accept()
    pair.server.settimeout(LONG_S)
    pair.relays.heal()

    assert whole(pair.accept(), 5) == b"hello"


def test_what_is_delayed_comes_later_and_in_order(pair: Pair) -> None:
    ann, bob = pair.ends()
    arrives(ann, bob)
    pair.relays.delay("ann", "bob", 0.1, 0.02, is_one_way=True)
    before_s = time.monotonic()
    for number in range(50):
        ann.sendall(b"%02d" % number)
        time.sleep(0.001)
    data = whole(bob, 100)

    assert time.monotonic() - before_s >= 0.1
    assert data == b"".join(b"%02d" % number for number in range(50))
    arrives(bob, ann)
    pair.relays.heal()
    arrives(ann, bob)


def test_a_reset_is_heard_by_both_and_they_can_connect_again(pair: Pair) -> None:
    ann, bob = pair.ends()
    arrives(ann, bob)
    pair.relays.reset("bob", "ann")

    for end in (ann, bob):
        try:
            assert end.recv(1) == b""
        except ConnectionResetError:
            continue
    arrives(*pair.ends())


def test_a_process_that_is_started_again_elsewhere_is_found_there(pair: Pair) -> None:
    ann, bob = pair.ends()
    arrives(ann, bob)
    bob.close()
    pair.server.close()
    refused = pair.dial()
    assert refused.recv(1) == b"", "nobody listens there any more"
    pair.server = pair.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    pair.server.settimeout(LONG_S)
    pair.relays.place("bob", f"127.0.0.1:{pair.server.getsockname()[1]}")

    arrives(*pair.ends())


def test_who_dials_a_process_without_a_place_is_cut_off(relays: Relays) -> None:
    host, _, port = relays.address("ann", "nobody").rpartition(":")
    with socket.create_connection((host, int(port)), LONG_S) as ann:
        try:
            assert ann.recv(1) == b""
        except ConnectionResetError:
            return


def test_what_makes_no_sense_is_refused(relays: Relays) -> None:
    for address in ("unix:/x", "here", "127.0.0.1:", ":80"):
        with pytest.raises(RelayError, match="HOST:PORT"):
            relays.place("ann", address)
    with pytest.raises(RelayError, match="negative"):
        relays.delay("ann", "bob", -1.0)
