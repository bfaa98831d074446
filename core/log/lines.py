"""The writer of the log: a thread, so that a pipe that nobody reads or a disk that hangs holds up no caller.

Lines wait in RAM for the thread. When ``WAITING_BYTES_MAX`` wait, further lines are lost until half of them are
written, and then one line tells how many; likewise lines that the system refuses, as on a full disk.
A process that is killed loses the lines of its last milliseconds.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

from leveret.core.threads import start_thread

WAITING_BYTES_MAX: Final = 1024 * 1024  # thousands of lines
END_S: Final = 1.0  # for lines that wait when the process ends


class LineHandler(logging.Handler):
    """Writes each record as a line to a descriptor, which ``close`` closes if it is ``owned``.

    Raises:
        OSError: no thread is left; an ``owned`` descriptor has been closed.
    """

    def __init__(self, descriptor: int, *, owned: bool = False) -> None:
        self._descriptor = descriptor
        self._is_owned = owned
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._mutex = threading.RLock()  # a garbage collection may log while a line is logged
        self._waiting_bytes = self._lost = 0
        self._is_full = False
        self._thread = threading.Thread(target=self._run, name="leveret-log", daemon=True)
        try:
            start_thread(self._thread)
        except OSError:
            if owned:
                os.close(descriptor)
            raise
        super().__init__()  # last: it has the process's end close this handler

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception as error:  # noqa: BLE001 - a line of the log never fails its caller
            text = (
                f"log line not formatted logger={record.name} text={record.msg!r} error={error!r}"
            )
        line = f"{text}\n".encode("utf-8", "backslashreplace")
        with self._mutex:
            self._is_full |= self._waiting_bytes + len(line) > WAITING_BYTES_MAX
            if self._is_full:
                self._lost += 1
            else:
                self._waiting_bytes += len(line)
                self._lines.put(line)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            is_written = self._write(line)
            with self._mutex:
                self._waiting_bytes -= len(line)
                self._lost += not is_written
                if self._waiting_bytes > WAITING_BYTES_MAX // 2:
                    continue
                self._is_full = False
                lost = self._lost if is_written else 0
                self._lost -= lost
            if lost:
                self._tell_lost(lost)

    def _tell_lost(self, count: int) -> None:
        text = "log lines lost, they could not be written count=%d"
        self.emit(logging.LogRecord(__name__, logging.WARNING, "", 0, text, (count,), None))

    def _write(self, line: bytes) -> bool:
        """Write a line, for as long as it takes; return whether the system took it."""
        rest = memoryview(line)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # whoever shares the descriptor has made it so
                select.select([], [self._descriptor], [])
            except OSError:
                return False
        return True

    def close(self) -> None:
        """Write what waits, unless that takes longer than ``END_S``."""
        self._lines.put(None)
        self._thread.join(END_S)
        if self._is_owned and not self._thread.is_alive():
            self._is_owned = False
            with suppress(OSError):
                os.close(self._descriptor)
        super().close()
