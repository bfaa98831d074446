"""Snapshots read without Spark, against what the broker and the plain decoders say.

Tests: spark/scan/batches.py, spark/scan/locating.py, spark/scan/manifest.py,
    spark/scan/records.py, spark/scan/schema.py, spark/scan/segment.py, spark/scan/tasks.py
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from leveret.amqp.properties import Properties, head_of
from leveret.core.errors import StoreError
from leveret.core.message import exchange_and_key, origin_of
from leveret.management.snapshots import manifest as written_manifest
from leveret.server.cli.main import main
from leveret.spark.errors import DataLoss, NotASnapshot
from leveret.spark.scan.manifest import read_manifest
from leveret.spark.scan.options import ReadOptions
from leveret.spark.scan.reader import open_scan, read
from leveret.spark.scan.schema import VIEWS, arrow_schema, columns_of
from rigs.spark.messages import messages
from rigs.spark.snapshots import (
    NODE,
    DataRig,
    channel_of_broker,
    rows_of,
    snapshot_of,
    table_of,
)
from rigs.store.offline.offline_rig import flip
from rigs.store.offline.store_damage import lose_inline

RICH = {
    "text": "ünï",
    "number": -5,
    "big": 1 << 60,
    "yes": True,
    "real": 1.5,
    "none": None,
    "list": [1, "a", {"deep": "x"}],
    "table": {"inner": [True]},
    "at": datetime(2024, 1, 2, tzinfo=UTC),
}


def key_of(row: dict[str, Any]) -> tuple[int, int]:
    return row["queue_no"], row["seq_id"]


def filled(data: Path, rng: random.Random, **more: Any) -> DataRig:
    """A store with fan-out, acks, several segments and a checkpoint in the middle."""
    rig = DataRig(data, {"one": 1, "two": 5}, rdq_file_bytes=20_000, **more)
    for turn in range(12):
        rig.publish(messages(rng, 20), (1,))
        rig.publish(messages(rng, 8), (1, 5), expiry_ms=1_900_000_000_000)
        rig.now_ms += 1_000
        rig.ack(rng.sample(sorted(rig.written), 15))
        if turn == 6:
            rig.store.checkpoint()
    return rig


def check(rows: list[dict[str, Any]], rig: DataRig) -> None:
    """Compare rows with what was published."""
    assert {key_of(row) for row in rows} == rig.written.keys()
    assert len(rows) == len(rig.written)
    for row in rows:
        origin, head, body = rig.written[key_of(row)]
        assert row["body"] == body
        assert row["body_size"] == len(body)
        assert row["properties_raw"] == head[12:]
        names = row["exchange"].encode(), row["routing_key"].encode()
        assert names == exchange_and_key(origin)
        number = rig.msg_nos[key_of(row)]
        assert row["msg_id"] == rig.opened.folder.uuid[:8] + number.to_bytes(8, "big")


# Against the broker.


async def publish_all(channel: Any) -> None:
    fanout = await channel.declare_exchange("both", aio_pika.ExchangeType.FANOUT, durable=True)
    for name in ("plain", "other"):
        queue = await channel.declare_queue(name, durable=True)
        await queue.bind(fanout)
    await channel.declare_queue("ranked", durable=True, arguments={"x-max-priority": 3})
    await channel.declare_queue("lazy", durable=True, arguments={"x-queue-mode": "lazy"})
    for number in range(60):
        more: dict[str, Any] = {}
        if number % 2:
            more["headers"] = RICH
        if number % 3:
            more |= {
                "content_type": "text/plain",
                "message_id": f"m{number}",
                "priority": number % 5,
            }
            more |= {"timestamp": datetime(2024, 1, 1, tzinfo=UTC), "correlation_id": "ü"}
        if number % 7 == 0:
            more["expiration"] = 86_400_000
        message = aio_pika.Message(
            b"%d" % number * (number * 10), delivery_mode=aio_pika.DeliveryMode.PERSISTENT, **more
        )
        exchange = fanout if number % 5 == 0 else channel.default_exchange
        await exchange.publish(message, ("plain", "ranked", "lazy")[number % 3])


async def delivered(channel: Any, name: str) -> list[Any]:
    queue = await channel.get_queue(name)
    found = []
    while (message := await queue.get(no_ack=True, fail=False)) is not None:
        found.append(message)
    return found


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, datetime):
        return str(int(value.timestamp()))
    return str(value)


async def test_rows_are_the_messages_that_the_broker_delivers_in_its_order(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with channel_of_broker(data) as channel:
        await publish_all(channel)
        path = await asyncio.to_thread(snapshot_of, data)
        names = ("plain", "other", "ranked", "lazy")
        wanted = {name: await delivered(channel, name) for name in names}
    rows = await asyncio.to_thread(rows_of, path)

    by_queue: dict[str, list[dict[str, Any]]] = {name: [] for name in wanted}
    for row in rows:
        by_queue[row["queue"]].append(row)
    assert sum(map(len, wanted.values())) == len(rows) == 72
    for name, found in by_queue.items():
        # A queue with priorities delivers the highest number first.
        found.sort(key=lambda row: (-row["queue_no"], row["seq_id"]))
        for row, message in zip(found, wanted[name], strict=True):
            compare(row, message)


def compare(row: dict[str, Any], message: Any) -> None:
    assert row["body"] == message.body
    assert (row["exchange"], row["routing_key"]) == (message.exchange, message.routing_key)
    properties = row["properties"]
    sent = message.properties
    for name in ("content_type", "correlation_id", "message_id", "expiration", "delivery_mode"):
        assert properties[name] == getattr(sent, name), name
    assert (properties["priority"] or 0) == (sent.priority or 0)
    assert properties["timestamp"] == sent.timestamp
    headers = dict(row["headers"] or [])
    assert headers.keys() == (sent.headers or {}).keys()
    for name in ("text", "number", "big", "yes", "none", "at"):
        if headers:
            assert headers[name] == text_of(sent.headers[name]), name
    if headers:
        assert headers["list"] == '[1, "a", {"deep": "x"}]'
        assert headers["table"] == '{"inner": [true]}'
        assert headers["real"] == "1.5"
    assert row["state"] == "ready"
    assert row["persistent"] is True
    assert (row["expires_at"] is None) == (sent.expiration is None)


async def test_a_stopped_broker_knows_what_it_had_handed_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with channel_of_broker(data) as channel:
        queue = await channel.declare_queue("plain", durable=True)
        for number in range(5):
            body = aio_pika.Message(b"%d" % number, delivery_mode=2)
            await channel.default_exchange.publish(body, "plain")
        for _ in range(2):
            await queue.get()
        await channel.close()
        running = await asyncio.to_thread(snapshot_of, data, "running")
    stopped = snapshot_of(data, "stopped")

    assert [row["redelivered"] for row in rows_of(running)] == [None] * 5
    assert [row["redelivered"] for row in rows_of(stopped)] == [True, True, False, False, False]


# Against what was written.


def test_all_that_was_written_is_read_from_many_segments(tmp_path: Path, rng: Any) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    path = snapshot_of(rig.data)

    rows = rows_of(path)

    assert len({row["segment"] for row in rows}) > 3
    check(rows, rig)
    for view in VIEWS:
        table = table_of(path, view=view)
        assert table.schema == arrow_schema(columns_of(view, None)) or not len(table)


@pytest.mark.parametrize("options", [
    {"batchRows": "7"},
    {"batchBytes": "2000"},
    {"maxPartitionBytes": "5000"},
    {"minPartitions": "23"},
    {"verifyCrc": "false"},
])  # fmt: skip
def test_how_it_is_cut_does_not_change_what_is_read(
    tmp_path: Path, rng: Any, options: dict[str, str]
) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    path = snapshot_of(rig.data)
    batches = list(read({"path": str(path), **options}))

    check([row for batch in batches for row in batch.to_pylist()], rig)
    if "batchRows" in options:
        assert max(batch.num_rows for batch in batches) == 7
    if "batchBytes" in options:
        sizes = [batch.column("length").to_pylist() for batch in batches]
        assert all(sum(each) <= 2_000 or len(each) == 1 for each in sizes)


def test_bytes_of_a_batch_are_those_of_what_is_read(tmp_path: Path, rng: Any) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    path = str(snapshot_of(rig.data))
    columns = "routing_key,properties_raw,length,body_size"

    batches = list(read({"path": path, "columns": columns, "batchBytes": "2000"}))

    sizes = [
        sum(row["length"] - row["body_size"] for row in batch.to_pylist()) for batch in batches
    ]
    assert all(
        size <= 2_000 or batch.num_rows == 1 for size, batch in zip(sizes, batches, strict=True)
    )
    assert sum(batch.num_rows for batch in batches) == len(rig.written)
    assert len(batches) < len(list(read({"path": path, "batchBytes": "2000"})))


def test_partitions_are_as_many_and_as_large_as_wanted(tmp_path: Path, rng: Any) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    path = str(snapshot_of(rig.data))

    def count(**options: str) -> int:
        return len(open_scan(ReadOptions.of({"path": path, **options})).partitions())

    assert count() == 1
    assert count(minPartitions="20") >= 20
    total = sum(file.stat().st_size for file in rig.segments())
    assert count(maxPartitionBytes="10000") >= total // 10_000
    assert count(queue="nobody") == 0


def test_a_store_that_a_crash_has_left_is_read_up_to_its_torn_end(
    tmp_path: Path, rng: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rig = filled(tmp_path / "data", rng)
    kept = dict(rig.written)
    rig.publish(messages(rng, 3), (1,))
    rig.crash()
    journal = max((rig.path / "journal").glob("*.jnl"))
    data = journal.read_bytes().rstrip(b"\0")
    journal.write_bytes(data[:-5])  # the frame of the last flush
    rig.written = kept
    path = snapshot_of(rig.data)

    scan = open_scan(ReadOptions.of({"path": str(path)}))

    assert f"torn_bytes={scan.snapshots[0].torn_bytes}" in caplog.text
    assert not scan.snapshots[0].is_clean
    assert scan.snapshots[0].torn_bytes > 0
    check([row for batch in scan.batches() for row in batch.to_pylist()], rig)
    assert [row["sealed"] for row in rows_of(path, view="segments")][-1] is False


@pytest.mark.parametrize("fate", ["cut", "zeroed"])
def test_messages_that_a_power_cut_has_left_in_the_journal_only_are_read(
    tmp_path: Path, rng: Any, fate: str
) -> None:
    rig = filled(tmp_path / "data", rng)
    for _ in range(5):
        rig.publish(messages(rng, 3), (1, 5))
    rig.crash()
    assert lose_inline(rig.path, fate)

    check(rows_of(snapshot_of(rig.data)), rig)


def test_rows_of_a_killed_broker_are_those_that_it_has_after_its_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    done = subprocess.run(
        [sys.executable, Path(__file__).parents[2] / "rigs/spark/killed_broker.py", str(data)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONSAFEPATH": "1"},
        check=False,
        timeout=60,
    )
    assert done.returncode == -9
    path = snapshot_of(data)
    rows = rows_of(path)

    async def after_restart() -> list[Any]:
        async with channel_of_broker(data) as channel:
            return await delivered(channel, "plain")

    wanted = asyncio.run(after_restart())
    assert not read_manifest(path).is_clean
    assert [row["body"] for row in rows] == [message.body for message in wanted]
    assert len(rows) >= 500


# Pruning.


def test_pruning_by_options_is_pruning_of_the_rows(tmp_path: Path, rng: Any) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    path = snapshot_of(rig.data)
    every = rows_of(path)
    times = sorted({row["enqueued_at"] for row in every})
    seq = sorted(row["seq_id"] for row in every if row["queue"] == "one")[100]
    low, high = times[3], times[7]
    tests: list[tuple[dict[str, str], Any]] = [
        ({"queue": "two"}, lambda row: row["queue"] == "two"),
        ({"queue": "t*,nobody"}, lambda row: row["queue"] == "two"),
        ({"queue": '["one"]'}, lambda row: row["queue"] == "one"),
        ({"vhost": "/"}, lambda row: True),
        ({"vhost": "v*"}, lambda row: False),
        ({"startingTimestamp": low.isoformat()}, lambda row: row["enqueued_at"] >= low),
        ({"startingTimestamp": str(int(low.timestamp() * 1000)), "endingTimestamp": high.isoformat()},
         lambda row: low <= row["enqueued_at"] < high),
        ({"startingSeqIds": f'{{"one": {seq}}}'}, lambda row: row["queue"] == "two" or row["seq_id"] >= seq),
        ({"endingSeqIds": f'{{"/": {{"one": {seq}}}}}'}, lambda row: row["queue"] == "two" or row["seq_id"] < seq),
        ({"endingSeqIds": f'{{"other": {{"one": {seq}}}}}'}, lambda row: True),
        ({"state": "ready"}, lambda row: True),
        ({"state": "acked"}, lambda row: False),
    ]  # fmt: skip
    for options, wanted in tests:
        for view in ("messages", "index"):
            found = {key_of(row) for row in rows_of(path, view=view, **options)}
            assert found == {key_of(row) for row in every if wanted(row)}, (view, options)


def test_a_narrow_window_opens_few_segments(tmp_path: Path, rng: Any) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    path = snapshot_of(rig.data)
    time = min(row["enqueued_at"] for row in rows_of(path))
    options = {"path": str(path), "endingTimestamp": str(int(time.timestamp() * 1000) + 1)}

    (partition,) = open_scan(ReadOptions.of(options)).partitions()

    assert 1 <= len(partition.slices) < len(rig.segments()) / 2


def test_columns_are_those_asked_for_in_the_order_of_the_view(tmp_path: Path, rng: Any) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    path = snapshot_of(rig.data)
    every = rows_of(path)

    for names in (["body", "queue"], ["headers"], ["seq_id"], ["routing_keys", "properties"]):
        found = table_of(path, columns=",".join(names))
        assert set(found.column_names) == set(names)
        assert found.to_pylist() == [
            {name: row[name] for name in found.column_names} for row in every
        ]


# Locators.


def test_locators_are_made_once_and_read_by_everybody_after(tmp_path: Path, rng: Any) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    path = snapshot_of(rig.data)
    first = rows_of(path)
    made = {file: file.stat().st_mtime_ns for file in (path / "locators").rglob("*")}
    shutil.rmtree(path / "vhosts" / rig.path.name / "store.lmdb")

    assert rows_of(path) == first
    assert {file: file.stat().st_mtime_ns for file in (path / "locators").rglob("*")} == made
    assert not list(path.glob(".locators*"))


def test_an_operator_makes_the_locators_beforehand(
    tmp_path: Path, rng: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    path = snapshot_of(rig.data)

    def located() -> tuple[int, str]:
        code = main(["snapshot", "locate", str(path)])
        return code, capsys.readouterr().out

    count, segments = len(rig.written), len(list(path.glob("vhosts/*/rdq/*")))
    assert located() == (0, f"{path}: located {count} messages in {segments} segments\n")
    rows = rows_of(path)
    lost = sum(row["segment"] == rows[0]["segment"] for row in rows)
    shutil.rmtree(path / "locators")
    segment_of(path, rows[0]).unlink()
    wanted = f"{path}: located {count} messages in {segments - 1} segments, {lost} messages cannot be read\n"
    assert located() == (1, wanted)
    assert main(["snapshot", "locate", "nowhere", "--data", str(rig.data)]) == 65


def test_a_snapshot_with_locators_is_verified_copied_and_restored_as_before(
    tmp_path: Path, rng: Any
) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    copy = snapshot_of(rig.data, "copied", tmp_path / "elsewhere")
    path = snapshot_of(rig.data)
    rows = rows_of(path)
    shutil.rmtree(rig.data / "vhosts")

    assert main(["snapshot", "verify", "one", "--data", str(rig.data)]) == 0
    restored = ["restore", "one", "--to", str(tmp_path / "new"), "--data", str(rig.data)]
    assert main(["snapshot", *restored]) == 0
    assert not (tmp_path / "new" / "locators").exists()
    assert rows_of(copy) == rows
    assert main(["snapshot", "drop", "one", "--data", str(rig.data)]) == 0
    assert not path.exists()


def test_snapshots_of_several_nodes_are_read_together_and_one_twice_is_refused(
    tmp_path: Path, rng: Any
) -> None:
    paths = []
    for name in ("a", "b"):
        rig = filled(tmp_path / name, rng)
        rig.stop()
        (rig.data / "node").write_text(NODE.replace("c0de", "c0d" + name))
        paths.append(str(snapshot_of(rig.data)))
    alone = [len(rows_of(Path(path))) for path in paths]

    batches = list(read({"path": paths[0], "paths": f'["{paths[1]}"]'}))

    assert sum(batch.num_rows for batch in batches) == sum(alone)
    assert len({row["node"] for batch in batches for row in batch.to_pylist()}) == 2
    with pytest.raises(NotASnapshot, match="both hold vhost '/'"):
        list(read({"path": paths[0], "paths": f'["{paths[0]}"]'}))


def test_a_store_and_its_restored_copy_are_read_both_and_the_log_says_so(
    tmp_path: Path, rng: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    first = snapshot_of(rig.data)
    assert main(["snapshot", "restore", str(first), "--to", str(tmp_path / "data2")]) == 0
    (tmp_path / "data2" / "node").write_text(NODE.replace("c0de", "c0df") + "\n")
    second = snapshot_of(tmp_path / "data2")

    rows = list(read({"path": str(first), "paths": f'["{second}"]'}))

    assert sum(batch.num_rows for batch in rows) == 2 * len(rig.written)
    assert f"are read twice vhost=/ paths={first},{second}" in caplog.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, rng: Any) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    path = snapshot_of(rig.data)
    path.chmod(0o500)

    with pytest.raises(StoreError, match="make it as a user who may write there"):
        rows_of(path)


# Damage.


def damaged(tmp_path: Path, rng: Any) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    path = snapshot_of(rig.data)
    rows = rows_of(path)
    victim = next(row for row in rows if row["queue"] == "one" and row["body_size"] >= 300)
    return path, victim, rows


def segment_of(path: Path, row: dict[str, Any]) -> Path:
    (found,) = path.glob(f"vhosts/*/rdq/{row['segment']:08x}.rdq")
    return found


def test_a_damaged_body_is_an_error_that_names_the_message_or_left_out(
    tmp_path: Path, rng: Any
) -> None:
    path, victim, rows = damaged(tmp_path, rng)
    flip(segment_of(path, victim), victim["offset"] + victim["length"] - 1)

    with pytest.raises(
        DataLoss, match=f"segment {victim['segment']:08x}, offset {victim['offset']}"
    ):
        rows_of(path)
    left = rows_of(path, failOnDataLoss="false")
    assert [key_of(row) for row in left] == [
        key_of(row) for row in rows if row["msg_id"] != victim["msg_id"]
    ]
    assert len(rows_of(path, verifyCrc="false")) == len(rows)
    assert len(rows_of(path, columns="queue")) == len(rows)
    bad = [row for row in rows_of(path, view="records") if not row["crc_ok"]]
    assert [(row["segment"], row["offset"]) for row in bad] == [
        (victim["segment"], victim["offset"])
    ]


def test_a_segment_that_vanished_is_named(tmp_path: Path, rng: Any) -> None:
    path, victim, rows = damaged(tmp_path, rng)
    segment_of(path, victim).unlink()

    with pytest.raises(DataLoss, match=f"segment {victim['segment']:08x}.*the segment is missing"):
        rows_of(path)
    with pytest.raises(DataLoss, match="it is missing"):
        rows_of(path, view="records")
    left = rows_of(path, failOnDataLoss="false")
    assert len(left) == sum(row["segment"] != victim["segment"] for row in rows)


def test_what_was_lost_before_the_locators_were_made_is_lost_in_them(
    tmp_path: Path, rng: Any
) -> None:
    path, victim, rows = damaged(tmp_path, rng)
    shutil.rmtree(path / "locators")
    flip(segment_of(path, victim), victim["offset"] + 34)  # the magic

    with pytest.raises(DataLoss, match="no segment"):
        rows_of(path)
    with pytest.raises(DataLoss):
        rows_of(path, columns="queue")
    assert len(rows_of(path, failOnDataLoss="false")) < len(rows)
    lost = [row for row in rows_of(path, view="index") if not row["in_store"]]
    assert {row["msg_id"] for row in lost} == {victim["msg_id"]}
    assert {row["enqueued_at"] for row in lost} == {None}


# Other views.


def test_records_are_all_that_the_segments_hold(tmp_path: Path, rng: Any) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    path = snapshot_of(rig.data)

    records = rows_of(path, view="records", batchRows=11, maxPartitionBytes=7_000)

    counts: dict[bytes, int] = {}
    for row in rows_of(path):
        counts[row["msg_id"]] = counts.get(row["msg_id"], 0) + 1
    assert {row["msg_id"]: row["refcount"] for row in records if row["refcount"]} == counts
    assert any(row["refcount"] is None for row in records)
    assert len({row["msg_id"] for row in records}) == len(records)
    assert {row["exchange"] for row in records} == {"x"}


def test_segments_and_queues_add_up(tmp_path: Path, rng: Any) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    path = snapshot_of(rig.data)
    rows = rows_of(path)

    segments = rows_of(path, view="segments")
    queues = {row["queue"]: row for row in rows_of(path, view="queues")}

    assert sum(row["rows"] for row in segments) == len(rows)
    live = {row["msg_id"]: row["length"] for row in rows}
    assert sum(row["live_bytes"] for row in segments) == sum(live.values())
    assert {row["size"] for row in segments} <= {file.stat().st_size for file in rig.segments()}
    for name, queue in queues.items():
        seqs = [row["seq_id"] for row in rows if row["queue"] == name]
        assert (queue["depth"], queue["first_seq"], queue["last_seq"]) == (
            len(seqs), min(seqs), max(seqs),
        )  # fmt: skip
    assert rows_of(path, view="queues", queue="t*") == [queues["two"]]


# Archive, and the manifest.


def retain(path: Path, *names: str) -> None:
    """Have the manifest say that queues retain messages."""
    manifest = json.loads((path / "MANIFEST.json").read_text())
    for queue in (queue for store in manifest["stores"] for queue in store["queues"]):
        if queue["name"] in names:
            queue["retention_ms"] = 3_600_000
    (path / "MANIFEST.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("levels", [1, 4])
def test_the_archive_has_acked_messages_of_queues_that_retain_them(
    tmp_path: Path, levels: int
) -> None:
    rig = DataRig(tmp_path / "data", {"one": 1, "two": 5}, levels=levels)
    shift = (levels - 1) << 32
    route, level = (1 | shift, 5 | shift), 2 if levels > 1 else 0
    head = head_of(Properties(priority=2), 4)
    first = rig.core.write([(origin_of(b"x", b"k"), head, b"b%03d" % n) for n in range(10)], route)
    one, two = 1 + level, 5 + level
    for queue_no, routed_as in zip((one, two), route, strict=True):
        rig.core.publish(queue_no, 0, [(first + n, 0) for n in range(10)], routed_as=routed_as)
    rig.store.flush()
    for n in range(4):
        rig.core.ack(one, [(n, first + n)])
    rig.core.ack(two, [(9, first + 9)])
    rig.store.flush()
    rig.stop()
    path = snapshot_of(rig.data)
    assert rows_of(path, view="archive") == []
    shutil.rmtree(path / "locators")
    retain(path, "one")

    found = rows_of(path, view="archive")

    states = {int(row["body"][1:]): row["state"] for row in found}
    assert states == {n: "acked" if n < 4 else "ready" for n in range(10)}
    assert {row["queue"] for row in found} == {"one"}
    assert {row["queue_no"] for row in found} == {one}
    assert [row["seq_id"] is None for row in found] == [row["state"] == "acked" for row in found]
    acked = rows_of(path, view="archive", state="acked")
    assert [row["body"] for row in acked] == [b"b%03d" % n for n in range(4)]
    assert len(rows_of(path)) == 6 + 9
    depths = {row["queue"]: row["depth"] for row in rows_of(path, view="queues")}
    assert depths == {"one": 6, "two": 9}


def test_the_reader_and_the_writer_of_manifests_agree(tmp_path: Path, rng: Any) -> None:
    rig = filled(tmp_path / "data", rng)
    rig.stop()
    path = snapshot_of(rig.data)

    written, found = written_manifest.read(path), read_manifest(path)

    assert (found.name, found.node, found.created_ms) == (
        written.name, written.node, written.created_ms,
    )  # fmt: skip
    for ours, theirs in zip(found.stores, written.stores, strict=True):
        assert (ours.vhost, ours.folder, ours.uuid.hex()) == (
            theirs.vhost, theirs.folder, theirs.uuid,
        )  # fmt: skip
        assert list(ours.segments.values()) == [each.size_bytes for each in theirs.segments]
        assert [(each.name, list(each.queue_nos)) for each in ours.queues] == [
            (each.name, each.queue_nos) for each in theirs.queues
        ]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text[:-20], "MANIFEST.json is damaged"),
        (lambda text: text.replace('"format":1', '"format":9'), "has format 9, known are up to 1"),
        (lambda text: text.replace('"stores"', '"shops"'), "KeyError 'stores'"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_named(tmp_path: Path, change: Any, why: str) -> None:
    rig = DataRig(tmp_path / "data", {"one": 1})
    rig.stop()
    path = snapshot_of(rig.data)
    file = path / "MANIFEST.json"
    file.write_text(change(file.read_text()))

    with pytest.raises(StoreError, match=why):
        rows_of(path)


def test_paths_that_are_no_snapshot_say_what_to_do(tmp_path: Path) -> None:
    rig = DataRig(tmp_path / "data", {"one": 1})
    rig.stop()
    snapshot_of(rig.data)

    with pytest.raises(NotASnapshot, match=f"leveret snapshot create NAME --data {rig.data}"):
        rows_of(rig.data)
    with pytest.raises(NotASnapshot, match="has snapshots, load one of them: one"):
        rows_of(rig.data / "snapshots")
    with pytest.raises(NotASnapshot, match="does not exist"):
        rows_of(tmp_path / "nowhere")
    with pytest.raises(NotASnapshot, match="leveret snapshot create --copy DIR"):
        list(read({"path": "s3a://bucket/one"}))
    assert list(read({"path": f"file://{rig.data}/snapshots/one"})) == []
