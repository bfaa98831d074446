"""Findings of an audit in words: each fault, and how a repair corrects it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from leveret.msg_store.offline.audit import Audit, queue_text
from leveret.msg_store.offline.repair_plan import RepairPlan

REASONS_SHOWN: Final = 3
RANGES_SHOWN: Final = 10


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


def lost_in(audit: Audit, names: Mapping[int, str]) -> list[LostIn]:
    """Return the rows whose messages cannot be read, by the inspection and by the audit."""
    rows = [(no, seq, reason) for no, seq, _, reason in audit.store.report.lost]
    rows += [(row.queue_no, row.seq, row.reason) for row in audit.lost]
    return lost_by_queue(rows, names)


def lost_by_queue(rows: Iterable[tuple[int, int, str]], names: Mapping[int, str]) -> list[LostIn]:
    """Sort ``(queue_no, seq, reason)`` by queues."""
    by_queue: dict[int, dict[int, str]] = {}
    for queue_no, seq, reason in rows:
        by_queue.setdefault(queue_no, {})[seq] = reason
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


def findings_of(audit: Audit, names: Mapping[int, str]) -> list[Finding]:
    """Return all findings of a store, the most important first."""
    return [
        *_of_files(audit),
        *(
            Finding(
                lost_text(lost), "taken out of the queue; the rest of their records is set aside"
            )
            for lost in lost_in(audit, names)
        ),
        *_of_index(audit, names),
        *_of_a_crash(audit),
    ]


def steps_of(plan: RepairPlan) -> Iterable[str]:
    """Yield the steps of a plan, a line each."""
    if plan.format_damage:
        yield f"FORMAT written anew: {plan.format_damage}"
    if plan.index_damage:
        yield f"index rebuilt from the segments: {plan.index_damage}"
    elif plan.needs_recovery:
        yield "recovered as by a start of the broker"
    changes = plan.changes
    placed = sum(place is not None for place in changes.locations.values())
    for count, what in (
        (len(changes.lost), "entries of messages that cannot be read removed"),
        (placed, "locations and counts of messages corrected"),
        (len(changes.locations) - placed, "locations that no entry needs removed"),
        (sum(map(len, changes.rows.values())), "sizes of entries corrected"),
        (len(changes.queues), "queues counted again"),
        (len(changes.segments), "segments counted again"),
    ):
        if count:
            yield f"{count} {what}"


def _of_files(audit: Audit) -> Iterable[Finding]:
    report = audit.store.report
    if audit.store.format_damage:
        yield Finding(audit.store.format_damage, "FORMAT is written anew from what the files say")
    if report.rebuilt:
        text = "set aside, and rebuilt from the segments: acked messages may come back"
        yield Finding(f"the index cannot be used: {report.rebuilt}", text)
    for name in report.foreign:
        yield Finding(f"{name} belongs to another store", "moved to the quarantine")
    for gap in report.gaps:
        yield Finding(
            f"the journal has a gap, {gap}",
            "the rest of it is set aside; messages acked in it may come back, messages published in"
            " it are missing",
        )


def _of_index(audit: Audit, names: Mapping[int, str]) -> Iterable[Finding]:
    elsewhere = len(audit.store.report.found) + len(audit.elsewhere)
    if elsewhere:
        yield Finding(f"{elsewhere} messages lie elsewhere than they should", "noted where")
    if audit.odd:
        rows = sum(map(len, audit.odd.values()))
        yield Finding(f"{rows} rows give another size than their messages have", "written anew")
    for text in audit.wrong_counts(names):
        yield Finding(text, "counted anew")


def _of_a_crash(audit: Audit) -> Iterable[Finding]:
    report = audit.store.report
    for tail in report.tails:
        yield Finding(f"the journal ends in the middle of a write, {tail}", "cut off", False)
    if report.dropped:
        text = f"{len(report.dropped)} messages were not written whole, and never confirmed"
        yield Finding(text, "dropped", False)
