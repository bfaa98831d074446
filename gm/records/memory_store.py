"""Records of groups in memory, for the members of one process."""

from __future__ import annotations

from leveret.gm.records.codec import pack, unpack
from leveret.gm.records.group import Group
from leveret.gm.records.store import Conflict, Stored, Then


class MemoryGroupStore:
    """A ``GroupStore`` that keeps records as bytes and answers at once; it is empty in the next process.

    Attributes:
        revision: of the last write, of any record.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._records: dict[str, tuple[bytes, int]] = {}

    def look(self, name: str) -> Stored:
        """Return the record as it is now."""
        packed, revision = self._records.get(name, (b"", 0))
        return Stored(unpack(packed, revision) if revision else None, revision)

    def read(self, name: str, then: Then) -> None:
        then(self.look(name))

    def write(self, name: str, group: Group | None, revision: int, then: Then) -> None:
        stored = self.look(name)
        if stored.revision != revision:
            then(Conflict(stored))
            return
        self.revision += 1
        if group is None:
            self._records.pop(name, None)
        else:
            self._records[name] = (pack(group), self.revision)
        then(self.look(name))
