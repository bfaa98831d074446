"""Let a process end with its parent, however the parent ends.

Linux sends the signal (PR_SET_PDEATHSIG; it survives exec). Elsewhere only the check for a parent
that is gone already is made; processes with a link end when the link does.

Run as a program it becomes another one: ``python die_with_parent.py PARENT_PID PROGRAM ARGUMENT...``.
It imports nothing of ours, so that it starts fast.
"""

from __future__ import annotations

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
PARENT_IS_GONE = 143  # exit status, as of a shell's child that got SIGTERM


def die_with_parent(parent_pid: int) -> None:
    """Get a SIGKILL when the thread that started this process ends; end now if it has ended."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415  # only where it is of use

        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        os._exit(PARENT_IS_GONE)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
