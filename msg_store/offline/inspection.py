"""A store as the next start would find it, looked at without changing anything of it.

Recovery itself does the work, over files of which nothing is written (``core.scratch_files``) and an
index that is only read; one that must be rebuilt is built in a scratch folder. So what a tool tells
about a store is by construction what a broker would make of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from leveret.core.files import Files
from leveret.core.scratch_files import ScratchCalls
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.file_header import EPOCH_MAX
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.rows import (
    SEQ_END,
    Index,
    IndexDamaged,
    IndexMissing,
    IndexRow,
    Location,
)
from leveret.msg_store.index.lmdb_index import DATA, LmdbIndex
from leveret.msg_store.index.location import LmdbLocation
from leveret.msg_store.index.page_check import fault_of
from leveret.msg_store.memtable.read_view import next_low
from leveret.msg_store.recovery.format_repair import restore_format
from leveret.msg_store.recovery.recovery import Recovery

INDEX: Final = "store.lmdb"
PAGE: Final = 10_000
_MSG_NO_END: Final = 1 << 64


class ReadOnlyLocation:
    """``index_rows.IndexLocation`` of an index that is only read.

    Args:
        path: where it lies.
        uuid: the store's.
        scratch: an empty folder, for one that must be made.
        damage: why it is not to be believed; empty if nothing is known against it.

    Attributes:
        is_aside: it is not used.
        read: it, once it is open and as long as it is used.
    """

    def __init__(self, path: Path, uuid: bytes, scratch: Path, damage: str = "") -> None:
        self._path = path
        self._uuid = uuid
        self._scratch = scratch
        self._damage = damage
        self.is_aside = False
        self.read: LmdbIndex | None = None

    def open(self) -> LmdbIndex:
        """Open it; a new one if it is not there, or was set aside."""
        if self.is_aside:
            return LmdbIndex(self._scratch / INDEX, self._uuid)
        if self._damage:
            raise IndexDamaged(self._damage)
        if LmdbLocation(self._path, self._uuid).is_condemned:
            raise IndexDamaged(f"{self._path} was found damaged when it was used")
        if fault := fault_of(self._path / DATA):
            raise IndexDamaged(fault)
        try:
            self.read = LmdbIndex(self._path, self._uuid, is_readonly=True)
        except IndexMissing:
            self.is_aside = True
            return self.open()
        return self.read

    def set_aside(self, quarantine: Path, name: str) -> None:
        """Have the next ``open`` make another."""
        self.is_aside, self.read = True, None

    def condemn(self) -> None:
        """Do nothing: it stays as it is."""


class Inspection:
    """What a start would find. ``close`` it.

    Args:
        path: the store's folder.
        scratch: an empty folder.
        index_damage: why the index is not to be believed, if there is a reason.

    Attributes:
        folder: the store's; what is written to it is kept nowhere.
        format_damage: what was wrong with FORMAT, which was made up for; empty if nothing was.
        recovered: what a start would go on from.
        epoch_seen: the highest boot epoch that was used.
        lmdb: the index on the disk; None if it is not used, for it is lost or damaged.

    Raises:
        StoreLocked: another process has it open.
        StoreError: it is none, or a newer version's.
        OSError: the disk refuses.
    """

    def __init__(self, path: Path, scratch: Path, index_damage: str = "") -> None:
        self.path = path
        files = Files(ScratchCalls())
        self.format_damage = restore_format(files, path)
        self.folder = StoreFolder(files, path, _no_uuid, _no_time)
        try:
            home = ReadOnlyLocation(path / INDEX, self.folder.uuid, scratch, index_damage)
            recovery = Recovery(self.folder, EPOCH_MAX, Ballast(files, path), _no_time, home=home)
            self.recovered = recovery.judge()
        except BaseException:
            self.folder.close()
            raise
        self.epoch_seen = recovery.epoch_seen
        self.lmdb = home.read

    @property
    def index(self) -> Index:
        """The index, to be overlaid with what ``recovered.tables`` has."""
        return self.recovered.index

    def queue_nos(self) -> list[int]:
        """Return the numbers of all queues that have rows, or had some and are not forgotten."""
        tables = self.recovered.tables
        return sorted({*self.index.queue_nos(), *tables.terms, *tables.active.rows})

    def rows(self, queue_no: int) -> Iterator[IndexRow]:
        """Yield the rows of a queue in order."""
        view, low = self.recovered.tables.read_view(), 0
        while low < SEQ_END:
            base = self.index.rows(queue_no, low, SEQ_END, PAGE)
            rows = view.rows(queue_no, low, SEQ_END, PAGE, base)
            yield from rows
            low = next_low(rows, base, PAGE, SEQ_END)

    def places(self) -> Iterator[tuple[int, Location]]:
        """Yield all messages that somebody needs, ascending, with their places."""
        active = self.recovered.tables.active
        inserted = sorted(active.inserted.items(), reverse=True)
        low = 0
        while low < _MSG_NO_END:
            base = self.index.places(low, PAGE)
            high = base[-1][0] + 1 if len(base) == PAGE else _MSG_NO_END
            kept = [(no, active.changed.get(no, place)) for no, place in base]
            while inserted and inserted[-1][0] < high:
                kept.append(inserted.pop())
            kept.sort()
            yield from ((no, place) for no, place in kept if place is not None)
            low = high

    def close(self) -> None:
        """Let others in."""
        self.recovered.index.close()
        self.folder.close()


def _no_time() -> int:
    return 0


def _no_uuid() -> bytes:
    return bytes(16)
