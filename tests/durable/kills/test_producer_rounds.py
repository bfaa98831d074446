"""A publisher numbers its messages, and after each kill sends all that was not confirmed again: each is there once.

Nothing confirmed is lost, nothing is doubled, the order is kept, in a plain queue, in one with priorities and in one of
whose messages a part is acknowledged before the publisher sends them again. A faulty disk loses its power, so
that messages may be missing although the journal names them.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from conformance.raw import Channel, Connection
from durable.kills.clients import CountingClient
from durable.kills.rounds import Rounds

PLAIN, PRIORITY, FAN_OUT, FLUSHED = "numbered", "numbered-priorities", "numbered-fan", "flushed"
QUEUES = (PLAIN, PRIORITY)
IN_FLIGHT = 60
CONFIRMED_MAX = 500  # in one round
LEFT_MAX = 80  # messages that stay in a queue from one round to the next


class Sent:
    """The messages of the publisher, by number, for all lives of the broker.

    Attributes:
        waiting: not confirmed yet, in the order sent: their queues.
        owed: by queue, what was confirmed and not acked.
        gone: by queue, what was acked, for good.
    """

    def __init__(self) -> None:
        self.next_number = 1
        self.waiting: dict[int, tuple[str, ...]] = {}
        self.owed: dict[str, set[int]] = {queue: set() for queue in QUEUES}
        self.gone: dict[str, set[int]] = {queue: set() for queue in QUEUES}


def priority_of(number: int) -> int:
    return number * 7 % 11 % 4


def declare(channel: Channel) -> None:
    channel.ok("exchange.declare", exchange=FAN_OUT, type="fanout", durable=True)
    channel.ok("queue.declare", queue=FLUSHED, durable=True)
    for queue in QUEUES:
        arguments = {"x-max-priority": 3} if queue == PRIORITY else {}
        channel.ok("queue.declare", queue=queue, durable=True, arguments=arguments)
        channel.ok("queue.bind", queue=queue, exchange=FAN_OUT)


class NumberingPublisher(CountingClient):
    """Sends again what was not confirmed in an earlier life, then goes on; ``IN_FLIGHT`` messages ahead."""

    def __init__(self, address: tuple[str, int], sent: Sent, rng: random.Random) -> None:
        self._sent, self._rng = sent, rng
        self._tags: dict[int, int] = {}
        self._next_tag = 1
        super().__init__(address, {})

    def prepare(self, channel: Channel) -> None:
        channel.ok("confirm.select")

    def work(self, channel: Channel) -> None:
        for number in list(self._sent.waiting):
            self._send(channel, number)
        self._fill(channel)
        for event in self.events(channel):
            assert event.name == "basic.ack", event
            tags = [event.delivery_tag]
            if event.multiple:
                tags = [tag for tag in self._tags if tag <= event.delivery_tag]
            for tag in tags:
                self._confirmed(self._tags.pop(tag))
            self._fill(channel)

    def _confirmed(self, number: int) -> None:
        queues = self._sent.waiting.pop(number, None)
        if queues is None:
            return  # a duplicate that was sent on purpose
        self.confirmed += 1
        for queue in queues:
            if number not in self._sent.gone[queue]:
                self._sent.owed[queue].add(number)

    def _fill(self, channel: Channel) -> None:
        sent, rng = self._sent, self._rng
        while len(self._tags) < IN_FLIGHT:
            if sent.waiting and rng.random() < 0.1:
                self._send(channel, rng.choice(list(sent.waiting)))  # a duplicate in flight
                continue
            number, sent.next_number = sent.next_number, sent.next_number + rng.randint(1, 2)
            sent.waiting[number] = QUEUES if rng.random() < 0.7 else (rng.choice(QUEUES),)
            self._send(channel, number)

    def _send(self, channel: Channel, number: int) -> None:
        queues = self._sent.waiting[number]
        exchange, key = (FAN_OUT, "") if len(queues) > 1 else ("", queues[0])
        headers: dict[str, Any] = {"x-producer-id": "the one", "x-producer-seq": number}
        self._tags[self._next_tag] = number
        self._next_tag += 1
        channel.publish(
            key,
            b"%d " % number + bytes(number * 37 % 3_000),
            exchange,
            delivery_mode=2,
            priority=priority_of(number),
            headers=headers,
        )


class ProducerRounds(Rounds):
    """Lives with one such publisher."""

    def __init__(self, folder: Path, rng: random.Random, disk: str) -> None:
        super().__init__(folder, rng, disk)
        self.sent = Sent()

    def one(self) -> None:
        address = self.start().address()
        self.check(address, LEFT_MAX)
        self.crash_amid([NumberingPublisher(address, self.sent, self.rng)], [], CONFIRMED_MAX)

    def check(self, address: tuple[str, int], left_max: int) -> None:
        """Look at all messages, acknowledge some for good, and put the others back."""
        connection = Connection(address)
        connection.open()
        channel = connection.channel()
        declare(channel)
        for queue in QUEUES:
            found: list[int] = []
            while (event := channel.get(queue, no_ack=False)).name == "basic.get-ok":
                found.append(int(event.body.split(b" ", 1)[0]))
                tag = event.delivery_tag
            self._look_at(queue, found)
            gone = max(0, len(found) - self.rng.randint(0, left_max))
            if gone:
                last = tag - len(found) + gone
                channel.send("basic.ack", delivery_tag=last, multiple=True)
                self.sent.gone[queue].update(found[:gone])
                self.sent.owed[queue].difference_update(found[:gone])
            if gone < len(found):
                channel.send("basic.nack", delivery_tag=tag, multiple=True, requeue=True)
        channel.settle(*QUEUES)
        channel.ok("confirm.select")
        channel.publish(FLUSHED, "x", delivery_mode=2)  # confirmed in a flush that has the acks
        assert channel.read().name == "basic.ack"
        assert connection.close().name == "connection.close-ok"

    def _look_at(self, queue: str, found: list[int]) -> None:
        there = set(found)
        assert len(there) == len(found), "a message is there twice"
        lost = self.sent.owed[queue] - there
        assert not lost, f"confirmed and lost in {queue}: {sorted(lost)[:5]}"
        back = there & self.sent.gone[queue]
        assert not back, f"acked and there again in {queue}: {sorted(back)[:5]}"
        order = sorted(found)
        if queue == PRIORITY:
            order.sort(key=lambda number: -priority_of(number))
        assert found == order, f"out of order in {queue}"

    def last(self) -> None:
        worker = self.start()
        self.check(worker.address(), 0)
        worker.stop()


def run(folder: Path, rng: random.Random, disk: str, rounds: int) -> None:
    lives = ProducerRounds(folder, rng, disk)
    lives.run(rounds)
    assert lives.confirmed > rounds * 20


@pytest.mark.parametrize("disk", ["real", "faulty"])
def test_a_publisher_that_sends_again_after_kills_doubles_nothing(
    tmp_path: Path, rng: random.Random, disk: str
) -> None:
    run(tmp_path, rng, disk, 4)


@pytest.mark.slow
@pytest.mark.parametrize("disk", ["real", "faulty"])
def test_a_publisher_that_sends_again_after_kills_doubles_nothing_for_long(
    tmp_path: Path, rng: random.Random, disk: str
) -> None:
    run(tmp_path, rng, disk, 300)
