"""Publishing a partition: from record batches to confirmed messages, and the ledger on the way.

The guarantee: when ``publish_partition`` returns, each row is confirmed and was not returned, or is in a reject file or
the dead-letter exchange or was dropped, as the options order. When it raises, each row that the ledger counts is.
docs/spark-sink.md states what that makes of a job.

Without Spark, ``publish_batches`` publishes all batches as one partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from leveret.client.blocking import UNSENT_BYTES_MAX, BlockingConnection, connect
from leveret.client.errors import BrokerError
from leveret.client.target import Target
from leveret.core.errors import LeveretError
from leveret.spark.errors import OptionError
from leveret.spark.publish.errors import ConnectionFailed
from leveret.spark.publish.identity import Key, Partition
from leveret.spark.publish.ledger import KeyOrder, Ledger, check_plan, part_path
from leveret.spark.publish.options import WriteOptions, parse
from leveret.spark.publish.publisher import Publisher
from leveret.spark.publish.rate import Rate
from leveret.spark.publish.rejects import write_rejects
from leveret.spark.publish.report import Report
from leveret.spark.publish.rows import RowReader

REJECTS: Final = "rejects"
_STEP_BYTES: Final = 64 * 1024  # encoded before the socket is looked at
_PAUSE_S: Final = 0.5  # between looks at time-outs


def publish_batches(
    batches: Iterable[Any],
    options: WriteOptions | Mapping[str, str],
    *,
    target: Target | None = None,
) -> Report:
    """Publish Arrow record batches in order, on one connection of this process.

    Args:
        batches: with the columns of a sink.
        options: those of a write (docs/spark-sink.md); ``uriConf`` needs Spark.
        target: where to, instead of the URI of the options.

    Raises:
        OptionError: an option or a column is wrong; nothing was sent.
        PublishError: a row was not delivered; with a ledger, another run goes on behind the settled rows.
    """
    checked = options if isinstance(options, WriteOptions) else parse(options)
    to = target or checked.uri.read(lambda _: None)
    return publish_partition(batches, checked, to, Partition())


def publish_partition(
    batches: Iterable[Any],
    options: WriteOptions,
    target: Target,
    partition: Partition,
    monotonic_s: Callable[[], float] = time.monotonic,
    report: Report | None = None,
) -> Report:
    """Publish the rows of one partition; raises as ``publish_batches``.

    ``report`` is filled and returned, so that its counts are there after a failure too.
    """
    if options.publishers and partition.number >= options.publishers:
        raise OptionError(
            f"publishers is {options.publishers}, and the data has more partitions:"
            f" repartition it to {options.publishers}, or leave publishers out"
        )
    job = _PartitionJob(options, target, partition, monotonic_s, report or Report())
    try:
        job.run(batches)
    except BaseException as error:
        job.give_up()
        if isinstance(error, BrokerError):
            raise ConnectionFailed(f"{error} ({job.unsettled} messages unconfirmed)") from error
        raise
    return job.report


class _PartitionJob:
    """One attempt to publish one partition."""

    def __init__(
        self,
        options: WriteOptions,
        target: Target,
        partition: Partition,
        monotonic_s: Callable[[], float],
        report: Report,
    ) -> None:
        self.report = report
        self._options = options
        self._target = target
        self._partition = partition
        self._now_s = monotonic_s
        self._started_s = monotonic_s()
        self._rate = Rate(options.rate_per_s / max(1, options.publishers))
        self._reader = RowReader(options, partition)
        self._publisher = Publisher(options, self.report)
        self._client: BlockingConnection | None = None
        self._order = KeyOrder()
        self._ledger = self._open_ledger()
        self._blocked = ""  # why the broker takes no publishes
        self._blocked_s: float | None = None  # since when

    @property
    def unsettled(self) -> int:
        return self._publisher.unsettled

    def run(self, batches: Iterable[Any]) -> None:
        for batch in batches:
            self._publish(batch)
            self._flush()
        while self._publisher.unsettled:
            self._wait()
        if self._ledger is not None:
            self._ledger.end()
        self._save()
        if self._client is not None:
            self._client.close()
        self.report.seconds = round(self._now_s() - self._started_s, 3)

    def give_up(self) -> None:
        """Save what is settled after a failure; the failure is what the caller raises."""
        if self._client is not None:
            self._client.abort()
        try:
            self._save()
        except LeveretError:
            return  # the ledger then says less than is true, which costs duplicates only

    def _open_ledger(self) -> Ledger | None:
        options = self._options
        if not options.ledger:
            return None
        folder = Path(options.ledger)
        check_plan(folder, options.fingerprint(str(self._target)))
        path = part_path(folder, self._partition.scope, self._partition.number)
        return Ledger(path, options.ledger_step)

    # Rows.

    def _publish(self, batch: Any) -> None:
        places = self._reader.places(batch)
        keys, columns = self._reader.columns(batch)
        size = 0
        known: Sequence[Key | None] = [None] * batch.num_rows if keys is None else keys
        for place, key, *values in zip(places, known, *columns, strict=True):
            if key is not None and self._is_settled(place, key):
                continue
            row = self._reader.row(place, key, tuple(values))
            if not self._may_send():
                self._flush()
                self._make_room()
            now_s = self._now_s()
            self._publisher_of_open_connection().publish(row, now_s)
            self._rate.sent(now_s)
            size += len(row.body) + len(row.properties)
            if size >= _STEP_BYTES:
                size = 0
                self._flush()
                self._make_room()

    def _is_settled(self, place: int, key: Key) -> bool:
        """Take a row's key; return whether the ledger has it."""
        if self._options.needs_order:
            self._order.check(key)
        if self._ledger is None or not self._ledger.skips(key):
            return False
        self.report.skipped += 1
        self._publisher.skip(place)
        return True

    def _publisher_of_open_connection(self) -> Publisher:
        """Connect at the first row that is sent."""
        if self._client is None:
            options, tls = self._options, self._options.tls
            context = tls.context() if self._target.has_tls else None
            self._client = connect(
                self._target, options.connect_timeout_s, context, tls.server_name
            )
            self._publisher.frame_max = self._client.protocol.frame_max
        return self._publisher

    # Waiting.

    def _may_send(self) -> bool:
        return (
            self._publisher.has_room and not self._blocked and not self._rate.wait_s(self._now_s())
        )

    def _make_room(self) -> None:
        """Wait until another row may be sent: window, rate, socket, connection.blocked."""
        publisher = self._publisher
        while True:
            is_busy = self._client is not None and self._client.unsent_bytes > UNSENT_BYTES_MAX
            if publisher.has_room and not self._blocked and not is_busy:
                rate_s = self._rate.wait_s(self._now_s())
                if not rate_s:
                    return
                self._wait(rate_s)
            else:
                self._wait()

    def _wait(self, wait_s: float = _PAUSE_S) -> None:
        """Take a step that waits for the broker, or for the next retry."""
        retry_s = self._publisher.next_retry_s
        if retry_s is not None:
            wait_s = min(wait_s, max(0.001, retry_s - self._now_s()))
        self._step(min(wait_s, _PAUSE_S))
        self._check_timeouts()

    def _flush(self) -> None:
        if self._client is not None:
            self._step(0)

    def _step(self, wait_s: float) -> None:
        """Send the output and handle the events; those before the end of a connection still count."""
        client, publisher = self._client, self._publisher
        assert client is not None
        publisher.send_retries(self._now_s())
        client.send(publisher.take_output())
        events = client.step(wait_s)
        self._blocked = client.protocol.blocked
        now_s = self._now_s()
        for event in events:
            publisher.handle(event, now_s)
        client.send(publisher.take_output())
        self._save()

    def _check_timeouts(self) -> None:
        """Raise ConnectionFailed if the broker blocks for too long, or a confirm is late."""
        options, publisher, now_s = self._options, self._publisher, self._now_s()
        if self._blocked:
            if self._blocked_s is None:
                self._blocked_s = now_s
            if now_s - self._blocked_s > options.blocked_timeout_s:
                raise ConnectionFailed(
                    f"{self._target}: the broker has blocked publishers for"
                    f" {options.blocked_timeout_s:g} s ({self._blocked}):"
                    " free its memory or disk, or raise blockedTimeout"
                )
            return
        if self._blocked_s is not None:
            self._blocked_s = None
            publisher.restart_timers(now_s)
        oldest_s = publisher.oldest_s()
        if oldest_s is not None and now_s - oldest_s > options.confirm_timeout_s:
            raise ConnectionFailed(
                f"{self._target}: no confirm for {options.confirm_timeout_s:g} s with"
                f" {publisher.unsettled} messages unconfirmed: look at the broker, or raise confirmTimeout"
            )

    # The ledger.

    def _save(self) -> None:
        """Write the ledger's next entry if one is due, and before it the reject file of its rows."""
        if self._ledger is None:
            return
        entry = self._ledger.ready(self._publisher.settled_rows)
        if entry is None:
            return
        if self._publisher.rejects:
            scope = f"{self._partition.scope}-" if self._partition.scope else ""
            name = f"{scope}part-{self._partition.number:05}"
            write_rejects(
                Path(self._options.ledger) / REJECTS, name, self._publisher.take_rejects()
            )
        self._ledger.write(entry)
