"""Messages of queues, and folders of vhosts, that no definition names: kept for a week, then removed.

They are there when the broker crashed between two deletions, that of a definition and that of what it
named; or because definitions were lost, and then somebody may want them back. So they are *listed*, in
``orphans.json`` beside them and in the log, and go when they have been seen for ``KEPT_MS``. Numbers of
queues are given once, so a queue that is declared again under the same name never sees them.

::

    vhosts/<id>/orphans.json     queue_no -> when it was first seen, ms since 1970, 0 if it is being deleted;
                                 "vhost": the folder itself
    vhosts/<id>-<ms>.deleted     a folder that is being removed

Differs from RabbitMQ: it removes them as soon as it sees them.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from leveret.core.files import Files

log = logging.getLogger(__name__)

KEPT_MS: Final = 7 * 24 * 3_600_000
LIST: Final = "orphans.json"

DELETED: Final = ".deleted"
_VHOST: Final = "vhost"


def due(
    files: Files,
    folder: Path,
    found: Collection[int],
    leaving: Collection[int],
    now_ms: int,
    kept_ms: int = KEPT_MS,
) -> list[int]:
    """Note in a store's list which queues without a definition it holds messages of.

    Args:
        files: the way to it.
        folder: the store's.
        found: their numbers.
        leaving: those that are being deleted; if the broker ends before that is done, they are due.
        now_ms: wall time.
        kept_ms: how long they are kept.

    Returns:
        Those that have been there for too long.
    """
    names = list(map(str, found))
    return list(map(int, _due(files, folder, names, map(str, leaving), now_ms, kept_ms)))


def due_folders(
    files: Files, vhosts: Path, claimed: Collection[str], now_ms: int, kept_ms: int = KEPT_MS
) -> list[Path]:
    """Note in folders that belong to no vhost that they were seen; return those that may go now.

    Args:
        files: the way to them.
        vhosts: where all vhosts have theirs.
        claimed: the names of those that belong to a vhost.
        now_ms: wall time.
        kept_ms: how long they are kept.
    """
    if not vhosts.is_dir():
        return []
    found = []
    for name in files.names(vhosts):
        folder = vhosts / name
        if name in claimed or not folder.is_dir():
            continue
        if name.endswith(DELETED) or _due(files, folder, [_VHOST], (), now_ms, kept_ms):
            found.append(folder)
    return found


def _due(
    files: Files,
    folder: Path,
    found: Collection[str],
    leaving: Iterable[str],
    now_ms: int,
    kept_ms: int,
) -> list[str]:
    before = _listed(files, folder)
    seen = {name: min(before.get(name, now_ms), now_ms) for name in found}
    now = seen | dict.fromkeys(leaving, 0)
    if now != before:
        _note(files, folder, now)
    if news := sorted(seen.keys() - before.keys()):
        log.warning("no definition folder=%s of=%s kept_h=%d", folder, news, kept_ms // 3_600_000)
    return [name for name, since_ms in seen.items() if now_ms - since_ms >= kept_ms]


def _listed(files: Files, folder: Path) -> dict[str, int]:
    if LIST not in files.names(folder):
        return {}
    try:
        return {str(name): int(ms) for name, ms in json.loads(files.read(folder / LIST)).items()}
    except (ValueError, AttributeError, TypeError) as error:
        log.warning("list of orphans is begun anew folder=%s error=%s", folder, error)
        return {}


def _note(files: Files, folder: Path, now: dict[str, int]) -> None:
    if now:
        files.write_new(folder / LIST, json.dumps(now, indent=1).encode())
    else:
        files.unlink(folder / LIST)
        files.fsync_dir(folder)


def set_aside(files: Files, folder: Path, now_ms: int) -> Path:
    """Give a folder a name under which it is removed, now or at the next start.

    A removal that is cut off would otherwise leave half a store to the next vhost of that name.
    """
    if folder.name.endswith(DELETED):
        return folder
    path = folder.with_name(f"{folder.name}-{now_ms:x}{DELETED}")
    files.rename(folder, path)
    files.fsync_dir(folder.parent)
    return path


def remove(folder: Path, is_ending: Callable[[], bool] = lambda: False) -> None:
    """Remove a folder with all that is in it, file by file, or as much as there is time for.

    Two may do it at the same time.
    """
    for path, folders, files in os.walk(folder, topdown=False):
        for name in files:
            if is_ending():
                return
            (Path(path) / name).unlink(missing_ok=True)
        for name in folders:
            _rmdir(Path(path) / name)
    _rmdir(folder)


def _rmdir(folder: Path) -> None:
    with suppress(FileNotFoundError):
        folder.rmdir()
