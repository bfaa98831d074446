"""Shortages: errors that mean a resource is used up: disk space, descriptors, memory.

Room on a disk, descriptors and memory come back. So a part that meets a shortage keeps its work, waits and tries
again, for as long as it takes, and its callers wait too. Any other error of the system is final
for the call that met it. A failed sync is never retried, whatever its errno: the kernel may have
dropped the pages (``files``).
"""

from __future__ import annotations

import errno
import os
from typing import Final, TypeGuard

from leveret.core.log.loggers import logger

log = logger(__name__)

DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
MEMORY: Final = frozenset({errno.ENOMEM, errno.ENOBUFS})  # ENOBUFS: the kernel's, for a socket
THREADS: Final = {errno.EAGAIN: "raise the limit of processes and threads (ulimit -u)"}
"""No member of SHORTAGES: for a file it is another process's lock."""

SHORTAGES: Final = {
    errno.ENOSPC: "free some room on the disk",
    errno.EDQUOT: "free some room, or raise the quota of the disk",
    errno.EMFILE: "close connections or files of this process, or raise its limit of open files (ulimit -n)",
    errno.ENFILE: "close files of other processes, or raise the machine's limit of open files (fs.file-max)",
    errno.ENOMEM: "free some memory, or raise the limit of memory of this process",
    errno.ENOBUFS: "free some memory, or raise the machine's limits of memory for sockets",
}
"""Error numbers of shortages of disk space, descriptors and memory, and the operator's remedy for each."""


def is_shortage(error: BaseException | None) -> TypeGuard[Exception]:
    """Return whether the same work may succeed later, without any harm done."""
    return isinstance(error, MemoryError) or getattr(error, "errno", None) in SHORTAGES


def is_disk_full(error: Exception) -> bool:
    """Return whether an error means that the disk is full."""
    return isinstance(error, OSError) and error.errno in DISK


def as_os_error(error: MemoryError) -> OSError:
    """Return Python's own lack of memory as the system's."""
    return OSError(errno.ENOMEM, str(error) or os.strerror(errno.ENOMEM))


class ShortageLog:
    """Logs when a part begins to wait and when it resumes, and no try between.

    Args:
        part: names the part in the log.
        owner: the files that it works on.
    """

    __slots__ = ("_logged", "_owner", "_part", "error")

    def __init__(self, part: str, owner: object) -> None:
        self._part = part
        self._owner = owner
        self._logged: int | None = None
        self.error: Exception | None = None  # that of the last try; None: it does not wait

    def note(self, error: Exception | None) -> bool:
        """Note how a try has ended, None: well. Return whether the part has begun or ceased to wait."""
        before, self.error = self.error, error
        if error is None:
            if before is None:
                return False
            self._logged = None
            log.info("store resumed part=%s where=%s", self._part, self._owner)
            return True
        number = reason_no(error)
        if number != self._logged:
            self._logged = number
            remedy = SHORTAGES.get(number, "look at the disk and at the system's log")
            text = "store short of a resource, tries again part=%s where=%s reason=%s error=%s remedy=%s"
            what = str(error) or os.strerror(number)
            log.warning(text, self._part, self._owner, reason_of(error), what, remedy)
        return before is None


def reason_no(error: BaseException) -> int:
    """Return the error's number; 0 if it has none."""
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    return getattr(error, "errno", None) or 0


def reason_of(error: BaseException | None) -> str:
    """Return the name of the error's number, ``EMFILE`` say; nothing without an error."""
    if error is None:
        return ""
    return errno.errorcode.get(reason_no(error), type(error).__name__)
