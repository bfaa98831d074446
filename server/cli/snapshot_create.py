"""Creating a snapshot, of a running broker or of a data directory that nobody uses.

All of it goes into a draft; it is a snapshot when the draft, synced and with its manifest, is renamed. What
fails removes its draft, and what a crash leaves of one goes with the next snapshot or the next start.
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
from leveret.server.snapshots.directory import FOLDER, Shelf
from leveret.server.snapshots.making import Reached, Wanted, complete, take_at_rest
from leveret.server.snapshots.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Asked:
    """What the operator wants.

    Attributes:
        data_dir: of the broker.
        name: of the snapshot.
        vhosts: their names; none are all.
        copy_to: another folder for snapshots, on any file system; None: beside the data.
        timeout_s: for the broker's answer.
    """

    data_dir: Path
    name: str
    vhosts: list[str]
    copy_to: Path | None
    timeout_s: float


def create(files: Files, asked: Asked, reached: Reached = lambda _: None) -> tuple[Path, Manifest]:
    """Make a snapshot; return where it lies and what is in it.

    Args:
        files: the way to the disk.
        asked: what is wanted.
        reached: called at each point, for tests that end the process there.

    Raises:
        RefusedError: the name is taken, a vhost does not exist, or another one is being made.
        ControlFailedError: the broker could not do its part.
        StoreError: the data directory cannot be read as it is.
        OSError: the disk refuses.
    """
    try:
        node = str(stored_node_id(asked.data_dir))
    except (OSError, ValueError) as error:
        raise StoreError(f"{asked.data_dir} is not a data directory of Leveret") from error
    if asked.copy_to is not None:
        Shelf(files, asked.copy_to).check_new(asked.name)
    shelf = Shelf(files, asked.data_dir / FOLDER)
    with shelf.locked():
        shelf.check_new(asked.name)
        draft = shelf.draft(asked.name)
        try:
            wanted = Wanted(asked.name, node, asked.vhosts)
            _take(files, shelf, asked, wanted, reached)
            made = complete(files, draft, wanted, reached)
            if asked.copy_to is not None:
                target = asked.copy_to / asked.name
                publish_copy(files, draft, target, made)
                shutil.rmtree(draft)
                return target, made
            manifest.write(files, draft, made)
            reached("snapshot: described")
            return shelf.commit(asked.name), made
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise


def _take(files: Files, shelf: Shelf, asked: Asked, wanted: Wanted, reached: Reached) -> None:
    arguments = {"name": wanted.name, "vhosts": wanted.vhosts}
    try:
        control.ask(asked.data_dir, "take_snapshot", arguments, asked.timeout_s)
    except control.NoBrokerError:
        with DataDirectory(asked.data_dir):
            shelf.drop_drafts()
            for point in take_at_rest(files, asked.data_dir, shelf.draft(wanted.name), wanted):
                reached(point)
    reached("snapshot: taken")
