"""The result of a recovery: the state to continue from, and the report of the damage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from leveret.msg_store.format.rows import Checkpoint, Index, Producers, QueueTerms
from leveret.msg_store.memtable.memtables import Memtables

BadRow: TypeAlias = tuple[int, int, int, str]  # queue_no, seq, msg_no, why


@dataclass(slots=True)
class RecoveryReport:
    """The damage that was found; written to the quarantine, with these names, unless only ``removed`` has entries."""

    gaps: list[str] = field(default_factory=list)  # damage of the journal that no crash causes
    tails: list[str] = field(default_factory=list)  # journal files whose last frame was torn
    dropped: list[BadRow] = field(default_factory=list)  # they were not known to be durable
    lost: list[BadRow] = field(default_factory=list)  # durable, and their messages cannot be read
    found: list[int] = field(default_factory=list)  # messages elsewhere than the journal said
    foreign: list[str] = field(default_factory=list)  # files of other stores
    removed: list[int] = field(default_factory=list)  # segments without rows
    set_aside: list[str] = field(default_factory=list)  # names in the quarantine
    rebuilt: str = ""  # why the index was rebuilt; empty if it was not
    cut: list[str] = field(default_factory=list)  # segments that are shorter than the index says
    doubts: list[str] = field(default_factory=list)  # other files that are missing or damaged
    notes: list[str] = field(default_factory=list)  # damage that stays and costs nothing
    reclaimed: dict[int, int] = field(default_factory=dict)  # messages by queue (``reclaim``)

    @property
    def is_damage(self) -> bool:
        """At least one finding is not from a crash alone."""
        return bool(self.of_files or self.lost or self.found)

    @property
    def of_files(self) -> list[str]:
        """The damage of files, a line each."""
        return [
            *(f"index: {why}" for why in (self.rebuilt,) if why),
            *(f"journal: {gap}" for gap in self.gaps),
            *(f"{name} belongs to another store" for name in self.foreign),
            *self.cut,
            *self.doubts,
        ]

    @property
    def damage(self) -> list[str]:
        """All damage, a line each."""
        counts = (("messages lost", self.lost), ("messages found elsewhere", self.found))
        lines = [f"{len(each)} {what}" for what, each in counts if each]
        return [*self.of_files, *lines, *self.notes]


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state of the store, and where it continues."""

    index: Index  # the state of the log as of a checkpoint
    point: Checkpoint  # that checkpoint
    next_lsn: int  # above all records of the log
    memtables: Memtables  # the changes above it; after step 6 none, unless the disk was full
    queues: dict[int, QueueTerms]  # without ``is_clean`` a queue continues at ``next_no``
    is_clean: bool  # the store was stopped in order
    next_no: int  # above all message numbers and seqs that were ever used, durable or not
    report: RecoveryReport
    journal_files: int  # that were read
    records: int  # that were in them
    producers: Producers  # of all queues
