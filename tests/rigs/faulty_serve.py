"""``leveret serve`` whose message stores meet errors of the system while a test wants them to.

    LEVERET_FAULTS=FILE python -P faulty_serve.py serve ...

The file is mapped. It has one byte for each ``FaultyCall``: the share of such calls that fail, of 255.
"""

from __future__ import annotations

import enum
import errno
import mmap
import os
import random
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from leveret.core.system.files import Buffer, Files, OsCalls
from leveret.server.broker import Broker
from leveret.server.cli import main, serve


class FaultyCall(enum.IntEnum):
    """A kind of call that fails, and with which error."""

    OPEN = 0  # ENOMEM
    WRITE = 1  # EIO
    SYNC = 2  # EIO
    READ = 3  # EIO
    FULL = 4  # ENOSPC, of a write


class Faults:
    """The shares of failing calls, in a file that the test and the broker have mapped."""

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(len(FaultyCall))
            self._shares = mmap.mmap(file.fileno(), len(FaultyCall))

    def set(self, call: FaultyCall, share: float) -> None:
        self._shares[call] = int(share * 255)

    def meet(self, call: FaultyCall, error: int) -> None:
        """Raise the error, by chance."""
        share = self._shares[call]
        if share and random.random() * 255 < share:
            raise OSError(error, os.strerror(error))


class FailingCalls(OsCalls):
    """The system's calls, with these faults."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def open(self, path: Path, flags: int) -> int:
        self._faults.meet(FaultyCall.OPEN, errno.ENOMEM)
        return super().open(path, flags)

    def writev(self, descriptor: int, buffers: Sequence[Buffer]) -> int:
        self._write_may_fail()
        return super().writev(descriptor, buffers)

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> int:
        self._write_may_fail()
        return super().pwrite(descriptor, data, offset)

    def _write_may_fail(self) -> None:
        self._faults.meet(FaultyCall.WRITE, errno.EIO)
        self._faults.meet(FaultyCall.FULL, errno.ENOSPC)

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        self._faults.meet(FaultyCall.FULL, errno.ENOSPC)
        super().allocate(descriptor, size_bytes)

    def fdatasync(self, descriptor: int) -> None:
        self._faults.meet(FaultyCall.SYNC, errno.EIO)
        super().fdatasync(descriptor)

    def fsync(self, descriptor: int) -> None:
        self._faults.meet(FaultyCall.SYNC, errno.EIO)
        super().fsync(descriptor)

    def pread(self, descriptor: int, count: int, offset: int) -> bytes:
        self._faults.meet(FaultyCall.READ, errno.EIO)
        return super().pread(descriptor, count, offset)


if __name__ == "__main__":
    calls = FailingCalls(Faults(Path(os.environ["LEVERET_FAULTS"])))
    serve.Broker = partial(Broker, files=Files(calls))  # type: ignore[assignment,misc]
    sys.exit(main.main())
