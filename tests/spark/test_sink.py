"""The sink in Spark: tasks that are killed, streams that start again, options that are refused."""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

pytest.importorskip("pyspark")

from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from leveret.spark import read_snapshot, sink
from leveret.testing.vhost import FreshVhost
from rigs.spark.messages import messages
from rigs.spark.snapshots import DataRig, snapshot_of

pytestmark = [pytest.mark.spark]

# Spark's processes cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

FORMAT = "leveret-sink"
WINDOW, STEP = 100, 50
DIE_AT = 700


class SinkSource(DataSource):
    """The sink alone."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return sink.batch_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return sink.stream_writer(schema, self.options, overwrite)


class DyingWriter(DataSourceArrowWriter):
    """A writer whose process ends in the middle of each partition's first attempt."""

    def __init__(self, writer: DataSourceArrowWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None

        def batches() -> Iterator[Any]:
            rows = 0
            for batch in iterator:
                for start in range(0, batch.num_rows, 64):
                    if rows >= DIE_AT and task.attemptNumber() == 0:
                        os._exit(1)
                    part = batch.slice(start, 64)
                    rows += part.num_rows
                    yield part

        return self._writer.write(batches())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.commit(messages)


class DyingSource(SinkSource):
    @classmethod
    def name(cls) -> str:
        return "leveret-dying-sink"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return DyingWriter(super().writer(schema, overwrite))


@pytest.fixture
def session(spark: Any) -> Any:
    spark.dataSource.register(SinkSource)
    spark.dataSource.register(DyingSource)
    return spark


@pytest.fixture
def to(amqp_broker: FreshVhost, tmp_path: Path) -> dict[str, str]:
    """Options of a write into queue ``q``."""
    connection = pika.BlockingConnection(pika.URLParameters(amqp_broker.url))
    connection.channel().queue_declare("q")
    connection.close()
    file = tmp_path / "uri"
    file.write_text(amqp_broker.url)
    return {"uriFile": str(file), "exchange": "", "routingKey": "q"}


def rows(session: Any, count: int, partitions: int = 2) -> Any:
    """Rows of two source queues, one in each partition, sorted by their keys."""
    return session.range(0, count, 1, partitions).selectExpr(
        "cast(cast(id as string) as binary) body", "'/' vhost",
        f"concat('queue', cast(floor(id * {partitions} / {count}) as string)) queue", "id seq_id",
    )  # fmt: skip


def numbers(broker: FreshVhost) -> Counter[int]:
    return Counter(int(body) for body in broker.queue("q").bodies)


def write(frame: Any, options: dict[str, str], name: str = FORMAT) -> None:
    frame.write.format(name).options(**options).mode("append").save()


def test_a_snapshot_is_read_and_published_by_one_format_byte_for_byte(
    spark: Any, amqp_broker: FreshVhost, to: dict[str, str], tmp_path: Path
) -> None:
    rng = random.Random(3)
    rig = DataRig(tmp_path / "data", {"stored": 1})
    rig.publish(messages(rng, 50), (1,))
    rig.stop()
    frame = read_snapshot(spark, snapshot_of(rig.data))

    write(frame.select("vhost", "queue", "seq_id", "properties_raw", "body"), to, "leveret")

    stored = frame.orderBy("seq_id").select("body").collect()
    assert [bytes(row.body) for row in stored] == amqp_broker.queue("q").bodies
    assert len(stored) == 50


def test_tasks_that_are_killed_lose_nothing_and_a_second_run_sends_nothing(
    session: Any, amqp_broker: FreshVhost, to: dict[str, str], tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    options = to | {"ledger": str(ledger), "window": str(WINDOW), "ledgerStep": str(STEP)}
    frame = rows(session, 2_000)

    write(frame, options, "leveret-dying-sink")

    found = numbers(amqp_broker)
    duplicates = found.total() - len(found)
    report = json.loads((ledger / "report.json").read_text())
    assert len(found) == 2_000
    assert duplicates <= 2 * (WINDOW + STEP)
    assert report["skipped"] >= 2 * (DIE_AT - WINDOW - STEP)
    assert report["sent"] + report["skipped"] == 2_000

    write(frame, options)

    again = json.loads((ledger / "report.json").read_text())
    assert (again["sent"], again["skipped"]) == (0, 2_000)
    assert numbers(amqp_broker) == found


def test_tasks_that_are_killed_double_nothing_where_queues_filter_by_producer(
    session: Any, amqp_broker: FreshVhost, to: dict[str, str]
) -> None:
    options = to | {"dedup": "producer", "producerId": "job", "window": str(WINDOW)}

    write(rows(session, 2_000), options, "leveret-dying-sink")

    assert numbers(amqp_broker) == Counter(range(2_000))


def test_a_stream_that_starts_again_goes_on_and_numbers_rows_by_batch(
    session: Any, amqp_broker: FreshVhost, to: dict[str, str], tmp_path: Path
) -> None:
    place, ledger = tmp_path / "input", tmp_path / "ledger"
    options = to | {"dedup": "producer", "ledger": str(ledger)}
    options["checkpointLocation"] = str(tmp_path / "checkpoint")
    schema = "body binary, vhost string, queue string, seq_id long"

    for start in (0, 100):
        body = f"cast(cast(seq_id + {start} as string) as binary) body"
        frame = rows(session, 100, 1).selectExpr(body, "vhost", "queue", "seq_id")
        frame.write.mode("append").parquet(str(place))
        read = session.readStream.schema(schema).parquet(str(place))
        query = (
            read.writeStream.format(FORMAT).options(**options).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(60)

    headers = [message.headers for message in amqp_broker.queue("q").messages()]
    assert numbers(amqp_broker) == Counter(range(200))
    assert len({each["x-producer-id"] for each in headers}) == 1
    assert [each["x-producer-seq"] for each in headers] == [
        batch << 40 | row for batch in range(2) for row in range(100)
    ]
    assert [each.name for each in ledger.glob("batch-*")] == ["batch-1"]


def test_all_columns_of_a_sink_are_taken_from_spark(
    session: Any, amqp_broker: FreshVhost, to: dict[str, str]
) -> None:
    frame = session.sql(
        "select cast('b' as binary) body, '' exchange, 'q' routing_key,"
        " named_struct('content_type', 'text/plain', 'priority', cast(3 as smallint),"
        "   'timestamp', timestamp'2026-01-02 03:04:05Z') properties,"
        " map('new', 'value') headers_set, array('gone') headers_remove"
    )

    write(frame, {"uriFile": to["uriFile"]})

    (message,) = amqp_broker.queue("q").messages()
    assert message.headers == {"new": "value"}
    found = message.properties
    assert (found["content_type"], found["priority"], found["timestamp"]) == (
        "text/plain",
        3,
        1767323045,
    )
    assert found["delivery_mode"] == 2


def test_what_is_wrong_is_refused_before_a_message_is_sent(
    session: Any, amqp_broker: FreshVhost, to: dict[str, str]
) -> None:
    frame = rows(session, 10)
    wrong = [
        (frame, to | {"routingKee": "x"}, "unknown write option"),
        (frame.withColumnRenamed("body", "payload"), to, "unknown column"),
    ]
    for each, options, text in wrong:
        with pytest.raises(PySparkException, match=text):
            write(each, options)
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        frame.write.format(FORMAT).options(**to).mode("overwrite").save()

    assert amqp_broker.queue("q").depth == 0


def test_speculation_is_refused(session: Any, amqp_broker: FreshVhost, to: dict[str, str]) -> None:
    session.sparkContext.setLocalProperty("spark.speculation", "true")
    try:
        with pytest.raises(PySparkException, match=r"spark\.speculation is true"):
            write(rows(session, 10), to)
    finally:
        session.sparkContext.setLocalProperty("spark.speculation", None)

    assert amqp_broker.queue("q").depth == 0


def test_a_uri_in_a_conf_is_used_and_no_plan_or_error_shows_it(
    session: Any, amqp_broker: FreshVhost, to: dict[str, str]
) -> None:
    del to["uriFile"]
    conf = "spark.leveret.secret.uri"
    session.conf.set(conf, amqp_broker.url)
    write(rows(session, 10), to | {"uriConf": conf})
    assert amqp_broker.queue("q").depth == 10

    session.conf.set(conf, amqp_broker.url.replace("guest:guest", "guest:hunter2"))
    with pytest.raises(PySparkException, match="403") as caught:
        write(rows(session, 10), to | {"uriConf": conf})
    session.conf.unset(conf)

    assert "hunter2" not in str(caught.value)
