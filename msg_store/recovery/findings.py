"""What recovery hands over, and what it has to tell."""

from __future__ import annotations

from dataclasses import dataclass, field

from leveret.msg_store.format.rows import Checkpoint, Index, QueueTerms
from leveret.msg_store.memtable.memtables import Memtables


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
        rebuilt: why the index had to be made anew; empty if it was not.
    """

    gaps: list[str] = field(default_factory=list)
    tails: list[str] = field(default_factory=list)
    dropped: list[tuple[int, int, int, str]] = field(default_factory=list)
    lost: list[tuple[int, int, int, str]] = field(default_factory=list)
    found: list[int] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    rebuilt: str = ""

    @property
    def is_damage(self) -> bool:
        """Something happened that a crash alone does not do."""
        return bool(self.gaps or self.lost or self.found or self.foreign or self.rebuilt)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was on disk, and where to go on.

    Attributes:
        index: the state of the log as of a checkpoint.
        point: that checkpoint.
        next_lsn: above all records of the log.
        tables: what is above it; nothing, unless the disk was full.
        queues: all queues; ``is_clean`` only if nothing happened after their ``close_queue``, so
            that they go on as they said. The others go on at ``next_no``.
        is_clean: the store had been stopped.
        next_no: above all message numbers and seqs that were ever used, durable or not.
        findings: what else there is to say.
    """

    index: Index
    point: Checkpoint
    next_lsn: int
    tables: Memtables
    queues: dict[int, QueueTerms]
    is_clean: bool
    next_no: int
    findings: Findings
