"""Kill -9 of a node under load, again and again: nothing confirmed is lost, order is kept (F-01)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from conformance.raw import Connection
from durable.history import History, Load, contents
from nodes import kill_leveret, start_leveret

QUEUES = ("kept", "consumed")


def rounds(folder: Path, count: int, seed: int) -> None:
    """Kill a node at random moments; look at what is there after each start."""
    rng, history = random.Random(seed), History()
    for number in range(count):
        broker = start_leveret(folder)
        address = (broker.host, broker.port)
        connection = Connection(address)
        connection.open()
        channel = connection.channel()
        for queue in QUEUES:
            channel.ok("queue.declare", queue=queue, durable=True)
            channel.ok("queue.bind", queue=queue, exchange="amq.fanout")
        history.check(contents(channel, "kept"), contents(channel, "consumed"))
        if number % 4 == 3:  # so that garbage is made, and few messages are read each time
            channel.ok("queue.purge", queue="kept")
            history.confirmed.clear()
        connection.drop()
        load = Load(address, history)
        load.wait_for(len(history.confirmed) + rng.randrange(1, 4000))
        load.end_is_near()
        kill_leveret(broker)
        load.join()


@pytest.mark.parametrize("seed", [1, 2])
def test_f01_kill_9_under_load(tmp_path: Path, seed: int) -> None:
    rounds(tmp_path, 6, seed)


@pytest.mark.slow
def test_f01_kill_9_under_load_long(tmp_path: Path) -> None:
    rounds(tmp_path, 500, 3)
