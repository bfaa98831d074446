"""An offline store that is written: group commit, checkpoints and collector without loop and threads.

For tools that have the store to themselves, such as ``leveret store compact``. The cores are those of a
broker, driven by method calls; so a tool that is killed leaves a store as after a crash, which the next start recovers.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import Final

from leveret.core.errors import StoreError
from leveret.msg_store.archive import archive_file
from leveret.msg_store.archive_writer import contents_of
from leveret.msg_store.checkpoint.checkpoint import Checkpointer
from leveret.msg_store.format.pins import Pins
from leveret.msg_store.format.rows import IndexFull
from leveret.msg_store.gc.choose import ChoiceLimits
from leveret.msg_store.gc.collector import Collected, Collector, Job, Moving, Task, Wait
from leveret.msg_store.recovery.recovery import Opened

# No client waits, so a tenth of garbage is worth the copying, and no two small files are left.
THOROUGH: Final = ChoiceLimits(
    small_files_max=1, files_before_garbage=0, garbage_share=0.1, sources_max=64
)


class OfflineStore:
    """A store that one caller drives, step by step. It takes ``opened`` over."""

    def __init__(self, opened: Opened, choice: ChoiceLimits = THOROUGH) -> None:
        self.core = opened.core  # group commit, for ``write``, ``publish`` and ``ack``
        self._opened = opened
        self._index = opened.recovered.index
        self._checkpointer = Checkpointer(self.core, opened.index_files)
        self._collector = Collector(
            opened.folder,
            self.core,
            self.core.memtables,
            self._index,
            Pins(),
            opened.now_ms,
            lambda _: None,  # no reader has a segment open
            self._checkpointer.request,
            choice,
        )

    def flush(self) -> None:
        """Write and sync all pending work."""
        while self.core.delay_s() is not None:
            if self.core.is_short:
                raise OSError(errno.ENOSPC, "the disk is full", str(self._opened.folder.path))
            flush = self.core.start()
            rdq_error = _error_in(self._opened.rdq_log.run(flush.rdq))
            journal_error = _error_in(self._opened.journal_log.run(flush.journal))
            report = self.core.finish(rdq_error, journal_error)
            if report.error is not None:
                raise report.error

    def checkpoint(self) -> None:
        """Write all durable changes into the index."""
        self._checkpointer.request()
        self._write_index()

    def _write_index(self) -> None:
        checkpointer, folder = self._checkpointer, self._opened.folder
        is_busy = True
        while is_busy:
            is_busy = False
            checkpointer.turn()
            if (read := checkpointer.read_job()) is not None:
                read.run(self._index)
                checkpointer.read_done(read)
                self.flush()
                is_busy = True
            if (write := checkpointer.write_job()) is not None:
                try:
                    for _ in write.run(self._index, folder, self._opened.ballast):
                        pass
                except IndexFull as error:
                    raise OSError(errno.ENOSPC, str(error), str(folder.path)) from error
                checkpointer.write_done(write)
                is_busy = True

    def collect(self, progress: Callable[[Collected], None] = lambda _: None) -> Collected:
        """Merge and remove segments until none is worth it."""
        is_first_try = True
        while True:
            task = self._collector.next_task()
            if task is None and self._tell_readers():
                continue
            if task is not None:
                self._run(task)
                progress(self._collector.collected)
                is_first_try = True
            elif is_first_try:
                self.checkpoint()  # a segment must be empty in the index before it is removed
                is_first_try = False
            else:
                return self._collector.collected

    def _tell_readers(self) -> bool:
        """Write ``archive.json``, if the collector waits for it; return whether it did."""
        archive, folder = self.core.archive, self._opened.folder
        if archive.published == archive.version:
            return False
        found = archive_file.read(folder)
        if found is not None:
            contents = contents_of(self.core, folder, found.vhost)
            folder.files.write_new(folder.path / archive_file.NAME, contents.encoded())
        archive.published = archive.version
        return True

    def _run(self, task: Task) -> None:
        error: Exception | None = None
        while True:
            try:
                wait = next(task) if error is None else task.throw(error)
            except StopIteration:
                return
            error = None
            if isinstance(wait, Job):
                error = _error_in(wait.steps)
            elif isinstance(wait, Moving):
                self.flush()
                while self.core.memtables.has_unresolved:
                    self.checkpoint()
            elif wait is Wait.RETRY:
                path = str(self._opened.folder.path)
                raise OSError(errno.ENOSPC, "no room to merge segments", path)

    def stop(self) -> None:
        """Write all pending work and close the store as a broker's stop does; clean queues stay clean."""
        for queue_no, terms in self._opened.recovered.queues.items():
            if terms.is_clean:
                self.core.close_queue(queue_no, terms.next_seq, terms.next_deliver)
        self.flush()
        self._checkpointer.stop()
        self._write_index()
        assert self._checkpointer.is_stopped, "work is left after the last checkpoint"
        self.close()

    def close(self) -> None:
        """Close the files without writing."""
        self._opened.close()


def _error_in(steps: Iterable[str]) -> Exception | None:
    try:
        for _ in steps:
            pass
    except (OSError, EOFError, StoreError) as error:
        return error
    return None
