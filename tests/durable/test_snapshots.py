"""Snapshots of real processes: under load, and killed at each point of making one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conformance.raw import Channel
from durable.history import History, Load, check_contents, contents
from leveret.server.cli.main import main
from rigs.nodes import BrokerUnderTest, clean_environment, kill_leveret, start_leveret
from rigs.waiting import wait_until
from rigs.wire.channels import channel_of

QUEUES = ("kept", "consumed")
KILLED = Path(__file__).parents[1] / "rigs/store/offline/snapshot_killed.py"


@contextmanager
def node(folder: Path, *program: str) -> Iterator[BrokerUnderTest]:
    folder.mkdir(exist_ok=True)
    broker = start_leveret(folder, program=program)
    try:
        yield broker
    finally:
        kill_leveret(broker)


def declare(channel: Channel) -> None:
    for queue in QUEUES:
        channel.ok("queue.declare", queue=queue, durable=True)
        channel.ok("queue.bind", queue=queue, exchange="amq.fanout")


def leveret(folder: Path, *arguments: str) -> int:
    """Do what the command does, in this process."""
    return main(["snapshot", *arguments, "--data", str(folder / "data")])


def under_load(folder: Path, count: int, seed: int) -> None:
    """Take snapshots of a node under load; start each, and compare with the confirmed messages."""
    rng, history = random.Random(seed), History()
    befores: list[set[int]] = []
    home = folder / "node"
    with node(home) as broker:
        with channel_of(broker) as channel:
            declare(channel)
        load = Load((broker.host, broker.port), history)
        for number in range(count):
            load.wait_for(len(history.confirmed) + rng.randrange(1, 1_000))
            befores.append(set(history.confirmed))
            assert leveret(home, "create", f"s{number}") == 0
        load.stop()
    for number, before in enumerate(befores):
        assert leveret(home, "verify", f"s{number}") == 0
        restored = folder / f"restored-{number}"
        restored.mkdir()
        assert leveret(home, "restore", f"s{number}", "--to", str(restored / "data")) == 0
        with node(restored) as broker, channel_of(broker) as channel:
            # Messages acked after the snapshot may be in it or not, so all acks count.
            seen = History(history.next_number, before, history.acked)
            check_contents(channel, seen)


def test_snapshots_of_a_node_under_load_hold_what_was_confirmed(tmp_path: Path) -> None:
    under_load(tmp_path, 2, 1)


@pytest.mark.slow
def test_many_snapshots_of_a_node_under_load(tmp_path: Path) -> None:
    under_load(tmp_path, 12, 2)


def publish(channel: Channel, numbers: range) -> None:
    channel.ok("confirm.select")
    for number in numbers:
        body = b"%d " % number + b"x" * (number * 37 % 3000)
        channel.publish("", body, "amq.fanout", delivery_mode=2)
    channel.read_confirms(set(range(1, len(numbers) + 1)))


def left(folder: Path) -> list[str]:
    """Return the entries of a folder of snapshots."""
    names = os.listdir(folder) if folder.exists() else []
    return [name for name in names if name != "lock"]


BROKER_POINTS = ("made", "linked", "copied")
COMMAND_POINTS = ("taken", "counted", "synced")
LAST_POINT = "described"


def program(point: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", str(KILLED), f"snapshot: {point}", *arguments]


def kill_at(folder: Path, point: str, *copy_to: str) -> None:
    """Begin a snapshot and end its process at a point."""
    words = program(point, "create", "data", "one", *copy_to)
    environment = clean_environment()
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=False)
    assert done.returncode == -9, done
    assert left(folder / "data" / "snapshots") == ["one.draft"]
    assert left(folder / "copies") == []


@pytest.mark.parametrize("point", BROKER_POINTS)
def test_a_broker_that_is_killed_amid_one_loses_and_leaves_nothing(
    tmp_path: Path, point: str
) -> None:
    with node(tmp_path, *program(point)) as broker, channel_of(broker) as channel:
        declare(channel)
        publish(channel, range(200))
        assert leveret(tmp_path, "create", "one") == 70
        process = broker.process
        assert process is not None
        wait_until(lambda: process.poll() is not None)

    with node(tmp_path) as broker, channel_of(broker) as channel:
        assert left(tmp_path / "data" / "snapshots") == []
        assert contents(channel, "kept") == contents(channel, "consumed") == list(range(200))
        assert leveret(tmp_path, "create", "one") == 0
    assert leveret(tmp_path, "verify", "one") == 0


def test_a_command_that_is_killed_amid_one_leaves_nothing(tmp_path: Path) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        declare(channel)
        publish(channel, range(50))
        for point in COMMAND_POINTS:
            kill_at(tmp_path, point)
            kill_at(tmp_path, point, "copies")
        kill_at(tmp_path, LAST_POINT)

        assert leveret(tmp_path, "create", "two") == 0

        assert left(tmp_path / "data" / "snapshots") == ["two"]
        assert contents(channel, "kept") == list(range(50))


def test_a_command_that_is_killed_on_what_a_kill_has_left_leaves_nothing(tmp_path: Path) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        declare(channel)
        publish(channel, range(50))

    for point in ("metadata copied", *BROKER_POINTS, *COMMAND_POINTS, LAST_POINT):
        kill_at(tmp_path, point)

    assert leveret(tmp_path, "create", "two") == 0
    assert leveret(tmp_path, "verify", "two") == 0
    assert left(tmp_path / "data" / "snapshots") == ["two"]
    with node(tmp_path) as broker, channel_of(broker) as channel:
        assert contents(channel, "kept") == contents(channel, "consumed") == list(range(50))
