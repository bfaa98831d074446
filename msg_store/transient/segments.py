"""Segments of paged-out transients: appended to, never synced, unlinked when no live record is in them.

Used by the writer's thread alone. A segment is full when its length has reached the limit, checked before
each batch, so it may be longer by a batch. Of each segment RAM holds its length and how much of it is
live.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leveret.core.log.loggers import logger
from leveret.core.system.files import Buffer, File
from leveret.core.system.shortage import ShortageLog, is_disk_full
from leveret.msg_store.format import file_header
from leveret.msg_store.format.file_header import HEADER_BYTES, Identity
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.transient.index import Limits, Place

log = logger(__name__)


@dataclass(slots=True)
class Usage:
    """A segment's length, and how many live records and bytes are in it."""

    size_bytes: int
    live: int = 0
    live_bytes: int = 0


class TransientSegments:
    """The files.

    Attributes:
        unlinked: segments that are gone and that the reader may have open.
    """

    def __init__(
        self, paths: StorePaths, identity: Identity, now_ms: Callable[[], int], limits: Limits
    ) -> None:
        self.usage: dict[int, Usage] = {}
        self.total = Usage(0)
        self.unlinked: list[int] = []
        self.file_bytes = limits.file_bytes
        self._paths = paths
        self._files = paths.files
        self._room_bytes = limits.room_bytes
        self.identity = identity
        self.now_ms = now_ms
        self._file: File | None = None
        self._file_no = 0  # the last one; no number is used twice
        self._unlinking = ShortageLog("removing transient segments", paths.rdq)
        self._dead: set[int] = set()  # have no live records; the segment in use may be among them

    def open(self, file_no: int) -> File:
        return self._files.open_read(self._paths.rdq_path(file_no))

    def wipe(self) -> None:
        """Remove all segments, known or not; make the folder."""
        self.close()
        self._files.mkdir(self._paths.rdq)
        for name in self._files.names(self._paths.rdq):
            if name.endswith(".rdq"):
                self._files.unlink(self._paths.rdq / name)
        self.unlinked += self.usage
        self.usage.clear()
        self._dead.clear()
        self.total = Usage(0)

    def check_room(self) -> None:
        """Raise ``OSError`` when only the room is left that deleting keys from the index needs."""
        if self._files.free_bytes(self._paths.rdq) < self._room_bytes:
            raise OSError(errno.ENOSPC, "the last of the disk is not for transients")

    def append(self, buffers: Sequence[Buffer]) -> tuple[int, int]:
        """Append a batch to one segment.

        Returns:
            Its number, and where the first byte lies.

        Raises:
            OSError: nothing that will be read was written; unless the disk is full, the
                next call begins a new segment.
        """
        if self._file is None or self.usage[self._file_no].size_bytes >= self.file_bytes:
            self._begin()
        usage = self.usage[self._file_no]
        offset = usage.size_bytes
        assert self._file is not None, "a segment has been begun"
        try:
            self._file.append(buffers)
        except OSError as error:
            self.truncate(offset)
            if not is_disk_full(error):
                self.close()
            raise
        self._resize(usage, offset + sum(map(len, buffers)))
        return self._file_no, offset

    def _resize(self, usage: Usage, size_bytes: int) -> None:
        self.total.size_bytes += size_bytes - usage.size_bytes
        usage.size_bytes = size_bytes

    def truncate(self, offset: int) -> None:
        """Take back the batch that was appended there."""
        file = self._file
        assert file is not None, "something was appended"
        usage = self.usage[self._file_no]
        try:
            file.truncate(offset)
        except OSError as error:
            log.info("a transient segment keeps its torn end file=%s error=%s", file.path, error)
            self.close()
        self._resize(usage, offset)

    def _begin(self) -> None:
        self.close()
        self._file_no += 1
        self._files.mkdir(self._paths.rdq)
        self._file = self._files.create(self._paths.rdq_path(self._file_no))
        self.usage[self._file_no] = usage = Usage(0)
        header = self.identity.header(file_header.RDQ_MAGIC, self._file_no, self.now_ms())
        try:
            self._file.append([header])
        except OSError:
            self.close()
            raise
        self._resize(usage, HEADER_BYTES)

    @property
    def current(self) -> int:
        """The number of the segment that is appended to; 0 when there is none."""
        return 0 if self._file is None else self._file_no

    def add(self, places: Sequence[Place]) -> None:
        """Count records of one segment that have become live."""
        for usage in (self.usage[places[0][0]], self.total):
            usage.live += len(places)
            usage.live_bytes += sum([place[2] for place in places])

    def remove(self, places: Sequence[Place]) -> None:
        """Count records that have become garbage."""
        for file_no, _, length in places:
            usage = self.usage[file_no]
            usage.live -= 1
            usage.live_bytes -= length
            if not usage.live:
                self._dead.add(file_no)
        self.total.live -= len(places)
        self.total.live_bytes -= sum([place[2] for place in places])

    def unlink_dead(self) -> None:
        """Unlink the segments without live records, but for the one in use."""
        for file_no in self._dead - {self.current}:
            if self.usage[file_no].live:
                self._dead.discard(file_no)
                continue  # it was the one in use, and used again
            try:
                self._files.unlink(self._paths.rdq_path(file_no))
            except FileNotFoundError:
                log.warning("a transient segment was gone already file_no=%08x", file_no)
            except OSError as error:  # the next job tries again, or the next start
                self._unlinking.note(error)
                continue
            self._unlinking.note(None)
            self._dead.discard(file_no)
            self._resize(self.usage.pop(file_no), 0)
            self.unlinked.append(file_no)

    def close(self) -> None:
        """Close the segment in use; the next one begins anew."""
        if self._file is not None:
            self._file.close()
            self._file = None
            if not self.usage[self._file_no].live:
                self._dead.add(self._file_no)
