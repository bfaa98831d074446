"""Reject files: rows that could not be delivered, as Parquet under the ledger.

Their columns are those of a sink, so ``spark.read.parquet("LEDGER/rejects")`` can be written again after the cause has
been removed (with ``ignoreUnknownColumns``, for ``reason`` and ``reply``). A file is durable before the ledger counts
its rows as settled. An attempt that is killed in between leaves rows that the next one rejects again.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from leveret.core.message import exchange_and_key
from leveret.spark.publish.errors import LedgerError
from leveret.spark.publish.ledger import sync_folder
from leveret.spark.publish.rows import Row

SCHEMA: Final = pa.schema(
    [
        ("vhost", pa.string()),
        ("queue", pa.string()),
        ("queue_no", pa.int64()),
        ("seq_id", pa.int64()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("properties_raw", pa.binary()),
        ("body", pa.binary()),
        ("reason", pa.string()),
        ("reply", pa.string()),
    ]
)


class Reject(NamedTuple):
    """A row with the reason, ``unroutable`` or ``nacked``, and the broker's text."""

    row: Row
    reason: str
    reply: str


def write_rejects(folder: Path, name: str, rejects: list[Reject]) -> None:
    """Write a new file ``NAME-RANDOM.parquet``; LedgerError: it cannot be written."""
    final = folder / f"{name}-{uuid.uuid4().hex[:12]}.parquet"
    temporary = final.with_name(f".{final.name}")
    table = pa.Table.from_pylist([_values(reject) for reject in rejects], schema=SCHEMA)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            pq.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(final)
        sync_folder(folder)
    except OSError as error:
        raise LedgerError(f"reject file {final} cannot be written: {error}") from None


def _values(reject: Reject) -> dict[str, Any]:
    row = reject.row
    exchange, routing_key = exchange_and_key(row.method[6:-1])
    vhost, queue, queue_no, seq_id = row.key or (None, None, None, None)
    return {
        "vhost": vhost,
        "queue": queue,
        "queue_no": queue_no,
        "seq_id": seq_id,
        "exchange": exchange.decode(),
        "routing_key": routing_key.decode(),
        "properties_raw": row.properties,
        "body": row.body,
        "reason": reject.reason,
        "reply": reject.reply,
    }
