"""Streams of ``format("leveret")`` in Spark: stopped, started again, and over brokers that are killed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from leveret.spark.scan.schema import VIEWS
from rigs.nodes import BrokerUnderTest, kill_leveret, serving, start_leveret
from rigs.spark.archives import ArchivedData
from rigs.waiting import wait_until
from rigs.wire.channels import channel_of

pytestmark = [pytest.mark.spark]

MESSAGES = 28_000
AT_ONCE = 1_000
NOW = {"availableNow": True}
ALWAYS = {"processingTime": "100 milliseconds"}


class Job:
    """A streaming query with its checkpoint, whose rows end in Parquet files."""

    def __init__(self, spark: Any, source: Path, folder: Path, **options: Any) -> None:
        self.spark = spark
        self.source = source
        self.folder = folder
        self.options = {"columns": "queue,segment,offset,body"} | options

    def start(self, trigger: dict[str, Any]) -> Any:
        frame = self.spark.readStream.format("leveret").options(**self.options)
        writer = frame.load(str(self.source)).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        return writer.trigger(**trigger).start(str(self.folder / "rows"))

    def run(self) -> list[Any]:
        """Read what there is now; return the progress of each batch with rows."""
        query = self.start(NOW)
        query.awaitTermination(60)
        assert not query.isActive
        if query.exception() is not None:
            raise query.exception()
        return [each for each in query.recentProgress if each["numInputRows"]]

    def bodies(self) -> list[bytes]:
        """Return the bodies in the order of the store."""
        rows = self.spark.read.parquet(str(self.folder / "rows")).collect()
        return [bytes(row.body) for row in sorted(rows, key=lambda row: (row.segment, row.offset))]


def archive_events(broker: BrokerUnderTest) -> None:
    """Declare the queue ``events``, and have its messages kept for a day."""
    with channel_of(broker) as channel:
        channel.ok("queue.declare", queue="events", durable=True)
    words = ("--apply-to", "queues", "archive", "^events$", '{"replay-retention":"1D"}')
    broker.control("set_policy", *words)
    assert broker.data is not None
    wait_until(lambda: any((broker.data / "vhosts").glob("*/archive.json")), within_s=10)


class Publisher(threading.Thread):
    """Publishes numbered messages with confirms, and purges the queue now and then."""

    def __init__(self, broker: BrokerUnderTest, first: int, count: int, purges: bool) -> None:
        super().__init__()
        self.broker, self.numbers, self.purges = broker, range(first, first + count), purges
        self.next = first
        self.errors: list[BaseException] = []
        self.start()

    def run(self) -> None:
        try:
            with channel_of(self.broker) as channel:
                channel.ok("confirm.select")
                tag = 1
                for first in self.numbers[::AT_ONCE]:
                    some = range(first, min(first + AT_ONCE, self.numbers.stop))
                    for number in some:
                        channel.publish("events", b"%d" % number, delivery_mode=2)
                    channel.read_confirms(set(range(tag, tag + len(some))))
                    tag, self.next = tag + len(some), some.stop
                    if self.purges:
                        channel.ok("queue.purge", queue="events")
        except BaseException as error:  # noqa: BLE001  the test looks at it
            self.errors.append(error)


def rows_of(query: Any) -> int:
    assert query.exception() is None, query.exception()
    return sum(each["numInputRows"] for each in query.recentProgress)


def test_no_message_is_lost_or_doubled_while_queries_stop_and_start(
    spark: Any, tmp_path: Path
) -> None:
    with serving(tmp_path) as broker:
        archive_events(broker)
        job = Job(spark, broker.data, tmp_path, maxRowsPerTrigger=4_000)  # type: ignore[arg-type]
        publisher = Publisher(broker, 0, MESSAGES, purges=True)
        for _ in range(2):
            query = job.start(ALWAYS)
            wait_until(lambda query=query: rows_of(query) or not publisher.is_alive(), within_s=60)  # type: ignore[misc]
            query.stop()
        publisher.join(60)
        assert not publisher.errors
        wait_until(lambda: _has_settled(job), within_s=10)
        progress = job.run()

        assert max((each["numInputRows"] for each in progress), default=0) <= 4_000
        assert job.bodies() == [b"%d" % number for number in range(MESSAGES)]
        assert job.run() == []
    job.run()  # also of a broker that does not run
    assert len(job.bodies()) == MESSAGES


def _has_settled(job: Job) -> bool:
    """The watermark is written a little after the last confirm."""
    (path,) = (job.source / "vhosts").glob("*/archive.json")
    before = path.read_bytes()
    threading.Event().wait(0.5)
    return before == path.read_bytes()


@pytest.mark.slow
def test_a_killed_broker_loses_no_row_that_was_shown_and_shows_all_that_it_kept(
    spark: Any, tmp_path: Path
) -> None:
    broker = start_leveret(tmp_path)
    archive_events(broker)
    job = Job(spark, broker.data, tmp_path)  # type: ignore[arg-type]
    for first in (0, 100_000):
        publisher = Publisher(broker, first, 100_000, purges=False)
        wait_until(lambda p=publisher, f=first: p.next > f + 2_000 or p.errors, within_s=60)  # type: ignore[misc]
        job.run()
        kill_leveret(broker)
        publisher.join(60)
        job.run()
        broker = start_leveret(tmp_path)
    with channel_of(broker) as channel:
        wait_until(lambda: channel.ready("events") > 0, within_s=10)
        count = channel.ready("events")
        channel.ok("basic.consume", queue="events", no_ack=True)
        kept = channel.bodies(count)
    wait_until(lambda: _has_settled(job), within_s=10)
    job.run()
    kill_leveret(broker)

    assert job.bodies() == kept
    assert len(kept) == len(set(kept)) > 4_000


def test_a_segment_that_was_freed_is_named(spark: Any, tmp_path: Path) -> None:
    rig = ArchivedData(tmp_path / "data")
    rig.publish((1,), 5)
    job = Job(spark, rig.data, tmp_path)
    job.run()
    for _ in range(30):
        rig.publish((1,))
    rig.ack_all()
    rig.now_ms += 10_000
    rig.publish((1,))
    rig.collect()

    with pytest.raises(Exception, match="DataLoss") as caught:
        job.run()
    freed = rig.core.archive.queues[1].freed
    assert freed is not None
    assert f"segment {freed.segment:08x} is gone" in str(caught.value)
    job.options["failOnDataLoss"] = "false"
    job.run()
    found = job.bodies()
    assert found[:5] == rig.written[1][:5]
    assert found[5:] == rig.written[1][-len(found[5:]) :]
    assert len(found) < 36
    rig.close()


def test_all_columns_of_view_archive_are_streamed(spark: Any, tmp_path: Path) -> None:
    rig = ArchivedData(tmp_path / "data")
    rig.publish((1,), 3)
    frame = spark.readStream.format("leveret").load(str(rig.data))
    assert frame.columns == [column.name for column in VIEWS["archive"]]

    query = frame.writeStream.format("memory").queryName("archived").trigger(**NOW).start()
    assert query.awaitTermination(60)

    rows = spark.table("archived").collect()
    assert [bytes(row.body) for row in rows] == rig.written[1]
    assert {row.state for row in rows} == {None}
    rig.close()


REFUSED = [
    ({"queu": "x"}, "option 'queu' is unknown; did you mean queue?"),
    ({"endingTimestamp": "0"}, "option endingTimestamp has no effect on a stream"),
    ({"view": "archive"}, "option view has no effect on a stream"),
    ({"maxRowsPerTrigger": "0"}, "option maxRowsPerTrigger is '0', it must be a number from 1"),
    ({"startingOffsets": "first"}, "option startingOffsets is not JSON"),
    ({"startingOffsets": "latest", "startingTimestamp": "0"}, "both say where to begin"),
    ({"columns": "size"}, "view archive has no column 'size'"),
]  # fmt: skip


def test_what_cannot_be_accepted_is_refused(spark: Any, tmp_path: Path) -> None:
    rig = ArchivedData(tmp_path / "data")
    for options, why in REFUSED:
        with pytest.raises(Exception, match="OptionError") as caught:
            spark.readStream.format("leveret").options(**options).load(str(rig.data))
        assert why in str(caught.value)
    rig.close()
