"""The result of a recovery: the state to continue from, and the report of what was wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

from leveret.msg_store.format.rows import Checkpoint, Index, QueueTerms
from leveret.msg_store.memtable.memtables import Memtables


@dataclass(slots=True)
class RecoveryReport:
    """What was wrong; written to the quarantine, with these names, unless only ``removed`` has entries.

    Attributes:
        gaps: damage of the journal that cannot be from a crash.
        tails: journal files whose last frame was torn.
        dropped: rows ``(queue_no, seq, msg_no, why)`` that were not known to be durable.
        lost: rows that were durable and whose messages cannot be read.
        found: messages that lay elsewhere than the journal said.
        foreign: files of other stores.
        removed: segments without rows.
        set_aside: names in the quarantine.
        rebuilt: why the index was rebuilt; empty if it was not.
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
        """At least one finding is not from a crash alone."""
        return bool(self.gaps or self.lost or self.found or self.foreign or self.rebuilt)


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state of the store, and where it continues.

    Attributes:
        index: the state of the log as of a checkpoint.
        point: that checkpoint.
        next_lsn: above all records of the log.
        memtables: the changes above it; after step 6 none, unless the disk was full.
        queues: all queues. Those with ``is_clean`` had no change after their ``close_queue`` and continue
            as it said; the others continue at ``next_no``.
        is_clean: the store was stopped in order.
        next_no: above all message numbers and seqs that were ever used, durable or not.
    """

    index: Index
    point: Checkpoint
    next_lsn: int
    memtables: Memtables
    queues: dict[int, QueueTerms]
    is_clean: bool
    next_no: int
    report: RecoveryReport
