"""Changes of the record by the master: one at a time, and those whose outcome is unknown."""

from __future__ import annotations

from collections.abc import Callable

from leveret.mirroring.replicas.record import QueueRecord, Replica, Stored


class RecordChanges:
    """The record as the master knows it, and what it may have become.

    Args:
        stored: the last record known, in which this replica is the master.
        write: asks for a change.

    Attributes:
        record: the last one known.
        is_writing: a change has not been answered.
    """

    __slots__ = ("_possible", "_revision", "_write", "is_writing", "record")

    def __init__(
        self,
        record: QueueRecord,
        revision: int,
        write: Callable[[QueueRecord, int], None],
    ) -> None:
        self.record = record
        self.is_writing = False
        self._revision = revision
        self._write = write
        self._possible: list[QueueRecord] = []  # asked for, for the present revision

    @property
    def is_certain(self) -> bool:
        """Whether no change can have taken effect but those known."""
        return not self._possible

    def waited_for(self) -> set[Replica]:
        """Return the replicas that are, or may be, in sync."""
        found = set(self.record.in_sync)
        for each in self._possible:
            found.update(each.in_sync)
        return found

    def change(self, record: QueueRecord) -> None:
        """Ask for a change; none may be under way."""
        self.is_writing = True
        self._possible.append(record)
        self._write(record, self._revision)

    def seen(self, stored: Stored) -> bool:
        """Take the record that a change or a read has found; return whether it is a later one."""
        if stored.record is None or stored.revision <= self._revision:
            return False
        self.record, self._revision = stored.record, stored.revision
        self._possible.clear()
        return True

    def answered(self) -> None:
        """A change was answered, or its outcome is unknown and it may be tried again."""
        self.is_writing = False
