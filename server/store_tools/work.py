"""The verbs of ``leveret store``: each works on its stores one after the other, while no broker runs.

``stat``, ``verify``, ``salvage``, and ``repair`` without ``--yes`` do not change the stores they read.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.core.errors import StoreError
from leveret.core.system.files import Files
from leveret.core.system.scratch_files import ScratchCalls
from leveret.metadata.reader import copy_metadata
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.errors import FormatTooNew, StoreLocked
from leveret.msg_store.format.folder import read_format
from leveret.msg_store.index import lmdb_index
from leveret.msg_store.index.files import LmdbFiles
from leveret.msg_store.offline import repair as store_repair
from leveret.msg_store.offline.audit import Audit, audited
from leveret.msg_store.offline.inspection import Inspection
from leveret.msg_store.offline.offline_store import OfflineStore
from leveret.msg_store.offline.rebuilding import NOT_ASKED
from leveret.msg_store.offline.repair_plan import RepairPlan, plan_repair, read_plans
from leveret.msg_store.offline.salvage import salvage
from leveret.msg_store.offline.store_at import StoreAt
from leveret.msg_store.recovery.format_repair import restore_format
from leveret.msg_store.recovery.recovery import StoreFiles, open_store
from leveret.server.output.progress import Progress, progress_bar
from leveret.server.process import (
    METADATA,
    NODE,
    VHOSTS,
    NodeFile,
    refuse_network,
    stored_node,
)
from leveret.server.store_tools.dirs import (
    Stores,
    data_dir_of,
    find_stores,
    held,
    next_epoch,
)
from leveret.server.store_tools.findings import findings_of, lost_in, steps_of
from leveret.server.store_tools.stats import stats_of
from leveret.spark.jobs.progress import silent

if TYPE_CHECKING:
    from leveret.management.json_text import Row

UNFINISHED: Final = ".unfinished"


@contextmanager
def _stores(
    path: Path, bar: AbstractContextManager[Progress], *, is_read_only: bool
) -> Iterator[tuple[Stores, Progress]]:
    """Yield the stores of a path, which no broker and no other tool uses meanwhile."""
    with held(data_dir_of(path), is_read_only), bar as progress:
        if not is_read_only:
            refuse_network(path)
        yield find_stores(path), progress


def stat(path: Path) -> Row:
    """Return the stats of all stores."""

    def work(at: StoreAt) -> Row:
        with Inspection(at.path) as store:
            return stats_of(store, at, time.time())

    with _stores(path, nullcontext(silent), is_read_only=True) as (found, _):
        return _answer(found, _each(found, work))


def verify(path: Path) -> Row:
    """Audit all stores; return the damage."""

    def work(at: StoreAt) -> Row:
        with audited(at.path, progress) as audit:
            return _audit_row(at, audit)

    with _stores(path, progress_bar("verify"), is_read_only=True) as (found, progress):
        return _answer(found, _each(found, work))


def _audit_row(at: StoreAt, audit: Audit) -> Row:
    findings = list(findings_of(audit, at.names))
    return at.row | {
        "is_sound": audit.is_sound,
        "messages": sum(terms.messages for terms in audit.queues.values()),
        "message_bytes": sum(terms.size_bytes for terms in audit.queues.values()),
        "segments": len(audit.store.folder.rdq_nos()),
        "lost": [asdict(lost) for lost in lost_in(audit.store, audit.lost, at.names)],
        "damage": [each.text for each in findings if each.is_damage],
        "of_a_crash": [each.text for each in findings if not each.is_damage],
        "notes": list(dict.fromkeys([*audit.notes, *audit.store.report.notes])),
    }


def repair(path: Path, is_agreed: bool) -> Row:
    """Return the repairs of all stores; carry them out if ``is_agreed``."""

    def work(at: StoreAt) -> Row:
        with audited(at.path, progress) as audit:
            plan = plan_repair(audit)
            row = _audit_row(at, audit)
            findings = findings_of(audit, at.names)
            row["todo"] = [f"{each.text}: {each.repair}" for each in findings]
        row["is_done"] = is_agreed and plan.is_needed
        if row["is_done"]:
            _carry_out(found, at, plan)
        return row

    with _stores(path, progress_bar("repair"), is_read_only=not is_agreed) as (found, progress):
        return _answer(found, _each(found, work))


def _carry_out(found: Stores, at: StoreAt, plan: RepairPlan) -> None:
    store_repair.repair(at.path, plan, next_epoch(found.data_dir, plan.epoch_seen), _now_ms)


def repair_by(path: Path, file: Path) -> Row:
    """Carry out the plans in a file; stores without one are left alone.

    Raises:
        StoreError: a plan cannot be read, or its store is not here.
        StoreChanged: a store has changed since its plan was made.
    """
    plans = {plan.uuid: plan for plan in read_plans(file)}
    with _stores(path, nullcontext(silent), is_read_only=False) as (found, _):
        uuids = {_uuid_of(at.path): at for at in found.stores}
        for uuid in plans.keys() - uuids.keys():
            raise StoreError(
                f"the store of {plans[uuid].path}, which {file} is for, is not in {path}"
            )
        rows = []
        for uuid, at in uuids.items():
            row = at.row | {"todo": [], "is_done": False}
            if (plan := plans.get(uuid)) is not None:
                _carry_out(found, at, plan)
                row |= {"todo": list(steps_of(plan)), "is_done": True}
            rows.append(row)
        return _answer(found, rows)


def _uuid_of(path: Path) -> bytes:
    files = Files(ScratchCalls())  # a FORMAT that is lost is restored in memory
    restore_format(files, path)
    return read_format(files, path)


def salvage_to(
    path: Path, target: Path, from_segments: bool, progress: Progress | None = None
) -> Row:
    """Copy readable messages into a new data directory, or a new store; a bar shows it unless ``progress`` is given."""
    path, target = path.absolute(), target.absolute()
    is_whole = data_dir_of(path) == path
    draft = _draft_of(path, target)
    bar = progress_bar("salvage") if progress is None else nullcontext(progress)
    with _stores(path, bar, is_read_only=True) as (found, report), _made(draft, target) as folder:
        if is_whole:
            (folder / VHOSTS).mkdir(mode=0o700)

        def work(at: StoreAt) -> Row:
            into = folder / VHOSTS / at.path.name if is_whole else folder
            try:
                return _salvaged(at, into, from_segments, report)
            except StoreError:
                shutil.rmtree(into)  # half a store would keep a broker from its vhost
                raise

        answer = _answer(found, _each(found, work))
        if is_whole and not found.metadata_damage:
            copy_metadata(path / METADATA, folder / METADATA)
            _copy_node(path, folder)
    answer["target"] = str(target)
    return answer


def _salvaged(at: StoreAt, into: Path, from_segments: bool, progress: Progress) -> Row:
    into.mkdir(mode=0o700, exist_ok=True)
    damage = NOT_ASKED if from_segments else ""
    with audited(at.path, progress, damage) as audit:
        result = salvage(audit, into, os.urandom(16), _now_ms(), progress)
        return at.row | {
            "messages": result.messages,
            "rows": result.rows,
            "segment_bytes": result.size_bytes,
            "lost": [asdict(lost) for lost in lost_in(audit.store, result.lost, at.names)],
            "gaps": list(audit.store.report.gaps),
            "rebuilt": audit.store.report.rebuilt,
        }


def _draft_of(path: Path, target: Path) -> Path:
    """Return the folder in which a salvage is made; raises StoreError unless the target can be taken."""
    refuse_network(target)
    if target.is_relative_to(path) or path.is_relative_to(target):
        raise StoreError(f"{target} must lie beside {path}, not in it or around it")
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise StoreError(f"{target} is there already, and not an empty directory")
    draft = target.with_name(target.name + UNFINISHED)
    if draft.exists():
        raise StoreError(f"{draft} is left from a salvage that was cut off; remove it first")
    return draft


@contextmanager
def _made(draft: Path, target: Path) -> Iterator[Path]:
    """Yield a draft folder; it is renamed to the target on success and removed on failure."""
    draft.mkdir(mode=0o700, parents=True)
    try:
        yield draft
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    Files().fsync_dir(target.parent)


def _copy_node(path: Path, folder: Path) -> None:
    with suppress(FileNotFoundError, ValueError):  # the metadata has the UUID, too
        node = NodeFile(stored_node(path).node_id)  # transactions of the copied metadata begin anew
        Files().write_new(folder / NODE, node.text().encode())


def compact(path: Path) -> Row:
    """Make segments few and full, and the index small.

    Raises:
        StoreError: a store is damaged; it must be repaired first.
    """
    with _stores(path, progress_bar("compact"), is_read_only=False) as (found, progress):
        return _answer(found, [_compacted(found, at, progress) for at in found.stores])


def _compacted(found: Stores, at: StoreAt, progress: Progress) -> Row:
    with Inspection(at.path) as inspection:
        epoch_seen = inspection.epoch_seen
        if inspection.report.is_damage or inspection.format_damage:
            raise StoreError(f"{at.path} is damaged; repair it first (leveret store repair)")
    files = Files()
    before = _bytes_in(at.path / "rdq")
    where = StoreFiles(files, at.path, Ballast(files, at.path), _now_ms)
    opened = open_store(where, next_epoch(found.data_dir, epoch_seen))
    try:
        store = OfflineStore(opened)
        collected = store.collect(lambda done: progress("merged", done.copied_bytes, before))
        store.stop()
    except BaseException:
        opened.close()
        raise
    index = LmdbFiles(at.path / lmdb_index.FOLDER, opened.folder.uuid).compact()
    return at.row | {
        "merges": collected.merges,
        "removed": collected.removed,
        "segment_bytes_before": before,
        "segment_bytes": _bytes_in(at.path / "rdq"),
        "index_bytes_before": index[0],
        "index_bytes": index[1],
    }


def _bytes_in(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.iterdir()) if folder.is_dir() else 0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _each(found: Stores, work: Callable[[StoreAt], Row]) -> Iterator[Row]:
    """Work on all stores; an error of a store as a whole does not keep the others from their turn.

    Raises:
        StoreLocked: another process has one open.
        FormatTooNew: one is of a newer version.
    """
    for at in found.stores:
        try:
            yield work(at)
        except (StoreLocked, FormatTooNew):
            raise
        except StoreError as error:
            yield at.row | {"error": str(error)}


def _answer(found: Stores, rows: Iterable[Row]) -> Row:
    is_known = found.data_dir is not None and not found.metadata_damage
    nobodys = [str(at.path) for at in found.stores if is_known and at.vhost is None]
    return {
        "data_dir": None if found.data_dir is None else str(found.data_dir),
        "metadata_damage": found.metadata_damage,
        "metadata_difference": found.metadata_difference,
        "without_vhost": nobodys,
        "stores": list(rows),
    }
