"""``format("leveret")`` in a session of Spark, against the same snapshots read without it.

Tests: spark/spark_session.py
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from leveret.spark import read_snapshot, register
from leveret.spark.scan.schema import VIEWS, arrow_schema, ddl
from rigs.spark.messages import messages
from rigs.spark.snapshots import NODE, DataRig, rows_of, snapshot_of
from rigs.store.offline.offline_rig import flip

pytestmark = pytest.mark.spark

START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def filled(data: Path, vhost: str = "/") -> DataRig:
    rng = random.Random(7)
    rig = DataRig(data, {"one": 1, "two": 2, "t[w]o": 3}, vhost, rdq_file_bytes=60_000)
    for _ in range(10):
        rig.publish(messages(rng, 40), (1,))
        rig.publish(messages(rng, 10), (1, 2, 3))
        rig.now_ms += 1_000
    rig.stop()
    return rig


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return snapshot_of(filled(tmp_path_factory.mktemp("source") / "data").data)


def plain(value: Any) -> Any:
    """Return a value of a row in the form that Arrow gives it."""
    if isinstance(value, dict):
        return sorted(value.items())
    if hasattr(value, "asDict"):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, datetime):  # Spark gives the local time without its zone
        return value.astimezone(UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def key(row: dict[str, Any]) -> Any:
        return tuple(str(row.get(name)) for name in ("queue", "seq_id", "msg_id", "segment"))

    return sorted(rows, key=key)


def arrow_plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        if row.get("headers") is not None:
            row["headers"] = sorted(row["headers"])
    return rows


@pytest.mark.parametrize("view", list(VIEWS))
def test_every_view_is_what_the_scan_without_spark_reads(
    spark: Any, snapshot: Path, view: str
) -> None:
    cut = {} if view in {"segments", "queues"} else {"maxPartitionBytes": "100k"}
    frame = read_snapshot(spark, snapshot, view=view, **cut)

    rows = [{name: plain(row[name]) for name in frame.columns} for row in frame.collect()]

    assert sorted_rows(rows) == sorted_rows(arrow_plain(rows_of(snapshot, view=view)))
    assert frame.columns == [column.name for column in VIEWS[view]]
    assert view == "archive" or rows


def test_the_types_promised_to_spark_are_those_that_are_sent(spark: Any) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    for columns in VIEWS.values():
        promised = to_arrow_schema(StructType.fromDDL(ddl(columns)), timezone="UTC")
        assert promised == arrow_schema(columns)


CONDITIONS = [
    ("queue = 'two'", lambda row: row["queue"] == "two"),
    ("queue in ('two', 'nobody')", lambda row: row["queue"] == "two"),
    ("queue like 't[%'", lambda row: row["queue"] == "t[w]o"),
    ("vhost = 'other'", lambda row: False),
    ("state = 'ready'", lambda row: True),
    ("enqueued_at >= timestamp'2023-11-14 22:13:23Z' and enqueued_at < timestamp'2023-11-14 22:13:25Z'",
     lambda row: 3 <= (row["enqueued_at"] - START).total_seconds() < 5),
    ("enqueued_at > timestamp'2023-11-14 22:13:23Z' and enqueued_at <= timestamp'2023-11-14 22:13:25Z'",
     lambda row: 3 < (row["enqueued_at"] - START).total_seconds() <= 5),
    ("enqueued_at > timestamp'2023-11-14 22:13:22.999999Z' and queue = 'one' or seq_id < 0",
     lambda row: row["queue"] == "one" and (row["enqueued_at"] - START).total_seconds() > 2),
    ("queue = 'one' and seq_id >= 1099511627786 and seq_id <= 1099511627790",
     lambda row: row["queue"] == "one" and 10 <= row["seq_id"] - (1 << 40) <= 14),
    ("seq_id = 1099511627786", lambda row: row["seq_id"] - (1 << 40) == 10),
]  # fmt: skip


@pytest.mark.parametrize("is_on", ["true", "false"])
def test_pushed_filters_rule_out_rows_and_no_row_that_is_wanted(
    spark: Any, snapshot: Path, is_on: str
) -> None:
    rows = rows_of(snapshot)
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, is_on)
    try:
        for condition, wanted in CONDITIONS:
            frame = read_snapshot(spark, snapshot, columns="vhost,queue,seq_id,state,enqueued_at")
            expected = sorted((row["queue"], row["seq_id"]) for row in rows if wanted(row))
            found = frame.where(condition).select("queue", "seq_id").collect()
            assert sorted(map(tuple, found)) == expected, condition
    finally:
        spark.conf.set(setting, before)


def test_a_filter_reaches_the_reader(spark: Any, snapshot: Path) -> None:
    """Partitions are what the reader has planned: a queue with no message needs none, which is one for Spark."""
    frame = read_snapshot(spark, snapshot, maxPartitionBytes="50k")

    assert frame.rdd.getNumPartitions() > 5
    assert frame.where("queue = 'nobody'").rdd.getNumPartitions() == 1
    narrow = frame.where(frame.enqueued_at == START)
    assert narrow.rdd.getNumPartitions() < frame.rdd.getNumPartitions() / 2


def test_options_and_columns(spark: Any, snapshot: Path) -> None:
    until = (START + timedelta(seconds=3)).isoformat()

    frame = read_snapshot(
        spark, snapshot, queue="tw*", endingTimestamp=until, columns="body,queue", verifyCrc=False
    )

    wanted = [row["body"] for row in rows_of(snapshot, queue="two", endingTimestamp=until)]
    assert frame.columns == ["queue", "body"]
    assert sorted(bytes(row.body) for row in frame.collect()) == sorted(wanted)
    assert len(wanted) == 30


def test_snapshots_of_several_nodes_in_one_read(spark: Any, snapshot: Path, tmp_path: Path) -> None:
    other = filled(tmp_path / "data", "other")
    (other.data / "node").write_text(NODE.replace("c0de", "beef"))
    paths = snapshot, snapshot_of(other.data)

    frame = read_snapshot(spark, *paths, view="index")

    counts = {row.vhost: row["count"] for row in frame.groupBy("vhost").count().collect()}
    assert counts == {"/": 700, "other": 700}


REFUSED = [
    ({"quue": "x"}, "option 'quue' is unknown; did you mean queue?"),
    ({"view": "queus"}, "view 'queus' is unknown"),
    ({"columns": "body,size"}, "view messages has no column 'size'"),
    ({"view": "queues", "startingTimestamp": "0"}, "option startingTimestamp has no effect on view queues"),
    ({"batchRows": "many"}, "option batchRows is 'many', it must be a number from 1 to 1000000"),
]  # fmt: skip


def test_what_cannot_be_accepted_is_refused_by_load(spark: Any, snapshot: Path) -> None:
    for options, why in REFUSED:
        with pytest.raises(Exception, match="OptionError") as caught:
            read_snapshot(spark, snapshot, **options)
        assert why in str(caught.value)


def test_a_live_data_directory_is_refused_with_the_command_to_run(
    spark: Any, snapshot: Path
) -> None:
    data = snapshot.parents[1]

    with pytest.raises(Exception, match="NotASnapshot") as caught:
        spark.read.format("leveret").load(str(data)).count()  # a stream may load it

    assert f"leveret snapshot create NAME --data {data}" in str(caught.value)


def test_another_schema_is_refused(spark: Any, snapshot: Path) -> None:
    frame = spark.read.format("leveret").schema("queue string, body string")

    with pytest.raises(Exception, match="the schema that was given is not that of view messages"):
        frame.load(str(snapshot)).count()


def test_a_damaged_message_fails_the_query_with_its_place(spark: Any, tmp_path: Path) -> None:
    path = snapshot_of(filled(tmp_path / "data").data)
    victim = next(row for row in rows_of(path) if row["body_size"] == 3_000)
    (segment,) = path.glob(f"vhosts/*/rdq/{victim['segment']:08x}.rdq")
    flip(segment, victim["offset"] + victim["length"] - 1)

    with pytest.raises(Exception, match="DataLoss") as caught:
        read_snapshot(spark, path).write.format("noop").mode("overwrite").save()
    left = read_snapshot(spark, path, failOnDataLoss=False).count()

    assert f"segment {victim['segment']:08x}, offset {victim['offset']}" in str(caught.value)
    assert 697 <= left < 700


def test_registering_twice_does_no_harm(spark: Any, snapshot: Path) -> None:
    register(spark)

    assert spark.read.format("leveret").option("VIEW", "queues").load(str(snapshot)).count() == 3


def test_the_result_as_an_arrow_table(spark: Any, snapshot: Path) -> None:
    table = read_snapshot(spark, snapshot, columns="queue,headers,body").toArrow()

    assert isinstance(table, pa.Table)
    assert table.num_rows == 700
