"""Snapshots for tests of reading: made by the broker itself, or of a store that is filled step by step."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aio_pika
import pyarrow as pa

from leveret.broker.node.store_server import store_folder
from leveret.core.addresses import Address
from leveret.core.message import Message
from leveret.core.system.files import Files
from leveret.management.snapshots.making import Wanted
from leveret.metadata.store import MetadataStore
from leveret.metadata.tables import QueueRow, Row, VhostRow
from leveret.msg_store.offline.offline_store import OfflineStore
from leveret.msg_store.recovery.recovery import open_store
from leveret.server.broker import Broker
from leveret.server.cli.snapshot_command import create
from leveret.server.config.config import Config
from leveret.spark.scan.reader import read
from rigs.store.live_store import files_at

NODE = "5f0c1c1e-0000-4000-8000-00000000c0de"


@asynccontextmanager
async def channel_of_broker(data: Path) -> AsyncIterator[Any]:
    """Run a broker on a data directory; yields a channel of aio-pika."""
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=data)
    async with Broker(config) as broker, await aio_pika.connect(broker.url) as connection:
        yield await connection.channel()


def snapshot_of(
    data: Path, name: str = "one", copy_to: Path | None = None, timeout_s: float = 30.0
) -> Path:
    """Make a snapshot as ``leveret snapshot create`` does."""
    path, _ = create(Files(), data, Wanted(name), copy_to, timeout_s)
    return path


def rows_of(path: Path, **options: Any) -> list[dict[str, Any]]:
    """Read a snapshot without Spark."""
    texts = {name: str(value) for name, value in options.items()}
    return table_of(path, **texts).to_pylist()


def table_of(path: Path, **options: str) -> Any:
    batches = list(read({"path": str(path), **options}))
    return pa.Table.from_batches(batches) if batches else pa.table({})


class DataRig:
    """A data directory without a broker: definitions, and one store that group commit fills.

    Attributes:
        written: what was published, by queue number and seq.
    """

    def __init__(
        self,
        data: Path,
        queues: dict[str, int],
        vhost: str = "/",
        rdq_file_bytes: int = 1 << 24,
        levels: int = 1,
    ) -> None:
        self.data = data
        self.queue_nos = queues
        self.now_ms = 1_700_000_000_000
        self.boot_epoch = 0
        self.next_seq: dict[int, int] = {}
        self.written: dict[tuple[int, int], Message] = {}
        self.msg_nos: dict[tuple[int, int], int] = {}
        data.mkdir()
        (data / "node").write_text(NODE + "\n")
        arguments = {"x-max-priority": ("l", levels - 1)} if levels > 1 else {}
        rows: list[Row] = [VhostRow(vhost)]
        rows += [
            QueueRow(vhost, name, arguments=arguments, queue_no=number)
            for name, number in queues.items()
        ]
        store = MetadataStore(data / "metadata", lambda tell: tell())
        store.write(rows, [], lambda failure: None)
        store.close()
        self.path = store_folder(data, vhost)
        self.rdq_file_bytes = rdq_file_bytes
        self.open()

    def open(self) -> None:
        self.boot_epoch += 1
        where = files_at(self.path, rdq_file_bytes=self.rdq_file_bytes, now_ms=lambda: self.now_ms)
        self.opened = open_store(where, self.boot_epoch)
        self.store = OfflineStore(self.opened)
        self.core = self.store.core

    def publish(
        self, messages: list[Message], queue_nos: tuple[int, ...], expiry_ms: int = 0
    ) -> list[int]:
        """Publish in all queues, durably; return the messages' numbers."""
        first = self.core.write(messages, queue_nos)
        numbers = list(range(first, first + len(messages)))
        for queue_no in queue_nos:
            seq = self.next_seq.get(queue_no, self.boot_epoch << 40)
            self.next_seq[queue_no] = seq + len(messages)
            self.core.publish(queue_no, seq, [(no, expiry_ms) for no in numbers])
            for place, (no, message) in enumerate(zip(numbers, messages, strict=True)):
                self.written[queue_no, seq + place] = message
                self.msg_nos[queue_no, seq + place] = no
        self.store.flush()
        return numbers

    def ack(self, keys: Iterable[tuple[int, int]]) -> None:
        for queue_no, seq in keys:
            self.core.ack(queue_no, [(seq, self.msg_nos.pop((queue_no, seq)))])
            del self.written[queue_no, seq]
        self.store.flush()

    def stop(self) -> None:
        self.store.stop()

    def crash(self) -> None:
        self.store.close()

    def segments(self) -> list[Path]:
        return sorted((self.path / "rdq").glob("*.rdq"))
