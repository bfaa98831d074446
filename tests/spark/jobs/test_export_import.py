"""Messages to Parquet, and rows of Parquet to messages.

Tests: msg_store/offline/packed.py, spark/jobs/parquet/export.py,
    spark/jobs/parquet/export_plan.py, spark/jobs/parquet/import_plan.py,
    spark/jobs/parquet/ingest.py, spark/jobs/parquet/rows.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from leveret.core.errors import ConfigError
from leveret.spark import Export, Import, Selection, export, ingest
from leveret.spark.publish.errors import Unroutable
from leveret.spark.scan.schema import MESSAGES, arrow_schema
from leveret.testing.vhost import FreshVhost
from rigs.spark.jobs import declare, message, stored_snapshot
from rigs.spark.snapshots import rows_of
from rigs.wire.scripted_broker import scripted

HIVE = ds.partitioning(
    pa.schema([("vhost", pa.string()), ("queue", pa.string()), ("date", pa.string())]),
    flavor="hive",
)


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet"))


def test_an_export_has_all_columns_in_folders_by_vhost_queue_and_day(tmp_path: Path) -> None:
    path, target = stored_snapshot(tmp_path / "data"), tmp_path / "out"

    report = export(Export(Selection((str(path),)), str(target)))

    day = "date=2023-11-14"
    assert files_in(target) == [
        f"vhost=%2F/queue={name}/{day}/part-0.parquet" for name in ("east", "west")
    ]
    table = ds.dataset(target, partitioning=HIVE).to_table().drop_columns(["date"])
    assert table.select([column.name for column in MESSAGES]).schema == arrow_schema(MESSAGES)
    key = ("queue_no", "seq_id")
    found = sorted(table.to_pylist(), key=lambda row: [row[name] for name in key])
    assert found == sorted(rows_of(path), key=lambda row: [row[name] for name in key])
    assert (report.counts["rows"], report.counts["body_bytes"], report.counts["files"]) == (
        60,
        110,
        2,
    )
    assert report.counts["file_bytes"] > 1000
    assert not list(tmp_path.glob("*.draft"))


def test_columns_folders_and_filters_are_chosen(tmp_path: Path) -> None:
    path, target = stored_snapshot(tmp_path / "data"), tmp_path / "out"
    chosen = Selection((str(path),), queues=("east",), routing_keys=("key.2",))
    job = Export(chosen, str(target), ("body", "seq_id"), ("date",))

    dry = export(job, is_dry_run=True)
    assert not target.exists()
    report = export(job)

    (name,) = files_in(target)
    file = pq.ParquetFile(target / name)
    assert name == "date=2023-11-14/part-0.parquet"
    assert file.schema_arrow.names == ["seq_id", "body"]
    bodies = [int(body) for body in file.read().column("body").to_pylist()]
    assert bodies == [*range(2, 60, 10)]
    assert dry.counts == {"rows": 6, "body_bytes": 11, "folders": 1}
    assert dry.details["folders"] == [{"date": "2023-11-14", "rows": 6}]
    assert report.counts["rows"] == 6


def test_an_export_of_nothing_is_an_empty_folder(tmp_path: Path) -> None:
    path, target = stored_snapshot(tmp_path / "data", 0), tmp_path / "out"
    target.mkdir()

    report = export(Export(Selection((str(path),), queues=("east",)), str(target)))

    assert (report.counts["rows"], files_in(target)) == (0, [])
    assert target.is_dir()


def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    path, target = stored_snapshot(tmp_path / "data"), tmp_path / "out"
    rows_of(path)
    sorted(path.glob("vhosts/*/rdq/*"))[1].unlink()
    job = Export(Selection((str(path),)), str(target))

    with pytest.raises(Exception, match="the segment is missing"):
        export(job)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data"]
    report = export(Export(Selection((str(path),), fail_on_data_loss=False), str(target)))

    assert report.counts["unreadable"] + report.counts["rows"] == 60
    assert report.exit_code == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"target": "s3a://b/x"}, "the local engine writes to folders only"),
        ({"partition_by": ("hour",)}, "'hour' makes no folders"),
        ({"columns": ("colour",)}, "no column 'colour'"),
        ({"target": "."}, "is there already"),
    ],
)
def test_a_wrong_export_is_refused(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    path = stored_snapshot(tmp_path / "data", 2)

    with pytest.raises(ConfigError, match=text):
        export(Export(**{"selection": Selection((str(path),)), "target": "new"} | change))


def test_an_export_is_imported_byte_for_byte_in_the_order_of_its_queues(tmp_path: Path) -> None:
    path, target = stored_snapshot(tmp_path / "data", 20), tmp_path / "out"
    export(Export(Selection((str(path),)), str(target)))

    with scripted() as broker:
        write = {"uri": broker.uri, "ledger": str(tmp_path / "ledger")}
        job = Import((str(target),), write)
        report, again = ingest(job), ingest(job)

    wanted = [message(number) for number in (*range(0, 20, 2), *range(1, 20, 2))]
    assert [(origin, head[12:], body) for origin, head, body in broker.messages] == [
        (origin, head[12:], body) for origin, head, body in wanted
    ]
    assert (report.counts["sent"], report.counts["selected"]) == (20, 20)
    assert (again.counts["sent"], again.counts["skipped"]) == (0, 20)
    assert {"store_id", "seq_id", "properties"} <= set(report.details["left_out_columns"])


def table(folder: Path, name: str = "rows.parquet", **columns: list[Any]) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)
    return file


def test_any_rows_become_messages(amqp_broker: FreshVhost, tmp_path: Path) -> None:
    declare(amqp_broker, "q", "r")
    headers = pa.array([[("a", "1")], []], pa.map_(pa.string(), pa.string()))
    table(
        tmp_path / "in",
        "routing_key=q/a.parquet",
        payload=["text", "ünï"],
        headers_set=headers,
        n=[1, 2],
    )
    table(tmp_path / "in", "routing_key=r/b.parquet", payload=["last"], n=[3])
    table(tmp_path / "in", "_temporary/c.parquet", payload=["no data"], n=[4])
    job = Import(
        (str(tmp_path / "in"),),
        {"uri": amqp_broker.url, "exchange": ""},
        (("body", "payload"),),
        publishers=2,
    )

    dry, report = ingest(job, is_dry_run=True), ingest(job)

    assert dry.details["destinations"] == [
        {"exchange": "", "routing_key": "q", "messages": 2, "body_bytes": 9},
        {"exchange": "", "routing_key": "r", "messages": 1, "body_bytes": 4},
    ]
    assert report.details["left_out_columns"] == ["n"]
    first, second = amqp_broker.queue("q").messages()
    assert (first.body, first.headers, second.body) == (b"text", {"a": "1"}, "ünï".encode())
    assert first.properties["delivery_mode"] == 2
    assert amqp_broker.queue("r").bodies == [b"last"]


def test_an_import_that_failed_goes_on_behind_its_ledger(
    amqp_broker: FreshVhost, tmp_path: Path
) -> None:
    declare(amqp_broker, "q")
    keys = ["q"] * 30 + ["none"]
    file = table(tmp_path, body=[b"%d" % number for number in range(31)], routing_key=keys)
    write = {
        "uri": amqp_broker.url,
        "exchange": "",
        "ledger": str(tmp_path / "l"),
        "ledgerStep": "10",
        "window": "1",
    }
    job = Import((str(file),), write)

    with pytest.raises(Unroutable, match=r"rows\.parquet"):
        ingest(job)
    declare(amqp_broker, "none")
    report = ingest(job)

    assert report.counts["skipped"] == 30
    assert amqp_broker.queue("q").depth == 30
    assert amqp_broker.queue("none").depth == 1
    table(tmp_path, body=[b"other"], routing_key=["q"])
    with pytest.raises(Exception, match="belongs to another job"):
        ingest(job)


@pytest.mark.parametrize(
    ("columns", "given", "text"),
    [
        ({"payload": ["x"]}, {}, "column body is missing"),
        ({"body": [5], "exchange": ["x"], "routing_key": ["k"]}, {}, "column body is int64"),
        ({"body": ["x"]}, {}, "neither a column nor an option exchange"),
        ({"body": ["x"]}, {"columns": (("body", "gone"),)}, "there is no column 'gone'"),
        ({"body": ["x"]}, {"columns": (("colour", "body"),)}, "the sink has no column 'colour'"),
        ({"body": ["x"]}, {"paths": ()}, "no file is given"),
        ({"body": ["x"]}, {"paths": ("nowhere",)}, "nowhere does not exist"),
        ({"body": ["x"]}, {"paths": ("empty",)}, "no files"),
        ({"body": ["x"]}, {"paths": ("text",)}, "is no Parquet file"),
        ({"body": ["x"]}, {"paths": ("rows.parquet", "a/rows.parquet")}, "have the same name"),
    ],
)
def test_a_wrong_import_is_refused_before_anything_is_sent(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    columns: dict[str, list[Any]],
    given: dict[str, Any],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path, **columns)
    table(tmp_path / "a", **columns)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("text")
    write = {"uri": "amqp://127.0.0.1:1"}

    with pytest.raises(ConfigError, match=text):
        ingest(Import(**{"paths": ("rows.parquet",), "write": write} | given))


def test_plans_of_ledgers_name_files_and_columns(tmp_path: Path) -> None:
    job = Import(("a",), {"uri": "amqp://h", "ledger": "l"}, (("body", "b"),))

    plan = json.loads(job.write_options([["a", 5, 1]])["plan"])

    assert plan == ["import", [["a", 5, 1]], [["body", "b"]], 1]
