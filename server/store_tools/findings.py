"""Findings of an audit in words: each fault, and how a repair corrects it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from leveret.msg_store.offline import changes
from leveret.msg_store.offline.audit import Audit, LostRow
from leveret.msg_store.offline.inspection import Inspection
from leveret.msg_store.offline.repair_plan import RepairPlan
from leveret.msg_store.offline.store_at import queue_text
from leveret.msg_store.recovery.report import RecoveryReport

REASONS_SHOWN: Final = 3
RANGES_SHOWN: Final = 10
_STEPS: Final[dict[type[changes.Change], str]] = {
    changes.Remove: "entries of messages that cannot be read removed",
    changes.Place: "locations and counts of messages corrected",
    changes.Forget: "locations that no entry needs removed",
    changes.Resize: "sizes of entries corrected",
    changes.CountQueue: "queues counted again",
    changes.CountSegment: "segments counted again",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        text: the fault.
        repair: how a repair corrects it.
        is_damage: whether more than a crash has caused it.
    """

    text: str
    repair: str
    is_damage: bool = True


@dataclass(frozen=True, slots=True)
class LostIn:
    """Messages of a queue that cannot be read.

    Attributes:
        seqs: the messages' seqs, as ranges that include both ends.
        reasons: each once.
    """

    queue_no: int
    name: str | None
    count: int
    seqs: list[tuple[int, int]]
    reasons: list[str]


def lost_in(store: Inspection, rows: list[LostRow], names: Mapping[int, str]) -> list[LostIn]:
    """Return the messages that cannot be read, by the inspection and in ``rows``, by queue."""
    by_queue: dict[int, dict[int, str]] = {}
    for queue_no, seq, _, reason in store.report.lost:
        by_queue.setdefault(queue_no, {})[seq] = reason
    for row in rows:
        by_queue.setdefault(row.queue_no, {})[row.seq] = row.reason
    return [
        LostIn(no, names.get(no), len(lost), ranges(lost), list(dict.fromkeys(lost.values())))
        for no, lost in sorted(by_queue.items())
    ]


def ranges(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers as ranges that include both ends."""
    found: list[tuple[int, int]] = []
    for seq in sorted(seqs):
        if found and found[-1][1] == seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found


def lost_text(lost: LostIn) -> str:
    """Return one line about messages of a queue that cannot be read."""
    shown = [str(a) if a == b else f"{a} to {b}" for a, b in lost.seqs[:RANGES_SHOWN]]
    if len(lost.seqs) > RANGES_SHOWN:
        shown.append("...")
    reasons = lost.reasons[:REASONS_SHOWN]
    if len(lost.reasons) > REASONS_SHOWN:
        reasons.append("...")
    count = f"{lost.count} message{'s' if lost.count > 1 else ''}"
    where = queue_text(lost.queue_no, lost.name)
    return f"{where}: {count} cannot be read, seq {', '.join(shown)}: {'; '.join(reasons)}"


def findings_of(audit: Audit, names: Mapping[int, str]) -> Iterator[Finding]:
    """Yield all findings of a store, the most important first."""
    report = audit.store.report
    if audit.store.format_damage:
        yield Finding(audit.store.format_damage, "FORMAT is written anew from what the files say")
    yield from _of_files(report)
    for lost in lost_in(audit.store, audit.lost, names):
        text = "taken out of the queue; the rest of their records is set aside"
        yield Finding(lost_text(lost), text)
    yield from _of_index(audit, names)
    for tail in report.tails:
        yield Finding(f"the journal ends in the middle of a write, {tail}", "cut off", False)
    if report.dropped:
        text = f"{len(report.dropped)} messages were not written whole, and never confirmed"
        yield Finding(text, "dropped", False)


def _of_files(report: RecoveryReport) -> Iterator[Finding]:
    if report.rebuilt:
        text = "set aside, and rebuilt from the segments: acked messages may come back"
        yield Finding(f"the index cannot be used: {report.rebuilt}", text)
    for name in report.foreign:
        yield Finding(f"{name} belongs to another store", "moved to the quarantine")
    for gap in report.gaps:
        text = (
            "the rest of it is set aside; what was published in it is taken from the segments, messages that were"
            " acked may come back"
        )
        yield Finding(f"the journal has a gap, {gap}", text)
    if report.gaps and report.reclaimed:
        count = sum(report.reclaimed.values())
        text = "put into their queues, without their expiries; some may have been acked"
        yield Finding(f"{count} messages in segments are in no record of the journal", text)
    for cut in report.cut:
        yield Finding(cut, "its missing messages are taken out of their queues")
    for doubt in report.doubts:
        yield Finding(doubt, "made anew, or done without")


def _of_index(audit: Audit, names: Mapping[int, str]) -> Iterator[Finding]:
    if relocated := len(audit.store.report.found) + len(audit.relocated):
        yield Finding(f"{relocated} messages lie elsewhere than they should", "noted where")
    if audit.odd:
        rows = sum(map(len, audit.odd.values()))
        yield Finding(f"{rows} rows give another size than their messages have", "written anew")
    for text in audit.wrong_counts(names):
        yield Finding(text, "counted anew")


def steps_of(plan: RepairPlan) -> Iterable[str]:
    """Yield the steps of a plan, a line each."""
    if plan.format_damage:
        yield f"FORMAT written anew: {plan.format_damage}"
    if plan.index_damage:
        yield f"index rebuilt from the segments: {plan.index_damage}"
    elif plan.needs_recovery:
        yield "recovered as by a start of the broker"
    counts = Counter(type(change) for change in plan.changes)
    for kind, what in _STEPS.items():
        if count := counts[kind]:
            yield f"{count} {what}"
