"""The record of a mirrored queue, and its changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Replica(NamedTuple):
    """One life of a queue's copy on a node.

    Attributes:
        node: its name.
        life: never given twice on this node.
    """

    node: str
    life: int


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """Who is master, and who is in sync.

    Attributes:
        epoch: higher with each change of the master.
        master: in sync.
        in_sync: the oldest first; each has everything that was confirmed. At most one of each node.
    """

    epoch: int
    master: Replica
    in_sync: tuple[Replica, ...]

    def promoted(self, master: Replica) -> QueueRecord:
        """Return the record of the next epoch; the master before, and other lives on the new one's node, are out."""
        others = [each for each in self.in_sync if each != self.master and each.node != master.node]
        return QueueRecord(self.epoch + 1, master, (master, *others))

    def grown(self, mirror: Replica) -> QueueRecord:
        """Return the record with a mirror that is in sync now, in place of earlier lives of it."""
        others = [each for each in self.in_sync if each.node != mirror.node]
        return QueueRecord(self.epoch, self.master, (*others, mirror))

    def shrunk(self, gone: frozenset[Replica]) -> QueueRecord:
        """Return the record without some mirrors."""
        stay = tuple(each for each in self.in_sync if each not in gone)
        return QueueRecord(self.epoch, self.master, stay)


class Stored(NamedTuple):
    """The record as it is in etcd.

    Attributes:
        record: None: the queue is deleted.
        revision: of the last change.
    """

    record: QueueRecord | None
    revision: int
