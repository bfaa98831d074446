"""The log of ``leveret serve``."""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path

import pytest

from leveret.core import log as logs

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (.*)")


def printed(stream: io.StringIO) -> list[str]:
    return [match[1] for line in stream.getvalue().splitlines() if (match := LINE.match(line))]


def test_one_event_is_one_line() -> None:
    stream = io.StringIO()
    handlers = logs.configure("info", stream=stream)
    try:
        log = logs.logger("leveret.broker.connection.listener")
        log.info("connection opened peer=%s", "a\r\nb")
        log.debug("not wanted")
    finally:
        logs.release(handlers)

    assert printed(stream) == [
        r'info leveret.broker.connection.listener connection opened peer="a\r\nb"'
    ]


def test_a_traceback_follows_indented() -> None:
    stream = io.StringIO()
    handlers = logs.configure("info", stream=stream)
    try:
        logging.getLogger("leveret.x").error("broken", exc_info=ValueError("why"))
    finally:
        logs.release(handlers)

    assert stream.getvalue().splitlines()[1:] == ["    ValueError: why"]


@pytest.mark.parametrize(
    ("level", "file_level", "on_stderr", "in_file"),
    [
        ("info", None, ["error", "info"], ["error", "info"]),
        ("error", "debug", ["error"], ["error", "info", "debug"]),
        ("none", "error", [], ["error"]),
    ],
)
def test_file_and_stderr_have_levels_of_their_own(
    tmp_path: Path, level: str, file_level: str | None, on_stderr: list[str], in_file: list[str]
) -> None:
    stream = io.StringIO()
    handlers = logs.configure(level, tmp_path / "a.log", file_level, stream)
    try:
        log = logging.getLogger("leveret.x")
        log.error("e")
        log.info("i")
        log.debug("d")
    finally:
        logs.release(handlers)

    written = io.StringIO((tmp_path / "a.log").read_text())
    assert [line.split()[0] for line in printed(stream)] == on_stderr
    assert [line.split()[0] for line in printed(written)] == in_file


def test_nothing_is_left_of_it() -> None:
    loggers = [logging.getLogger(name) for name in ("leveret", "asyncio")]
    before = [(list(each.handlers), each.level, each.propagate) for each in loggers]

    logs.release(logs.configure("debug", stream=io.StringIO()))

    assert [(list(each.handlers), each.level, each.propagate) for each in loggers] == before


def test_a_text_of_many_lines_follows_indented() -> None:
    stream = io.StringIO()
    handlers = logs.configure("info", stream=stream)
    try:
        logs.logger("leveret.x").error("crashed actor=%s\n%s", "a\nb", "Traceback:\n  x\x1b\n")
    finally:
        logs.release(handlers)

    first, *rest = stream.getvalue().splitlines()
    assert first.endswith(r'error leveret.x crashed actor="a\nb"')
    assert rest == ["    Traceback:", r"      x\x1b"]


def test_errors_of_the_event_loop_are_lines_too() -> None:
    stream = io.StringIO()
    handlers = logs.configure("error", stream=stream)
    try:
        logging.getLogger("asyncio").error("callback failed: %s", "a\x1b[2Jb\nc")
    finally:
        logs.release(handlers)

    assert printed(stream) == [r"error asyncio callback failed: a\x1b[2Jb"]
    assert stream.getvalue().endswith("\n    c\n")
