"""The writer of ``archive.json``: publishes durable watermark, archived queues and freed segments to readers.

After a flush the file is written, at most every ``INTERVAL_S``, as long as a queue is archived; a change of the queues,
or of the freed segments, is written at once and synced. The reader's thread writes. The collector waits for the file
before it unlinks segments of archived queues (``Archive.free``), and is woken when it is written, or cannot be. An
error is logged once and the file is tried again later: only readers of the archive wait meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

from leveret.core.clock import TimerHandle, TimerLoop
from leveret.core.system.shortage import ShortageLog
from leveret.msg_store.archive.archive import Position
from leveret.msg_store.archive.archive_file import NAME, ArchiveContents
from leveret.msg_store.format.end_mark import EndMarkFile
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.wal.group_commit import GroupCommit

INTERVAL_S: Final = 0.2
RETRY_S: Final = 1.0


class WorkThread(Protocol):
    """The thread that writes."""

    def submit(
        self, work: Callable[[], Any], then: Callable[[Any], None] | None = None
    ) -> None: ...


def contents_of(core: GroupCommit, folder: StoreFolder, vhost: str) -> ArchiveContents:
    """Return what the ``archive.json`` of a store should contain now."""
    archive, reached = core.archive, Position(*core.durable[1:])
    return ArchiveContents(
        folder.uuid,
        vhost,
        core.boot_epoch,
        reached,
        min(core.memtables.files, default=None),
        archive.begun if archive.begun is not None else reached.segment,
        archive.frees,
        dict(archive.ends),
        dict(archive.torn),
        [replace(each) for each in archive.queues.values()],  # copies, for the thread
    )


class ArchiveWriter:
    """Keeps a store's ``archive.json`` up to date; without archived queues there is none. For the loop."""

    def __init__(
        self,
        core: GroupCommit,
        folder: StoreFolder,
        thread: WorkThread,
        loop: TimerLoop,
        vhost: str,
        mark: EndMarkFile,
    ) -> None:
        self._core = core
        self._mark = mark
        self._archive = core.archive
        self._folder = folder
        self._thread = thread
        self._loop = loop
        self._vhost = vhost
        self._archive.published = -1 if self._archive else self._archive.version
        self._watermark: Position | None = None  # that the file has
        self._is_writing = self._is_closed = False
        self._timer: TimerHandle | None = None
        self._errors = ShortageLog("writing archive.json", folder.path)
        core.index_listeners.append(self.update)
        self.update()

    def update(self) -> None:
        """Write the file soon, if it is not up to date; called after each flush."""
        if self._archive.is_doubtful:
            return  # the damaged file stays: until the policies are known a start must see it
        if self._archive.published != self._archive.version:
            self._write_after(0.0)
        elif self._archive.queues and self._watermark != self._reached():
            self._write_after(INTERVAL_S)

    def contents(self) -> ArchiveContents:
        """Return what the file should contain now."""
        return contents_of(self._core, self._folder, self._vhost)

    def _reached(self) -> Position:
        return Position(*self._core.durable[1:])

    def _write_after(self, delay_s: float) -> None:
        if self._is_closed or self._is_writing:
            return
        if self._timer is not None:
            if delay_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._write)

    def _write(self) -> None:
        self._timer = None
        self._is_writing = True
        version, is_wanted = self._archive.version, bool(self._archive.queues)
        contents = self.contents() if is_wanted else None
        is_synced = version != self._archive.published

        def done(error: OSError | None) -> None:
            self._is_writing = False
            self._errors.note(error)
            self._archive.is_unwritable = error is not None
            if error is not None:
                self._write_after(RETRY_S)
            else:
                self._archive.published = version
                self._watermark = contents.watermark if contents is not None else None
                self.update()
            if is_synced:
                self._core.wake_index()

        self._thread.submit(lambda: self._written(contents, is_synced), done)

    def _written(self, contents: ArchiveContents | None, is_synced: bool) -> OSError | None:
        """Write the file, or remove it, on the thread; return the error."""
        files, path = self._folder.files, self._folder.path / NAME
        try:
            if contents is None:
                self._mark.forget(NAME)
                with suppress(FileNotFoundError):
                    files.unlink(path)
                files.fsync_dir(path.parent)
            else:
                files.write_new(path, contents.encoded(), is_synced)
        except OSError as error:
            return error
        return None

    def stop(self) -> None:
        """Publish the last watermark before the store is closed in order: nothing is written behind it."""
        if self._archive.queues and not self._is_closed:
            contents = self.contents()
            self._thread.submit(lambda: self._written(contents, is_synced=True))
        self.end()

    def end(self) -> None:
        """Write nothing any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
