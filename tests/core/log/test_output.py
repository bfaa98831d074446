"""The log of ``leveret serve``.

Tests: core/log/loggers.py
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.core.log import output as log_output
from leveret.core.log.loggers import logger

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (.*)")


@pytest.fixture
def stderr(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "stderr", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def written(descriptor: int) -> list[str]:
    return os.pread(descriptor, 1 << 20, 0).decode().splitlines()


def events(lines: list[str]) -> list[str]:
    return [match[1] for line in lines if (match := LINE.match(line))]


def test_one_event_is_one_line(stderr: int) -> None:
    handlers = log_output.configure("info", stderr=stderr)
    try:
        log = logger("leveret.broker.connection.listener")
        log.info("connection opened peer=%s", "a\r\nb")
        log.debug("not wanted")
    finally:
        log_output.release(handlers)

    assert events(written(stderr)) == [
        r'info leveret.broker.connection.listener connection opened peer="a\r\nb"'
    ]


def test_a_traceback_follows_indented(stderr: int) -> None:
    handlers = log_output.configure("info", stderr=stderr)
    try:
        logging.getLogger("leveret.x").error("broken", exc_info=ValueError("why"))
    finally:
        log_output.release(handlers)

    assert written(stderr)[1:] == ["    ValueError: why"]


@pytest.mark.parametrize(
    ("level", "file_level", "on_stderr", "in_file"),
    [
        ("info", None, ["error", "info"], ["error", "info"]),
        ("error", "debug", ["error"], ["error", "info", "debug"]),
        ("none", "error", [], ["error"]),
    ],
)
def test_file_and_stderr_have_levels_of_their_own(
    tmp_path: Path,
    stderr: int,
    level: str,
    file_level: str | None,
    on_stderr: list[str],
    in_file: list[str],
) -> None:
    handlers = log_output.configure(level, tmp_path / "a.log", file_level, stderr)
    try:
        log = logging.getLogger("leveret.x")
        log.error("e")
        log.info("i")
        log.debug("d")
    finally:
        log_output.release(handlers)

    logged = (tmp_path / "a.log").read_text().splitlines()
    assert [line.split()[0] for line in events(written(stderr))] == on_stderr
    assert [line.split()[0] for line in events(logged)] == in_file


def test_nothing_is_left_of_it(stderr: int) -> None:
    loggers = [logging.getLogger(name) for name in ("leveret", "asyncio")]
    before = [(list(each.handlers), each.level, each.propagate) for each in loggers]

    log_output.release(log_output.configure("debug", stderr=stderr))

    assert [(list(each.handlers), each.level, each.propagate) for each in loggers] == before


def test_a_text_of_many_lines_follows_indented(stderr: int) -> None:
    handlers = log_output.configure("info", stderr=stderr)
    try:
        logger("leveret.x").error("crashed actor=%s\n%s", "a\nb", "Traceback:\n  x\x1b\n")
    finally:
        log_output.release(handlers)

    first, *rest = written(stderr)
    assert first.endswith(r'error leveret.x crashed actor="a\nb"')
    assert rest == ["    Traceback:", r"      x\x1b"]


def test_errors_of_the_event_loop_are_lines_too(stderr: int) -> None:
    handlers = log_output.configure("error", stderr=stderr)
    try:
        logging.getLogger("asyncio").error("callback failed: %s", "a\x1b[2Jb\nc")
    finally:
        log_output.release(handlers)

    assert events(written(stderr)) == [r"error asyncio callback failed: a\x1b[2Jb"]
    assert written(stderr)[-1] == "    c"
