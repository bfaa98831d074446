"""``audit``: every record, location, queue entry and sum of stores is compared; all defects are named by class.

The rules, and the work, are ``leveret.msg_store.offline``'s: ``defects`` there states what a defect is, and ``audit``
finds them. An engine decides only who reads the segments, which is nearly all of the work: this process, one after the
other, or the tasks of Spark (``audit_spark``). The index is read by the process that calls, in both engines; that takes
28 bytes of RAM per message.

A store that a crash has left is audited as its next start would continue it, with what its journals have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from leveret.msg_store.format.folder import FORMAT
from leveret.msg_store.offline.audit import Audit, audited
from leveret.msg_store.offline.defects import Defect, Kind, defects_of
from leveret.msg_store.offline.repair_plan import RepairPlan, plan_repair, write_plans
from leveret.msg_store.offline.segment_check import CheckSegments, check_one_by_one
from leveret.msg_store.offline.store_at import StoreAt
from leveret.spark.errors import OptionError
from leveret.spark.jobs.progress import Progress, silent
from leveret.spark.jobs.report import JobReport
from leveret.spark.scan.manifest import NAME as MANIFEST
from leveret.spark.scan.manifest import read_manifest

JOB: Final = "audit"
SHOWN_MAX: Final = 1_000  # defects in a report
_COUNTS: Final[dict[str, Callable[[Audit], int]]] = {
    "messages": lambda found: len(found.locations) + len(found.unlocated),
    "entries": lambda found: sum(terms.messages for terms in found.queues.values()),
    "segments": lambda found: len(found.store.folder.rdq_nos()),
    "records": lambda found: found.records,
    "garbage_records": lambda found: found.garbage_records,
    "garbage_bytes": lambda found: found.garbage_bytes,
    "damaged_bytes": lambda found: found.damaged_bytes,
    "lost_messages": lambda _: 0,  # counted with the defects, as all that follow
    "defects": lambda _: 0,
}


def audit(
    path: Path | str | Sequence[StoreAt],
    *,
    spark: Any = None,
    repair_plan: Path | None = None,
    shown_max: int = SHOWN_MAX,
    progress: Progress = silent,
) -> JobReport:
    """Audit a snapshot, or the folder of one store that no process has open.

    Args:
        path: of the snapshot or store, or the stores themselves; executors of Spark see it under the same path.
        spark: a session whose tasks read the segments; None: this process reads them.
        repair_plan: a new file for the plan that ``leveret store repair --plan`` carries out.
        shown_max: how many defects the report names; it counts all.
        progress: gets the work done so far.

    Raises:
        NotASnapshot: the path is neither.
        OptionError: ``repair_plan`` of a snapshot.
        StoreError: a process has the store open, or it cannot be read at all.
    """
    stores = stores_at(Path(path).absolute()) if isinstance(path, Path | str) else path
    if repair_plan is not None:
        if any(store.is_snapshot for store in stores):
            raise OptionError(
                "a snapshot is never changed, so there is no plan of its repair: restore it "
                "(leveret snapshot restore), and audit the directory it was restored to"
            )
        if repair_plan.exists():
            raise OptionError(
                f"{repair_plan} is there already; name a new file for the repair plan"
            )
    report = JobReport(JOB, "local" if spark is None else "spark")
    report.counts = dict.fromkeys((*_COUNTS, *(kind.value for kind in Kind)), 0)
    report.details = {"stores": [], "defects": []}
    plans = [_audit_store(store, report, spark, shown_max, progress) for store in stores]
    if repair_plan is not None:
        write_plans(repair_plan, (plan for plan in plans if plan.is_needed))
        report.details["repair_plan"] = str(repair_plan)
    if report.counts["defects"] > shown_max:
        report.warn(f"the report names the first {shown_max} of {report.counts['defects']} defects")
    report.is_complete = not report.counts["defects"]
    return report.end()


def stores_at(path: Path) -> list[StoreAt]:
    """Return the stores of a snapshot, or the store in a folder, of a snapshot or not; raises ``NotASnapshot``."""
    is_store = (path / FORMAT).exists() or (path / "rdq").is_dir()
    if is_store and not is_in_snapshot(path):
        return [StoreAt(path)]
    snapshot = read_manifest(path.parents[1] if is_store else path)
    return [
        StoreAt(
            path / entry.folder,
            entry.vhost,
            {number: queue.name for queue in entry.queues for number in queue.queue_nos},
            is_snapshot=True,
            is_clean=entry.is_clean,
        )
        for entry in snapshot.stores
        if not is_store or snapshot.path / entry.folder == path
    ]


def is_in_snapshot(path: Path) -> bool:
    """Return whether a path is a snapshot, or the folder of a store in one."""
    return any((each / MANIFEST).exists() for each in (path, *path.parents[1:2]))


def _audit_store(
    store: StoreAt, report: JobReport, spark: Any, shown_max: int, progress: Progress
) -> RepairPlan:
    check: CheckSegments = check_one_by_one
    if spark is not None:
        from leveret.spark.jobs.audit_spark import check_with_spark  # noqa: PLC0415 - an engine

        check = check_with_spark(spark, progress)
    with audited(store.path, progress, may_rebuild=not store.is_snapshot, check=check) as found:
        counts = {name: count(found) for name, count in _COUNTS.items()}
        for defect in defects_of(found):
            counts["defects"] += 1
            counts["lost_messages"] += defect.is_lost
            report.count(defect.kind.value)
            if len(report.details["defects"]) < shown_max:
                report.details["defects"].append(_row(store, defect))
        is_clean = found.store.recovered.is_clean if store.is_clean is None else store.is_clean
        for name, value in counts.items():
            report.count(name, value)
        report.details["stores"].append(store.row | {"clean": is_clean} | counts)
        _warn(store, found, is_clean, report)
        return plan_repair(found)


def _warn(store: StoreAt, found: Audit, is_clean: bool, report: JobReport) -> None:
    if not is_clean:
        report.warn(
            f"{store.path} was not stopped in order: it was audited as its next start would continue it"
        )
    if dropped := len(found.store.report.dropped):
        report.warn(
            f"{store.path} has {dropped} entries that were never confirmed and whose messages a crash has torn: "
            "the next start drops them"
        )
    for note in found.notes:
        report.warn(f"{store.path}: {note}")


def _row(store: StoreAt, defect: Defect) -> dict[str, Any]:
    """Return a defect for the report; places are ``segment:offset+length``."""
    row: dict[str, Any] = {"kind": defect.kind.value, "store": store.path.name}
    if store.vhost is not None:
        row["vhost"] = store.vhost
    match defect.kind:
        case Kind.WRONG_QUEUE_SUMS:
            row["queue"] = store.queue(int(defect.where))
        case Kind.WRONG_SEGMENT_SUM:
            row["segment"] = f"{defect.where:08x}"
        case _:
            row["file" if isinstance(defect.where, str) else "message"] = defect.where
    if defect.entries:
        row["entries"] = [[store.queue(queue_no), seq] for queue_no, seq in defect.entries]
    for name, place in (("location", defect.location), ("found", defect.found)):
        if place is not None:
            row[name] = f"{place[0]:08x}:{place[1]}+{place[2]}"
    for name, values in (("said", defect.said), ("counted", defect.counted)):
        if values:
            row[name] = values[0] if len(values) == 1 else list(values)
    if defect.is_lost:
        row["lost"] = True
    return row | {"why": defect.why}
