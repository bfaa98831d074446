"""kill -9 of a process with queues over a store, all its threads at work, again and again on one store."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from rigs.queues.queue_worker import QUEUES, Queue, running_store
from rigs.store.store_folders import killed_after

WORKER = Path(__file__).parents[2] / "rigs/queues/queue_worker.py"


class Oracle:
    """The events that the killed processes printed, by queue: ids of messages."""

    def __init__(self) -> None:
        self.published: dict[int, set[str]] = {no: set() for no in QUEUES}
        self.confirmed: dict[int, set[str]] = {no: set() for no in QUEUES}
        self.acked: dict[int, set[str]] = {no: set() for no in QUEUES}
        self.fetched = 0

    def read(self, output: bytes) -> None:
        for line in output.decode().split("\n")[:-1]:  # the last was cut off, or is empty
            if line == "ready":
                continue
            kind, number, name = line.split()
            queue_no = int(number)
            if kind == "f":
                assert name in self.published[queue_no], "a message that nobody published"
                self.fetched += 1
            else:
                known = {"p": self.published, "c": self.confirmed, "a": self.acked}[kind]
                known[queue_no].add(name)

    def compare(self, queue_no: int, found: list[str]) -> None:
        lost = self.confirmed[queue_no] - self.acked[queue_no] - set(found)
        assert not lost, f"{len(lost)} confirmed messages lost, {sorted(lost)[:5]}"
        assert self.published[queue_no].issuperset(found)
        assert not [name for name in found if name.endswith("t")], "a transient came back"
        assert found == sorted(found), "not in the order in which they were published"
        assert len(found) == len(set(found)), "twice"


async def drained(path: Path, epoch: int, forget: bool) -> dict[int, list[str]]:
    """Open the store and return the messages of each queue, which stay there unless told otherwise."""
    running = running_store(path / "store", epoch)
    found: dict[int, list[str]] = {}
    for number in QUEUES:
        queue = Queue(running.store, number)
        async with asyncio.timeout(60):
            while queue.queue.len():
                queue.changed.clear()
                queue.fetch(100)
                queue.work()
                if queue.queue.len():
                    await asyncio.sleep(0)
        found[number] = list(queue.unacked.values())
        queue.lines.clear()
        if forget:
            queue.queue.ack(list(queue.unacked))
        queue.queue.terminate()
    await running.stop()
    assert not running.errors
    return found


async def kill_and_recover(path: Path, rng: random.Random, rounds: int) -> Oracle:
    oracle = Oracle()
    epoch = 0
    for _ in range(rounds):
        for _ in range(rng.randint(1, 2)):  # a start may be killed, too
            epoch += 1
            lines = rng.choice([1, 50, 500, 5000]) + rng.randrange(1000)
            oracle.read(killed_after(path, epoch, rng.getrandbits(32), lines, WORKER))
        epoch += 1
        for queue_no, found in (await drained(path, epoch, forget=False)).items():
            oracle.compare(queue_no, found)
            oracle.confirmed[queue_no] = set(found)  # messages found after the kill are durable
            oracle.acked[queue_no] -= set(found)
    await drained(path, epoch + 1, forget=True)
    assert not any((await drained(path, epoch + 2, forget=False)).values())
    segments = (path / "store" / "rdq").glob("*.rdq")
    assert sum(segment.stat().st_size for segment in segments) < 200_000, "garbage is left"
    return oracle


async def test_queues_of_killed_processes_lose_nothing_that_was_confirmed(
    tmp_path: Path, rng: random.Random
) -> None:
    oracle = await kill_and_recover(tmp_path, rng, 3)

    assert oracle.fetched > 0


@pytest.mark.slow
async def test_queues_of_killed_processes_lose_nothing_for_long(
    tmp_path: Path, rng: random.Random
) -> None:
    oracle = await kill_and_recover(tmp_path, rng, 60)

    assert oracle.fetched > 10_000
