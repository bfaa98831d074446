"""Archived queues of real processes: what another program can read, over kills, restarts and snapshots.

Tests: broker/queue/storage/retention.py
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance.raw import Channel
from durable.history import QUEUES, History, Load
from leveret.core.system.files import Files
from leveret.msg_store.archive import archive_file
from leveret.msg_store.format.folder import StorePaths, read_format
from leveret.server.cli.main import main
from rigs.nodes import (
    BrokerUnderTest,
    clean_environment,
    kill_leveret,
    leveret_program,
    start_leveret,
)
from rigs.store.collector.archive_rig import ArchiveReader
from rigs.waiting import wait_until
from rigs.wire.channels import channel_of

DAY = '{"replay-retention":"1D"}'


@contextmanager
def node(folder: Path) -> Iterator[BrokerUnderTest]:
    broker = start_leveret(folder)
    try:
        yield broker
    finally:
        kill_leveret(broker)


def archive(broker: BrokerUnderTest, pattern: str, definition: str = DAY) -> str:
    words = ("--apply-to", "queues", "archive", pattern, definition)
    return broker.control("set_policy", *words)


def store_of(data: Path) -> StorePaths:
    (path,) = (data / "vhosts").iterdir()
    return StorePaths(Files(), path, read_format(Files(), path))


def reader_of(data: Path, queue: str) -> ArchiveReader:
    """Return a reader of a queue that ``archive.json`` names."""
    folder = store_of(data)
    wait_until(lambda: queue in queues_of(folder), within_s=10)
    return ArchiveReader(folder, queues_of(folder)[queue])


def queues_of(folder: StorePaths) -> dict[str, int]:
    contents = archive_file.read(folder)
    return {each.name: each.queue_nos[0] for each in contents.queues} if contents else {}


def numbers_of(reader: ArchiveReader) -> list[int]:
    return [int(body.split()[0]) for body in reader.bodies]


def publish(channel: Channel, queue: str, numbers: range) -> None:
    channel.ok("confirm.select")
    for number in numbers:
        channel.publish(queue, b"%d " % number, delivery_mode=2)
    channel.read_confirms(set(range(1, len(numbers) + 1)))


def status(folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [leveret_program(), "status", "--json", "--data", str(folder / "data")],
        cwd=folder, env=clean_environment(), check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def follow_over_kills(folder: Path, rounds: int, rng: random.Random) -> History:
    """Follow a queue whose consumer keeps up, while its broker is killed again and again."""
    history, reader = History(), None
    for _ in range(rounds):
        with node(folder) as broker:
            if reader is None:
                with channel_of(broker) as channel:
                    for queue in QUEUES:
                        channel.ok("queue.declare", queue=queue, durable=True)
                        channel.ok("queue.bind", queue=queue, exchange="amq.fanout")
                archive(broker, "^consumed$")
                reader = reader_of(broker.data, "consumed")
            load = Load((broker.host, broker.port), history)
            for _ in range(rng.randrange(1, 4)):
                load.wait_for_new(rng.randrange(1, 1_000))
                reader.read()
            load.end_is_near()
            kill_leveret(broker)
            load.join()
    with node(folder) as broker:
        wait_until(lambda: _has_read_all(reader, history), within_s=10)
    assert reader is not None
    seen = numbers_of(reader)
    assert len(seen) == len(set(seen)), "a message was read twice"
    assert set(seen) <= set(range(history.next_number))
    assert seen == sorted(seen)
    return history


def _has_read_all(reader: ArchiveReader, history: History) -> bool:
    reader.read()
    return history.confirmed <= set(numbers_of(reader))


def test_a_reader_of_the_watermark_sees_each_confirmed_message_once(
    tmp_path: Path, rng: random.Random
) -> None:
    assert len(follow_over_kills(tmp_path, 3, rng).confirmed) > 100


@pytest.mark.slow
def test_a_reader_of_the_watermark_sees_each_confirmed_message_once_for_long(
    tmp_path: Path, rng: random.Random
) -> None:
    follow_over_kills(tmp_path, 60, rng)


def test_messages_of_consumers_that_do_not_acknowledge_are_archived(tmp_path: Path) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.ok("queue.declare", queue="q", durable=True)
        archive(broker, "^q$")
        reader = reader_of(broker.data, "q")
        with channel_of(broker) as consumer:
            consumer.ok("basic.consume", queue="q", no_ack=True)
            publish(channel, "q", range(100))
            consumer.deliveries(100)
        wait_until(lambda: (reader.read(), len(reader.seen) >= 100)[1], within_s=10)

        assert numbers_of(reader) == list(range(100))
        assert channel.ready("q") == 0
        row = json.loads(broker.control(
            "--formatter", "json", "list_queues", "name", "messages", "archive_segments", "archive_bytes"
        ))[0]  # fmt: skip
        assert (row["messages"], row["archive_segments"]) == (0, 1)
        assert row["archive_bytes"] > 100
        (store,) = status(tmp_path)["stores"]
        assert (store["archived_queues"], store["archive_segments"]) == (1, 1)


def test_a_refused_message_is_not_archived(tmp_path: Path) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.ok("queue.declare", queue="q", durable=True)
        archive(
            broker, "^q$", '{"replay-retention":1000000,"max-length":1,"overflow":"reject-publish"}'
        )
        reader = reader_of(broker.data, "q")
        channel.ok("confirm.select")
        channel.publish("q", b"0 ", delivery_mode=2)
        assert channel.read().name == "basic.ack"
        channel.publish("q", b"1 ", delivery_mode=2)
        assert channel.read().name == "basic.nack"
        channel.ok("queue.purge", queue="q")
        channel.publish("q", b"2 ", delivery_mode=2)
        assert channel.read().name == "basic.ack"
        wait_until(lambda: (reader.read(), len(reader.seen) >= 2)[1], within_s=10)

        assert numbers_of(reader) == [0, 2]


def test_a_snapshot_has_settled_messages_and_so_has_its_restore(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with node(first) as broker, channel_of(broker) as channel:
        channel.ok("queue.declare", queue="q", durable=True)
        archive(broker, "^q$")
        reader_of(broker.data, "q")
        publish(channel, "q", range(50))
        channel.ok("queue.purge", queue="q")
        data = ["--data", str(first / "data")]
        assert main(["snapshot", "create", "one", *data]) == 0
    made = first / "data" / "snapshots" / "one"
    (store,) = json.loads((made / "MANIFEST.json").read_bytes())["stores"]
    (queue,) = store["queues"]
    assert (queue["messages"], queue["retention_ms"], queue["retention_bytes"]) == (
        0,
        86_400_000,
        None,
    )
    assert len(store["segments"]) == 1
    assert main(["snapshot", "verify", "one", *data]) == 0
    assert main(["snapshot", "restore", "one", "--to", str(second / "data"), *data]) == 0

    with node(second) as broker, channel_of(broker) as channel:
        assert channel.ready("q") == 0
        reader = reader_of(broker.data, "q")
        shares = reader.folder.path / "archive" / "00000001.json"
        wait_until(shares.exists, within_s=10)  # the collector has looked at it
        reader.read()
        assert numbers_of(reader) == list(range(50))


def test_a_queue_that_is_not_durable_is_named_where_its_policy_has_no_effect(
    tmp_path: Path,
) -> None:
    with node(tmp_path) as broker, channel_of(broker) as channel:
        channel.ok("queue.declare", queue="passing")

        archive(broker, "^passing$")

        wait_until(
            lambda: "policy has no effect queue=passing" in broker.log.read_text(), within_s=10
        )
