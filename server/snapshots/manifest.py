"""The manifest of a snapshot, ``MANIFEST.json``: what is in it, and how to tell that it is all there.

Written last, so a folder with one is a whole snapshot. Enough to read the messages without a broker: the
numbers that ``qidx`` and ``loc`` of the index use are told for every queue, and the segments with their
lengths. Bytes of segments have checksums of their own; of all other files the manifest has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from leveret.core.errors import StoreError
from leveret.core.files import Files
from leveret.server.output import json_text

NAME: Final = "MANIFEST.json"
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a snapshot.

    Attributes:
        name: relative to the folder it is told for.
        size_bytes: its length; a segment may be longer.
        crc32: zlib's over all of it; None of segments, whose records have their own.
    """

    name: str
    size_bytes: int
    crc32: int | None = None


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A durable queue.

    Attributes:
        name: its name.
        queue_nos: its numbers in the store; several if it has priorities, the lowest priority first.
        messages: how many it holds.
        size_bytes: their bodies.
    """

    name: str
    queue_nos: list[int]
    messages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """The store of a vhost.

    Attributes:
        vhost: its name.
        folder: relative to the snapshot.
        uuid: of the store, in hex; kept by a restored one.
        lsn: all records of its log below it are in the snapshot, and none above.
        boot_epoch: of the start that wrote the last checkpoint.
        is_clean: taken of a working or stopped store; not of one that a crash has left.
        torn_bytes: at the ends of files, spoilt by the crash and left out.
        dropped: rows without a message, never confirmed.
        unknown_messages: of queues that were being deleted.
        segments: its messages.
        files: its index and journals.
        queues: of the vhost.
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
        """How many all queues hold together."""
        return sum(queue.messages for queue in self.queues)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a snapshot consists of.

    Attributes:
        format: of the manifest.
        name: of the snapshot.
        created_ms: wall time.
        leveret: the version that made it.
        node: the UUID of the node.
        stores: of the vhosts.
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
        """How many all queues hold together."""
        return sum(store.messages for store in self.stores)

    @property
    def queue_count(self) -> int:
        """How many durable queues there are."""
        return sum(len(store.queues) for store in self.stores)

    @property
    def is_clean(self) -> bool:
        """All stores are."""
        return all(store.is_clean for store in self.stores)

    @property
    def size_bytes(self) -> int:
        """All files together, shared with the broker or not."""
        return sum(entry.size_bytes for _, entry in self.all_files())

    def all_files(self) -> list[tuple[str, FileEntry]]:
        """Return every file with its path relative to the snapshot."""
        found = [(entry.name, entry) for entry in self.files]
        for store in self.stores:
            entries = [*store.files, *store.segments]
            found += [(f"{store.folder}/{entry.name}", entry) for entry in entries]
        return found


def write(files: Files, folder: Path, manifest: Manifest) -> None:
    """Put a manifest in place, synced."""
    text = json_text.encode(msgspec.to_builtins(manifest))
    files.write_new(folder / NAME, text + b"\n")


def read(folder: Path) -> Manifest:
    """Read the manifest of a snapshot.

    Raises:
        FileNotFoundError: there is none.
        StoreError: it is damaged, or written by a newer version.
    """
    text = (folder / NAME).read_bytes()
    try:
        fields = json_text.decode(text)
        version = fields["format"]
        if version > FORMAT:
            raise StoreError(f"{folder} has format {version}, known are up to {FORMAT}")
        return msgspec.convert(fields, Manifest)
    except (ValueError, KeyError, TypeError) as error:  # msgspec's are ValueErrors
        raise StoreError(f"{folder / NAME} is damaged: {error}") from error
