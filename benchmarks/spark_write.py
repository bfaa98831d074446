#!/usr/bin/env python3
"""Rows published by the sink into a Leveret in another process, with confirms and a ledger.

    python benchmarks/spark_write.py
    python benchmarks/spark_write.py --rows 50000 --spark

Persistent messages of 1 KiB into one durable queue. Without ``--spark`` one process publishes record batches (the
engine of a job without Spark); with it, two tasks of a local session write a data frame, planning included. The
queue must hold all rows afterwards. Needs ``pip install 'leveret[spark]'``.
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
import brokers
import pyarrow as pa
from peer import Peer

from leveret.amqp.methods import QueueDeclare
from leveret.spark.publish.job import publish_batches

QUEUE = "bench.sink"
BODY = bytes(range(256)) * 4
BATCH_ROWS = 8_192


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


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=200_000)
    arguments.add_argument("--window", type=int, default=2_000)
    arguments.add_argument("--kernel", default="c", choices=("c", "py"))
    arguments.add_argument("--spark", action="store_true", help="write a data frame instead")
    given = arguments.parse_args()
    with brokers.leveret(given.kernel) as broker, tempfile.TemporaryDirectory() as folder:
        peer = Peer((broker.host, broker.port))
        peer.call(1, QueueDeclare(QUEUE, durable=True))
        host, port = broker.host, broker.port
        options = {
            "uri": f"amqp://{host}:{port}", "exchange": "", "routingKey": QUEUE,
            "window": str(given.window), "ledger": str(Path(folder) / "ledger"),
        }  # fmt: skip
        if given.spark:
            publish_with_spark(given.rows, options)
        else:
            report = publish_batches(batches(given.rows), options)
            rate = round(given.rows / report.seconds)
            print(json.dumps({"spark": False, **report.as_dict(), "msgs_per_s": rate}))
        found = peer.call(1, QueueDeclare(QUEUE, passive=True)).message_count
    if found != given.rows:
        print(f"the queue has {found} messages, {given.rows} were published", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
