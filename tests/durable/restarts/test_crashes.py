"""Crashes of a broker's process at moments that matter: deletion, purge, fan-out, start."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conformance import wire
from conformance.raw import Channel, Connection
from durable.workers import BrokerWorker
from leveret.msg_store.format.rows import SEQ_END
from leveret.msg_store.recovery.recovery import Opened
from leveret.msg_store.recovery.replay import pages
from rigs.store.live_store import opened_at

Start = Callable[[], BrokerWorker]
WINDOW = 5_000
BATCH = 500
BODY_BYTES = 10
AFTER_ALL = 1 << 23  # a boot epoch above those of all brokers here


def channel_of(worker: BrokerWorker) -> Channel:
    connection = Connection(worker.address())
    assert connection.open().name == "connection.open-ok"
    return connection.channel()


def publish(channel: Channel, exchange: str, key: str, bodies: range) -> None:
    """Publish persistent messages, some ahead of their confirms; wait for all."""
    channel.ok("confirm.select")
    payload = wire.method("basic.publish", exchange=exchange, routing_key=key)
    start = wire.frame(wire.METHOD, channel.number, payload)
    start += wire.frame(wire.HEADER, channel.number, wire.head(BODY_BYTES, {"delivery_mode": 2}))
    sent, unconfirmed = 0, set[int]()
    for first in range(bodies.start, bodies.stop, BATCH):
        batch = range(first, min(first + BATCH, bodies.stop))
        bodies_ = [wire.frame(wire.BODY, channel.number, body_of(number)) for number in batch]
        channel.connection.send_bytes(b"".join(start + body for body in bodies_))
        unconfirmed.update(range(sent + 1, sent + len(batch) + 1))
        sent += len(batch)
        channel.read_confirms(unconfirmed, WINDOW)
    channel.read_confirms(unconfirmed)


def body_of(number: int) -> bytes:
    return b"%0*d" % (BODY_BYTES, number)


def contents(channel: Channel, queue: str, count: int) -> list[int]:
    """Return so many messages, and put them back."""
    channel.ok("basic.consume", queue=queue, consumer_tag="look")
    found = [int(body) for body in channel.bodies(count)]
    channel.ok("basic.cancel", consumer_tag="look")
    channel.send("basic.nack", delivery_tag=0, multiple=True, requeue=True)
    return found


@contextmanager
def store_of(folder: Path) -> Iterator[Opened]:
    """Open the store of a broker that has ended for good."""
    (path,) = (folder / "data" / "vhosts").iterdir()
    opened = opened_at(path, AFTER_ALL)
    try:
        yield opened
    finally:
        opened.close()


def assert_references_add_up(opened: Opened) -> dict[int, int]:
    """Hold counts and worth of segments to the rows; return how many rows each queue has."""
    index, tables = opened.recovered.index, opened.recovered.memtables
    numbers = {no: terms.messages for no, terms in tables.terms.items() if terms.messages}
    rows = {no: list(pages(index, no, 0, SEQ_END)) for no in numbers}
    assert numbers == {no: len(each) for no, each in rows.items()}
    counts = Counter(row[1] for each in rows.values() for row in each)
    places = index.locations(sorted(counts))
    assert {no: place[4] for no, place in places.items()} == counts
    worth: Counter[int] = Counter()
    for file_no, _, length, _, _ in places.values():
        worth[file_no] += length
    assert {no: row.valid_bytes for no, row in tables.files.items() if row.valid_bytes} == worth
    return numbers


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_queue_is_deleted_and_declared_again_and_the_broker_dies_meanwhile(
    start_worker: Start, tmp_path: Path, rng: random.Random, count: int
) -> None:
    worker = start_worker()
    channel = channel_of(worker)
    channel.ok("queue.declare", queue="q", durable=True)
    publish(channel.connection.channel(), "", "q", range(count))
    for life in range(3):
        channel.ok("queue.delete", queue="q")
        channel.ok("queue.declare", queue="q", durable=True)
        publish(channel, "", "q", range(rng.randrange(100)))
        worker.kill()
        channel.connection.drop()
        worker = start_worker()
        channel = channel_of(worker)
        assert channel.ok("queue.declare", queue="q", passive=True).message_count < 100, life
    left = channel.ok("queue.declare", queue="q", passive=True).message_count
    channel.connection.drop()
    worker.stop()

    with store_of(tmp_path) as opened:
        assert list(assert_references_add_up(opened).values()) == [left] * bool(left)


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_purge_beside_unacked_and_unconfirmed_messages(
    start_worker: Start, tmp_path: Path, is_durable: bool
) -> None:
    worker = start_worker()
    channel, getter = channel_of(worker), channel_of(worker)
    channel.ok("queue.declare", queue="q", durable=True)
    publish(channel, "", "q", range(2_000))
    unacked = [int(getter.get("q", no_ack=False).body) for _ in range(10)]
    for number in range(2_000, 2_050):
        channel.publish("q", b"%d" % number, delivery_mode=2)
    channel.ok("queue.purge", queue="q")
    if is_durable:
        channel.settle()
        channel.connection.drop()
        getter.connection.drop()
        worker.stop()
    else:
        worker.kill()
        channel.connection.drop()
        getter.connection.drop()

    worker = start_worker()
    channel = channel_of(worker)
    found = contents(channel, "q", channel.ready("q"))
    channel.connection.drop()
    worker.stop()
    assert found[:10] == unacked
    assert found == sorted(set(found))
    assert set(found) <= set(range(2_050))
    if is_durable:
        assert found == unacked
    with store_of(tmp_path) as opened:
        assert list(assert_references_add_up(opened).values()) == [len(found)]


def test_a_broker_dies_amid_a_fan_out_to_a_hundred_queues(
    start_worker: Start, tmp_path: Path, rng: random.Random
) -> None:
    queues = [f"q{number}" for number in range(100)]
    worker = start_worker()
    channel = channel_of(worker)
    for queue in queues:
        channel.ok("queue.declare", queue=queue, durable=True)
        channel.ok("queue.bind", queue=queue, exchange="amq.fanout")
    published = 0
    owed: set[int] = set()
    for _ in range(2):
        publish(channel, "amq.fanout", "", range(published, published + 5))
        owed.update(range(published, published + 5))
        published += 5 + rng.randrange(1, 30)
        for number in range(max(owed) + 1, published):
            channel.publish("", b"%d" % number, "amq.fanout", delivery_mode=2)
        worker.kill()
        channel.connection.drop()
        worker = start_worker()
        channel = channel_of(worker)
        for queue in queues:
            found = contents(channel, queue, channel.ready(queue))
            assert found == sorted(set(found))
            assert owed <= set(found) <= set(range(published))
    channel.connection.drop()
    worker.stop()

    with store_of(tmp_path) as opened:
        assert len(assert_references_add_up(opened)) == len(queues)


def test_of_two_processes_on_one_directory_one_starts(tmp_path: Path, start_worker: Start) -> None:
    for _ in range(3):
        workers = [start_worker(), start_worker()]
        codes = []
        for worker in workers:
            try:
                channel_of(worker).connection.drop()
            except AssertionError:
                codes.append(worker.process.wait(20))
        assert len(codes) == 1
        assert codes[0] > 0
        for worker in workers:
            worker.end()
