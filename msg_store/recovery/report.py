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

    @property
    def is_damage(self) -> bool:
        """At least one finding is not from a crash alone."""
        return bool(self.gaps or self.lost or self.found or self.foreign or self.rebuilt)


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
