"""An exchange that delays is killed under load: each confirmed message comes, and none before its time."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from conformance.raw import Channel, Connection
from durable.kills.clients import ConfirmedPublisher, Names
from durable.kills.oracle import Known, name_of
from durable.kills.rounds import Rounds
from rigs.waiting import wait_until

EXCHANGE, QUEUE = "delayed", "q"
DELAYS_MS = (1, 20, 300, 1_500)
CONFIRMED_MAX = 400  # in one round
SECOND_KILLS = 0.3  # the share of rounds with a kill during recovery


def declare(channel: Channel) -> None:
    channel.ok(
        "exchange.declare",
        exchange=EXCHANGE,
        type="x-delayed-message",
        durable=True,
        arguments={"x-delayed-type": "direct"},
    )
    channel.ok("queue.declare", queue=QUEUE, durable=True)
    channel.ok("queue.bind", queue=QUEUE, exchange=EXCHANGE, routing_key="k")


def now_ms() -> int:
    return int(time.time() * 1000)


class DelayedPublisher(ConfirmedPublisher):
    """Publishes persistent messages that say when they are due."""

    def __init__(
        self, address: tuple[str, int], known: Known, names: Names, rng: random.Random
    ) -> None:
        super().__init__(address, {QUEUE: known})
        self._names, self._rng = names, rng

    def publish(self) -> None:
        name = self._names.next().removesuffix("t")
        delay_ms = self._rng.choice(DELAYS_MS)
        headers = {"x-delay": delay_ms, "due": now_ms() + delay_ms}
        self.confirms.publish(name, (QUEUE,), EXCHANGE, "k", headers=headers)


class DelayedRounds(Rounds):
    """Lives of a broker with the exchange and one queue bound to it."""

    def __init__(self, folder: Path, rng: random.Random, disk: str) -> None:
        super().__init__(folder, rng, disk)
        self.known = Known()
        self._names = [Names(publisher, rng) for publisher in ("p", "q")]
        self._start_s = 0.5

    def one(self) -> None:
        while self.starts and self.rng.random() < SECOND_KILLS:
            worker = self.start()
            time.sleep(self.rng.uniform(0.3, 1.2) * self._start_s)  # in it, or when some are due
            worker.kill()
        began_s = time.monotonic()
        address = self.start().address()
        self._start_s = time.monotonic() - began_s
        self.check(address)
        publishers = [
            DelayedPublisher(address, self.known, names, self.rng) for names in self._names
        ]
        self.crash_amid(publishers, [], CONFIRMED_MAX)

    def check(self, address: tuple[str, int]) -> None:
        """Wait for all confirmed messages, and take them out."""
        connection = Connection(address)
        connection.open()
        channel = connection.channel()
        declare(channel)
        owed = set(self.known.confirmed)

        def has_all() -> bool:
            while (event := channel.get(QUEUE)).name == "basic.get-ok":
                headers = event.properties["headers"]
                assert headers["due"] <= now_ms()
                assert headers["x-delay"] in DELAYS_MS
                name = name_of(event.body)
                assert name in self.known.published
                owed.discard(name)
            return not owed

        wait_until(has_all, within_s=30)
        assert connection.close().name == "connection.close-ok"
        self.known.confirmed.clear()

    def last(self) -> None:
        worker = self.start()
        self.check(worker.address())
        worker.stop()


def run(folder: Path, rng: random.Random, disk: str, rounds: int) -> None:
    lives = DelayedRounds(folder, rng, disk)
    lives.run(rounds)
    assert lives.confirmed > rounds * 20


@pytest.mark.parametrize("disk", ["real", "faulty"])
def test_a_killed_exchange_loses_no_delayed_message(
    tmp_path: Path, rng: random.Random, disk: str
) -> None:
    run(tmp_path, rng, disk, 3)


@pytest.mark.slow
@pytest.mark.parametrize("disk", ["real", "faulty"])
def test_a_killed_exchange_loses_no_delayed_message_for_long(
    tmp_path: Path, rng: random.Random, disk: str
) -> None:
    run(tmp_path, rng, disk, 300)
