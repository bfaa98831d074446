"""``leveret snapshot create|list|verify|restore|locate|drop``.

Exit codes: 0 done; 1 ``verify`` or ``locate`` found damage; 65 refused; 70 the broker or the disk failed; 78 the data
directory cannot be used, or a snapshot is damaged.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from leveret.core.errors import StoreError
from leveret.core.printable import printable
from leveret.core.system.files import Files
from leveret.management.errors import RefusedError
from leveret.management.snapshots import copying, manifest
from leveret.management.snapshots.checking import Report, verify
from leveret.management.snapshots.directory import FOLDER, SnapshotDirectory, read_manifest
from leveret.management.snapshots.making import Reached, Wanted, complete, take_offline
from leveret.management.snapshots.manifest import Manifest
from leveret.server import control_client as control
from leveret.server.output import formats
from leveret.server.output.progress import progress_bar
from leveret.server.output.terminal import show
from leveret.server.process import DataDirectory, stored_node

EX_DAMAGED: Final = 1
COLUMNS: Final = ("name", "created", "age_s", "size_bytes", "messages", "clean")
SEQS_SHOWN: Final = 10


def run(options: argparse.Namespace) -> int:
    """Carry out the parsed command; return the exit code."""
    options.data = options.data.absolute()
    try:
        return VERBS[options.verb](options)
    except RefusedError as error:
        return _fail(os.EX_DATAERR, str(error))
    except control.ControlFailedError as error:
        return _fail(os.EX_SOFTWARE, str(error))
    except StoreError as error:
        return _fail(os.EX_CONFIG, str(error))
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        return _fail(os.EX_SOFTWARE, f"{(error.strerror or str(error)).lower()}{place}")


def _create(options: argparse.Namespace) -> int:
    name = options.name or time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    copy_to = options.copy.absolute() if options.copy is not None else None
    wanted = Wanted(name, options.vhost)
    path, made = create(Files(), options.data, wanted, copy_to, options.timeout)
    if options.json:
        show(formats.json_line(_row(made) | {"path": str(path)}), end="")
        return 0
    torn = sum(store.torn_bytes for store in made.stores)
    state = "clean" if made.is_clean else f"after a crash, {torn} torn bytes left out"
    show(
        f"{path}: {made.messages} messages in {made.queue_count} queues, "
        f"{made.size_bytes} bytes, {state}"
    )
    return 0


def create(
    files: Files,
    data_dir: Path,
    wanted: Wanted,
    copy_to: Path | None,
    timeout_s: float,
    reached: Reached = lambda _: None,
) -> tuple[Path, Manifest]:
    """Make a snapshot, of a running broker or of a data directory that no broker uses.

    All files go into a draft. The draft becomes a snapshot when it is synced, has its manifest and is
    renamed. A failure removes the draft; a draft that a crash has left is removed with the next snapshot or
    the next start.

    With ``copy_to`` the snapshot is made only in that snapshot directory, on any file system. ``timeout_s`` is
    for the broker's answer; ``reached`` is called at each step, for tests that end the process there.

    Returns:
        The folder of the snapshot, and its manifest.

    Raises:
        RefusedError: the name is taken, a vhost does not exist, or another snapshot is being made.
        ControlFailedError: the broker could not do its part.
        StoreError: the data directory must be repaired first.
        OSError: a file operation failed.
    """
    try:
        wanted.node = str(stored_node(data_dir).node_id)
    except (OSError, ValueError) as error:
        raise StoreError(f"{data_dir} is not a data directory of Leveret") from error
    if copy_to is not None:
        SnapshotDirectory(files, copy_to).check_new(wanted.name)
    directory = SnapshotDirectory(files, data_dir / FOLDER)
    with directory.locked():
        directory.check_new(wanted.name)
        draft = directory.draft(wanted.name)
        try:
            arguments = {"name": wanted.name, "vhosts": wanted.vhosts}
            try:
                control.ask(data_dir, "take_snapshot", arguments, timeout_s)
            except control.NoBrokerError:
                with DataDirectory(data_dir):
                    directory.drop_drafts()
                    for point in take_offline(files, data_dir, draft, wanted):
                        reached(point)
            reached("snapshot: taken")
            made = complete(files, draft, wanted, reached)
            if copy_to is not None:
                target = copy_to / wanted.name
                copying.publish_copy(files, draft, target, made)
                shutil.rmtree(draft)
                return target, made
            manifest.write(files, draft, made)
            reached("snapshot: described")
            return directory.commit(wanted.name), made
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise


def _list(options: argparse.Namespace) -> int:
    folder = options.folder.absolute() if options.folder is not None else options.data / FOLDER
    directory, rows, failed = SnapshotDirectory(Files(), folder), [], 0
    for name in directory.names():
        try:
            rows.append(_row(read_manifest(folder / name)) | {"name": name})
        except StoreError as error:
            failed = _fail(os.EX_CONFIG, str(error))
    show(formats.rows("json" if options.json else "table", COLUMNS, rows), end="")
    return failed


def _row(made: Manifest) -> dict[str, Any]:
    created_s = made.created_ms / 1000
    return {
        "name": made.name,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created_s)),
        "age_s": max(0, int(time.time() - created_s)),
        "size_bytes": made.size_bytes,
        "messages": made.messages,
        "clean": made.is_clean,
    }


def _verify(options: argparse.Namespace) -> int:
    folder = _folder(options)
    wanted = read_manifest(folder)
    with progress_bar("verify") as progress:
        report = verify(Files(), folder, wanted, progress)
    if options.json:
        show(formats.json_line(asdict(report) | {"sound": report.is_sound}), end="")
    else:
        show("".join(f"{line}\n" for line in _lines(report)), end="")
    return 0 if report.is_sound else EX_DAMAGED


def _lines(report: Report) -> list[str]:
    lines = [
        f"queue '{found['queue'] or found['queue_no']}' in vhost '{found['vhost']}': "
        f"{len(found['seqs'])} messages cannot be read, seqs {_seqs(found['seqs'])}: {found['why']}"
        for found in report.damaged
    ]
    lines += report.problems
    state = "sound" if report.is_sound else "damaged"
    count = f"{report.rows} messages, {report.records} records of {report.size_bytes} bytes"
    return [printable(line) for line in [*lines, f"{report.snapshot}: {state}, {count}"]]


def _seqs(seqs: list[int]) -> str:
    more = ", ..." if len(seqs) > SEQS_SHOWN else ""
    return ", ".join(map(str, seqs[:SEQS_SHOWN])) + more


def _restore(options: argparse.Namespace) -> int:
    folder, target = _folder(options), options.to.absolute()
    made = read_manifest(folder)
    copying.restore(Files(), folder, made, target)
    show(f"{target}: {made.messages} messages in {made.queue_count} queues")
    return 0


def _locate(options: argparse.Namespace) -> int:
    try:
        from leveret.spark.scan.locating import locate  # noqa: PLC0415 - an extra
        from leveret.spark.scan.manifest import read_manifest as read_for_scan  # noqa: PLC0415
    except ModuleNotFoundError as error:
        return _fail(os.EX_CONFIG, f"{error.name} is missing: pip install 'leveret[spark]'")
    folder = _folder(options)
    read_manifest(folder)
    stores = locate(read_for_scan(folder))
    lost = sum(store.lost_rows for store in stores)
    damage = f", {lost} messages cannot be read" if lost else ""
    rows = sum(store.rows for store in stores)
    segments = sum(len(store.segments) - 1 for store in stores)
    show(f"{folder}: located {rows} messages in {segments} segments{damage}")
    return EX_DAMAGED if lost else 0


def _drop(options: argparse.Namespace) -> int:
    SnapshotDirectory(Files(), options.data / FOLDER).drop(options.name)
    return 0


def _folder(options: argparse.Namespace) -> Path:
    if "/" in options.name:
        return Path(options.name).absolute()
    folder: Path = options.data / FOLDER / options.name
    return folder


VERBS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "create": _create,
    "list": _list,
    "verify": _verify,
    "restore": _restore,
    "locate": _locate,
    "drop": _drop,
}


def _fail(code: int, text: str) -> int:
    show(f"leveret: {text}", file=sys.stderr)
    return code
