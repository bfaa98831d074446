"""Segments of paged-out transients: appended to, never synced, unlinked when nothing in them is needed.

Used by the writer's thread alone. A segment is left when its length has reached the limit, asked before
each batch, so it may be longer by a batch. For each the *account* is kept: its length and what of it is
still needed. The accounts are all that RAM holds of what is on disk.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.core.files import DISK_FULL, File, Files
from leveret.msg_store.format import file_header
from leveret.msg_store.format.append_log import joined
from leveret.msg_store.format.file_header import HEADER_BYTES, Identity
from leveret.msg_store.format.folder import SEGMENT_NAME
from leveret.msg_store.transient.index import Place

FILE_BYTES: Final = 16 * 1024 * 1024  # RabbitMQ's
ROOM_BYTES: Final = 16 * 1024 * 1024

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Account:
    """A segment's length, and how many contents and bytes of it are needed."""

    size_bytes: int
    live: int = 0
    live_bytes: int = 0


class TransientSegments:
    """The files.

    Args:
        files: where to.
        folder: the folder.
        identity: goes into the headers.
        now_ms: wall time, for headers.
        file_bytes: when to begin a new one.
        room_bytes: what is left on the disk.
    """

    def __init__(
        self,
        files: Files,
        folder: Path,
        identity: Identity,
        now_ms: Callable[[], int],
        file_bytes: int,
        room_bytes: int,
    ) -> None:
        self.accounts: dict[int, Account] = {}
        self.total = Account(0)
        self.unlinked: list[int] = []  # not told to the readers yet
        self.file_bytes = file_bytes
        self._files = files
        self._folder = folder
        self._room_bytes = room_bytes
        self._identity = identity
        self._now_ms = now_ms
        self._file: File | None = None
        self._file_no = 0  # the last one; no number is used twice
        self._dead: set[int] = set()  # nothing in them is needed

    def path(self, file_no: int) -> Path:
        """Return where a segment lies."""
        return self._folder / (SEGMENT_NAME % file_no)

    def wipe(self) -> None:
        """Remove all segments, known or not; make the folder."""
        self._leave()
        self._files.mkdir(self._folder)
        for name in self._files.names(self._folder):
            if name.endswith(".rdq"):
                self._files.unlink(self._folder / name)
        self.unlinked += self.accounts
        self.accounts.clear()
        self._dead.clear()
        self.total = Account(0)

    def check_room(self) -> None:
        """Leave some room on the disk: taking keys out of the index needs a little.

        Raises:
            OSError: there is no more than that.
        """
        if self._files.free_bytes(self._folder) < self._room_bytes:
            raise OSError(errno.ENOSPC, "the last of the disk is not for transients")

    def append(self, buffers: Sequence[bytes]) -> tuple[int, int]:
        """Append what belongs together to one segment.

        Returns:
            Its number, and where the first byte lies.

        Raises:
            OSError: nothing was written, as far as anybody will read; unless the disk is full, the
                next call begins a new segment.
        """
        file_no = self._file_no
        if self._file is None or self.accounts[file_no].size_bytes >= self.file_bytes:
            file_no = self._begin()
        account = self.accounts[file_no]
        offset = account.size_bytes
        assert self._file is not None, "a segment has been begun"
        try:
            self._file.append(joined(list(buffers)))
        except OSError as error:
            self.forget_from(offset)
            if error.errno not in DISK_FULL:
                self._leave()
            raise
        self._resize(account, offset + sum(map(len, buffers)))
        return file_no, offset

    def _resize(self, account: Account, size_bytes: int) -> None:
        self.total.size_bytes += size_bytes - account.size_bytes
        account.size_bytes = size_bytes

    def forget_from(self, offset: int) -> None:
        """Give back what was appended from there on."""
        file, account = self._file, self.accounts[self._file_no]
        assert file is not None, "something was appended"
        try:
            file.truncate(offset)
        except OSError as error:
            log.info("a transient segment keeps its torn end file=%s error=%s", file.path, error)
            self._leave()
        self._resize(account, offset)

    def _begin(self) -> int:
        self._leave()
        self._file_no += 1
        self._files.mkdir(self._folder)
        self._file = self._files.create(self.path(self._file_no))
        self.accounts[self._file_no] = account = Account(0)
        header = self._identity.header(file_header.RDQ_MAGIC, self._file_no, self._now_ms())
        try:
            self._file.append([header])
        except OSError:
            self._leave()
            raise
        self._resize(account, HEADER_BYTES)
        return self._file_no

    def _leave(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            if not self.accounts[self._file_no].live:
                self._dead.add(self._file_no)

    @property
    def current(self) -> int:
        """The number of the segment that is appended to; 0 when there is none."""
        return 0 if self._file is None else self._file_no

    def keep(self, places: Iterable[Place]) -> None:
        """Note that contents lie there now."""
        for file_no, _, length in places:
            account = self.accounts[file_no]
            account.live += 1
            account.live_bytes += length
            self.total.live += 1
            self.total.live_bytes += length

    def release(self, places: Iterable[Place]) -> None:
        """Note that contents are not needed there any more."""
        for file_no, _, length in places:
            account = self.accounts[file_no]
            account.live -= 1
            account.live_bytes -= length
            self.total.live -= 1
            self.total.live_bytes -= length
            if not account.live:
                self._dead.add(file_no)

    def sweep(self) -> None:
        """Unlink the segments in which nothing is needed, but for the one in use."""
        for file_no in self._dead - {self.current}:
            self._dead.discard(file_no)
            if self.accounts[file_no].live:
                continue  # it was the one in use, and used again
            self._resize(self.accounts.pop(file_no), 0)
            self.unlinked.append(file_no)
            try:
                self._files.unlink(self.path(file_no))
            except OSError as error:  # the next start removes it
                log.warning("a transient segment stays file_no=%08x error=%s", file_no, error)

    def close(self) -> None:
        """Let the file in use go."""
        self._leave()
