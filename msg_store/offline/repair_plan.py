"""The steps that an offline store needs by its audit, and the file that keeps them for later.

A plan file is JSON lines; it may hold the plans of several stores. Each begins with a line that has ``"store"``, and a
line for each change of the index follows:

::

    {"store": PATH, "uuid": HEX, "fingerprint": HEX, "format_damage": "", "index_damage": "", "needs_recovery": false,
     "epoch_seen": 3, "plan": 1}
    {"do": "place", "message": NO, "location": [FILE, OFFSET, LENGTH, BODY_SIZE, ROWS]}
    {"do": "forget", "message": NO}                       no row needs it, or it is lost
    {"do": "remove", "queue_no": NO, "seq": SEQ, "message": NO, "size_bytes": SIZE, "reason": TEXT}
    {"do": "set_aside", "location": [...]}                the bytes of a lost message go to the quarantine
    {"do": "resize", "queue_no": NO, "row": [SEQ, MESSAGE, BODY_SIZE, EXPIRY_MS, FLAGS]}
    {"do": "count_queue", "queue_no": NO, "messages": N, "size_bytes": N, "next_seq": N}
    {"do": "count_segment", "file_no": NO, "live_bytes": N}
    {"end": LINES}                                        how many there were: a plan that was cut off is refused
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from leveret.core.errors import StoreError
from leveret.msg_store.offline.audit import Audit, LostRow
from leveret.msg_store.offline.changes import Changes, QueueSums, changes_of

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
    changes: Changes

    @property
    def is_needed(self) -> bool:
        return bool(self.format_damage) or self.needs_recovery or bool(self.changes)

    @property
    def report_name(self) -> str:
        """The name of the report in the quarantine, without its ending; another plan has another."""
        digest = hashlib.sha256(self.fingerprint.encode())
        for line in _change_lines(self.changes):
            digest.update(json.dumps(line).encode())
        return f"repair-{digest.hexdigest()[:16]}"


def plan_repair(audit: Audit) -> RepairPlan:
    """Return the steps that a store needs by its audit."""
    store, changes = audit.store, changes_of(audit)
    report = store.report
    has_news = report.is_damage or bool(report.dropped or report.tails)
    return RepairPlan(
        str(store.path),
        store.folder.uuid,
        store.fingerprint(),
        store.format_damage,
        report.rebuilt,
        has_news or (bool(changes) and not store.recovered.is_clean),
        store.epoch_seen,
        changes,
    )


# The file.


def write_plans(path: Path, plans: Iterable[RepairPlan]) -> None:
    """Write plans into a new file; ``FileExistsError`` if it is there."""
    with path.open("x") as file:
        for plan in plans:
            for line in plan_lines(plan):
                file.write(json.dumps(line) + "\n")


def plan_lines(plan: RepairPlan) -> Iterator[dict[str, Any]]:
    """Yield the lines of a plan."""
    yield {
        "store": plan.path,
        "uuid": plan.uuid.hex(),
        "fingerprint": plan.fingerprint,
        "format_damage": plan.format_damage,
        "index_damage": plan.index_damage,
        "needs_recovery": plan.needs_recovery,
        "epoch_seen": plan.epoch_seen,
        "plan": VERSION,
    }
    count = 0
    for count, line in enumerate(_change_lines(plan.changes), 1):  # noqa: B007 - the last one is used
        yield line
    yield {"end": count}


def _change_lines(changes: Changes) -> Iterator[dict[str, Any]]:
    for location in changes.set_aside:
        yield {"do": "set_aside", "location": list(location)}
    for row in changes.lost:
        yield {
            "do": "remove",
            "queue_no": row.queue_no,
            "seq": row.seq,
            "message": row.msg_no,
            "size_bytes": row.size_bytes,
            "reason": row.reason,
        }
    for msg_no, place in changes.locations.items():
        if place is None:
            yield {"do": "forget", "message": msg_no}
        else:
            yield {"do": "place", "message": msg_no, "location": list(place)}
    for queue_no, rows in changes.rows.items():
        for each in rows:
            yield {"do": "resize", "queue_no": queue_no, "row": list(each)}
    for queue_no, sums in changes.queues.items():
        yield {"do": "count_queue", "queue_no": queue_no, **sums._asdict()}
    for file_no, live_bytes in changes.segments.items():
        yield {"do": "count_segment", "file_no": file_no, "live_bytes": live_bytes}


def read_plans(path: Path) -> list[RepairPlan]:
    """Read the plans in a file.

    Raises:
        StoreError: a line cannot be read, the file was cut off, or a newer version wrote it.
        OSError: the file cannot be read.
    """
    plans: list[RepairPlan] = []
    with path.open() as file:
        lines = enumerate(file, 1)
        for number, text in lines:
            try:
                head = json.loads(text)
                if head["plan"] > VERSION:
                    raise StoreError(
                        f"{path} has version {head['plan']}, known are up to {VERSION}"
                    )
                plans.append(_plan_of(head))
                count = 0
                for number, text in lines:  # noqa: B007, PLW2901 - the same lines, for the error
                    line = json.loads(text)
                    if "end" in line:
                        break
                    _add_change(plans[-1].changes, line)
                    count += 1
                else:
                    raise StoreError(
                        f"{path} was cut off behind line {number}; make the plan again"
                    )
                if line["end"] != count:
                    raise StoreError(f"{path}, line {number}: lines are missing before it")
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise StoreError(
                    f"{path}, line {number}, is not of a repair plan: {error!r}"
                ) from error
    return plans


def _plan_of(head: dict[str, Any]) -> RepairPlan:
    return RepairPlan(
        str(head["store"]),
        bytes.fromhex(head["uuid"]),
        str(head["fingerprint"]),
        str(head["format_damage"]),
        str(head["index_damage"]),
        bool(head["needs_recovery"]),
        int(head["epoch_seen"]),
        Changes(),
    )


def _add_change(changes: Changes, line: dict[str, Any]) -> None:
    match line["do"]:
        case "place":
            file_no, offset, length, size, count = map(int, line["location"])
            changes.locations[int(line["message"])] = (file_no, offset, length, size, count)
        case "forget":
            changes.locations[int(line["message"])] = None
        case "remove":
            names = ("queue_no", "seq", "message", "size_bytes")
            queue_no, seq, msg_no, size = (int(line[name]) for name in names)
            changes.lost.append(LostRow(queue_no, seq, msg_no, size, str(line["reason"])))
        case "set_aside":
            file_no, offset, length, size, count = map(int, line["location"])
            changes.set_aside.append((file_no, offset, length, size, count))
        case "resize":
            seq, msg_no, size, expiry_ms, flags = map(int, line["row"])
            rows = changes.rows.setdefault(int(line["queue_no"]), [])
            rows.append((seq, msg_no, size, expiry_ms, flags))
        case "count_queue":
            sums = (int(line[name]) for name in QueueSums._fields)
            changes.queues[int(line["queue_no"])] = QueueSums(*sums)
        case "count_segment":
            changes.segments[int(line["file_no"])] = int(line["live_bytes"])
        case other:
            raise ValueError(f"unknown change {other!r}")
