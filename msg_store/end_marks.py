"""The end mark of a store, on the loop: a thread writes the mark shortly after a flush (``format/end_mark.py``).

A flush only reads ``is_due``. However many flushes there are, the mark costs one write of 88 bytes every
``INTERVAL_S``, and no flush waits for it. After an error of the disk the mark is written later: an old mark is a lower
bound, never wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from leveret.core.clock import TimerHandle, TimerLoop
from leveret.core.system.shortage import ShortageLog, as_os_error
from leveret.msg_store.format.end_mark import EndMarkFile
from leveret.msg_store.wal.group_commit import GroupCommit

INTERVAL_S: Final = 0.2

Submit: TypeAlias = Callable[[Callable[[], Any], Callable[[Any], None]], None]


class EndMarks:
    """Schedules the writes of the mark. For the loop.

    Args:
        core: its durable position is written.
        file: the mark, written on the thread that ``submit`` uses.
        submit: runs a function on that thread, then another on the loop with the result.
        loop: of the store.
        where: the store, for the log.

    Attributes:
        is_due: a write is scheduled.
    """

    def __init__(
        self,
        core: GroupCommit,
        file: EndMarkFile,
        submit: Submit,
        loop: TimerLoop,
        where: object,
    ) -> None:
        self._core = core
        self._file = file
        self._submit = submit
        self._loop = loop
        self._written = core.durable
        self._timer: TimerHandle | None = None
        self._errors = ShortageLog("writing the end mark", where)
        self.is_due = False

    def begin(self) -> None:
        """Schedule a write."""
        self.is_due = True
        self._timer = self._loop.call_later(INTERVAL_S, self._write)

    def _write(self) -> None:
        durable, file = self._core.durable, self._file
        if durable == self._written:
            self.is_due = False
            return

        def work() -> OSError | None:
            try:
                file.write(durable)
            except OSError as error:
                return error
            except MemoryError as error:
                return as_os_error(error)
            return None

        def done(error: OSError | None) -> None:
            self._errors.note(error)
            if error is None:
                self._written = durable
            self.begin()  # more may have become durable meanwhile

        self._submit(work, done)

    def end(self) -> None:
        """Stop writing."""
        self.is_due = True
        if self._timer is not None:
            self._timer.cancel()
