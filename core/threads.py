"""Starts of threads, which the system may have no room for."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading


def start_thread(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        OSError: EAGAIN, the system has no room for another thread.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, f"no thread for {thread.name}: {error}") from error
