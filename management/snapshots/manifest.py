"""The manifest of a snapshot, ``MANIFEST.json``: its contents, with lengths and checksums.

The manifest is written last, so a folder with a manifest is a complete snapshot. It is sufficient to read the
messages without a broker: it has the queue numbers used in ``qidx`` and ``loc`` of the index, and the segments with
their lengths. Records in segments have checksums of their own; every other file has one in the manifest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from leveret.core.errors import StoreError
from leveret.core.system.files import Files
from leveret.management import json_text

NAME: Final = "MANIFEST.json"
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a snapshot.

    Attributes:
        name: relative to the folder of its entry.
        size_bytes: the length; a segment may be longer.
        crc32: zlib's CRC-32 of the file; None for segments, whose records have their own.
    """

    name: str
    size_bytes: int
    crc32: int | None = None


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A durable queue.

    Attributes:
        queue_nos: its queue numbers in the store; one per priority, the lowest first.
        size_bytes: of their bodies.
        retention_ms, retention_bytes: how long its settled messages stay; None: that bound is not set.
    """

    name: str
    queue_nos: list[int]
    messages: int
    size_bytes: int
    retention_ms: int | None = None
    retention_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """The store of a vhost.

    Attributes:
        folder: relative to the snapshot.
        uuid: of the store, in hex; a restored store has the same.
        lsn: the snapshot contains exactly the journal records below it.
        boot_epoch: of the start that wrote the last checkpoint.
        is_clean: whether the store was running or stopped in order, not left by a crash.
        torn_bytes: at the ends of files, torn by the crash and left out.
        dropped: rows whose message cannot be read, left out of the counts.
        unknown_messages: in queues that were being deleted.
    """

    vhost: str
    folder: str
    uuid: str
    lsn: int
    boot_epoch: int
    is_clean: bool
    torn_bytes: int
    dropped: int
    unknown_messages: int
    segments: list[FileEntry]
    files: list[FileEntry]
    queues: list[QueueEntry]

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a snapshot.

    Attributes:
        files: the definitions.
    """

    format: int
    name: str
    created_ms: int
    leveret: str
    node: str
    stores: list[StoreEntry]
    files: list[FileEntry]

    @property
    def messages(self) -> int:
        return sum(store.messages for store in self.stores)

    @property
    def queue_count(self) -> int:
        return sum(len(store.queues) for store in self.stores)

    @property
    def is_clean(self) -> bool:
        return all(store.is_clean for store in self.stores)

    @property
    def size_bytes(self) -> int:
        """The size of all files, whether linked to the broker's or not."""
        return sum(entry.size_bytes for _, entry in self.all_files())

    def all_files(self) -> list[tuple[str, FileEntry]]:
        """Return every file with its path relative to the snapshot."""
        found = [(entry.name, entry) for entry in self.files]
        for store in self.stores:
            entries = [*store.files, *store.segments]
            found += [(f"{store.folder}/{entry.name}", entry) for entry in entries]
        return found


def write(files: Files, folder: Path, manifest: Manifest) -> None:
    """Write and sync a manifest."""
    text = json_text.encode(msgspec.to_builtins(manifest))
    files.write_new(folder / NAME, text + b"\n")


def read(folder: Path) -> Manifest:
    """Read the manifest of a snapshot.

    Raises:
        FileNotFoundError: the folder has no manifest.
        StoreError: the manifest is damaged, or written by a newer version.
    """
    text = (folder / NAME).read_bytes()
    try:
        fields = json_text.decode(text)
        version = fields["format"]
        if version > FORMAT:
            raise StoreError(f"{folder} has format {version}, known are up to {FORMAT}")
        return msgspec.convert(fields, Manifest)
    except (ValueError, KeyError, TypeError) as error:  # msgspec raises ValueErrors
        raise StoreError(f"{folder / NAME} is damaged: {error}") from error
