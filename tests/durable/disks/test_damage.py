"""Starts of a broker on a data directory that was damaged while it was stopped."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.raw import Channel, Connection
from durable.workers import BrokerWorker
from rigs.store.offline.store_damage import zero_a_leaf

Start = Callable[[], BrokerWorker]
QUEUES = ("one", "two", "priorities")
COUNT = 600
BODY = b"x" * 2_000


def channel_of(worker: BrokerWorker) -> Channel:
    connection = Connection(worker.address())
    assert connection.open().name == "connection.open-ok"
    channel = connection.channel()
    for queue in QUEUES:
        arguments = {"x-max-priority": 3} if queue == "priorities" else {}
        channel.ok("queue.declare", queue=queue, durable=True, arguments=arguments)
        channel.ok("queue.bind", queue=queue, exchange="amq.fanout")
    return channel


def fill(channel: Channel) -> None:
    channel.ok("confirm.select")
    for number in range(COUNT):
        body = b"%d " % number + BODY
        channel.publish("", body, "amq.fanout", delivery_mode=2, priority=number % 4)
    channel.read_confirms(set(range(1, COUNT + 1)))


def ack(channel: Channel, queue: str, count: int) -> set[int]:
    """Take so many messages out of a queue; return their numbers."""
    return {int(channel.get(queue).body.split()[0]) for _ in range(count)}


def taken(channel: Channel, queue: str) -> list[int]:
    """Return all messages of a queue in order, and take them."""
    found = []
    while (event := channel.get(queue)).name != "basic.get-empty":
        number, body = event.body.split(b" ", 1)
        assert body == BODY
        found.append(int(number))
    return found


def the_one(folder: Path, pattern: str) -> Path:
    (path,) = (folder / "data" / "vhosts").glob(pattern)
    return path


def delete(index: Path, rng: random.Random) -> None:
    index.unlink()


def empty(index: Path, rng: random.Random) -> None:
    index.write_bytes(b"")


def zero(index: Path, rng: random.Random) -> None:
    with index.open("r+b") as file:
        file.write(bytes(64 * 4096))


def cut(index: Path, rng: random.Random) -> None:
    with index.open("r+b") as file:
        file.truncate(rng.randrange(1, 8 * 4096))


def overwrite(index: Path, rng: random.Random) -> None:
    with index.open("r+b") as file:
        file.seek(rng.randrange(2, 6) * 4096)
        file.write(rng.randbytes(4096))


@pytest.mark.parametrize(
    ("damage", "is_clean"),
    [
        (delete, True),
        (delete, False),
        (empty, False),
        (zero, True),
        (cut, False),
        (overwrite, True),
    ],
)
def test_whatever_becomes_of_the_index_nothing_confirmed_is_lost(
    start_worker: Start, tmp_path: Path, rng: random.Random, damage: Callable, is_clean: bool
) -> None:
    worker = start_worker()
    channel = channel_of(worker)
    fill(channel)
    acked = {queue: ack(channel, queue, 50) for queue in QUEUES}
    channel.settle()
    channel.connection.drop()
    (worker.stop if is_clean else worker.kill)()

    damage(the_one(tmp_path, "*/store.lmdb/data.mdb"), rng)

    worker = start_worker()
    channel = channel_of(worker)
    for queue in QUEUES:
        found = taken(channel, queue)
        assert len(found) == len(set(found))
        assert set(range(COUNT)) - acked[queue] <= set(found) <= set(range(COUNT))
        if queue != "priorities":
            assert found == sorted(found)
    channel.connection.drop()
    worker.stop()


def test_a_killed_broker_starts_over_an_index_with_a_page_of_zeros(
    start_worker: Start, tmp_path: Path
) -> None:
    """LMDB ends the process that meets such a page; a supervisor would start it for ever."""
    worker = start_worker()
    channel = channel_of(worker)
    fill(channel)
    channel.connection.drop()
    worker.stop()
    worker = start_worker()
    worker.address()
    worker.kill()

    zero_a_leaf(the_one(tmp_path, "*/store.lmdb/data.mdb"))

    worker = start_worker()
    channel = channel_of(worker)
    found = {queue: taken(channel, queue) for queue in QUEUES}
    channel.connection.drop()
    worker.stop()
    assert found["one"] == found["two"] == list(range(COUNT))
    assert found["priorities"] == sorted(range(COUNT), key=lambda number: (-(number % 4), number))


@pytest.mark.parametrize("kind", ["missing", "damaged"])
def test_what_is_lost_with_a_segment_is_lost_alone(
    start_worker: Start, tmp_path: Path, rng: random.Random, kind: str
) -> None:
    worker = start_worker()
    channel = channel_of(worker)
    fill(channel)
    channel.connection.drop()
    worker.stop()
    segments = sorted(the_one(tmp_path, "*/rdq").iterdir())
    assert len(segments) > 3

    if kind == "missing":
        segments[1].unlink()
    else:
        data = bytearray(segments[1].read_bytes())
        for _ in range(20):
            data[rng.randrange(64, len(data))] ^= 0xFF
        segments[1].write_bytes(data)

    worker = start_worker()
    channel = channel_of(worker)
    found = {queue: taken(channel, queue) for queue in QUEUES}
    assert channel.ready("one") == 0
    fill(channel)
    assert taken(channel, "one") == list(range(COUNT))
    channel.connection.drop()
    worker.stop()
    assert found["one"] == found["two"] == sorted(found["priorities"])
    assert found["one"] == sorted(set(found["one"]))
    assert COUNT // 2 < len(found["one"]) < COUNT
    lost = [path.name for path in the_one(tmp_path, "*/quarantine").glob("*.json")]
    assert lost, "nobody was told"
