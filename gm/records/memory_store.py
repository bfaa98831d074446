"""Records of groups in memory, for the members of one process."""

from __future__ import annotations

from typing import Final

from leveret.gm.records.codec import pack, unpack
from leveret.gm.records.group import Group
from leveret.gm.records.store import Conflict, Stored, Then

_NOTHING: Final = Stored(None, 0)


class MemoryGroupStore:
    """A ``GroupStore`` that answers at once, with the record decoded from its bytes; it is empty in the next process.

    Attributes:
        revision: of the last write, of any record.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._records: dict[str, Stored] = {}

    def current(self, name: str) -> Stored:
        """Return the record as it is now."""
        return self._records.get(name, _NOTHING)

    def read(self, name: str, then: Then) -> None:
        then(self.current(name))

    def write(self, name: str, group: Group | None, revision: int, then: Then) -> None:
        stored = self.current(name)
        if stored.revision != revision:
            then(Conflict(stored))
            return
        self.revision += 1
        if group is None:
            self._records.pop(name, None)
        else:
            self._records[name] = Stored(unpack(pack(group), self.revision), self.revision)
        then(self.current(name))
