"""One process of the operating system, whose end is noticed on the event loop.

It leads a process group: Ctrl-C in the terminal is for its parent alone, and processes that it has
started end with it. It is started by exec, never forked with the parent's memory and locks.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

_DEATH_S: Final = 0.1  # how long a killed process is waited for
_POLL_S: Final = 0.02  # where the system cannot tell of the end by itself


class OsProcess:
    """A running process.

    Attributes:
        ended: gets the exit status when the process is dead and reaped; negative: of that signal.
        pid: its number, also that of its group.
    """

    def __init__(
        self, argv: Sequence[str], loop: asyncio.AbstractEventLoop, **options: Any
    ) -> None:
        """Start it with ``options`` of ``subprocess.Popen``; OSError if the system cannot."""
        self._loop = loop
        self._popen = subprocess.Popen(argv, stdin=subprocess.DEVNULL, process_group=0, **options)
        self.pid = self._popen.pid
        self.ended: asyncio.Future[int] = loop.create_future()
        self._pidfd: int | None = None
        self._watch()

    @property
    def output(self) -> Any:
        """The reading end of its output, if ``stdout`` was a pipe."""
        return self._popen.stdout

    def signal(self, number: int) -> None:
        """Send a signal to the process and its child processes."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):  # dead, and not reaped by us
                os.killpg(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def end_now(self) -> None:
        """Kill it and wait until it is dead, so that a successor finds its ports and files free.

        A killed process is gone within about a millisecond; ``_DEATH_S`` is for a process that the
        system cannot let go at once.
        """
        if self.ended.done():
            return
        self.kill()
        if self._pidfd is None:
            deadline_s = time.monotonic() + _DEATH_S
            while not self._is_dead() and time.monotonic() < deadline_s:
                time.sleep(0.001)  # the thread, not a turn: see above
        else:
            gone = select.poll()
            gone.register(self._pidfd, select.POLLIN)
            gone.poll(_DEATH_S * 1000)

    def _is_dead(self) -> bool:
        # Looks without reaping, so that the group cannot be another's before it is killed.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _watch(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, an old kernel, or no file descriptors left
            self._poll()
        else:
            self._loop.add_reader(self._pidfd, self._reap)

    def _poll(self) -> None:
        if self._is_dead():
            self._reap()
        else:
            self._loop.call_later(_POLL_S, self._poll)

    def _reap(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        self.kill()  # processes it left behind; its number is not free before it is reaped
        self.ended.set_result(self._popen.wait())
