"""The writer of the transient store: carries out jobs on its thread.

Contents are written before their rows, and both before the job is done: until then nobody reads them from the file.
What a failed attempt has left lies behind the end of the segment, and the next attempt writes over it. A full disk
stops writing; the contents stay in RAM.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import accumulate
from typing import Final

from leveret.core.entry import MESSAGE
from leveret.core.log.loggers import logger
from leveret.core.system.files import File
from leveret.core.system.shortage import ShortageLog
from leveret.msg_store.format import file_header
from leveret.msg_store.format.append_log import joined
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.record import QueueNos
from leveret.msg_store.format.record_encoding import encode_run
from leveret.msg_store.threads.worker import Steps
from leveret.msg_store.transient.paging_core import Job, Unlink, Write
from leveret.msg_store.transient.segment import FIELDS, ROW_BYTES, ROWS_AT, TRANSIENT, Segment

_NO_ROUTE: Final[QueueNos] = ()  # the row says whose a record is

log = logger(__name__)


class TransientWriter:
    """Carries out jobs. For one thread."""

    def __init__(
        self, paths: StorePaths, identity: Identity, now_ms: Callable[[], int], room_bytes: int
    ) -> None:
        self._paths = paths
        self._files = paths.files
        self._identity = identity
        self._extend, self._seed = identity.extend, identity.seed
        self._now_ms = now_ms
        self._room_bytes = room_bytes
        self._unlinking = ShortageLog("removing transient segments", paths.rdq)
        self._file: File | None = None
        self._file_no = 0

    def run(self, job: Job) -> Steps[None]:
        """Carry out a job.

        Raises:
            OSError: nothing was written that will be read; not all segments have been unlinked.
        """
        if isinstance(job, Write):
            yield from self._write(job)
        elif isinstance(job, Unlink):
            yield "before unlink"
            self._unlink(job)
        else:
            yield "before wipe"
            self._wipe()

    def _wipe(self) -> None:
        self._files.mkdir(self._paths.rdq)
        for name in self._files.names(self._paths.rdq):
            self._files.unlink(self._paths.rdq / name)

    def _write(self, job: Write) -> Steps[None]:
        if self._files.free_bytes(self._paths.rdq) < self._room_bytes:
            raise OSError(errno.ENOSPC, "the last of the disk is not for transients")
        segment, contents = job.segment, job.contents
        items = [
            (position, (entry[MESSAGE], _NO_ROUTE))
            for position, (_, entry) in enumerate(contents, segment.position)
        ]
        buffers: list[bytes] = []
        lengths = encode_run(items, self._now_ms(), self._extend, self._seed, buffers, flags=0)
        offsets = accumulate(lengths, initial=segment.end)
        pack = FIELDS.pack
        rows = [
            pack(seq, msg_no, size, expiry_ms, TRANSIENT, queue_no, offset, length)
            for (queue_no, (seq, _, expiry_ms, _, msg_no, size, _, _)), offset, length in zip(
                contents, offsets, lengths, strict=False
            )
        ]
        try:
            file, end = self._opened(segment), segment.end
            for buffer in joined(buffers):
                file.write_at(buffer, end)
                end += len(buffer)
            yield "contents written"
            file.write_at(b"".join(rows), ROWS_AT + segment.rows * ROW_BYTES)
        except OSError:
            self.close()
            raise
        job.end = end
        yield "rows written"

    def _opened(self, segment: Segment) -> File:
        if self._file is not None and self._file_no == segment.file_no:
            return self._file
        self.close()
        path = self._paths.rdq_path(segment.file_no)
        try:
            self._file = self._files.create_copy(path)
        except FileExistsError:  # an attempt that failed has made it
            self._file = self._files.open_write(path)
        header = self._identity.header(file_header.RDQ_MAGIC, segment.file_no, self._now_ms())
        self._file.write_at(header, 0)
        self._file_no = segment.file_no
        return self._file

    def _unlink(self, job: Unlink) -> None:
        error: OSError | None = None
        for segment in job.segments:
            try:
                self._files.unlink(self._paths.rdq_path(segment.file_no))
            except FileNotFoundError:
                if segment.rows:
                    log.warning(
                        "a transient segment was gone already file_no=%08x", segment.file_no
                    )
            except OSError as refused:
                error = refused
                continue
            job.unlinked.append(segment.file_no)
        self._unlinking.note(error)
        if error is not None:
            raise error

    def close(self) -> None:
        """Close the segment in use; it is opened again when it is written to."""
        if self._file is not None:
            self._file.close()
            self._file = None
