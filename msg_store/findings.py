"""What recovery hands over, and what it has to tell."""

from __future__ import annotations

from dataclasses import dataclass, field

from leveret.msg_store.rdq_writer import Location
from leveret.msg_store.replay import ReplayedRow


@dataclass(slots=True)
class Findings:
    """What recovery met; written to the quarantine if there is anything but normal to tell.

    Attributes:
        gaps: damage to the journal that cannot be from a crash.
        tails: journal files whose last frame was torn.
        dropped: rows ``(queue_no, seq, msg_no, why)`` that were not known to be durable.
        lost: rows that were durable and cannot be read any more.
        found: messages that lay elsewhere than the journal said.
        foreign: files of other stores, set aside.
        removed: segments without any row.
        set_aside: names in the quarantine.
    """

    gaps: list[str] = field(default_factory=list)
    tails: list[str] = field(default_factory=list)
    dropped: list[tuple[int, int, int, str]] = field(default_factory=list)
    lost: list[tuple[int, int, int, str]] = field(default_factory=list)
    found: list[int] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)

    @property
    def is_damage(self) -> bool:
        """Something happened that a crash alone does not do."""
        return bool(self.gaps or self.lost or self.found or self.foreign)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was on disk, and where to go on.

    Attributes:
        rows: by queue_no and seq, ascending.
        references: by message number.
        locations: by message number; all have been read.
        seqs_seen: the highest seq of each queue that the journal ever named.
        next_no: above all message numbers and seqs that were ever used, durable or not.
        findings: what else there is to say.
    """

    rows: dict[int, dict[int, ReplayedRow]]
    references: dict[int, int]
    locations: dict[int, Location]
    seqs_seen: dict[int, int]
    next_no: int
    findings: Findings
