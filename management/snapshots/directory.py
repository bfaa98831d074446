"""The snapshot directory: one folder for each snapshot.

::

    snapshots/
        lock                 held by the process that creates, drops or cleans up
        NAME/MANIFEST.json   a snapshot
        NAME.draft/          not a snapshot: being created or dropped, or left by a crash
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from leveret.core.errors import StoreError
from leveret.core.log.loggers import logger
from leveret.core.system.files import Files
from leveret.management.errors import RefusedError
from leveret.management.snapshots import manifest
from leveret.management.snapshots.manifest import Manifest

log = logger(__name__)

FOLDER: Final = "snapshots"
DRAFT: Final = ".draft"
_LOCK: Final = "lock"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class SnapshotDirectory:
    """A folder with snapshots."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock that keeps other processes from changing the folder.

        Raises:
            RefusedError: another process holds it.
        """
        self.files.mkdir(self.path)
        with self.files.open_lock(self.path / _LOCK) as lock:
            try:
                lock.lock()
            except BlockingIOError:
                raise RefusedError(f"another process changes {self.path}") from None
            yield

    def check_new(self, name: str) -> None:
        """Raise RefusedError if the name is invalid or taken."""
        if not _NAME.fullmatch(name) or name.endswith(DRAFT) or name == _LOCK:
            raise RefusedError(
                f"'{name}' cannot be the name of a snapshot: letters, digits, dots, '_' and '-', "
                "at most 100"
            )
        if (self.path / name).exists():
            raise RefusedError(f"snapshot '{name}' exists")

    def draft(self, name: str) -> Path:
        return self.path / (name + DRAFT)

    def drop_drafts(self) -> None:
        """Remove all drafts; the caller holds the lock."""
        if not self.path.exists():
            return
        for name in self.files.names(self.path):
            if name.endswith(DRAFT):
                shutil.rmtree(self.path / name)

    def commit(self, name: str) -> Path:
        """Rename a draft to its snapshot; the draft is synced and has its manifest."""
        self.files.rename(self.draft(name), self.path / name)
        self.files.fsync_dir(self.path)
        return self.path / name

    def names(self) -> list[str]:
        """Return the names of all snapshots, oldest first; the manifest of a damaged one may be missing."""
        if not self.path.is_dir():
            return []
        found = []
        for name in self.files.names(self.path):
            folder = self.path / name
            if folder.is_dir() and not name.endswith(DRAFT):
                text = folder / manifest.NAME
                found.append(((text if text.exists() else folder).stat().st_mtime_ns, name))
        return [name for _, name in sorted(found)]

    def drop(self, name: str) -> None:
        """Remove a snapshot; a crash leaves the snapshot or a draft.

        Raises:
            RefusedError: the snapshot does not exist, or another process holds the lock.
        """
        if name not in self.names():
            raise RefusedError(f"no snapshot '{name}' in {self.path}")
        with self.locked():
            self.drop_drafts()
            self.files.rename(self.path / name, self.draft(name))
            self.files.fsync_dir(self.path)
            self.drop_drafts()


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a snapshot in any folder.

    Raises:
        RefusedError: the folder does not exist.
        StoreError: the manifest is missing or damaged.
    """
    if not folder.is_dir():
        raise RefusedError(f"no snapshot '{folder.name}' in {folder.parent}")
    try:
        return manifest.read(folder)
    except FileNotFoundError:
        raise StoreError(f"{folder / manifest.NAME} is missing") from None


def clean_up(files: Files, data_dir: Path) -> None:
    """Remove drafts that a crash has left; at the start of a broker, unless another process holds the lock."""
    directory = SnapshotDirectory(files, data_dir / FOLDER)
    if not directory.path.exists():
        return
    try:
        with directory.locked():
            directory.drop_drafts()
    except RefusedError:
        pass  # that process removes them
    except OSError as error:  # they only take disk space
        log.warning("drafts of snapshots not removed folder=%s error=%s", directory.path, error)
