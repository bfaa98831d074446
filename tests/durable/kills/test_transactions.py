"""A broker is killed amid transactions: nothing committed is lost, nothing rolled back appears.

Clients publish to one or several queues and settle what they have taken from one, in the same transaction, which they
commit, roll back, or leave by closing the channel. A message counts as published when its commit was sent, and as
confirmed when that was answered.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from conformance.raw import Channel, Connection
from durable.kills.clients import FAN_OUT, CountingClient, Names
from durable.kills.oracle import Known, body_of, is_transient, name_of, place_of
from durable.kills.rounds import Rounds

QUEUES = ("taken", "kept", "priorities")
TAKEN, _, PRIORITY = QUEUES
LEFT_MAX = 150  # messages that stay in a queue from one round to the next
CONFIRMED_MAX = 1_500  # in one round
SIZES = (1, 2, 5, 20, 100)  # publishes of a transaction


class Committer(CountingClient):
    """One transaction after the other."""

    def __init__(
        self, address: tuple[str, int], known: dict[str, Known], names: Names, rng: random.Random
    ) -> None:
        self._names, self._rng = names, rng
        self._unacked: dict[int, str] = {}
        super().__init__(address, known)

    def prepare(self, channel: Channel) -> None:
        channel.ok("tx.select")

    def work(self, channel: Channel) -> None:
        while self._transaction(channel):
            pass

    def _transaction(self, channel: Channel) -> bool:
        """Return whether the broker has answered all."""
        rng = self._rng
        published = [self._publish(channel) for _ in range(rng.choice(SIZES))]
        if not self._take(channel, rng.randrange(20)):
            return False
        acked = self._settle(channel)
        end = rng.random()
        if end < 0.2:
            return channel.call("tx.rollback").name == "tx.rollback-ok"
        if end < 0.3:
            self._unacked.clear()
            methods = ("channel.close", "channel.open", "tx.select")
            return all(channel.call(each).name == f"{each}-ok" for each in methods)
        return self._commit(channel, published, acked)

    def _take(self, channel: Channel, count: int) -> bool:
        """Get messages, as long as there are some; return whether the broker has answered."""
        for _ in range(count):
            got = channel.call("basic.get", queue=TAKEN)
            if got.name != "basic.get-ok":
                return got.name == "basic.get-empty"
            self._unacked[got.delivery_tag] = name_of(got.body)
        return True

    def _commit(
        self,
        channel: Channel,
        published: list[tuple[str, tuple[str, ...]]],
        acked: dict[int, str],
    ) -> bool:
        for name, queues in published:
            for queue in queues:
                self.known[queue].published.add(name)
        self.known[TAKEN].acked.update(acked.values())
        if channel.call("tx.commit").name != "tx.commit-ok":
            return False
        for tag in acked:
            del self._unacked[tag]
        for name, queues in published:
            for queue in () if is_transient(name) else queues:
                self.known[queue].confirmed.add(name)
        self.confirmed += len(published)
        return True

    def _publish(self, channel: Channel) -> tuple[str, tuple[str, ...]]:
        name = self._names.next()
        queues = QUEUES if self._rng.random() < 0.3 else (self._rng.choice(QUEUES),)
        exchange, key = ("", queues[0]) if len(queues) == 1 else (FAN_OUT, "")
        mode, priority = 1 if is_transient(name) else 2, place_of(name)[1]
        channel.publish(key, body_of(name), exchange, delivery_mode=mode, priority=priority)
        return name, queues

    def _settle(self, channel: Channel) -> dict[int, str]:
        """Ack some of the deliveries, singly or together; return which."""
        tags = sorted(self._unacked)
        if not tags or self._rng.random() < 0.3:
            return {}
        if self._rng.random() < 0.5:
            last = self._rng.choice(tags)
            channel.send("basic.ack", delivery_tag=last, multiple=True)
            chosen = [tag for tag in tags if tag <= last]
        else:
            chosen = self._rng.sample(tags, self._rng.randint(1, len(tags)))
            for tag in chosen:
                channel.send("basic.ack", delivery_tag=tag)
        return {tag: self._unacked[tag] for tag in chosen}


class TransactionRounds(Rounds):
    """Lives with clients that do nothing but transactions."""

    def __init__(self, folder: Path, rng: random.Random, disk: str) -> None:
        super().__init__(folder, rng, disk)
        self.known = {queue: Known(queue == PRIORITY) for queue in QUEUES}
        self._names = [Names(f"p{number}", rng) for number in range(3)]

    def one(self) -> None:
        address = self.start().address()
        self.check(address)
        committers = [Committer(address, self.known, names, self.rng) for names in self._names]
        self.crash_amid(committers, [], CONFIRMED_MAX)

    def last(self) -> None:
        worker = self.start()
        self.check(worker.address(), leave=False)
        worker.stop()

    def check(self, address: tuple[str, int], leave: bool = True) -> None:
        """Look at all messages of all queues, and leave some of them."""
        connection = Connection(address)
        connection.open()
        channel = connection.channel()
        channel.ok("exchange.declare", exchange=FAN_OUT, type="fanout", durable=True)
        for queue, known in self.known.items():
            arguments = {"x-max-priority": 3} if queue == PRIORITY else {}
            channel.ok("queue.declare", queue=queue, durable=True, arguments=arguments)
            channel.ok("queue.bind", queue=queue, exchange=FAN_OUT)
            found: list[tuple[str, bool]] = []
            while (event := channel.get(queue, no_ack=False)).name == "basic.get-ok":
                found.append((name_of(event.body), event.redelivered))
                tag = event.delivery_tag
            known.check(found, has_crashed=self.starts > 1)
            gone = max(0, len(found) - (self.rng.randrange(LEFT_MAX) if leave else 0))
            known.acked.update(name for name, _ in found[:gone])
            if gone:
                channel.send("basic.ack", delivery_tag=tag - len(found) + gone, multiple=True)
            channel.send("basic.nack", delivery_tag=0, multiple=True, requeue=True)
        channel.settle(*QUEUES)
        assert connection.close().name == "connection.close-ok"


def run(folder: Path, rng: random.Random, disk: str, rounds: int) -> None:
    lives = TransactionRounds(folder, rng, disk)
    lives.run(rounds)
    assert lives.confirmed > rounds * 30


@pytest.mark.parametrize("disk", ["real", "faulty"])
def test_transactions_survive_kills(tmp_path: Path, rng: random.Random, disk: str) -> None:
    run(tmp_path, rng, disk, 3)


@pytest.mark.slow
@pytest.mark.parametrize("disk", ["real", "faulty"])
def test_transactions_survive_kills_for_long(tmp_path: Path, rng: random.Random, disk: str) -> None:
    run(tmp_path, rng, disk, 300)
