"""Making a snapshot from a draft: count its contents, sync all files, describe it in a manifest.

This needs only the draft, which either a running broker or ``take_offline`` has made. So a running broker does
only the part that no other process can do: link and copy its files as of one moment.
"""

from __future__ import annotations

import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import leveret
from leveret.broker.node.snapshots import METADATA
from leveret.broker.node.store_server import store_folder
from leveret.broker.queue.storage.factory import queue_nos_of_row
from leveret.core.errors import StoreError
from leveret.core.system.files import Files
from leveret.management.errors import RefusedError
from leveret.management.snapshots import manifest
from leveret.management.snapshots.manifest import FileEntry, Manifest, QueueEntry, StoreEntry
from leveret.metadata.environment import copy_at_rest
from leveret.metadata.store import MetadataStore, take_over
from leveret.metadata.tables import Contents, QueueRow, Row, VhostRow
from leveret.msg_store.archive import archive_file
from leveret.msg_store.archive.archive import Retention
from leveret.msg_store.format.folder import FORMAT as STORE_FORMAT
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.index import lmdb_index
from leveret.msg_store.offline.inspection import Inspection
from leveret.msg_store.offline.snapshot import take

Reached: TypeAlias = Callable[[str], None]

_BLOCK_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Wanted:
    """The request for a snapshot.

    Attributes:
        vhosts: their names; empty: all.
        node: the UUID of the node, read from its data directory.
        torn: by folder of an offline store, the torn bytes that a crash has left.
    """

    name: str
    vhosts: list[str] = field(default_factory=list)
    node: str = ""
    torn: dict[str, int] = field(default_factory=dict)


def take_offline(files: Files, data_dir: Path, draft: Path, wanted: Wanted) -> Iterator[str]:
    """Make the draft from a data directory that no broker uses.

    Raises:
        RefusedError: a wanted vhost does not exist.
        StoreError: a store must be repaired first.
    """
    files.mkdir(draft)
    copy_at_rest(data_dir / METADATA, draft / METADATA)
    yield "snapshot: metadata copied"
    for vhost in _checked(load(draft / METADATA), wanted):
        source, target = store_folder(data_dir, vhost), store_folder(draft, vhost)
        if (source / STORE_FORMAT).exists():  # else the vhost was never started
            wanted.torn[_relative(target, draft)] = yield from take(files, source, target)


def complete(files: Files, draft: Path, wanted: Wanted, reached: Reached) -> Manifest:
    """Count a draft's contents and sync its files; return its manifest, which is not written yet."""
    contents = _wanted_contents(draft / METADATA, wanted)
    entries = [_store(files, draft, vhost.name, contents, wanted) for vhost in contents.vhosts]
    reached("snapshot: counted")
    for folder, _, names in os.walk(draft, topdown=False):
        for name in names:
            with files.open_read(Path(folder, name)) as file:
                file.fsync()
        files.fsync_dir(Path(folder))
    reached("snapshot: synced")
    metadata = _entry(draft, draft / METADATA / lmdb_index.DATA)
    return Manifest(
        manifest.FORMAT,
        wanted.name,
        time.time_ns() // 1_000_000,
        leveret.__version__,
        wanted.node,
        [entry for entry in entries if entry is not None],
        [metadata],
    )


def load(directory: Path) -> Contents:
    """Return the definitions in a draft's metadata."""
    store = MetadataStore(
        directory, lambda _: None
    )  # without writes there is no outcome to deliver
    try:
        return store.load()
    finally:
        store.close()


def _wanted_contents(directory: Path, wanted: Wanted) -> Contents:
    """Delete the definitions of vhosts that are not wanted; return the others."""
    contents, wanted_rows, unwanted = load(directory), Contents(), []
    vhosts = {None, *_checked(contents, wanted)}
    for row in contents.rows():
        if _vhost_of(row) in vhosts:
            wanted_rows.add(row)
        else:
            unwanted.append(row)
    if unwanted:
        _delete(directory, unwanted)
    take_over(directory, "", 0, 0)  # a restored snapshot gets a new node
    compact = directory.with_name(f"{METADATA}.compact")
    copy_at_rest(directory, compact)  # opening has extended the file to the size of its map
    shutil.rmtree(directory)
    compact.rename(directory)
    return wanted_rows


def _delete(directory: Path, rows: list[Row]) -> None:
    failures: list[StoreError | None] = []
    store = MetadataStore(directory, lambda tell: tell())
    try:
        store.write([], rows, failures.append)
    finally:
        store.close()
    for failure in failures:
        if failure is not None:
            raise failure


def _checked(contents: Contents, wanted: Wanted) -> list[str]:
    """Return the names of the vhosts that are wanted."""
    names = [vhost.name for vhost in contents.vhosts]
    for name in wanted.vhosts:
        if name not in names:
            raise RefusedError(f"Virtual host '{name}' does not exist")
    return [name for name in names if name in wanted.vhosts or not wanted.vhosts]


def _vhost_of(row: Row) -> str | None:
    return row.name if isinstance(row, VhostRow) else getattr(row, "vhost", None)


def _store(
    files: Files, draft: Path, vhost: str, contents: Contents, wanted: Wanted
) -> StoreEntry | None:
    path = store_folder(draft, vhost)
    if not path.exists():
        return None  # added after the stores were linked; the snapshot promises nothing of it
    rows = sorted((row for row in contents.queues if row.vhost == vhost), key=lambda row: row.name)
    torn = wanted.torn.get(_relative(path, draft))
    paths = StorePaths(files, path)
    with Inspection(path, may_rebuild=False, files=files) as store:
        recovered, report = store.recovered, store.report
        found = archive_file.read(paths)
        archived = {each.queue_nos[0]: each.retention for each in found.queues} if found else {}
        queues = [_queue(row, store, archived) for row in rows]
        known = {no for queue in queues for no in queue.queue_nos}
        others = [path / STORE_FORMAT, path / lmdb_index.FOLDER / lmdb_index.DATA]
        if found is not None:
            others.append(path / archive_file.NAME)
        others += [paths.journal_path(no) for no in paths.journal_nos()]
        return StoreEntry(
            vhost,
            _relative(path, draft),
            store.folder.uuid.hex(),
            recovered.next_lsn,
            recovered.point.boot_epoch,
            is_clean=torn is None or recovered.is_clean,
            torn_bytes=torn or 0,
            dropped=len(report.dropped) + len(report.lost),
            unknown_messages=sum(
                terms.messages for no, terms in store.queues.items() if no not in known
            ),
            segments=_segments(store, paths, found.ends if found is not None else {}),
            files=[_entry(path, each) for each in others],
            queues=queues,
        )


def _segments(store: Inspection, paths: StorePaths, ends: Mapping[int, int]) -> list[FileEntry]:
    """Return the segments, each as long as the store needs it; ``ends`` are from ``archive.json``."""
    known = {} if paths.journal_nos() else store.index.files()
    entries = []
    for file_no in paths.rdq_nos():
        path, row = paths.rdq_path(file_no), known.get(file_no)
        size_bytes = path.stat().st_size if row is None else row.size_bytes
        size_bytes = min(size_bytes, ends.get(file_no, size_bytes))
        entries.append(FileEntry(_relative(path, paths.path), size_bytes))
    return entries


def _queue(row: QueueRow, store: Inspection, archived: Mapping[int, Retention]) -> QueueEntry:
    numbers = list(queue_nos_of_row(row))
    retention = archived.get(row.queue_no, Retention())
    terms = [store.queues[number] for number in numbers if number in store.queues]
    return QueueEntry(
        row.name,
        numbers,
        sum(each.messages for each in terms),
        sum(each.size_bytes for each in terms),
        retention.age_ms,
        retention.size_bytes,
    )


def _entry(folder: Path, path: Path) -> FileEntry:
    return FileEntry(_relative(path, folder), path.stat().st_size, crc32_of(path))


def crc32_of(path: Path) -> int:
    """Return zlib's CRC-32 of a file."""
    crc = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
    return crc


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()
