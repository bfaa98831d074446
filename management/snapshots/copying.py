"""Copying a snapshot to another file system, and restoring one to a data directory.

Both are written to a draft beside the target and renamed when the draft is synced. Segments never change, so a
restored data directory links those of the snapshot where the file system can; files that a broker writes (index,
journals, definitions) are copied.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Final

from leveret.core.errors import StoreError
from leveret.core.system.files import Files
from leveret.management.errors import RefusedError
from leveret.management.snapshots import manifest
from leveret.management.snapshots.making import crc32_of
from leveret.management.snapshots.manifest import Manifest
from leveret.msg_store.format.folder import StorePaths

RESTORING: Final = ".restoring"
_NO_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP})


def check_files(folder: Path, wanted: Manifest) -> list[str]:
    """Return a line for each missing or damaged file of a snapshot; segments are not read."""
    wrong = []
    for name, entry in wanted.all_files():
        path = folder / name
        size_bytes = path.stat().st_size if path.exists() else -1
        if size_bytes < 0:
            wrong.append(f"{name} is missing")
        elif size_bytes < entry.size_bytes:
            wrong.append(f"{name} has {size_bytes} bytes, {entry.size_bytes} expected")
        elif entry.crc32 is not None and crc32_of(path) != entry.crc32:
            wrong.append(f"the checksum of {name} is wrong")
    return wrong


def copy(files: Files, source: Path, target: Path, wanted: Manifest) -> None:
    """Copy all files of a snapshot into a new folder, synced.

    Raises:
        OSError: the copy failed; the target is incomplete.
    """
    _make_folders(files, target, wanted)
    for name, _ in wanted.all_files():
        _copy(files, source / name, target / name)
    _sync_folders(files, target)


def restore(files: Files, source: Path, wanted: Manifest, data_dir: Path) -> None:
    """Make a data directory from a snapshot, for a new node.

    Raises:
        RefusedError: the target is not empty.
        StoreError: files of the snapshot are missing or damaged.
        OSError: a file operation failed; the target is unchanged.
    """
    if data_dir.exists() and (not data_dir.is_dir() or os.listdir(data_dir)):
        raise RefusedError(f"{data_dir} is not empty")
    if wrong := check_files(source, wanted):
        raise StoreError(f"{source} cannot be restored: {wrong[0]}")
    draft = data_dir.with_name(f".{data_dir.name}{RESTORING}")
    if draft.exists():
        shutil.rmtree(draft)  # left by a crash
    try:
        _fill(files, source, wanted, draft)
        files.rename(draft, data_dir)
        files.fsync_dir(data_dir.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _fill(files: Files, source: Path, wanted: Manifest, draft: Path) -> None:
    _make_folders(files, draft, wanted)
    for name, entry in wanted.all_files():
        target = draft / name
        if entry.crc32 is not None:
            _copy(files, source / name, target)
            continue
        try:
            files.link(source / name, target)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            _copy(files, source / name, target)
    _sync_folders(files, draft)


def _make_folders(files: Files, top: Path, wanted: Manifest) -> None:
    """Make all folders, including empty folders of stores."""
    folders = {(top / name).parent for name, _ in wanted.all_files()}
    for store in wanted.stores:
        paths = StorePaths(files, top / store.folder)
        folders |= {paths.rdq, paths.journal}
    for folder in sorted(folders):
        files.mkdir(folder)


def _copy(files: Files, source: Path, target: Path) -> None:
    with files.open_read(source) as old, files.create_copy(target) as new:
        new.append_from(old, 0, old.size_bytes())
        new.fsync()


def _sync_folders(files: Files, top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        files.fsync_dir(Path(folder))
    files.fsync_dir(top.parent)


def publish_copy(files: Files, draft: Path, target: Path, wanted: Manifest) -> None:
    """Copy a draft to another folder as a complete snapshot; a crash leaves a draft there.

    Raises:
        OSError: a file operation failed; the target is unchanged.
    """
    copied = target.with_name(draft.name)
    if copied.exists():
        shutil.rmtree(copied)
    try:
        copy(files, draft, copied, wanted)
        manifest.write(files, copied, wanted)
        files.rename(copied, target)
        files.fsync_dir(target.parent)
    except BaseException:
        shutil.rmtree(copied, ignore_errors=True)
        raise
