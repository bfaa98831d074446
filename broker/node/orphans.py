"""Orphans: messages of queues, and folders of vhosts, without a definition; removed after a week.

Messages become orphans when the broker crashes between the deletion of a definition and of its
messages; or when definitions were lost, and then an operator may want the messages back. So orphans are
*listed*, in ``orphans.json`` beside them and in the log, and removed once they were seen for ``KEPT_MS``.
Numbers of queues are given once, so a queue that is declared again under the same name never sees them.

::

    vhosts/<id>/orphans.json     queue_no -> when it was first seen, ms since 1970, 0 if it is being deleted;
                                 "vhost": the folder itself
    vhosts/<id>-<ms>.deleted     a folder that is being removed

Differs from RabbitMQ: it removes them as soon as it sees them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from leveret.core.log.loggers import logger
from leveret.core.system.files import Files

log = logger(__name__)

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
    """Update a store's list of orphans; return the queue numbers that are due.

    ``found`` are queue numbers with messages and without a definition; ``leaving`` likewise, but being
    deleted: they are due if the broker ends before their deletion has.
    """
    names = list(map(str, found))
    return list(map(int, _due(files, folder, names, map(str, leaving), now_ms, kept_ms)))


def due_folders(
    files: Files, vhosts: Path, claimed: Collection[str], now_ms: int, kept_ms: int = KEPT_MS
) -> list[Path]:
    """Update the lists in folders of ``vhosts`` that no vhost claims; return the folders due."""
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
        log.warning(
            "no definition, messages are removed after kept_h folder=%s of=%s kept_h=%d",
            folder, news, kept_ms // 3_600_000,
        )  # fmt: skip
    return [name for name, since_ms in seen.items() if now_ms - since_ms >= kept_ms]


def _listed(files: Files, folder: Path) -> dict[str, int]:
    if LIST not in files.names(folder):
        return {}
    try:
        return {str(name): int(ms) for name, ms in json.loads(files.read(folder / LIST)).items()}
    except (ValueError, AttributeError, TypeError) as error:
        log.warning(
            "list of orphans unreadable, it is begun anew file=%s error=%s", folder / LIST, error
        )
        return {}


def _note(files: Files, folder: Path, now: dict[str, int]) -> None:
    if now:
        files.write_new(folder / LIST, json.dumps(now, indent=1).encode())
    else:
        files.unlink(folder / LIST)
        files.fsync_dir(folder)


def set_aside(files: Files, folder: Path, now_ms: int) -> Path:
    """Rename a folder, so that it is removed now or, if the broker ends meanwhile, after the next start.

    Otherwise half a store would be left to the next vhost of that name.
    """
    if folder.name.endswith(DELETED):
        return folder
    path = folder.with_name(f"{folder.name}-{now_ms:x}{DELETED}")
    files.rename(folder, path)
    files.fsync_dir(folder.parent)
    return path


def remove(folder: Path, is_ending: Callable[[], bool] = lambda: False) -> None:
    """Remove a folder and its files one by one, until ``is_ending`` says so.

    Two threads may remove the same folder at the same time.
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
