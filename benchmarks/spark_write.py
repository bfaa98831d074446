#!/usr/bin/env python3
"""Rows published by the sink into a broker in another process, with confirms and a ledger.

    python benchmarks/spark_write.py
    python benchmarks/spark_write.py --rows 50000 --spark
    python benchmarks/spark_write.py --replay DIR/data/snapshots/bench --target rabbitmq

Persistent messages of 1 KiB into one durable queue. Without ``--spark`` one process publishes record batches (the
engine of a job without Spark); with it, two tasks of a local session write a data frame, planning included. With
``--replay`` the job ``replay`` sends about so many messages of a snapshot, which ``spark_read.py fill`` has made, with
or without the marks of a replay. The queue must hold all rows afterwards. Needs ``pip install 'leveret[spark]'``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
import pyarrow as pa
from harness import brokers
from harness.peer import Peer
from spark_read import SPAN_S, START_S

from leveret.amqp.methods import QueueDeclare
from leveret.spark.publish.job import publish_batches

QUEUE = "bench.sink"
BODY = bytes(range(256)) * 4
BATCH_ROWS = 8_192
MESSAGES = 1_000_000  # of the snapshot that is replayed, over SPAN_S


def batches(rows: int) -> Iterator[Any]:
    """Yield batches with keys, as a scanner does."""
    for start in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - start)
        yield pa.RecordBatch.from_pydict(
            {
                "body": pa.array([BODY] * count, pa.binary()),
                "vhost": pa.array(["/"] * count),
                "queue": pa.array(["source"] * count),
                "seq_id": pa.array(range(start, start + count), pa.int64()),
            }
        )


def publish_with_spark(rows: int, options: dict[str, str]) -> None:
    """Write a data frame of two partitions."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

    from leveret.spark import sink

    class Sink(DataSource):
        @classmethod
        def name(cls) -> str:
            return "leveret-sink"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return sink.batch_writer(schema, self.options, overwrite)

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.log.level", "ERROR").getOrCreate()
    session.dataSource.register(Sink)
    frame = session.range(0, rows, 1, 2).selectExpr(
        f"cast(repeat('x', {len(BODY)}) as binary) body", "'/' vhost",
        f"concat('source', cast(floor(id * 2 / {rows}) as string)) queue", "id seq_id",
    )  # fmt: skip
    started = time.perf_counter()
    frame.write.format("leveret-sink").options(**options).mode("append").save()
    took_s = time.perf_counter() - started
    print(
        json.dumps(
            {
                "spark": True,
                "rows": rows,
                "seconds": round(took_s, 2),
                "msgs_per_s": round(rows / took_s),
            }
        )
    )
    session.stop()


def replay_rows(snapshot: Path, rows: int, options: dict[str, str], *, has_marks: bool) -> Any:
    """Replay the first messages of a snapshot, by their time; return the report."""
    from leveret.spark import Replay, Rewrite, Selection, replay

    until_ms = (START_S + SPAN_S * rows // MESSAGES) * 1000
    return replay(
        Replay(
            Selection((str(snapshot),), until=str(until_ms)),
            Rewrite(exchange="", routing_key=QUEUE, has_marks=has_marks),
            options,
        )
    )


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=200_000)
    arguments.add_argument("--window", type=int, default=2_000)
    arguments.add_argument("--kernel", default="c", choices=("c", "py"))
    arguments.add_argument("--spark", action="store_true", help="write a data frame instead")
    arguments.add_argument("--replay", type=Path, metavar="SNAPSHOT", help="replay its messages")
    arguments.add_argument("--marks", action="store_true", help="with the marks of a replay")
    arguments.add_argument("--target", default="leveret", choices=("leveret", "rabbitmq"))
    given = arguments.parse_args()
    target = brokers.rabbitmq() if given.target == "rabbitmq" else brokers.leveret(given.kernel)
    with target as broker, tempfile.TemporaryDirectory() as folder:
        peer = Peer((broker.host, broker.port))
        peer.call(1, QueueDeclare(QUEUE, durable=True))
        host, port = broker.host, broker.port
        options = {
            "uri": f"amqp://{host}:{port}", "exchange": "", "routingKey": QUEUE,
            "window": str(given.window), "ledger": str(Path(folder) / "ledger"),
        }  # fmt: skip
        rows = given.rows
        if given.replay:
            del options["exchange"], options["routingKey"]
            done = replay_rows(given.replay, rows, options, has_marks=given.marks)
            rows = int(done.counts["sent"])
            took_s = done.ended_s - done.started_s
            shown = {"replay": True, "marks": given.marks, "to": broker.name, "rows": rows}
            print(
                json.dumps(
                    shown | {"seconds": round(took_s, 2), "msgs_per_s": round(rows / took_s)}
                )
            )
        elif given.spark:
            publish_with_spark(given.rows, options)
        else:
            report = publish_batches(batches(given.rows), options)
            rate = round(given.rows / report.seconds)
            print(json.dumps({"spark": False, **report.as_dict(), "msgs_per_s": rate}))
        found = peer.call(1, QueueDeclare(QUEUE, passive=True)).message_count
    if found != rows:
        print(f"the queue has {found} messages, {rows} were published", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
