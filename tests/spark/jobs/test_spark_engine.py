"""The jobs in Spark do what the local engine does.

Tests: spark/jobs/engine.py, spark/jobs/parquet/export_spark.py,
    spark/jobs/parquet/ingest_spark.py, spark/jobs/replay/replay_spark.py, spark/jobs/running.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from leveret.core.errors import ConfigError, LeveretError
from leveret.spark import (
    Dlq,
    Export,
    Import,
    Replay,
    Rewrite,
    Selection,
    Stats,
    dlq,
    export,
    ingest,
    replay,
    stats,
)
from leveret.spark.errors import NothingSelected
from leveret.testing.vhost import FreshVhost
from rigs.spark.jobs import dead_letters, declare, stored_snapshot

pytestmark = [pytest.mark.spark]

TO_Q = Rewrite(exchange="", routing_key="q")


@pytest.mark.slow
def test_a_replay_with_sql_and_a_ledger_sends_each_message_once_in_order(
    spark: Any, amqp_broker: FreshVhost, tmp_path: Path
) -> None:
    declare(amqp_broker, "q")
    path = stored_snapshot(tmp_path / "data", levels=2)
    chosen = Selection(
        (str(path),), routing_keys=("key.[0-3]",), where="length(body) > 1 and headers['n'] is null"
    )
    write = {"uri": amqp_broker.url, "ledger": str(tmp_path / "ledger")}
    job = Replay(chosen, TO_Q, write, publishers=2)

    dry = replay(job, is_dry_run=True, spark=spark)
    report = replay(job, spark=spark)
    again = replay(job, spark=spark)

    wanted = [number for number in range(10, 60) if number % 3 and number % 5 < 4]
    found = [int(body) for body in amqp_broker.queue("q").bodies]
    assert sorted(found) == wanted
    west = [number for number in found if number % 2]
    assert west == sorted(west)
    assert dry.counts["selected"] == report.counts["sent"] == len(wanted)
    assert dry.details["destinations"] == [
        {"exchange": "", "routing_key": "q", "messages": len(wanted), "body_bytes": 2 * len(wanted)}
    ]
    assert (report.engine, report.counts["body_bytes"]) == ("spark", 2 * len(wanted))
    assert (again.counts["sent"], again.counts["skipped"]) == (0, len(wanted))


def test_dead_letters_go_back_in_spark_as_they_do_without(
    spark: Any, amqp_broker: FreshVhost, tmp_path: Path
) -> None:
    path = dead_letters(tmp_path / "data")
    declare(amqp_broker, orders=["q"])
    chosen = Selection((str(path),), queues=("dead",), death_reason="rejected")
    job = Replay(chosen, Rewrite(to_original=True), {"uri": amqp_broker.url})

    report = replay(job, spark=spark)
    counted = dlq(Dlq(chosen), spark=spark)

    assert counted.details == dlq(Dlq(chosen)).details
    every = Stats(Selection((str(path),)))
    assert stats(every, spark=spark).details == stats(every).details
    found = {each.body: each.routing_key for each in amqp_broker.queue("q").messages()}
    assert found == {b"once": "eu.1", b"copied": "eu.3", b"cycle": "eu.2"}
    assert (report.counts["selected"], report.counts["left_out"], report.exit_code) == (3, 0, 0)


@pytest.mark.slow
def test_an_export_is_imported_in_spark(
    spark: Any, amqp_broker: FreshVhost, tmp_path: Path
) -> None:
    declare(amqp_broker, orders=["q"])
    path, target = stored_snapshot(tmp_path / "data", 20), tmp_path / "out"
    job = Export(Selection((str(path),), where="body_size > 1"), str(target))
    write = {"uri": amqp_broker.url, "ledger": str(tmp_path / "ledger")}
    back = Import((str(target),), write, publishers=2)

    dry = export(job, is_dry_run=True, spark=spark)
    report = export(job, spark=spark)
    counted = ingest(back, is_dry_run=True, spark=spark)
    sent, again = ingest(back, spark=spark), ingest(back, spark=spark)

    folders = {file.parent.relative_to(target).as_posix() for file in target.rglob("*.parquet")}
    assert folders == {f"vhost=%2F/queue={name}/date=2023-11-14" for name in ("east", "west")}
    assert (dry.counts["rows"], report.counts["rows"], report.counts["body_bytes"]) == (10, 10, 20)
    assert counted.counts["selected"] == sent.counts["sent"] == again.counts["skipped"] == 10
    assert sorted(amqp_broker.queue("q").bodies) == [b"%d" % number for number in range(10, 20)]
    with pytest.raises(ConfigError, match="is there already"):
        export(job, spark=spark)


def test_what_spark_cannot_do_is_one_line_without_its_trace(
    spark: Any, amqp_broker: FreshVhost, tmp_path: Path
) -> None:
    path = str(stored_snapshot(tmp_path / "data", 4))
    to = {"uri": amqp_broker.url}

    with pytest.raises(ConfigError, match=r"colour.*cannot be resolved"):
        replay(Replay(Selection((path,), where="colour = 1"), TO_Q, to), spark=spark)
    with pytest.raises(
        LeveretError, match=r"no queue took the message.*routing key .nowhere"
    ) as caught:
        replay(Replay(Selection((path,)), Rewrite("", "nowhere"), to), spark=spark)

    assert "\n" not in str(caught.value)


def test_a_misspelt_queue_is_an_error_before_spark_begins(spark: Any, tmp_path: Path) -> None:
    path = str(stored_snapshot(tmp_path / "data", 4))

    with pytest.raises(NothingSelected, match="'ordrs' fits none of the snapshot"):
        export(Export(Selection((path,), queues=("ordrs",)), str(tmp_path / "out")), spark=spark)
