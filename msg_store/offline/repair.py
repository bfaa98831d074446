"""Repair of an offline store, in place: recovery first, then the index is corrected by an audit.

A start corrects what the journal since the last checkpoint names, rebuilds an index that cannot be used
(``recovery``), and trusts the rest. So recovery runs first if it has anything to do; then what the audit found wrong in
the index is corrected in one transaction (``changes``). The audit is of the state that a start would continue from, so
its corrections fit the store that recovery leaves. The remaining bytes of a lost message go to the quarantine, and a
report there names queue, seq and reason.

A plan may be carried out later, from a file (``repair_plan``), and twice. It names its store by the ``fingerprint``,
and is refused if the store has changed since. Recovery changes the fingerprint; the report in the quarantine, which is
written after recovery and before the index, has the new one, so the plan is taken once more.

Segments are never changed. A crash in between leaves a store that a start recovers and that can be
repaired again; a repair of a sound store does nothing.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from leveret.core.system.files import Files
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.errors import StoreChanged
from leveret.msg_store.format.folder import StoreFolder, StorePaths, read_format
from leveret.msg_store.format.rows import Checkpoint, IndexDamaged, IndexFull
from leveret.msg_store.index import lmdb_index
from leveret.msg_store.index.files import LmdbFiles
from leveret.msg_store.index.lmdb_index import LmdbIndex
from leveret.msg_store.offline.changes import Remove, SetAside, batch_of
from leveret.msg_store.offline.repair_plan import RepairPlan, fingerprint
from leveret.msg_store.reading.segments import SegmentReader
from leveret.msg_store.recovery.format_repair import restore_format
from leveret.msg_store.recovery.recovery import StoreFiles, open_store


def repair(path: Path, plan: RepairPlan, boot_epoch: int, now_ms: Callable[[], int]) -> None:
    """Do the steps, under a boot epoch above all that were used.

    Raises:
        StoreChanged: the store is another than the plan was made for, or has changed since.
        StoreLocked: a process has it open.
    """
    files = Files()
    restore_format(files, path)
    is_recovered = _check_unchanged(files, path, plan)
    if plan.needs_recovery and not is_recovered:
        recover(path, boot_epoch, now_ms, is_index_used=not plan.index_damage)
    if plan.changes:
        _write(path, plan, now_ms)


def recover(path: Path, boot_epoch: int, now_ms: Callable[[], int], *, is_index_used: bool) -> None:
    """Do what a start of a broker does to a store; an index that is not used is set aside and rebuilt."""
    files, index = Files(), path / lmdb_index.FOLDER
    if not is_index_used and index.exists():
        LmdbFiles(index, b"").condemn()  # for opening it may end the process
    open_store(StoreFiles(files, path, Ballast(files, path), now_ms), boot_epoch).close()


def _check_unchanged(files: Files, path: Path, plan: RepairPlan) -> bool:
    """Raise ``StoreChanged`` unless the plan is for this store; return whether it has recovered the store before."""
    store = StorePaths(files, path, read_format(files, path))
    if store.uuid != plan.uuid:
        raise StoreChanged(f"{path} is another store than the plan was made for")
    found = fingerprint(store, checkpoint_of(path, store.uuid))
    report = path / "quarantine" / f"{plan.report_name}.json"
    if found == _fields_of(files, report).get("fingerprint"):
        return True
    if plan.index_damage:
        found = fingerprint(store, None)  # the plan was made without it, though it may open
    if found != plan.fingerprint:
        raise StoreChanged(
            f"{path} has changed since the audit that made the plan: audit it again (leveret audit --repair-plan)"
        )
    return False


def checkpoint_of(path: Path, uuid: bytes) -> Checkpoint | None:
    """Return the checkpoint of an index; None if it cannot be used."""
    folder = path / lmdb_index.FOLDER
    try:
        LmdbFiles(folder, uuid).check()
        with closing(LmdbIndex(folder, uuid, is_readonly=True)) as index:
            return index.checkpoint()
    except IndexDamaged:
        return None


def _fields_of(files: Files, path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(files.read(path))
    except (FileNotFoundError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _write(path: Path, plan: RepairPlan, now_ms: Callable[[], int]) -> None:
    """Move the bytes of lost messages to the quarantine, report the repair there, and correct the index."""
    lost = [change for change in plan.changes if isinstance(change, Remove)]
    rows = [(row.queue_no, row.seq, row.message, row.reason) for row in lost]
    with closing(StoreFolder(Files(), path, lambda: b"", now_ms)) as folder:
        with closing(SegmentReader(folder)) as reader:
            aside = [each.location for each in plan.changes if isinstance(each, SetAside)]
            names = [name for each in aside if (name := reader.set_aside(each)) is not None]
        now = fingerprint(folder, checkpoint_of(path, folder.uuid))
        folder.report(plan.report_name, {"lost": rows, "set_aside": names, "fingerprint": now})
        with closing(LmdbIndex(path / lmdb_index.FOLDER, folder.uuid)) as index:
            try:
                index.write(batch_of(plan.changes, index.queues(), index.files()))
            except IndexFull as error:
                raise OSError(errno.ENOSPC, str(error), str(path)) from error
