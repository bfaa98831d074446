"""What is wrong with a store, in words: what it is, and what mending it does about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from leveret.msg_store.offline.examination import Examined

REASONS_SHOWN: Final = 3
RANGES_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing.

    Attributes:
        text: what it is.
        mend: what mending does.
        is_damage: it is nothing that a crash alone does.
    """

    text: str
    mend: str
    is_damage: bool = True


@dataclass(frozen=True, slots=True)
class LostIn:
    """Messages of a queue that cannot be read.

    Attributes:
        queue_no: the queue.
        name: its name; None if it has none.
        seqs: which, as ranges that include both ends.
        reasons: why, each once.
    """

    queue_no: int
    name: str | None
    seqs: list[tuple[int, int]]
    reasons: list[str]

    @property
    def count(self) -> int:
        """How many."""
        return sum(last - first + 1 for first, last in self.seqs)

    def fields(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "queue_no": self.queue_no,
            "name": self.name,
            "count": self.count,
            "seqs": self.seqs,
            "reasons": self.reasons,
        }


def lost_in(found: Examined, names: Mapping[int, str]) -> list[LostIn]:
    """Return what cannot be read, whether a start would notice or only an audit does."""
    rows = [(no, seq, reason) for no, seq, _, reason in found.findings.lost]
    rows += [(row.queue_no, row.seq, row.reason) for row in found.audit.lost]
    return lost_by_queue(rows, names)


def lost_by_queue(rows: Iterable[tuple[int, int, str]], names: Mapping[int, str]) -> list[LostIn]:
    """Sort ``(queue_no, seq, reason)`` by queues."""
    by_queue: dict[int, dict[int, str]] = {}
    for queue_no, seq, reason in rows:
        by_queue.setdefault(queue_no, {})[seq] = reason
    return [
        LostIn(no, names.get(no), ranges(lost), list(dict.fromkeys(lost.values())))
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


def queue_text(queue_no: int, name: str | None) -> str:
    """Return how a queue is called."""
    return f"queue {name!r}" if name is not None else f"queue number {queue_no}"


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


def findings_of(found: Examined, names: Mapping[int, str]) -> list[Finding]:
    """Return all there is to say about a store, what matters most first."""
    return [
        *_of_files(found),
        *(
            Finding(lost_text(lost), "taken out of the queue, what is left of them is set aside")
            for lost in lost_in(found, names)
        ),
        *_of_index(found, names),
        *_of_a_crash(found),
    ]


def _of_files(found: Examined) -> Iterable[Finding]:
    findings = found.findings
    if found.store.format_damage:
        yield Finding(found.store.format_damage, "FORMAT is written anew from what the files say")
    if findings.rebuilt:
        text = "set aside, and rebuilt from the segments: acked messages may come back"
        yield Finding(f"the index cannot be used: {findings.rebuilt}", text)
    for name in findings.foreign:
        yield Finding(f"{name} belongs to another store", "moved to the quarantine")
    for gap in findings.gaps:
        yield Finding(
            f"the journal has a gap, {gap}",
            "what is left of it is set aside; what was acked in it may come back, what was"
            " published in it is missing",
        )


def _of_index(found: Examined, names: Mapping[int, str]) -> Iterable[Finding]:
    audit = found.audit
    elsewhere = len(found.findings.found) + len(audit.elsewhere)
    if elsewhere:
        yield Finding(f"{elsewhere} messages lie elsewhere than they should", "noted where")
    if audit.counts:
        text = f"{len(audit.counts)} messages have another number of rows than the index says"
        yield Finding(text, "counted anew")
    if audit.odd:
        rows = sum(map(len, audit.odd.values()))
        yield Finding(f"{rows} rows give another size than their messages have", "written anew")
    for queue_no, (said, counted) in audit.terms.items():
        yield Finding(
            f"{queue_text(queue_no, names.get(queue_no))} is said to have {said.messages} messages of"
            f" {said.size_bytes} bytes below seq {said.next_seq}, and has {counted.messages} of"
            f" {counted.size_bytes} below {counted.next_seq}",
            "counted anew",
        )
    for file_no, (before, after) in audit.files.items():
        yield Finding(
            f"of segment {file_no:08x} {before.valid_bytes} bytes are said to be needed,"
            f" and {after.valid_bytes} are",
            "counted anew",
        )


def _of_a_crash(found: Examined) -> Iterable[Finding]:
    findings = found.findings
    for tail in findings.tails:
        yield Finding(f"the journal ends in the middle of a write, {tail}", "cut off", False)
    if findings.dropped:
        text = f"{len(findings.dropped)} messages were not written whole, and never confirmed"
        yield Finding(text, "dropped", False)
