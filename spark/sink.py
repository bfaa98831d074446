"""The sink of ``format("leveret")``: what Spark's tasks and driver do with ``publish``.

``LeveretDataSource`` (``leveret.spark.source``) calls ``batch_writer`` and ``stream_writer`` in the process that plans
a query, which reads URI files and environment variables and checks options and columns. The writer is pickled and
sent to the tasks, which read Spark confs. Neither plan nor log has a password: pickled bytes are in neither.

Speculation runs two attempts of a task at once, which would publish twice, so a task refuses to run with it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from leveret.client.target import Target
from leveret.core.log.loggers import logger
from leveret.spark.errors import OptionError
from leveret.spark.publish import ledger
from leveret.spark.publish.identity import Partition
from leveret.spark.publish.job import publish_partition
from leveret.spark.publish.options import WriteOptions, parse
from leveret.spark.publish.report import Report, total
from leveret.spark.publish.rows import check_columns

log = logger(__name__)

REPORT: Final = "report.json"
_SPECULATION: Final = "spark.speculation"
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass
class Published(WriterCommitMessage):
    """The report of one partition."""

    report: Report


def batch_writer(
    schema: StructType, options: Mapping[str, str], overwrite: bool
) -> DataSourceArrowWriter:
    """Return the writer of ``df.write.format("leveret")``.

    Raises:
        OptionError: an option, the mode or a column is wrong.
    """
    if overwrite:
        raise OptionError('a broker cannot be overwritten: use mode("append")')
    return BatchWriter(*_checked(schema, options, is_stream=False))


def stream_writer(
    schema: StructType, options: Mapping[str, str], overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Return the writer of ``df.writeStream.format("leveret")``.

    Raises:
        OptionError: an option, the output mode or a column is wrong.
    """
    if overwrite:
        raise OptionError('a broker cannot be overwritten: use outputMode("append")')
    return StreamWriter(*_checked(schema, options, is_stream=True))


def _checked(
    schema: StructType, options: Mapping[str, str], *, is_stream: bool
) -> tuple[WriteOptions, Target | None]:
    """Return the options, and the target unless only a task can look it up."""
    # ``checkpointLocation`` belongs to Spark, which hands it on to the sink.
    given = {
        name: value
        for name, value in dict(options.items()).items()
        if not (is_stream and name.lower() == "checkpointlocation")
    }
    found = parse(given)
    check_columns(to_arrow_schema(schema, timezone="UTC"), found, is_stream=is_stream)
    return found, None if found.uri.conf else found.uri.read(lambda _: None)


def _publish(
    batches: Iterable[Any],
    options: WriteOptions,
    target: Target | None,
    partition_of: Callable[[TaskContext], Partition],
) -> Published:
    """Publish a partition in a task of Spark."""
    task = TaskContext.get()
    if task is None:
        raise OptionError("the sink's writer runs in tasks of Spark only: use publish_batches")
    if (task.getLocalProperty(_SPECULATION) or "false").lower() == "true":
        raise OptionError(
            f"{_SPECULATION} is true, so Spark would publish messages twice: start the session with"
            f" {_SPECULATION}=false"
        )
    to = target or options.uri.read(task.getLocalProperty)
    return Published(publish_partition(batches, options, to, partition_of(task)))


class BatchWriter(DataSourceArrowWriter):
    """Publishes the partitions of a data frame."""

    def __init__(self, options: WriteOptions, target: Target | None) -> None:
        self._options = options
        self._target = target

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _publish(
            iterator, self._options, self._target, lambda task: Partition(task.partitionId())
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the counts of the job, and write them beside the ledger."""
        _report(self._options, messages, "job")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the counts of the partitions that ended; what they published stays published."""
        log.warning("publishing failed; partitions that ended: %s", _total(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """Publishes the batches of a streaming query."""

    def __init__(self, options: WriteOptions, target: Target | None) -> None:
        self._options = options
        self._target = target

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _publish(iterator, self._options, self._target, _partition_of_stream)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log the counts of the batch, and remove the ledger of the batch before it."""
        _report(self._options, messages, f"batch {batchId}")
        if self._options.ledger:
            for folder in Path(self._options.ledger).glob("batch-*"):
                if int(folder.name.removeprefix("batch-")) < batchId:
                    shutil.rmtree(folder, ignore_errors=True)  # the next commit tries again

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        log.warning(
            "publishing batch %d failed; partitions that ended: %s", batchId, _total(messages)
        )


def _partition_of_stream(task: TaskContext) -> Partition:
    query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
    if not query or batch is None:
        raise OptionError(f"Spark did not say {_QUERY} and {_BATCH}: use Spark 4.2 or newer")
    return Partition(task.partitionId(), f"batch-{batch}", query, int(batch))


def _report(
    options: WriteOptions, messages: Iterable[WriterCommitMessage | None], what: str
) -> None:
    report = _total(messages)
    log.info("published %s: %s", what, report)
    if options.ledger:
        ledger.replace(Path(options.ledger) / REPORT, {"of": what} | report.as_dict())


def _total(messages: Iterable[WriterCommitMessage | None]) -> Report:
    return total(each.report for each in messages if isinstance(each, Published))
