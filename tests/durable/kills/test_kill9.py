"""A broker ends at random moments under load, again and again: nothing confirmed is lost.

Its process is killed, or the power is cut: then un-synced bytes and names are lost, cut off, zeroed or
scattered, while writes come short and calls are interrupted.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.raw import Channel, Connection
from durable.kills.clients import (
    FAN_OUT,
    FANNED,
    PRIORITY,
    RECREATED,
    Client,
    Consumer,
    Echo,
    Names,
    Publisher,
    Recreator,
    is_declared,
)
from durable.kills.oracle import Known, name_of
from durable.kills.rounds import Rounds
from rigs.store.live_store import opened_at

QUEUES = (*FANNED, RECREATED)
LEFT_MAX = 150  # messages that stay in a queue from one round to the next
CONFIRMED_MAX = 1_500  # in one round


class Kills(Rounds):
    """Lives with clients that publish, consume, answer and declare anew."""

    def __init__(self, folder: Path, rng: random.Random, disk: str) -> None:
        super().__init__(folder, rng, disk)
        self.known = {queue: Known(queue == PRIORITY) for queue in QUEUES}
        self._publishers = [Names(publisher, rng) for publisher in ("p1", "p2", "e")]
        self._lives = self._names_of_lives()

    def _names_of_lives(self) -> Iterator[Names]:
        for life in itertools.count():
            yield Names(f"r{life}", self.rng)

    def one(self) -> None:
        if self.rng.random() < 0.1:
            self.crash_at_start()
        address = self.start().address()
        self.check(address, has_crashed=self.starts > 1)
        self.use(address)

    def crash_at_start(self) -> None:
        """Kill a broker that is still starting."""
        worker = self.start()
        time.sleep(self.rng.uniform(0.1, 0.6))  # anywhere in the start
        worker.kill()

    def check(self, address: tuple[str, int], has_crashed: bool, leave: bool = True) -> None:
        """Look at all messages of all queues, and leave some of them."""
        connection = Connection(address)
        connection.open()
        channel = connection.channel()
        channel.ok("exchange.declare", exchange=FAN_OUT, type="fanout", durable=True)
        for queue in QUEUES:
            assert is_declared(channel, queue)
            if queue in FANNED:
                channel.ok("queue.bind", queue=queue, exchange=FAN_OUT)
            self._look_at(channel, queue, has_crashed, leave)
        assert connection.close().name == "connection.close-ok"

    def _look_at(self, channel: Channel, queue: str, has_crashed: bool, leave: bool) -> None:
        """Check a queue's contents; keep some messages, remove the others in varying ways."""
        known, rng, count = self.known[queue], self.rng, channel.ready(queue)
        if count:
            channel.ok("basic.consume", queue=queue, consumer_tag="check")
        events = channel.deliveries(count)
        found = [(name_of(event.body), event.redelivered) for event in events]
        known.check(found, has_crashed)
        if not count:
            return
        left = rng.randrange(LEFT_MAX) if leave else 0
        if count > left:
            known.acked.update(name for name, _ in found[: count - left])
            tag = events[count - left - 1].delivery_tag
            channel.send("basic.ack", delivery_tag=tag, multiple=True)
        channel.ok("basic.cancel", consumer_tag="check")
        channel.send("basic.nack", delivery_tag=0, multiple=True, requeue=True)
        if leave and rng.random() < 0.1:
            known.acked.update(name for name, _ in found)
            channel.ok("queue.purge", queue=queue)

    def use(self, address: tuple[str, int]) -> None:
        rng, known = self.rng, self.known
        first, second, echo = self._publishers
        publishers = [Publisher(address, known, names, rng) for names in (first, second)]
        others: list[Client] = [
            Consumer(address, known, "consumed", rng),
            Consumer(address, known, "priorities", rng),
            Echo(address, known, echo),
            Recreator(address, known, self._lives),
        ]
        self.crash_amid(publishers, others, CONFIRMED_MAX)

    def last(self) -> None:
        """Take all messages, stop in order, and find an empty store."""
        worker = self.start()
        self.check(worker.address(), has_crashed=True, leave=False)
        worker.stop()
        worker = self.start()
        self.check(worker.address(), has_crashed=False)
        worker.stop()
        (folder,) = (self.folder / "data" / "vhosts").iterdir()
        opened = opened_at(folder, 1 << 23)
        try:
            assert opened.recovered.is_clean
            assert not [no for no, terms in opened.recovered.queues.items() if terms.messages]
            assert not any(row.valid_bytes for row in opened.recovered.memtables.files.values())
        finally:
            opened.close()


def run(folder: Path, rng: random.Random, disk: str, rounds: int) -> None:
    lives = Kills(folder, rng, disk)
    lives.run(rounds)
    assert lives.confirmed > rounds * 50


@pytest.mark.parametrize("disk", ["real", "faulty"])
def test_whatever_ends_a_broker_nothing_confirmed_is_lost(
    tmp_path: Path, rng: random.Random, disk: str
) -> None:
    run(tmp_path, rng, disk, 4)


@pytest.mark.slow
@pytest.mark.parametrize("disk", ["real", "faulty"])
def test_whatever_ends_a_broker_nothing_confirmed_is_lost_for_long(
    tmp_path: Path, rng: random.Random, disk: str
) -> None:
    run(tmp_path, rng, disk, 1_000)
