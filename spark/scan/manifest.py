"""The manifest of a snapshot, as far as a reader of messages needs it (docs/snapshots.md).

``leveret.management.snapshots`` writes it. Fields that a reader does not need are passed over, so that a snapshot of a
newer version with the same format number can be read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from leveret.core.errors import StoreError
from leveret.spark.errors import NotASnapshot

NAME: Final = "MANIFEST.json"
FORMAT: Final = 1
_SCHEME: Final = "file:"


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A durable queue.

    Attributes:
        queue_nos: its numbers in the store; one per priority, the lowest first.
        is_retained: a policy keeps its messages after the ack; they are its archive.
    """

    name: str
    queue_nos: tuple[int, ...]
    is_retained: bool


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """The store of a vhost; the fields are those of the manifest."""

    vhost: str
    folder: str
    uuid: bytes
    is_clean: bool
    torn_bytes: int
    dropped: int
    segments: dict[int, int]  # number -> length in bytes
    queues: tuple[QueueEntry, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot."""

    path: Path
    name: str
    created_ms: int
    node: str
    stores: tuple[StoreEntry, ...]

    @property
    def is_clean(self) -> bool:
        """Whether no store was left by a crash."""
        return all(store.is_clean for store in self.stores)

    @property
    def torn_bytes(self) -> int:
        """Bytes at the ends of files that a crash has torn; the snapshot leaves them out."""
        return sum(store.torn_bytes for store in self.stores)


def read_manifest(path: Path) -> Snapshot:
    """Read the manifest of a snapshot.

    Raises:
        NotASnapshot: the folder has none; the text says how to make one of a data directory.
        StoreError: it is damaged, or written by a newer version.
    """
    try:
        text = (path / NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NotASnapshot(_why_none(path)) from None
    try:
        fields = json.loads(text)
        if fields["format"] > FORMAT:
            raise StoreError(f"{path} has format {fields['format']}, known are up to {FORMAT}")
        stores = tuple(_store(entry) for entry in fields["stores"])
        return Snapshot(path, fields["name"], fields["created_ms"], fields["node"], stores)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path / NAME} is damaged: {type(error).__name__} {error}") from error


def local_path(text: str) -> Path:
    """Return the folder that a path or ``file:`` URI names.

    Raises:
        NotASnapshot: it is of another scheme.
    """
    if text.startswith(_SCHEME):
        text = "/" + text.removeprefix(_SCHEME).lstrip("/")
    elif "://" in text:
        raise NotASnapshot(
            f"{text} is not on a file system: copy the snapshot to one that driver and executors share, "
            "with leveret snapshot create --copy DIR"
        )
    return Path(text).absolute()


def _why_none(path: Path) -> str:
    if not path.exists():
        return f"{path} does not exist"
    if (path / "node").exists() and (path / "metadata").is_dir():
        return (
            f"{path} is a data directory, which changes while it is read. Make a snapshot, and load that:\n"
            f"    leveret snapshot create NAME --data {path}\n"
            f'    load("{path / "snapshots" / "NAME"}")'
        )
    if path.name.endswith(".draft"):
        return f"{path} is the draft of a snapshot that is being made, or was cut off"
    found = sorted(each.parent.name for each in path.glob(f"*/{NAME}")) if path.is_dir() else []
    if found:
        return f"{path} has snapshots, load one of them: {', '.join(found[:10])}"
    return f"{path} is not a snapshot: it has no {NAME}"


def _store(entry: dict[str, Any]) -> StoreEntry:
    segments = {int(Path(each["name"]).stem, 16): each["size_bytes"] for each in entry["segments"]}
    return StoreEntry(
        entry["vhost"],
        entry["folder"],
        bytes.fromhex(entry["uuid"]),
        entry["is_clean"],
        entry["torn_bytes"],
        entry["dropped"],
        segments,
        tuple(_queue(each) for each in entry["queues"]),
    )


def _queue(entry: dict[str, Any]) -> QueueEntry:
    is_retained = bool(entry.get("retention_ms") or entry.get("retention_bytes"))
    return QueueEntry(entry["name"], tuple(entry["queue_nos"]), is_retained)
