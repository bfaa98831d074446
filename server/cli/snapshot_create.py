"""Creating a snapshot, of a running broker or of a data directory that no broker uses.

All files go into a draft. The draft becomes a snapshot when it is synced, has its manifest and is renamed. A
failure removes the draft; a draft that a crash has left is removed with the next snapshot or the next start.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from leveret.core.errors import StoreError
from leveret.core.files import Files
from leveret.server import control
from leveret.server.process import DataDirectory, stored_node_id
from leveret.server.snapshots import manifest
from leveret.server.snapshots.copying import publish_copy
from leveret.server.snapshots.directory import FOLDER, SnapshotDirectory
from leveret.server.snapshots.making import Reached, Wanted, complete, take_offline
from leveret.server.snapshots.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Asked:
    """The operator's request."""

    data_dir: Path
    name: str
    vhosts: list[str]  # empty: all
    copy_to: Path | None  # another snapshot directory, on any file system
    timeout_s: float  # for the broker's answer


def create(files: Files, asked: Asked, reached: Reached = lambda _: None) -> tuple[Path, Manifest]:
    """Make a snapshot; return its folder and its manifest.

    ``reached`` is called at each step, for tests that end the process there.

    Raises:
        RefusedError: the name is taken, a vhost does not exist, or another snapshot is being made.
        ControlFailedError: the broker could not do its part.
        StoreError: the data directory must be repaired first.
        OSError: a file operation failed.
    """
    try:
        node = str(stored_node_id(asked.data_dir))
    except (OSError, ValueError) as error:
        raise StoreError(f"{asked.data_dir} is not a data directory of Leveret") from error
    if asked.copy_to is not None:
        SnapshotDirectory(files, asked.copy_to).check_new(asked.name)
    directory = SnapshotDirectory(files, asked.data_dir / FOLDER)
    with directory.locked():
        directory.check_new(asked.name)
        draft = directory.draft(asked.name)
        try:
            wanted = Wanted(asked.name, node, asked.vhosts)
            _take(files, directory, asked, wanted, reached)
            made = complete(files, draft, wanted, reached)
            if asked.copy_to is not None:
                target = asked.copy_to / asked.name
                publish_copy(files, draft, target, made)
                shutil.rmtree(draft)
                return target, made
            manifest.write(files, draft, made)
            reached("snapshot: described")
            return directory.commit(asked.name), made
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise


def _take(
    files: Files, directory: SnapshotDirectory, asked: Asked, wanted: Wanted, reached: Reached
) -> None:
    arguments = {"name": wanted.name, "vhosts": wanted.vhosts}
    try:
        control.ask(asked.data_dir, "take_snapshot", arguments, asked.timeout_s)
    except control.NoBrokerError:
        with DataDirectory(asked.data_dir):
            directory.drop_drafts()
            for point in take_offline(files, asked.data_dir, directory.draft(wanted.name), wanted):
                reached(point)
    reached("snapshot: taken")
