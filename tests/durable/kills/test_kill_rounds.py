"""A broker whose queues are used in all ways is killed, also while it recovers: nothing confirmed is lost.

Order and redelivered flags are right before and after. ``busy_clients`` does the work.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from conformance.raw import Channel, Connection
from durable.kills.busy_clients import (
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
from durable.kills.oracle import Known, name_of
from durable.kills.rounds import ENDS_S, Rounds

LEFT_MAX = 60  # messages that stay in a queue from one round to the next
CONFIRMED_MAX = 600  # in one round
SECOND_KILLS = 0.5  # the share of rounds with a kill during recovery


class BusyRounds(Rounds):
    """Lives with ``busy_clients``."""

    def __init__(self, folder: Path, rng: random.Random, disk: str) -> None:
        super().__init__(folder, rng, disk)
        self.facts = {queue: Facts(Known(queue == PRIORITY)) for queue in QUEUES}
        self._ages = Ages()
        self._start_s = 0.5

    def one(self) -> None:
        """One life: kill its recovery perhaps, check the recovered state, use the broker, crash."""
        while self.starts and self.rng.random() < SECOND_KILLS:
            worker = self.start()
            time.sleep(self.rng.uniform(0.3, 1.0) * self._start_s)  # anywhere in it
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
            asked_s = time.time()
            while (event := channel.get(queue, no_ack=False)).name == "basic.get-ok":
                name = name_of(event.body)
                self._ages.check(name, asked_s)
                found.append((name, event.redelivered))
                tag = event.delivery_tag
                asked_s = time.time()
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
        rng, facts = self.rng, self.facts
        known = {queue: each.known for queue, each in facts.items()}
        publishers = [
            WidePublisher(address, known, self._ages, f"{each}{self.starts}", rng)
            for each in ("p", "q")
        ]
        others = [
            *(BusyConsumer(address, facts[queue], self._ages, queue, rng) for queue in CONSUMED),
            Emptier(address, facts, rng),
        ]
        operator = Operator(self.folder / "data", rng)
        operator.start()
        self.crash_amid(publishers, others, CONFIRMED_MAX)
        operator.join(ENDS_S)
        assert not operator.is_alive()
        self._ages.broker_ended()
        for each in facts.values():
            if each.may_be_empty:
                each.empty()
                each.may_be_empty = False

    def last(self) -> None:
        worker = self.start()
        self.check(worker.address(), leave=False)
        worker.stop()


def run(folder: Path, rng: random.Random, disk: str, rounds: int) -> None:
    lives = BusyRounds(folder, rng, disk)
    lives.run(rounds)
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
