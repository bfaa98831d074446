"""Numbered files that are only appended to: the half of journal and segments that waits for the disk.

``segment_writer`` and ``journal`` give records their places, on the loop, and hand over a ``Job``; an
``AppendLog`` carries it out on a writer thread, or step by step in a test. A job names the durable end of the
log before it (``start``) and the bytes that follow, so it can be done again: the log first goes back to
``start`` if it is elsewhere.

Order within a job (``docs/message-store.md``): a file that is full is synced before the next is made;
a new file has its header and its *name* synced before the first record; everything is synced at the
end, unless the job is *inline*: then the journal's frame has the same bytes, and the log owes a sync of them,
which the next job that syncs, or the checkpoint (``checkpoint``), makes. A file that was left is never
opened for writing again.

Most jobs need nothing but writing and syncing of the file in use. Those can be had as ``steps``, for a
thread that does them without the interpreter's lock (``kernel``); ``run`` makes the same calls one by one,
and also begins files, takes room and handles errors.

A log may take room *ahead*: the file in use is longer than its contents, the rest is zeros, and a
sync has no new length and no new blocks to bring to the disk, which is half of its time. The zeros are
written: the first write to a block that was only allocated is one more change of the file system's. The file
is cut to its contents when it is left; a crash leaves the zeros, and readers pass over them.

A shortage, of room, descriptors or memory, is not final: the log goes back to ``start``, opens the
file anew, releases the ballast if the disk is full, and does the job a second time. Going back comes before any
other sync of that descriptor, for after a failed sync the kernel may call lost pages clean; pages that are written
again are dirty again. That does not help with bytes of earlier jobs, so as long as a sync is owed a
sync that fails is final. Going back may meet a shortage itself: the log is *tainted* until it has gone back, and
the next job begins with that. Every other ``OSError`` goes to the caller, which must not use the log any more: a
write that fails with an input/output error says that the file system cannot map its blocks, and only recovery
finds out what the disk still has.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeAlias

from leveret.core.system.files import File, Files
from leveret.core.system.shortage import is_disk_full, is_shortage
from leveret.msg_store.format.ballast import Ballast

Step: TypeAlias = tuple[int, bytes | None, int]  # descriptor, what to write (None: sync), where

NO_FILE: Final = 0
AT_THE_END: Final = -1
_AHEAD_STEPS: Final = 64
_ZEROS: Final = memoryview(bytes(1024 * 1024))
_JOIN_BYTES_MAX: Final = 64 * 1024  # larger buffers are not copied once more


class LogEnd(NamedTuple):
    """The end of a log: the file in use (0: none yet) and its length in bytes."""

    file_no: int
    offset: int


@dataclass(slots=True)
class Part:
    """Bytes for the end of one file; with a ``header`` the file is made first."""

    file_no: int
    header: bytes | None
    buffers: Sequence[bytes]


@dataclass(slots=True)
class Job:
    """One group commit's share of a log; nothing to do without parts."""

    start: LogEnd  # the durable end before it
    end: LogEnd  # the end after it
    parts: Sequence[Part] = field(default=())  # the bytes to write, file after file
    is_inline: bool = False  # written and not synced, since the journal has the same bytes
    makes_room: bool = False  # acks and moves only: when the disk is full it gets the reserve


def joined(buffers: list[bytes]) -> list[bytes]:
    """Return the same bytes in fewer buffers: in one, unless bodies are large."""
    if not buffers or max(map(len, buffers)) <= _JOIN_BYTES_MAX:
        return [b"".join(buffers)]
    result: list[bytes] = []
    small: list[bytes] = []
    for buffer in buffers:
        if len(buffer) > _JOIN_BYTES_MAX:
            result += (b"".join(small), buffer)
            small = []
        else:
            small.append(buffer)
    return [*result, b"".join(small)]


class AppendLog:
    """Carries out jobs on the files of one folder. One thread at a time.

    Args:
        files, folder: where to; the folder exists.
        pattern: the files' names, ``%``-format with the number.
        ballast: released when the disk is full.
        ahead_bytes_max: how much room is taken ahead at most; less in a short file.
    """

    def __init__(
        self, files: Files, folder: Path, pattern: str, ballast: Ballast, ahead_bytes_max: int = 0
    ) -> None:
        self._files = files
        self._folder = folder
        self._pattern = pattern
        self._ballast = ballast
        self._ahead_bytes_max = ahead_bytes_max
        self._file: File | None = None
        self._end = 0  # of its contents
        self._room_to = 0  # how long it is
        self._place = LogEnd(NO_FILE, 0)
        self._made: list[int] = []  # files made by a job that may have to be undone
        self._owed_from: int | None = None  # in the file in use: inline, and not synced since
        self._is_tainted = False

    def path(self, file_no: int) -> Path:
        return self._folder / (self._pattern % file_no)

    def steps(self, job: Job) -> list[Step] | None:
        """Return a job's system calls; the caller makes them, then calls ``stepped``, or ``run`` after an error.

        Returns:
            None if the job needs more than writes and a sync, or its files are not the system's own.
        """
        parts = job.parts
        if not parts:
            return []
        descriptor = self._file.system_descriptor if self._file is not None else None
        if descriptor is None or len(parts) > 1 or parts[0].header is not None:
            return None
        if self._is_tainted or job.start != self._place:
            return None
        steps: list[Step] = []
        at = self._end
        for buffer in parts[0].buffers:
            steps.append((descriptor, buffer, at if self._ahead_bytes_max else AT_THE_END))
            at += len(buffer)
        if self._ahead_bytes_max and at > self._room_to:
            return None
        if not job.is_inline:
            steps.append((descriptor, None, 0))
        self._made.clear()  # the last job stands
        return steps

    def stepped(self, job: Job) -> None:
        """Note that the ``steps`` of a job have been done."""
        if self._ahead_bytes_max:
            self._end += sum([len(buffer) for part in job.parts for buffer in part.buffers])
        if job.parts:
            self._done(job)

    def run(
        self, job: Job, failed: OSError | None = None, is_of_sync: bool = False
    ) -> Iterator[str]:
        """Carry out a job; yields the name of each point that has been reached.

        ``failed`` is the error of one of its ``steps``, which were the first attempt; ``is_of_sync``: of the sync.

        Raises:
            OSError: after a shortage the job may be given again later; after any other error the
                log is of no use any more.
            MemoryError: a shortage.
        """
        if not job.parts:
            return
        shortage: OSError | MemoryError | None = None
        try:
            yield from self._attempt(job) if failed is None else self._attempted(failed, is_of_sync)
        except (OSError, MemoryError) as error:
            if not is_shortage(error):
                raise
            shortage = error  # not handled here: a yield in ``except`` would leave the error with the thread, compiled
        if shortage is None:
            return
        yield "shortage"
        if is_disk_full(shortage):
            self._ballast.release(job.makes_room)
        try:
            yield from self._attempt(job)
        except (OSError, MemoryError) as again:
            if is_shortage(again):
                self._go_to(job.start)  # its bytes take room, too
            raise

    def _attempt(self, job: Job) -> Iterator[str]:
        self._go_to(job.start)
        self._is_tainted = True
        for part in job.parts:
            if part.header is not None:
                yield from self._roll(part.file_no, part.header)
            yield "before write"
            self._write(part.buffers)
            yield "written"
        if not job.is_inline:
            self._sync()
        self._done(job)
        if not job.is_inline:
            yield "synced"

    def _attempted(self, failed: OSError, is_of_sync: bool) -> Iterator[str]:
        """Continue behind a first attempt by steps that failed."""
        self._is_tainted = True
        yield "failed"
        if is_of_sync:
            self._raise_of_sync(failed)
        raise failed

    def _done(self, job: Job) -> None:
        if not job.is_inline:
            self._owed_from = None
        elif self._owed_from is None:
            self._owed_from = job.start.offset
        self._place, self._is_tainted = job.end, False

    def _write(self, buffers: Sequence[bytes]) -> None:
        file = self._opened()
        if not self._ahead_bytes_max:
            file.append(buffers)
            return
        self._take_room(file, self._end + sum(map(len, buffers)))
        for buffer in buffers:
            file.write_at(buffer, self._end)
            self._end += len(buffer)

    def _take_room(self, file: File, end: int) -> None:
        """Lengthen the file if it is to reach behind its room; as much again, within bounds."""
        if end <= self._room_to:
            return
        ahead = min(self._ahead_bytes_max, max(self._ahead_bytes_max // _AHEAD_STEPS, end))
        self._room_to = end
        try:
            file.allocate(end + ahead)
            self._room_to += ahead
            for at in range(end, self._room_to, len(_ZEROS)):
                file.write_at(_ZEROS[: self._room_to - at], at)
        except OSError as error:
            if not is_shortage(error):
                raise

    def _sync(self) -> None:
        try:
            self._opened().fdatasync()
        except OSError as error:
            self._raise_of_sync(error)
        self._owed_from = None

    def _raise_of_sync(self, error: OSError) -> NoReturn:
        if self._owed_from is None:
            raise error
        raise OSError(errno.EIO, f"inline records cannot be synced: {error}") from error

    def _opened(self) -> File:
        assert self._file is not None, "a job begins without a file"
        return self._file

    def _roll(self, file_no: int, header: bytes) -> Iterator[str]:
        if self._file is not None:
            if self._room_to > self._end:
                self._file.truncate(self._end)  # gives up the room behind the contents
            self._sync()
            self.close()
            yield "sealed"
        create = self._files.create_copy if self._ahead_bytes_max else self._files.create
        self._made.append(file_no)  # before: a call that fails may have made the name
        self._file = create(self.path(file_no))
        self._end = self._room_to = 0
        yield "created"
        self._write([header])
        self._file.fsync()
        yield "header synced"
        self._files.fsync_dir(self._folder)
        yield "name synced"

    def _go_to(self, start: LogEnd) -> None:
        """Go back to the start of the job; drop what a failed job has left in this file or in new files."""
        if not self._is_tainted and start == self._place:
            self._made.clear()  # the last job stands
            return
        self._is_tainted = True  # until all of this is done
        self.close()
        while self._made:
            with suppress(FileNotFoundError):
                self._files.unlink(self.path(self._made[-1]))
            self._made.pop()
        if start.file_no != NO_FILE:
            opened = self._files.open_write if self._ahead_bytes_max else self._files.open_append
            # A checkpoint may have unlinked a journal file that was left; the job then begins a new one.
            with suppress(FileNotFoundError):
                self._file = opened(self.path(start.file_no))
                self._file.truncate(start.offset)
            self._end = self._room_to = start.offset
        if self._owed_from is not None and start.offset <= self._owed_from:
            self._owed_from = None
        self._place, self._is_tainted = start, False

    def close(self) -> None:
        """Close the file in use; un-synced bytes are left to recovery."""
        if self._file is not None:
            self._file.close()
            self._file = None
