"""Making the locators of a snapshot: the index's rows and locations, joined, and sorted by segment and offset.

It is done once, by the first program that reads the snapshot, and never by executors. Rows name messages and locations
place them, so the join is a search of sorted numbers. The time of a message is only in its record: the record headers
of each segment are read, and compared with the index. A message that has no location, or whose header is another, goes
to the locator of no segment.

A store that a crash has left has journals. They are replayed as a start would do, so its rows are those that the
restored broker would have.

RAM: 90 bytes per row and 28 per message. The folder is written under another name and renamed, so it is complete or
absent; if two programs make it, the first one's is used.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa

from leveret.amqp.tables import plain
from leveret.core.errors import StoreError
from leveret.metadata.environment import copy_at_rest
from leveret.metadata.store import MetadataStore
from leveret.metadata.tables import QueueRow
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import MOVED
from leveret.msg_store.offline.inspection import Inspection
from leveret.msg_store.offline.packed import lost_rows, packed_locations, packed_rows
from leveret.spark.scan import locators
from leveret.spark.scan.archive import Keys, acked_records, keys_of
from leveret.spark.scan.gather import Numbers
from leveret.spark.scan.locators import (
    NO_SEGMENT,
    NO_SEQ,
    PERSISTENT,
    READY,
    REDELIVERED,
    REDELIVERED_KNOWN,
    UNREFERENCED,
    QueueFacts,
    SegmentFacts,
    StoreFacts,
)
from leveret.spark.scan.manifest import Snapshot, StoreEntry
from leveret.spark.scan.segment import Segment

_ROW_KEY: Final = np.dtype([("queue_no", ">u4"), ("seq", ">u8")])
_ROW: Final = np.dtype(
    [("msg_no", "<u8"), ("body_size", "<u4"), ("expiry_ms", "<u8"), ("flags", "u1")]
)
_LOCATION_KEY: Final = np.dtype(">u8")
_LOCATION: Final = np.dtype(
    [("file", "<u4"), ("offset", "<u4"), ("length", "<u4"), ("size", "<u4"), ("count", "<u4")]
)
_SEQ_MAX: Final = (1 << 63) - 1
_METADATA: Final = "metadata"
_NO_QUEUE: Final = 0

Columns = dict[str, Numbers]


def locate(snapshot: Snapshot) -> tuple[StoreFacts, ...]:
    """Return what the locators of a snapshot have; make them if they are not there.

    Raises:
        StoreError: the snapshot is damaged, or its folder cannot be written.
    """
    found = locators.read_index(snapshot)
    if found is not None:
        return found
    folder = snapshot.path / locators.FOLDER
    draft = snapshot.path / f".{locators.FOLDER}.{os.getpid()}"
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        try:
            _make(snapshot, draft)
            shutil.rmtree(folder, ignore_errors=True)  # of another version
            draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        found = locators.read_index(snapshot)
        if found is None:  # else another program was faster
            raise StoreError(
                f"locators of {snapshot.path} cannot be made: {error}; the first read of a snapshot writes "
                f"them into its folder, {locators.FOLDER}: make it as a user who may write there"
            ) from error
        return found
    made = locators.read_index(snapshot)
    assert made is not None, "the locators were written"
    return made


def _make(snapshot: Snapshot, draft: Path) -> None:
    arguments = _arguments(snapshot)
    stores = [
        _StoreLocators(snapshot, entry, draft / Path(entry.folder).name, arguments).run()
        for entry in snapshot.stores
    ]
    with (draft / locators.INDEX).open("w") as file:
        file.write(locators.index_text(snapshot, stores))
        file.flush()
        os.fsync(file.fileno())


def _arguments(snapshot: Snapshot) -> dict[tuple[str, str], str]:
    """Return the arguments of all queues, as JSON; the definitions are read in a copy."""
    with TemporaryDirectory(prefix="leveret-locators-") as folder:
        copy = Path(folder) / _METADATA
        copy_at_rest(snapshot.path / _METADATA, copy)
        store = MetadataStore(copy, lambda _: None)
        try:
            queues: list[QueueRow] = store.load().queues
        finally:
            store.close()
    return {(row.vhost, row.name): json.dumps(plain(row.arguments)) for row in queues}


class _StoreLocators:
    """The locators of one store."""

    def __init__(
        self,
        snapshot: Snapshot,
        entry: StoreEntry,
        draft: Path,
        arguments: dict[tuple[str, str], str],
    ) -> None:
        self._entry = entry
        self._path = snapshot.path / entry.folder
        self._draft = draft
        self._arguments = arguments
        self._retained = frozenset(
            number for queue in entry.queues if queue.is_retained for number in queue.queue_nos
        )

    def run(self) -> StoreFacts:
        self._draft.mkdir(mode=0o700)
        with Inspection(self._path, may_rebuild=False) as store:
            rows, locations = _rows(store), _locations(store)
            terms = store.recovered.queues
            redelivered = {
                number: each.next_deliver for number, each in terms.items() if each.is_clean
            }
        columns = _joined(rows, locations)
        _mark_redelivered(columns, redelivered)
        queues = [self._queue_facts(columns, queue) for queue in self._entry.queues]
        missing, segments = self._write(columns)
        entry = self._entry
        return StoreFacts(
            entry.vhost, entry.folder, entry.uuid, missing, tuple(segments), tuple(queues)
        )

    def _queue_facts(self, columns: Columns, queue: Any) -> QueueFacts:
        here = np.isin(columns["queue_no"], np.array(queue.queue_nos, np.uint32))
        here &= columns["state"] == READY
        seqs = columns["seq"][here]
        first, last = (int(seqs.min()), int(seqs.max())) if len(seqs) else (None, None)
        arguments = self._arguments.get((self._entry.vhost, queue.name), "{}")
        return QueueFacts(
            queue.name, queue.queue_nos, queue.is_retained, arguments, len(seqs), first, last
        )

    # Segments.

    def _write(self, columns: Columns) -> tuple[tuple[int, ...], list[SegmentFacts]]:
        order = np.lexsort((columns["offset"], columns["file"]))
        files = columns["file"][order]
        facts: list[SegmentFacts] = []
        missing: list[int] = []
        lost: list[Columns] = []
        wanted = sorted({*np.unique(files).tolist(), *self._entry.segments} - {NO_SEGMENT})
        last = self._last_open()
        archive = acked_records(self._path, self._entry, self._retained, _ready(columns))
        for number in [NO_SEGMENT, *wanted]:
            low, high = np.searchsorted(files, [number, number + 1])
            part = {name: column[order[low:high]] for name, column in columns.items()}
            if number == NO_SEGMENT:
                lost.append(part)
                continue
            path = self._path / "rdq" / f"{number:08x}.rdq"
            try:
                segment = Segment(path, self._entry.uuid)
            except (FileNotFoundError, Corrupt):
                if high > low:
                    missing.append(number)
                    lost.append(part)
                continue
            with segment:
                headers = segment.headers(part["offset"])
                sound = segment.sound(headers, part["offset"], part["length"], part["msg_no"])
                part["time_ms"] = headers["ts_ms"].astype(np.int64)
                lost.append({name: column[~sound] for name, column in part.items()})
                part = {name: column[sound] for name, column in part.items()}
                if number in archive:
                    part = _merged(part, archive[number])
                size_bytes = self._entry.segments.get(number, segment.size_bytes)
            self._put(number, part)
            facts.append(_facts(number, size_bytes, part, number != last))
        facts.insert(0, self._put_lost(lost))
        return tuple(missing), facts

    def _last_open(self) -> int | None:
        """Return the segment that was open at a crash; None if none was."""
        if self._entry.is_clean:
            return None
        for number in sorted(self._entry.segments, reverse=True):
            try:
                path = self._path / "rdq" / f"{number:08x}.rdq"
                with Segment(path, self._entry.uuid) as segment:
                    if not segment.header.flags & MOVED:
                        return number
            except (FileNotFoundError, Corrupt):
                continue
        return None

    def _put_lost(self, lost: list[Columns]) -> SegmentFacts:
        names = lost[0].keys()
        part = {name: np.concatenate([each[name] for each in lost]) for name in names}
        for name in ("time_ms", "length"):
            part[name] = np.zeros(len(part[name]), part[name].dtype)
        self._put(NO_SEGMENT, part)
        return _facts(NO_SEGMENT, 0, part, True)

    def _put(self, number: int, part: Columns) -> None:
        arrays = [pa.array(part[field.name], field.type) for field in locators.SCHEMA]
        table = pa.record_batch(arrays, schema=locators.SCHEMA)
        path = self._draft / f"{number:08x}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, locators.SCHEMA) as writer:
            writer.write_batch(table)


def _rows(store: Inspection) -> Columns:
    keys, values = [np.empty(0, _ROW_KEY)], [np.empty(0, _ROW)]
    for page in (*packed_rows(store), lost_rows(store)):
        keys.append(np.frombuffer(page.keys, _ROW_KEY))
        values.append(np.frombuffer(page.values, _ROW))
    key, value = np.concatenate(keys), np.concatenate(values)
    if len(key) and key["seq"].max() > _SEQ_MAX:
        raise StoreError(f"{store.path} has seqs above {_SEQ_MAX}, which are no bigint")
    return {
        "queue_no": key["queue_no"].astype(np.uint32),
        "seq": key["seq"].astype(np.int64),
        "msg_no": value["msg_no"].copy(),
        "body_size": value["body_size"].copy(),
        "expiry_ms": value["expiry_ms"].astype(np.int64),
        "flags": value["flags"] & PERSISTENT,
    }


def _locations(store: Inspection) -> Columns:
    keys, values = [np.empty(0, _LOCATION_KEY)], [np.empty(0, _LOCATION)]
    for page in packed_locations(store):
        keys.append(np.frombuffer(page.keys, _LOCATION_KEY))
        values.append(np.frombuffer(page.values, _LOCATION))
    value = np.concatenate(values)
    columns: Columns = {name: value[name].copy() for name in _LOCATION.names or ()}
    return {"msg_no": np.concatenate(keys).astype(np.uint64), **columns}


def _joined(rows: Columns, locations: Columns) -> Columns:
    """Return rows with their locations, then locations without rows; ``file`` 0: no location."""
    known = locations["msg_no"]
    at = np.searchsorted(known, rows["msg_no"])
    inside = np.minimum(at, max(len(known) - 1, 0))
    found = known[inside] == rows["msg_no"] if len(known) else np.zeros(len(at), np.bool_)
    unreferenced = np.ones(len(known), np.bool_)
    unreferenced[inside[found]] = False
    bare = np.flatnonzero(unreferenced)
    count, more = len(at), len(bare)

    def placed(name: str) -> Numbers:
        column = np.zeros(count + more, np.uint32)
        column[:count][found] = locations[name][inside[found]]
        column[count:] = locations[name][bare]
        return column

    def extended(name: str, value: int) -> Numbers:
        return np.concatenate([rows[name], np.full(more, value, rows[name].dtype)])

    state = np.zeros(count + more, np.uint8)
    state[:count], state[count:] = READY, UNREFERENCED
    return {
        "file": placed("file"),
        "offset": placed("offset"),
        "length": placed("length"),
        "queue_no": extended("queue_no", _NO_QUEUE),
        "seq": extended("seq", NO_SEQ),
        "time_ms": np.zeros(count + more, np.int64),
        "expiry_ms": extended("expiry_ms", 0),
        "msg_no": np.concatenate([rows["msg_no"], known[bare]]),
        "body_size": np.concatenate([rows["body_size"], locations["size"][bare]]),
        "refcount": placed("count"),
        "flags": extended("flags", 0),
        "state": state,
    }


def _mark_redelivered(columns: Columns, next_deliver: dict[int, int]) -> None:
    """Note which messages had been handed out; it is known of queues that were stopped in order."""
    for number, seq in next_deliver.items():
        here = np.flatnonzero(columns["queue_no"] == number)
        handed_out = columns["seq"][here] < seq
        columns["flags"][here] |= REDELIVERED_KNOWN | np.where(handed_out, REDELIVERED, 0).astype(
            np.uint8
        )


def _ready(columns: Columns) -> Keys:
    """Return the rows that queues have."""
    ready = columns["state"] == READY
    return keys_of(columns["msg_no"][ready], columns["queue_no"][ready])


def _merged(part: Columns, more: Columns) -> Columns:
    columns = {
        field.name: np.concatenate([part[field.name], more[field.name]])
        for field in locators.SCHEMA
    }
    order = np.argsort(columns["offset"], kind="stable")
    return {name: column[order] for name, column in columns.items()}


def _facts(number: int, size_bytes: int, part: Columns, is_sealed: bool) -> SegmentFacts:
    numbers, counts = np.unique(part["queue_no"], return_counts=True)
    rows = {int(no): int(count) for no, count in zip(numbers, counts, strict=True)}
    is_live = part["state"] == READY
    _, first = np.unique(part["offset"][is_live], return_index=True)
    live_bytes = int(part["length"][is_live][first].sum(dtype=np.int64))
    seqs = part["seq"][part["seq"] != NO_SEQ]
    times = part["time_ms"]
    return SegmentFacts(
        number,
        size_bytes,
        live_bytes,
        rows,
        int(times.min(initial=_SEQ_MAX)) if len(times) else 0,
        int(times.max(initial=0)),
        int(seqs.min()) if len(seqs) else 0,
        int(seqs.max()) if len(seqs) else NO_SEQ,
        is_sealed,
    )
