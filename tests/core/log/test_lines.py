"""The log is written by a thread: nobody waits for a pipe that is not read, and lost lines are counted.

Tests: core/threads.py
"""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.core.log.lines import WAITING_BYTES_MAX, LineHandler
from leveret.core.log.output import LineFormatter
from rigs.waiting import wait_until

LOST = re.compile(r"lost, they could not be written count=(\d+)")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read_end, write_end = os.pipe()
    yield read_end, write_end
    os.close(read_end)


def handler(descriptor: int) -> LineHandler:
    made = LineHandler(descriptor, owned=True)
    made.setFormatter(LineFormatter())
    return made


def log(to: LineHandler, text: str) -> None:
    to.handle(logging.LogRecord("leveret.x", logging.INFO, "", 0, text, (), None))


class Reader(threading.Thread):
    """Reads a pipe to its end."""

    def __init__(self, read_end: int) -> None:
        super().__init__(daemon=True)
        self.data = b""
        self._read_end = read_end
        self.start()

    def run(self) -> None:
        while more := os.read(self._read_end, 1 << 16):
            self.data += more

    @property
    def lines(self) -> list[str]:
        return self.data.decode().splitlines()


def test_a_pipe_that_is_not_read_holds_nobody_up_and_lost_lines_are_counted(
    pipe: tuple[int, int],
) -> None:
    read_end, write_end = pipe
    made = handler(write_end)
    count = 2 * WAITING_BYTES_MAX // 1_000
    for number in range(count):
        log(made, f"{number:<1000}")

    reader = Reader(read_end)
    wait_until(lambda: LOST.search(reader.data.decode()), within_s=10)
    log(made, "goes on")
    made.close()
    reader.join(10)

    *whole, told, last = reader.lines
    lost = LOST.search(told)
    assert lost is not None
    assert int(lost[1]) + len(whole) == count
    assert [int(line.split()[3]) for line in whole] == list(range(len(whole)))
    assert last.endswith("goes on")


def test_lines_that_the_disk_refuses_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def refusing(descriptor: int, data: memoryview) -> int:
        if b"refused" in bytes(data):
            raise OSError(errno.ENOSPC, "full")
        return write(descriptor, data)

    monkeypatch.setattr("leveret.core.log.lines.os.write", refusing)
    path = tmp_path / "log"
    made = handler(os.open(path, os.O_WRONLY | os.O_CREAT))
    for text in ("before", "refused", "refused", "again"):
        log(made, text)
    wait_until(lambda: LOST.search(path.read_text()), within_s=10)
    made.close()

    before, again, told = path.read_text().splitlines()
    assert (before.split()[-1], again.split()[-1]) == ("before", "again")
    assert told.endswith(" count=2")


def test_a_line_that_cannot_be_formatted_fails_no_caller(tmp_path: Path) -> None:
    path = tmp_path / "log"
    made = handler(os.open(path, os.O_WRONLY | os.O_CREAT))

    made.handle(logging.LogRecord("leveret.x", logging.INFO, "", 0, "count=%d", ("many",), None))
    made.close()

    assert "not formatted logger=leveret.x text='count=%d' error=TypeError" in path.read_text()


def test_an_end_does_not_wait_for_a_pipe_that_is_not_read(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.core.log.lines.END_S", 0.01)
    made = handler(pipe[1])
    for _ in range(100):
        log(made, "x" * 1_000)

    made.close()

    reader = Reader(pipe[0])
    made._thread.join(10)
    os.close(pipe[1])
    reader.join(10)
    assert len(reader.lines) == 100
