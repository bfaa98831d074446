"""Verification of a snapshot: its files against the manifest, and an audit of each store in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leveret.core.errors import StoreError
from leveret.core.system.files import Files
from leveret.management.snapshots.copying import check_files
from leveret.management.snapshots.manifest import Manifest, StoreEntry
from leveret.msg_store.offline.audit import Audit, Progress, audited


@dataclass(slots=True)
class Report:
    """The result of a verification.

    Attributes:
        rows: messages checked, counted once for every queue that holds them.
        records: message records read.
        size_bytes: of those records.
        damaged: for each queue ``vhost``, ``queue``, ``seqs``, and ``why`` for the first message.
        problems: all other damage, a line each.
    """

    snapshot: str
    rows: int = 0
    records: int = 0
    size_bytes: int = 0
    damaged: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.damaged and not self.problems


def verify(files: Files, folder: Path, wanted: Manifest, progress: Progress) -> Report:
    """Read every file and message of a snapshot."""
    report = Report(wanted.name, problems=check_files(folder, wanted))
    for entry in wanted.stores:
        try:
            path = folder / entry.folder
            with audited(path, progress, may_rebuild=False, files=files) as audit:
                _add(report, entry, audit)
        except (StoreError, OSError) as error:
            report.problems.append(f"vhost '{entry.vhost}': {error}")
    return report


def _add(report: Report, entry: StoreEntry, audit: Audit) -> None:
    report.rows += sum(terms.messages for terms in audit.queues.values())
    report.records += len(audit.locations)
    report.size_bytes += sum(audit.locations.lengths)
    names = {no: queue.name for queue in entry.queues for no in queue.queue_nos}
    unreadable: dict[int, dict[int, str]] = {}
    for queue_no, seq, why in _unreadable(audit):
        unreadable.setdefault(queue_no, {}).setdefault(seq, why)
    for queue_no, reasons in sorted(unreadable.items()):
        report.damaged.append(
            {
                "vhost": entry.vhost,
                "queue": names.get(queue_no),
                "queue_no": queue_no,
                "seqs": sorted(reasons),
                "why": reasons[min(reasons)],
            }
        )
    problems = list(audit.wrong_counts(names))
    queues = audit.store.queues
    for queue in entry.queues:
        count = sum(queues[no].messages for no in queue.queue_nos if no in queues)
        if count != queue.messages:
            problems.append(f"queue '{queue.name}' has {count} messages, {queue.messages} expected")
    report.problems += [f"vhost '{entry.vhost}': {problem}" for problem in problems]


def _unreadable(audit: Audit) -> Iterator[tuple[int, int, str]]:
    """Yield queue number, seq and reason of the rows whose messages are not at their locations.

    Rows above the index that a start drops were left out of the manifest's counts and are compared there.
    """
    for queue_no, seq, _, why in audit.store.report.lost:
        if audit.store.index.rows(queue_no, seq, seq + 1, 1):
            yield queue_no, seq, why
    for row in audit.lost + audit.misplaced:
        yield row.queue_no, row.seq, row.reason
    for queue_no, odd in audit.odd.items():
        for (seq, _, size, _, _), true_size in odd:
            yield queue_no, seq, f"a body of {true_size} bytes, {size} expected"
