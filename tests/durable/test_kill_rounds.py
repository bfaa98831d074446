"""A broker whose queues are used in all ways is killed, also while it recovers: nothing confirmed is lost.

Order and redelivered flags are right before and after. ``busy_clients`` does the work.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from conformance.raw import Channel, Connection
from durable.busy_clients import (
    CONSUMED,
    EXPIRING,
    PRIORITY,
    QUEUES,
    WIDE,
    Ages,
    BusyConsumer,
    Emptier,
    Facts,
    Operator,
    WidePublisher,
    declare,
)
from durable.oracle import Known, name_of
from durable.workers import BrokerWorker
from rigs.waiting import wait_until

LEFT_MAX = 60  # messages that stay in a queue from one round to the next
CONFIRMED_MAX = 600  # in one round
SECOND_KILLS = 0.5  # the share of rounds with a kill during recovery


class Rounds:
    """A broker's lives, and what its clients know."""

    def __init__(self, folder: Path, rng: random.Random, disk: str) -> None:
        self.rng = rng
        self.confirmed = self.starts = 0
        self.facts = {queue: Facts(Known(queue == PRIORITY)) for queue in QUEUES}
        self._ages = Ages()
        self._folder = folder
        self._disk = disk
        self._start_s = 0.5
        self.worker: BrokerWorker | None = None

    def start(self) -> BrokerWorker:
        self.starts += 1
        self.worker = BrokerWorker(self._folder, self.rng.getrandbits(32), self._disk)
        return self.worker

    def end(self) -> None:
        if self.worker is not None:
            self.worker.end()

    def one(self) -> None:
        """One life: kill its recovery perhaps, check the recovered state, use the broker, crash."""
        while self.starts and self.rng.random() < SECOND_KILLS:
            worker = self.start()
            time.sleep(self.rng.uniform(0.3, 1.0) * self._start_s)
            worker.kill()
        began_s = time.monotonic()
        address = self.start().address()
        self._start_s = time.monotonic() - began_s
        self.check(address)
        self.use(address)

    def check(self, address: tuple[str, int], leave: bool = True) -> None:
        """Take all messages of all queues, hold them to the facts, and put some of them back."""
        connection = Connection(address)
        connection.open()
        channel = connection.channel()
        channel.ok("exchange.declare", exchange=WIDE, type="fanout", durable=True)
        for queue, facts in self.facts.items():
            declare(channel, queue)
            found: list[tuple[str, bool]] = []
            while (event := channel.get(queue, no_ack=False)).name == "basic.get-ok":
                name = name_of(event.body)
                assert not self._ages.is_over(name), f"{name} has expired and is delivered"
                found.append((name, event.redelivered))
                tag = event.delivery_tag
            facts.known.check(found, has_crashed=self.starts > 1)
            facts.delivered = {name for name, _ in found}
            self._expire(queue, facts.known)
            self._put_back(channel, facts, found, tag if found else 0, leave=leave)
        channel.settle(*QUEUES)
        assert connection.close().name == "connection.close-ok"

    def _expire(self, queue: str, known: Known) -> None:
        """Note the messages that need not be there the next time."""
        known.acked |= {name for name in known.published if name.endswith("x")}
        if queue == EXPIRING:
            known.acked |= known.published

    def _put_back(
        self, channel: Channel, facts: Facts, found: list[tuple[str, bool]], tag: int, leave: bool
    ) -> None:
        left = self.rng.randrange(LEFT_MAX) if leave else 0
        gone = max(0, len(found) - left)
        if gone:
            facts.known.acked.update(name for name, _ in found[:gone])
            channel.send("basic.ack", delivery_tag=tag - len(found) + gone, multiple=True)
        if gone < len(found):
            channel.send("basic.nack", delivery_tag=tag, multiple=True, requeue=True)

    def use(self, address: tuple[str, int]) -> None:
        """Let clients work until a number of messages has been confirmed, then kill."""
        rng, facts = self.rng, self.facts
        known = {queue: each.known for queue, each in facts.items()}
        life = self.starts
        publishers = [
            WidePublisher(address, known, self._ages, f"{each}{life}", rng) for each in ("p", "q")
        ]
        clients = [
            *publishers,
            *(BusyConsumer(address, facts[queue], self._ages, queue, rng) for queue in CONSUMED),
            Emptier(address, facts, rng),
        ]
        operator = Operator(self._folder / "data", rng)
        for client in (*clients, operator):
            client.start()
        wanted = rng.randrange(1, CONFIRMED_MAX)

        def is_enough() -> bool:
            return sum(each.confirmed for each in publishers) >= wanted or any(
                client.error for client in clients
            )

        wait_until(is_enough, within_s=60)
        for client in clients:
            client.is_ending = True
        assert self.worker is not None
        self.worker.crash()
        for client in clients:
            client.join(30)
            assert not client.is_alive()
            assert client.error is None, client.error
        operator.join(30)
        assert not operator.is_alive()
        assert self.worker is not None
        log = self.worker.log.read_text()
        assert "Traceback" not in log, log
        for each in facts.values():
            if each.may_be_empty:
                each.empty()
                each.may_be_empty = False
        self.confirmed += sum(each.confirmed for each in publishers)


def run(folder: Path, rng: random.Random, disk: str, rounds: int) -> None:
    lives = Rounds(folder, rng, disk)
    try:
        for _ in range(rounds):
            lives.one()
        worker = lives.start()
        lives.check(worker.address(), leave=False)
        worker.stop()
    finally:
        lives.end()
    assert lives.confirmed > rounds * 30


@pytest.mark.parametrize("disk", ["real", "faulty"])
def test_queues_in_all_kinds_of_use_survive_kills(
    tmp_path: Path, rng: random.Random, disk: str
) -> None:
    run(tmp_path, rng, disk, 2)


@pytest.mark.slow
@pytest.mark.parametrize("disk", ["real", "faulty"])
def test_queues_in_all_kinds_of_use_survive_kills_for_long(
    tmp_path: Path, rng: random.Random, disk: str
) -> None:
    run(tmp_path, rng, disk, 300)
