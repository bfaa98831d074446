"""Locators: which rows of queues have their message in a segment, and where; the files that executors read.

::

    snapshots/NAME/locators/
        INDEX.json           what each locator has, for pruning, and the queues; written last
        HASH/%08x.arrow      the locator of a segment of the store in vhosts/HASH: Arrow IPC, sorted by offset
        HASH/00000000.arrow  rows whose message has no location, no segment or no sound header

They are made once per snapshot by ``locating``, and never change. A row of a locator is a message in a queue, so a
message in two queues has two rows with one offset. ``state`` is one of:

* ``READY``: the queue has it;
* ``ACKED``: it was acked and is retained (docs/spark.md, archive); it has no seq;
* ``UNREFERENCED``: the index has the message, and no queue has it. Only audits look at these.
* ``UNKNOWN``: a stream read it; locators in files have none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from leveret.core.errors import StoreError
from leveret.spark.scan.gather import Numbers
from leveret.spark.scan.manifest import Snapshot

FOLDER: Final = "locators"
INDEX: Final = "INDEX.json"
FORMAT: Final = 1
NO_SEGMENT: Final = 0  # segments are numbered from 1
NO_SEQ: Final = -1

READY: Final = 0
ACKED: Final = 1
UNREFERENCED: Final = 2
UNKNOWN: Final = 3
STATES: Final = {"ready": READY, "acked": ACKED}

PERSISTENT: Final = 1
REDELIVERED: Final = 2
REDELIVERED_KNOWN: Final = 4

SCHEMA: Final = pa.schema(
    [
        ("offset", pa.uint32()),
        ("length", pa.uint32()),
        ("queue_no", pa.uint32()),
        ("seq", pa.int64()),
        ("time_ms", pa.int64()),  # when the broker took it in; of rows without a message 0
        ("expiry_ms", pa.int64()),  # 0: never
        ("msg_no", pa.uint64()),
        ("body_size", pa.uint32()),
        ("refcount", pa.uint32()),  # as the index counts; 0: it has no location
        ("flags", pa.uint8()),
        ("state", pa.uint8()),
    ]
)


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A locator, as the index of locators describes it.

    Attributes:
        size_bytes: of the segment.
        live_bytes: of its records that queues need.
        rows: by queue number, how many rows there are; 0 for records of no queue.
        min_ms, max_ms: the earliest and the latest record.
        min_seq, max_seq: of rows that have one.
        is_sealed: nothing was written behind its records; false only for segments that a crash has left.
    """

    number: int
    size_bytes: int
    live_bytes: int
    rows: dict[int, int]
    min_ms: int
    max_ms: int
    min_seq: int
    max_seq: int
    is_sealed: bool


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A queue; ``arguments`` is JSON."""

    name: str
    queue_nos: tuple[int, ...]
    is_retained: bool
    arguments: str
    depth: int
    first_seq: int | None
    last_seq: int | None


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The locators of a store.

    Attributes:
        missing: numbers of segments that the index names and the snapshot does not have.
    """

    vhost: str
    folder: str
    uuid: bytes
    missing: tuple[int, ...]
    segments: tuple[SegmentFacts, ...]
    queues: tuple[QueueFacts, ...]

    @property
    def store_id(self) -> str:
        return self.uuid.hex()

    @property
    def rows(self) -> int:
        """How many messages queues have, including unreadable ones."""
        return sum(queue.depth for queue in self.queues)

    @property
    def lost_rows(self) -> int:
        """How many of them have no record that can be read."""
        return sum(
            count
            for facts in self.segments
            for number, count in facts.rows.items()
            if facts.number == NO_SEGMENT and number
        )


def locator_path(snapshot: Path, folder: str, number: int) -> Path:
    """Return the file of a locator; ``folder`` is the store's in the snapshot."""
    return snapshot / FOLDER / Path(folder).name / f"{number:08x}.arrow"


def read_locator(path: Path) -> dict[str, Numbers]:
    """Return the columns of a locator, mapped into memory.

    Raises:
        StoreError: it is missing or damaged.
    """
    try:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        columns = {name: table.column(name) for name in SCHEMA.names}
    except (OSError, pa.ArrowException, KeyError) as error:
        raise StoreError(
            f"locator {path} cannot be read: {error}; remove the folder {FOLDER} of the snapshot, it is made anew"
        ) from error
    return {name: _numbers(column) for name, column in columns.items()}


def _numbers(column: Any) -> Numbers:
    chunks = column.chunks
    if len(chunks) == 1:
        numbers: Numbers = chunks[0].to_numpy(zero_copy_only=True)
        return numbers
    return np.concatenate([np.empty(0, column.type.to_pandas_dtype()), *map(np.asarray, chunks)])


def read_index(snapshot: Snapshot) -> tuple[StoreFacts, ...] | None:
    """Return what the locators of a snapshot have; None if they were not made, or by another version.

    Raises:
        StoreError: the index of locators is damaged.
    """
    path = snapshot.path / FOLDER / INDEX
    try:
        fields = json.loads(path.read_bytes())
        if fields["format"] != FORMAT or fields["created_ms"] != snapshot.created_ms:
            return None
        return tuple(_store(each) for each in fields["stores"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path} is damaged: {type(error).__name__} {error}; remove the folder, it is made anew"
        ) from error


def index_text(snapshot: Snapshot, stores: list[StoreFacts]) -> str:
    """Return the contents of ``INDEX.json``."""
    fields = {
        "format": FORMAT,
        "snapshot": snapshot.name,
        "created_ms": snapshot.created_ms,
        "stores": [_store_fields(store) for store in stores],
    }
    return json.dumps(fields, separators=(",", ":")) + "\n"


def _store_fields(store: StoreFacts) -> dict[str, Any]:
    return {
        "vhost": store.vhost,
        "folder": store.folder,
        "uuid": store.uuid.hex(),
        "missing": store.missing,
        "segments": [_plain(each, SegmentFacts) for each in store.segments],
        "queues": [_plain(each, QueueFacts) for each in store.queues],
    }


def _plain(value: Any, kind: type) -> dict[str, Any]:
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]
    return {name: getattr(value, name) for name in names}


def _store(fields: dict[str, Any]) -> StoreFacts:
    return StoreFacts(
        fields["vhost"],
        fields["folder"],
        bytes.fromhex(fields["uuid"]),
        tuple(fields["missing"]),
        tuple(_segment(each) for each in fields["segments"]),
        tuple(
            QueueFacts(**{**each, "queue_nos": tuple(each["queue_nos"])})
            for each in fields["queues"]
        ),
    )


def _segment(fields: dict[str, Any]) -> SegmentFacts:
    rows = {int(number): count for number, count in fields["rows"].items()}
    return SegmentFacts(**{**fields, "rows": rows})
