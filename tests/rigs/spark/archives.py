"""A store with archived queues on a real disk, without a broker: it does what a test says, step by step.

``archive.json`` is written by ``publish_watermark`` and by the collector before it unlinks, as in a broker.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from leveret.amqp.properties import Properties, head_of
from leveret.core.message import Message, origin_of
from leveret.msg_store.archive import archive_file
from leveret.msg_store.archive.archive import Position, Retention
from leveret.msg_store.archive_writer import contents_of
from leveret.msg_store.format.record import route_no
from leveret.msg_store.format.rows import SEQ_END
from leveret.msg_store.offline.offline_store import OfflineStore
from leveret.msg_store.recovery.recovery import open_store
from leveret.msg_store.recovery.replay import pages
from leveret.spark.scan.options import StreamOptions
from leveret.spark.stream.admission import Limit
from leveret.spark.stream.batch import partitions_of, settings_of
from leveret.spark.stream.following import Follower
from leveret.spark.stream.tasks import read_piece
from rigs.store.live_store import files_at

Row = tuple[int, int, int]  # queue or its priority, seq, message

AGE_MS = 1_000
NODE = "5f0c1c1e-0000-4000-8000-00000000c0de"


class ArchivedData:
    """A data directory with one vhost's store.

    Attributes:
        written: bodies that are durable, by queue number, in the order of the store.
        rows: those that are durable and not acked.
        pending: messages that are not durable yet: queue number, row, body.
    """

    def __init__(
        self,
        data: Path,
        vhost: str = "/",
        file_bytes: int = 2_000,
        retained: Sequence[int] = (1,),
        age_ms: int = AGE_MS,
        inline_bytes_max: int = 0,
    ) -> None:
        self.data, self.vhost = data, vhost
        self.path = data / "vhosts" / f"store-{vhost.strip('/') or 'default'}"
        for folder in (data / "metadata", data / "vhosts"):
            folder.mkdir(parents=True, exist_ok=True)
        (data / "node").write_text(NODE + "\n")
        self.file_bytes = file_bytes
        self.inline_bytes_max = inline_bytes_max
        self.retained = {no: Retention(age_ms) for no in retained}
        self.now_ms = 1_700_000_000_000
        self.boot_epoch = 0
        self.next_seq: dict[int, int] = {}
        self.rows: list[Row] = []
        self.pending: list[tuple[int, Row, bytes]] = []
        self.written: dict[int, list[bytes]] = {}
        self.count = 0
        self.open()

    def open(self) -> None:
        self.boot_epoch += 1
        where = files_at(
            self.path,
            rdq_file_bytes=self.file_bytes,
            now_ms=lambda: self.now_ms,
            vhost=self.vhost,
            inline_bytes_max=self.inline_bytes_max,
        )
        self.opened = open_store(where, self.boot_epoch)
        self.store = OfflineStore(self.opened)
        self.core = self.store.core
        self.tell_policies()

    def tell_policies(self) -> None:
        for queue_no in (1, 2, 3):
            at = Position(*self.core.durable[1:])
            self.core.archive.set((queue_no,), f"q{queue_no}", self.retained.get(queue_no), at)
        self.core.archive.policies_known((1, 2, 3))
        self.publish_watermark()

    def publish_watermark(self) -> None:
        archive, path = self.core.archive, self.path / archive_file.NAME
        if archive.queues:
            contents = contents_of(self.core, self.opened.folder, self.vhost)
            self.opened.folder.files.write_new(path, contents.encoded())
        else:
            path.unlink(missing_ok=True)
        archive.published = archive.version

    def write(
        self, queue_nos: tuple[int, ...], count: int, size: int = 100, highest: int = 0
    ) -> None:
        """Publish messages, not durably yet."""
        messages: list[Message] = []
        for _ in range(count):
            body = b"%08d" % self.count + bytes(size)
            self.count += 1
            head = head_of(Properties(delivery_mode=2, priority=highest or None), len(body))
            messages.append((origin_of(b"x", b"key"), head, body))
        routes = tuple(route_no(no, highest) for no in queue_nos)
        first = self.core.write(messages, routes)
        for queue_no in queue_nos:
            row_no = queue_no + highest
            seq = self.next_seq.get(row_no, self.boot_epoch << 40)
            self.next_seq[row_no] = seq + count
            entries = [(first + at, 0) for at in range(count)]
            self.core.publish(row_no, seq, entries, routed_as=route_no(queue_no, highest))
            rows = [(row_no, seq + at, first + at) for at in range(count)]
            self.pending += [
                (queue_no, row, message[2]) for row, message in zip(rows, messages, strict=True)
            ]

    def flush(self) -> None:
        self.store.flush()
        self._are_durable(self.pending)
        self.pending = []

    def _are_durable(self, pending: list[tuple[int, Row, bytes]]) -> None:
        """Note durable messages in the order in which their flush has placed them."""
        for queue_no, row, body in sorted(pending, key=lambda each: self._place(each[1][2])):
            self.written.setdefault(queue_no, []).append(body)
            self.rows.append(row)

    def _place(self, msg_no: int) -> tuple[int, ...]:
        place = self.core.memtables.location(msg_no)
        if place is None:
            place = self.opened.recovered.index.locations([msg_no])[msg_no]
        return place[:2]

    def publish(self, queue_nos: tuple[int, ...] = (1,), count: int = 1, size: int = 100) -> None:
        """Publish messages durably, and tell readers."""
        self.write(queue_nos, count, size)
        self.flush()
        self.publish_watermark()

    def ack(self, rows: Iterable[Row]) -> None:
        for queue_no, seq, msg_no in list(rows):
            self.core.ack(queue_no, [(seq, msg_no)])
            self.rows.remove((queue_no, seq, msg_no))

    def ack_all(self) -> None:
        self.ack(self.rows)
        self.flush()

    def collect(self) -> None:
        """Remove and merge what can be; the archive lets go what is too old."""
        self.flush()
        self.store.collect()
        self.publish_watermark()

    def crash(self, torn: random.Random | None = None) -> None:
        """End without a word, with what was written and not flushed half on the disk; start anew.

        Args:
            torn: draws how much of the flush under way reaches segment and journal.
        """
        if torn is not None and self.core.delay_s() is not None:
            flush = self.core.start()
            for log, job in (
                (self.opened.rdq_log, flush.rdq),
                (self.opened.journal_log, flush.journal),
            ):
                if torn.random() < 0.5:
                    for _ in log.run(job):
                        pass
            if torn.random() < 0.5:
                self._tear(torn)
        self.store.close()
        self.open()
        index = self.opened.recovered.index
        found = {(no, row[0]) for no in index.queues() for row in pages(index, no, 0, SEQ_END)}
        self._are_durable([each for each in self.pending if each[1][:2] in found])
        self.pending = []
        self.rows = [row for row in self.rows if row[:2] in found]

    def _tear(self, torn: random.Random) -> None:
        """Cut bytes off that were never synced."""
        reached = self.core.durable[1:]
        path = self.opened.folder.rdq_path(reached[0])
        if path.exists() and path.stat().st_size > reached[1]:
            with path.open("r+b") as file:
                file.truncate(torn.randint(reached[1], path.stat().st_size))

    def close(self) -> None:
        self.store.close()

    @property
    def segments(self) -> list[int]:
        return self.opened.folder.rdq_nos()


class Stream:
    """A query without Spark: it keeps offsets as Spark's checkpoint does."""

    def __init__(self, *paths: Path, limit: Limit | None = None, **options: str) -> None:
        words = (
            {"path": str(paths[0])}
            if len(paths) == 1
            else {"paths": str([*map(str, paths)]).replace("'", '"')}
        )
        self.options = StreamOptions.of(words | options)
        self.limit = limit or Limit(self.options.max_rows, self.options.max_bytes)
        self.start: dict[str, Any] | None = None
        self.batches: list[tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]] = []
        self.restart()

    def restart(self) -> None:
        self.follower = Follower(self.options)

    def step(self) -> list[dict[str, Any]] | None:
        """Run a batch; return its rows, None if there is nothing new."""
        if self.start is None:
            self.start = self.follower.initial()
        end = self.follower.latest(self.start, self.limit)
        if end == self.start:
            return None
        rows = rows_between(self.options, self.start, end)
        self.batches.append((self.start, end, rows))
        self.start = end
        return rows

    def run(self) -> list[dict[str, Any]]:
        """Run batches until nothing is left to read."""
        found: list[dict[str, Any]] = []
        for _ in range(10_000):
            rows = self.step()
            if rows is None:
                return found
            found += rows
        raise AssertionError("the stream does not come to an end")


def rows_between(
    options: StreamOptions, start: dict[str, Any], end: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the rows of a batch, as tasks read them."""
    settings = settings_of(options)
    batches = [
        batch
        for pieces in partitions_of(options, start, end)
        for piece in pieces
        for batch in read_piece(piece, settings)
    ]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def bodies(rows: Iterable[dict[str, Any]], queue: str = "q1") -> list[bytes]:
    return [row["body"] for row in rows if row["queue"] == queue]
