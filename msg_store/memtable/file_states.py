"""The file summary: how much of each segment is live. The collector chooses segments by it, to merge or to unlink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from leveret.msg_store.format.rows import FileRow

NEVER: Final = 1 << 62


@dataclass(slots=True)
class FileState:
    """A segment.

    Attributes:
        emptied_in: the memtable in which ``valid_bytes`` became 0; ``NEVER`` as long as it did not,
            also before anything was valid.
    """

    valid_bytes: int = 0  # records of messages that have rows or are held
    size_bytes: int = 0  # its length
    is_sealed: bool = False  # never written again
    emptied_in: int = NEVER


class FileStates(dict[int, FileState]):
    """The states of all segments, by number; segments found at the start are sealed."""

    def __init__(self, found: Mapping[int, FileRow]) -> None:
        super().__init__()
        self.dirty: set[int] = set()  # the active memtable's: segments whose rows have changed
        self._open_no = 0
        for file_no, (valid_bytes, size_bytes) in found.items():
            self[file_no] = FileState(valid_bytes, size_bytes, True, NEVER if valid_bytes else 0)

    def fill(self, file_no: int, record_bytes: int, size_bytes: int) -> None:
        """Note live records at the end of the segment in use; the segment used before is sealed."""
        if file_no != self._open_no:
            self.seal()
            self._open_no = file_no
        state = self._state(file_no)
        state.valid_bytes += record_bytes
        state.size_bytes = size_bytes
        state.emptied_in = NEVER
        self.dirty.add(file_no)

    def seal(self) -> None:
        """Note that the segment in use will not be written again."""
        if self._open_no in self:
            self[self._open_no].is_sealed = True
        self._open_no = 0

    def add_sealed(self, file_no: int, size_bytes: int) -> None:
        """Add a segment that the collector has made, before anything in it is valid."""
        self[file_no] = FileState(0, size_bytes, True)

    def measured(self, file_no: int, size_bytes: int) -> None:
        """Note a segment that a start found on disk; without references it has always been empty."""
        state = self._state(file_no)
        state.size_bytes, state.is_sealed = size_bytes, True
        if not state.valid_bytes:
            state.emptied_in = 0

    def hold(self, file_no: int, record_bytes: int) -> None:
        """Note that records, which were garbage, are live."""
        state = self._state(file_no)
        state.valid_bytes += record_bytes
        state.emptied_in = NEVER
        self.dirty.add(file_no)

    def free(self, file_no: int, record_bytes: int, memtable_no: int) -> None:
        """Note that records have become garbage; a lost segment has no state to change."""
        state = self.get(file_no)
        if state is not None:
            state.valid_bytes -= record_bytes
            if not state.valid_bytes:
                state.emptied_in = memtable_no

    def emptied_until(self, memtable_no: int) -> list[int]:
        """Return sealed segments that have been empty since a memtable or before."""
        return [
            file_no
            for file_no, state in self.items()
            if state.is_sealed and state.emptied_in <= memtable_no
        ]

    def remove(self, file_no: int) -> None:
        """Forget a segment that has been unlinked."""
        self.pop(file_no, None)
        self.dirty.add(file_no)

    def take_rows(self, orphan_bytes: Mapping[int, int]) -> dict[int, FileRow | None]:
        """Return the index rows of dirty segments, once, and of segments with orphans, as if those were garbage."""
        assert orphan_bytes.keys() <= self.keys(), "an orphan lies in a segment that was removed"
        rows: dict[int, FileRow | None] = dict.fromkeys(self.dirty)
        for file_no in self.keys() & (self.dirty | orphan_bytes.keys()):
            state = self[file_no]
            valid_bytes = state.valid_bytes - orphan_bytes.get(file_no, 0)
            rows[file_no] = FileRow(valid_bytes, state.size_bytes)
        self.dirty = set(orphan_bytes)  # to be written again without them
        return rows

    def _state(self, file_no: int) -> FileState:
        state = self.get(file_no)
        if state is None:
            state = self[file_no] = FileState()
        return state
