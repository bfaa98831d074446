"""Sends to many sockets at a time, in both kernels.

Tests: amqp/sending.py
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

Pair: TypeAlias = tuple[socket.socket, socket.socket]

MANY = 50


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """The broker's ends of connections, which do not block, and the clients'."""
    made = [socket.socketpair() for _ in range(MANY)]
    for broker, _ in made:
        broker.setblocking(False)
    yield made
    for pair in made:
        for end in pair:
            end.close()


def descriptors(pairs: list[Pair]) -> list[int]:
    return [broker.fileno() for broker, _ in pairs]


@pytest.mark.parametrize("count", [0, 1, 3, 4, MANY])
def test_each_socket_gets_its_own_bytes(kernel: Any, pairs: list[Pair], count: int) -> None:
    outputs = [b"to %d" % number for number in range(count)]

    assert kernel.send(descriptors(pairs[:count]), outputs) == []

    assert [client.recv(100) for _, client in pairs[:count]] == outputs


def test_what_a_full_socket_does_not_take_is_left(kernel: Any, pairs: list[Pair]) -> None:
    large = random.Random(1).randbytes(8 << 20)
    outputs = [b"small"] * 10
    outputs[7] = large

    ((place, sent_bytes),) = kernel.send(descriptors(pairs[:10]), outputs)
    assert place == 7
    assert 0 < sent_bytes < len(large)
    assert kernel.send(descriptors(pairs[7:8]), [large[sent_bytes:]]) == [(0, 0)]

    client = pairs[7][1]
    assert client.recv(sent_bytes, socket.MSG_WAITALL) == large[:sent_bytes]
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv(1)


def test_a_broken_socket_takes_nothing_and_the_others_all(kernel: Any, pairs: list[Pair]) -> None:
    pairs[3][1].close()
    pairs[5][0].close()

    assert kernel.send([*descriptors(pairs[:5]), -1], [b"x"] * 6) == [(3, 0), (5, 0)]
    assert [client.recv(9) for _, client in (*pairs[:3], pairs[4])] == [b"x"] * 4


@pytest.mark.parametrize(("count", "outputs"), [(1, [b"a", b"b"]), (2, [b"a"]), (0, [b"a"])])
def test_there_is_one_descriptor_for_each_output(
    kernel: Any, pairs: list[Pair], count: int, outputs: list[bytes]
) -> None:
    with pytest.raises(ValueError, match=r"descriptors|argument"):
        kernel.send(descriptors(pairs[:count]), outputs)


def test_the_bytes_of_many_calls_stay_in_order(kernel: Any, pairs: list[Pair]) -> None:
    chance = random.Random(2)
    sent, received = [bytearray() for _ in pairs], [bytearray() for _ in pairs]
    for _ in range(50):
        places = chance.sample(range(MANY), chance.randint(1, MANY))
        outputs = [chance.randbytes(chance.randint(1, 3000)) for _ in places]
        left = dict(kernel.send([pairs[place][0].fileno() for place in places], outputs))
        for index, (place, output) in enumerate(zip(places, outputs, strict=True)):
            sent[place] += output[: left.get(index, len(output))]
            if chance.random() < 0.5 and len(received[place]) < len(sent[place]):
                received[place] += pairs[place][1].recv(1 << 20)

    for place, (broker, client) in enumerate(pairs):
        broker.close()
        while piece := client.recv(1 << 20):
            received[place] += piece
    assert received == sent
