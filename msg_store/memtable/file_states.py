"""How much of each segment is live: what the collector goes by, and what may be unlinked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """The states of all segments, by number; those found at the start are sealed."""

    def __init__(self, found: Mapping[int, FileRow]) -> None:
        super().__init__()
        self._open_no = 0
        for file_no, (valid_bytes, size_bytes) in found.items():
            self[file_no] = FileState(valid_bytes, size_bytes, True, NEVER if valid_bytes else 0)

    def fill(self, file_no: int, record_bytes: int, size_bytes: int) -> None:
        """Note live records at the end of the segment in use; the one used before is sealed."""
        if file_no != self._open_no:
            self.seal()
            self._open_no = file_no
        state = self._state(file_no)
        state.valid_bytes += record_bytes
        state.size_bytes = size_bytes
        state.emptied_in = NEVER

    def seal(self) -> None:
        """Note that the segment in use will not be written again."""
        if self._open_no in self:
            self[self._open_no].is_sealed = True
        self._open_no = 0

    def add_sealed(self, file_no: int, size_bytes: int) -> None:
        """Add a segment that the collector has made, before anything in it is valid."""
        self[file_no] = FileState(0, size_bytes, True)

    def measured(self, file_no: int, size_bytes: int) -> None:
        """Note a segment that a start found on disk; one without references counts as empty for ever."""
        state = self._state(file_no)
        state.size_bytes, state.is_sealed = size_bytes, True
        if not state.valid_bytes:
            state.emptied_in = 0

    def hold(self, file_no: int, record_bytes: int) -> None:
        """Note that a record, which was garbage, is live."""
        state = self._state(file_no)
        state.valid_bytes += record_bytes
        state.emptied_in = NEVER

    def free(self, file_no: int, record_bytes: int, memtable_no: int) -> None:
        """Note that records have become garbage; of a segment that is lost, nothing."""
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

    def rows(self, file_nos: Iterable[int]) -> dict[int, FileRow | None]:
        """Return what the index shall say of segments."""
        rows: dict[int, FileRow | None] = {}
        for file_no in file_nos:
            state = self.get(file_no)
            rows[file_no] = None if state is None else FileRow(state.valid_bytes, state.size_bytes)
        return rows

    def _state(self, file_no: int) -> FileState:
        state = self.get(file_no)
        if state is None:
            state = self[file_no] = FileState()
        return state
