"""A chain of queues that dead-letter is killed under load: each confirmed message is in one of them afterwards.

Messages expire in the first queue, are rejected in the second or dropped for its length, and end in the third. A copy
may be in several queues; each says truly what has become of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.raw import Channel, Connection, Event
from durable.kills.clients import Client, ConfirmedPublisher, Names
from durable.kills.oracle import Known, name_of
from durable.kills.rounds import Rounds
from rigs.waiting import wait_until

FIRST, SECOND, THIRD = "first", "second", "third"
QUEUES = (FIRST, SECOND, THIRD)
TTL_MS = 20
LENGTH = 30
CONFIRMED_MAX = 400  # in one round
SECOND_KILLS = 0.3  # the share of rounds with a kill during recovery


def declare(channel: Channel) -> None:
    chain = {
        FIRST: {"x-message-ttl": TTL_MS, "x-dead-letter-routing-key": SECOND},
        SECOND: {"x-max-length": LENGTH, "x-dead-letter-routing-key": THIRD},
        THIRD: None,
    }
    for queue, own in chain.items():
        arguments = {} if own is None else {"x-dead-letter-exchange": "", **own}
        channel.ok("queue.declare", queue=queue, durable=True, arguments=arguments)


class ChainPublisher(ConfirmedPublisher):
    """Publishes persistent messages to the first queue, some of which expire at once."""

    def __init__(
        self, address: tuple[str, int], known: Known, names: Names, rng: random.Random
    ) -> None:
        super().__init__(address, {FIRST: known})
        self._names, self._rng = names, rng

    def publish(self) -> None:
        name = self._names.next().removesuffix("t")
        own: dict[str, Any] = {"expiration": "0"} if self._rng.random() < 0.3 else {}
        self.confirms.publish(name, (FIRST,), "", FIRST, **own)


class Rejecter(Client):
    """Rejects what comes from the second queue, or acknowledges it, one by one or many at once."""

    def __init__(self, address: tuple[str, int], known: Known, rng: random.Random) -> None:
        self._rng = rng
        super().__init__(address, {SECOND: known})

    def prepare(self, channel: Channel) -> None:
        channel.ok("basic.qos", prefetch_count=self._rng.choice([5, 50]))
        channel.ok("basic.consume", queue=SECOND, consumer_tag="c")

    def work(self, channel: Channel) -> None:
        unacked: dict[int, str] = {}
        for event in self.events(channel):
            unacked[event.delivery_tag] = name_of(event.body)
            if len(unacked) >= 5:
                self._settle(channel, unacked)

    def _settle(self, channel: Channel, unacked: dict[int, str]) -> None:
        tag, choice = max(unacked), self._rng.random()
        if choice < 0.2:
            self.known[SECOND].acked.update(unacked.values())
            channel.send("basic.ack", delivery_tag=tag, multiple=True)
        else:
            channel.send("basic.nack", delivery_tag=tag, multiple=True, requeue=choice > 0.9)
        unacked.clear()


class ChainRounds(Rounds):
    """Lives of a broker with the chain."""

    def __init__(self, folder: Path, rng: random.Random, disk: str) -> None:
        super().__init__(folder, rng, disk)
        self.known = Known()
        self._names = [Names(publisher, rng) for publisher in ("p", "q")]
        self._start_s = 0.5

    def one(self) -> None:
        while self.starts and self.rng.random() < SECOND_KILLS:
            worker = self.start()
            time.sleep(
                self.rng.uniform(0.3, 1.2) * self._start_s
            )  # in it, or when letters are sent again
            worker.kill()
        began_s = time.monotonic()
        address = self.start().address()
        self._start_s = time.monotonic() - began_s
        self.check(address)
        publishers = [ChainPublisher(address, self.known, names, self.rng) for names in self._names]
        self.crash_amid(publishers, [Rejecter(address, self.known, self.rng)], CONFIRMED_MAX)

    def check(self, address: tuple[str, int]) -> None:
        """Wait for all confirmed messages, at the end of the chain or on their way, and take them out."""
        connection = Connection(address)
        connection.open()
        channel = connection.channel()
        declare(channel)
        owed = self.known.confirmed - self.known.acked
        takes: dict[str, Callable[[Event], None]] = {
            SECOND: self._from_second,
            THIRD: self._from_third,
        }

        def has_all() -> bool:
            for queue, look in takes.items():
                while (event := channel.get(queue)).name == "basic.get-ok":
                    look(event)
                    name = name_of(event.body)
                    assert name in self.known.published
                    owed.discard(name)
            return not owed and not channel.ready(FIRST)

        wait_until(has_all, within_s=30)
        assert connection.close().name == "connection.close-ok"
        self.known.confirmed.clear()
        self.known.acked.clear()

    def _from_second(self, event: Event) -> None:
        self._check_deaths(event, [(FIRST, "expired")])

    def _from_third(self, event: Event) -> None:
        reason = event.properties["headers"]["x-death"][0]["reason"]
        assert reason in {"rejected", "maxlen"}
        self._check_deaths(event, [(SECOND, reason), (FIRST, "expired")])

    def _check_deaths(self, event: Event, expected: list[tuple[str, str]]) -> None:
        headers = event.properties["headers"]
        deaths = headers["x-death"]
        assert [(each["queue"], each["reason"]) for each in deaths] == expected
        assert [each["count"] for each in deaths] == [1] * len(expected)
        assert deaths[-1].get("original-expiration", "0") == "0"
        assert [deaths[0]["exchange"], deaths[-1]["routing-keys"]] == ["", [FIRST]]
        assert headers["x-first-death-queue"] == FIRST
        assert "expiration" not in event.properties

    def last(self) -> None:
        worker = self.start()
        self.check(worker.address())
        worker.stop()


def run(folder: Path, rng: random.Random, disk: str, rounds: int) -> None:
    lives = ChainRounds(folder, rng, disk)
    lives.run(rounds)
    assert lives.confirmed > rounds * 20


@pytest.mark.parametrize("disk", ["real", "faulty"])
def test_a_killed_chain_loses_no_confirmed_message(
    tmp_path: Path, rng: random.Random, disk: str
) -> None:
    run(tmp_path, rng, disk, 3)


@pytest.mark.slow
@pytest.mark.parametrize("disk", ["real", "faulty"])
def test_a_killed_chain_loses_no_confirmed_message_for_long(
    tmp_path: Path, rng: random.Random, disk: str
) -> None:
    run(tmp_path, rng, disk, 300)
