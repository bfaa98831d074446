#!/usr/bin/env python3
"""Reading a snapshot of a million messages: with Spark, with Spark from Parquet, and without Spark.

    python -P benchmarks/spark_read.py fill DIR        # a store by a real broker, its snapshot, its Parquet copy: 5 GB
    python -P benchmarks/spark_read.py read DIR        # the figures: two minutes

``fill`` starts a broker in this process, on a clock that goes on by 1,000 seconds while the messages are published:
1,000,000 persistent messages with random bodies of 1 KiB and properties and headers of the usual kinds, to 9 durable
queues, every twentieth to two of them. ``read`` times full reads, a window of 60 of the 1,000 seconds, and one queue;
rows go nowhere (the format ``noop``). Each is done once to warm up, then three times; the medians count.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import results

from leveret.amqp import methods
from leveret.amqp.properties import Properties, encode_properties
from leveret.client.asynchronous import connect
from leveret.client.events import Confirmed, Event
from leveret.client.protocol import FRAME
from leveret.client.target import parse_uri
from leveret.core.addresses import Address
from leveret.core.clock import SystemClock
from leveret.core.system.files import Files
from leveret.management.snapshots.making import Wanted
from leveret.server.broker import Broker
from leveret.server.cli.snapshot_command import create
from leveret.server.config.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUES = 9
BODY_BYTES = 1_024
SPAN_S = 1_000
START_S = 1_700_000_000
FAN_OUT = 20  # every so many messages one goes to two queues
AT_ONCE = 1_000  # messages between waits for confirms
ROUNDS = 3
CORE = "vhost,queue,seq_id,msg_id,exchange,routing_key,enqueued_at,persistent,body_size"
BARS = {
    "spark, core and body, rows/s": 250_000,
    "spark, core and body, share of parquet": 0.8,
    "spark, window, s": 1.5,
    "scan, everything, rows/s": 400_000,
}


class ShiftedClock(SystemClock):
    """The loop's clock, but for the time of day."""

    now_s: float = START_S

    def wall_s(self) -> float:
        return self.now_s


class Confirms:
    """An agent that waits for confirms."""

    def __init__(self) -> None:
        self.pending: set[int] = set()
        self.changed = asyncio.Event()

    def on_event(self, event: Event) -> None:
        assert isinstance(event, Confirmed), event
        _, tag, multiple, accepted = event
        assert accepted, f"message {tag} was refused"
        self.pending -= {each for each in self.pending if each <= tag} if multiple else {tag}
        self.changed.set()

    def on_writable(self) -> None: ...
    def on_read(self) -> None: ...


def frames(number: int, rng: random.Random) -> bytes:
    """Return the frames of one message."""
    queue = number % QUEUES
    key = f"both.{queue}" if number % FAN_OUT == 0 else f"q.{queue}"
    properties = Properties(
        content_type="application/json",
        delivery_mode=2,
        correlation_id=f"c{number:08d}",
        message_id=f"m{number:08d}",
        timestamp=START_S,
        app_id="shop",
        headers={
            "tenant": ("S", b"t%d" % (number % 50)),
            "attempt": ("I", number % 5),
            "trace": ("S", b"%032x" % number),
        },
    )
    head = b"\0\x3c\0\0" + BODY_BYTES.to_bytes(8, "big") + encode_properties(properties)
    publish = methods.method_frame(1, methods.encode(methods.BasicPublish("orders", key)))
    return b"".join(
        (
            publish,
            FRAME.pack(2, 1, len(head)), head, b"\xce",
            FRAME.pack(3, 1, BODY_BYTES), rng.randbytes(BODY_BYTES), b"\xce",
        )
    )  # fmt: skip


async def publish(broker: Broker, clock: ShiftedClock, count: int) -> None:
    """Declare queues and publish; the clock goes on with the messages."""
    agent, rng = Confirms(), random.Random(1)
    connection = await connect(parse_uri(broker.url, "broker"))
    await connection.channel(1, agent)
    await connection.call(1, methods.ExchangeDeclare("orders", "direct", durable=True))
    for number in range(QUEUES):
        queue = f"orders.{number}"
        await connection.call(1, methods.QueueDeclare(queue, durable=True))
        for key in (f"q.{number}", f"both.{number}", f"both.{(number + 1) % QUEUES}"):
            await connection.call(1, methods.QueueBind(queue, "orders", key))
    await connection.call(1, methods.ConfirmSelect())
    for first in range(0, count, AT_ONCE):
        clock.now_s = START_S + SPAN_S * first / count
        some = [frames(number, rng) for number in range(first, min(first + AT_ONCE, count))]
        agent.pending.update(range(first + 1, first + len(some) + 1))
        connection.transport.write(b"".join(some))
        while agent.pending:
            agent.changed.clear()
            await asyncio.wait_for(agent.changed.wait(), 60.0)
    await connection.close()


async def filled(data: Path, count: int) -> None:
    clock = ShiftedClock(asyncio.get_running_loop())
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=data)
    async with Broker(config, clock=clock) as broker:
        await publish(broker, clock, count)


def fill(options: argparse.Namespace) -> None:
    """Make store, snapshot and Parquet copy."""
    from leveret.spark import read_snapshot

    data = options.folder / "data"
    options.folder.mkdir(parents=True)
    began = time.perf_counter()
    asyncio.run(filled(data, options.messages))
    print(f"{options.messages} messages published in {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    path, made = create(Files(), data, Wanted("bench"), None, 60.0)
    print(f"snapshot of {made.messages} rows in {time.perf_counter() - began:.1f} s")
    spark = started()
    frame = read_snapshot(spark, path, columns=f"{CORE},body")
    frame.write.parquet(str(options.folder / "parquet"))
    print(f"Parquet copy in {time.perf_counter() - began:.1f} s")
    spark.stop()


def started() -> Any:
    from leveret.spark import session

    return session("local[2]", **{"spark.driver.memory": "4g"})


def timed(what: Callable[[], object]) -> list[float]:
    """Return how long it takes, in s: the first time, then the others."""
    times = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        what()
        times.append(time.perf_counter() - began)
    return times


def drained(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def read(options: argparse.Namespace) -> int:
    """Measure, print and keep the figures; return 1 if a bar is missed."""
    from leveret.spark import read_snapshot
    from leveret.spark.scan.options import ReadOptions
    from leveret.spark.scan.reader import open_scan
    from leveret.spark.scan.reader import read as scan

    path, found = options.folder / "data" / "snapshots" / "bench", {}
    began = time.perf_counter()
    if options.anew:
        import shutil

        shutil.rmtree(path / "locators", ignore_errors=True)
    open_scan(ReadOptions.of({"path": str(path)}))
    locators_s = time.perf_counter() - began
    rows = sum(batch.num_rows for batch in scan({"path": str(path), "columns": "queue"}))

    def scanned(**more: str) -> Callable[[], object]:
        return lambda: sum(batch.num_rows for batch in scan({"path": str(path), **more}))

    found["scan, everything"] = timed(scanned())
    found["scan, everything, verifyCrc=false"] = timed(scanned(verifyCrc="false"))
    found["scan, core and body"] = timed(scanned(columns=f"{CORE},body"))
    spark = started()
    copy = str(options.folder / "parquet")
    columns = [*CORE.split(","), "body"]
    low, high = START_S + 500, START_S + 560
    window = {"startingTimestamp": str(low * 1000), "endingTimestamp": str(high * 1000)}
    time_of = datetime.fromtimestamp

    def of(**more: str) -> Any:
        return read_snapshot(spark, path, **more)

    cases: dict[str, Callable[[], object]] = {
        "spark, core and body": lambda: drained(of(columns=f"{CORE},body")),
        "parquet, core and body": lambda: drained(spark.read.parquet(copy).select(*columns)),
        "spark, everything": lambda: drained(of()),
        "spark, window by options": lambda: drained(of(columns=f"{CORE},body", **window)),
        "spark, window": lambda: drained(
            of(columns=f"{CORE},body").where(
                f"enqueued_at >= timestamp'{time_of(low, UTC).isoformat()}' and "
                f"enqueued_at < timestamp'{time_of(high, UTC).isoformat()}'"
            )
        ),
        "spark, one queue of nine": lambda: drained(of(queue="orders.3", columns=f"{CORE},body")),
        "spark, count by queue": lambda: of(columns="queue").groupBy("queue").count().collect(),
    }
    for name, case in cases.items():
        found[name] = timed(case)
    spark.stop()
    medians = {name: statistics.median(times[1:]) for name, times in found.items()}
    figures = {
        "spark, core and body, rows/s": rows / medians["spark, core and body"],
        "spark, core and body, share of parquet": medians["parquet, core and body"]
        / medians["spark, core and body"],
        "spark, window, s": medians["spark, window"],
        "scan, everything, rows/s": rows / medians["scan, everything"],
    }
    print(f"rows {rows}, locators {locators_s:.2f} s")
    for name, times in found.items():
        all_times = " ".join(f"{each:.2f}" for each in times)
        print(
            f"{name:36} {medians[name]:6.2f} s {rows / medians[name]:12,.0f} rows/s   ({all_times})"
        )
    missed = 0
    for name, bar in BARS.items():
        is_met = figures[name] <= bar if name.endswith(", s") else figures[name] >= bar
        missed += not is_met
        print(f"{'met   ' if is_met else 'MISSED'} {name}: {figures[name]:,.2f}, bar {bar:,}")
    kept = {"rows": rows, "locators_s": locators_s, "times_s": found, "figures": figures}
    about = {"commit": results.commit(), "machine": results.machine()}
    about |= {"versions": results.versions(with_rabbitmq=False)}
    print(results.write(options.out, "spark-read", kept, about))
    return int(missed > 0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, about in (("fill", "make the store"), ("read", "measure")):
        verb = verbs.add_parser(name, help=about)
        verb.add_argument("folder", type=Path, help="of store and copy")
        if name == "fill":
            verb.add_argument("--messages", type=int, default=1_000_000)
        else:
            verb.add_argument("--out", type=Path, default=results.RESULTS)
            verb.add_argument("--anew", action="store_true", help="make the locators once more")
    options = parser.parse_args()
    options.folder = options.folder.absolute()
    if options.verb == "fill":
        fill(options)
        return 0
    return read(options)


if __name__ == "__main__":
    sys.exit(main())
