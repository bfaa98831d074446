"""The steps that an offline store needs by its audit, and the file that keeps them for later.

A plan file is JSON lines; it may hold the plans of several stores. Each begins with a line that has ``"store"``, a line
for each change of the index follows (``changes``), then a line with their number:

::

    {"store": PATH, "uuid": HEX, "fingerprint": HEX, "format_damage": "", "index_damage": "", "needs_recovery": false,
     "epoch_seen": 3, "plan": 1}
    {"do": "forget", "message": NO}
    {"end": 1}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from leveret.core.errors import StoreError
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.rows import Checkpoint
from leveret.msg_store.offline.audit import Audit
from leveret.msg_store.offline.changes import Change, change_of, changes_of, line_of

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The steps that a store needs.

    Attributes:
        path: where the store was when it was audited.
        uuid: of the store, 16 bytes.
        fingerprint: of the store when it was audited.
        format_damage: why FORMAT must be written anew; empty if it need not.
        index_damage: why the index must be rebuilt; empty if it need not.
        needs_recovery: a start would find something to do, or must bring the index up to date.
        epoch_seen: the highest boot epoch that was used.
        changes: the corrections of the index after that.
    """

    path: str
    uuid: bytes
    fingerprint: str
    format_damage: str
    index_damage: str
    needs_recovery: bool
    epoch_seen: int
    changes: list[Change]

    @property
    def is_needed(self) -> bool:
        return bool(self.format_damage) or self.needs_recovery or bool(self.changes)

    @property
    def report_name(self) -> str:
        """The name of the report in the quarantine, without its ending; another plan has another."""
        digest = hashlib.sha256(self.fingerprint.encode())
        for change in self.changes:
            digest.update(json.dumps(line_of(change)).encode())
        return f"repair-{digest.hexdigest()[:16]}"


def plan_repair(audit: Audit) -> RepairPlan:
    """Return the steps that a store needs by its audit."""
    store, changes = audit.store, list(changes_of(audit))
    report = store.report
    has_news = report.is_damage or bool(report.dropped or report.tails)
    return RepairPlan(
        str(store.path),
        store.folder.uuid,
        fingerprint(store.on_disk, store.lmdb.checkpoint() if store.lmdb is not None else None),
        store.format_damage,
        report.rebuilt,
        has_news or (bool(changes) and not store.recovered.is_clean),
        store.epoch_seen,
        changes,
    )


def fingerprint(store: StorePaths, checkpoint: Checkpoint | None) -> str:
    """Return a text that changes with each start of a broker, each flush and each compaction, and by no correction.

    It is made of the uuid, the checkpoint of the index, and names and lengths of segments and journals.

    Args:
        store: its files, as they are on the disk.
        checkpoint: of its index; None if the index cannot be used.
    """
    lines = [store.uuid.hex(), repr(checkpoint and tuple(checkpoint))]
    paths = [store.rdq_path(no) for no in store.rdq_nos()]
    paths += [store.journal_path(no) for no in store.journal_nos()]
    for path in paths:
        with store.files.open_read(path) as file:
            lines.append(f"{path.name} {file.size_bytes()}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


# The file.


def write_plans(path: Path, plans: Iterable[RepairPlan]) -> None:
    """Write plans into a new file; ``FileExistsError`` if it is there."""
    with path.open("x") as file:
        for plan in plans:
            head = {field.name: getattr(plan, field.name) for field in fields(plan)[1:-1]}
            head = {"store": plan.path, **head, "uuid": plan.uuid.hex(), "plan": VERSION}
            for line in (head, *map(line_of, plan.changes), {"end": len(plan.changes)}):
                file.write(json.dumps(line) + "\n")


def read_plans(path: Path) -> list[RepairPlan]:
    """Read the plans in a file.

    Raises:
        StoreError: a line cannot be read, the file was cut off, or a newer version wrote it.
        OSError: the file cannot be read.
    """
    plans: list[RepairPlan] = []
    changes: list[Change] | None = None  # of a plan that has no end yet
    number = 0
    with path.open() as file:
        for number, text in enumerate(file, 1):
            try:
                line = json.loads(text)
                if changes is None:
                    plans.append(_plan_of(path, line))
                    changes = plans[-1].changes
                elif "end" not in line:
                    changes.append(change_of(line))
                elif line["end"] == len(changes):
                    changes = None
                else:
                    raise StoreError(f"{path}, line {number}: lines are missing before it")
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise StoreError(
                    f"{path}, line {number}, is not of a repair plan: {error!r}"
                ) from error
    if changes is not None:
        raise StoreError(f"{path} was cut off behind line {number}; make the plan again")
    return plans


def _plan_of(path: Path, head: dict[str, Any]) -> RepairPlan:
    if head["plan"] > VERSION:
        raise StoreError(f"{path} has version {head['plan']}, known are up to {VERSION}")
    return RepairPlan(
        str(head["store"]),
        bytes.fromhex(head["uuid"]),
        str(head["fingerprint"]),
        str(head["format_damage"]),
        str(head["index_damage"]),
        bool(head["needs_recovery"]),
        int(head["epoch_seen"]),
        [],
    )
