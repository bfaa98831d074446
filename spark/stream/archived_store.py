"""Stores with archived queues, as a reader of files sees them: it opens ``archive.json`` and segments, nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.core.errors import StoreError
from leveret.core.system.files import Files
from leveret.msg_store.archive import archive_file
from leveret.msg_store.archive.archive_file import ArchiveContents
from leveret.msg_store.format.file_header import HEADER_BYTES, RDQ_MAGIC, FileHeader, decode_header
from leveret.msg_store.format.folder import FORMAT, StorePaths
from leveret.spark.errors import NotAnArchive
from leveret.spark.scan.manifest import NAME as MANIFEST

_NODE: Final = "node"
_METADATA: Final = "metadata"
_VHOSTS: Final = "vhosts"


@dataclass(frozen=True, slots=True)
class ArchivedStore:
    """The store of a vhost, with what ``archive.json`` had when it was found."""

    path: Path
    node: str
    contents: ArchiveContents

    @property
    def store_id(self) -> str:
        return self.contents.uuid.hex()

    @property
    def vhost(self) -> str:
        return self.contents.vhost

    def contents_now(self) -> ArchiveContents | None:
        """Return what ``archive.json`` has by now; raises as ``archive_of``."""
        return archive_of(self.path)

    def segments(self, first: int, last: int) -> list[int]:
        """Return the numbers of the segments there are, between these two and with them, ascending."""
        return [no for no in StorePaths(Files(), self.path).rdq_nos() if first <= no <= last]

    def segment_path(self, segment: int) -> Path:
        return StorePaths(Files(), self.path).rdq_path(segment)

    def header(self, segment: int) -> tuple[FileHeader, int]:
        """Return header and length of a segment.

        Raises:
            FileNotFoundError: it is gone.
            Corrupt: its header is damaged, or it is another store's.
        """
        with self.segment_path(segment).open("rb") as file:
            header = decode_header(file.read(HEADER_BYTES), RDQ_MAGIC, self.contents.uuid)
            return header, file.seek(0, 2)


def archive_of(path: Path) -> ArchiveContents | None:
    """Return the contents of a store's ``archive.json``; None: no queue is archived.

    Raises:
        StoreError: it is damaged.
    """
    try:
        return archive_file.read(StorePaths(Files(), path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StoreError(
            f"{path / archive_file.NAME} is damaged: {error}; the broker writes it anew when it has started"
        ) from error


def is_live(path: Path) -> bool:
    """Return whether a path is a data directory, or a vhost's store in one; a snapshot is neither."""
    if (path / MANIFEST).exists():
        return False
    return _is_data(path) or _is_store(path)


def find_archives(paths: Sequence[Path]) -> dict[str, ArchivedStore]:
    """Return the stores with archived queues, by ``store_id``.

    Args:
        paths: data directories, or stores of vhosts.

    Raises:
        NotAnArchive: a path is neither, or two paths have the same store.
        StoreError: an ``archive.json`` is damaged.
    """
    found: dict[str, ArchivedStore] = {}
    for path in paths:
        for store in _stores_at(path):
            other = found.setdefault(store.store_id, store)
            if other is not store:
                raise NotAnArchive(
                    f"{other.path} and {store.path} have the same store, {store.store_id}: load one of them"
                )
    return found


def _stores_at(path: Path) -> Iterator[ArchivedStore]:
    if _is_data(path):
        folders, node = sorted((path / _VHOSTS).glob("*")), path / _NODE
    elif _is_store(path):
        folders, node = [path], path.parents[1] / _NODE
    else:
        raise NotAnArchive(_why_none(path))
    name = node.read_text().partition("\n")[0].strip() if node.exists() else ""
    for folder in folders:
        contents = archive_of(folder) if folder.is_dir() else None
        if contents is not None:
            yield ArchivedStore(folder, name, contents)


def _is_data(path: Path) -> bool:
    return (path / _NODE).exists() and (path / _METADATA).is_dir()


def _is_store(path: Path) -> bool:
    return (path / FORMAT).exists() and (path / "rdq").is_dir()


def _why_none(path: Path) -> str:
    if (path / MANIFEST).exists():
        return f"{path} is a snapshot, which does not grow: read it with spark.read; stream from a data directory"
    wanted = "a stream reads the data directory of a broker, or the store of a vhost in it"
    return (
        f"{path} is no data directory: {wanted}"
        if path.exists()
        else f"{path} does not exist: {wanted}"
    )
