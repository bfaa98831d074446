"""Record batches for tests of publishing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

TYPES = {
    "body": pa.binary(),
    "exchange": pa.string(),
    "routing_key": pa.string(),
    "properties_raw": pa.binary(),
    "headers_set": pa.map_(pa.string(), pa.string()),
    "headers_remove": pa.list_(pa.string()),
    "vhost": pa.string(),
    "queue": pa.string(),
    "seq_id": pa.int64(),
    "queue_no": pa.int64(),
}


def batch(rows: Sequence[dict[str, Any]]) -> Any:
    """Return a batch with the columns of the first row."""
    schema = pa.schema([(name, TYPES[name]) for name in rows[0]])
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


def keyed(numbers: Sequence[int], rows_per_batch: int = 7) -> Iterator[Any]:
    """Yield batches of rows with keys, whose bodies are the numbers; the queue is ``a`` or, from 1,000 on, ``b``."""
    rows = [
        {"body": b"%d" % number, "vhost": "/", "queue": "ab"[number >= 1000], "seq_id": number}
        for number in numbers
    ]
    for start in range(0, len(rows), rows_per_batch):
        yield batch(rows[start : start + rows_per_batch])
