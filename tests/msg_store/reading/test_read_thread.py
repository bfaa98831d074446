"""Work of the reader thread that meets a shortage is done again; any other error is the store's.

Tests: msg_store/reading/rows.py
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from leveret.core.system.shortage import ShortageLog
from leveret.msg_store.reading.rows import RETRY_S, ReadThread


class Direct:
    """A worker that does its jobs at once, and a loop whose timers the test lets end."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[..., Any], tuple[Any, ...]]] = []

    def submit(self, job: Callable[[], Any], then: Callable[[Any, Exception | None], None]) -> None:
        steps = job()
        try:
            while True:
                next(steps)
        except StopIteration as end:
            then(end.value, None)
        except OSError as error:
            then(None, error)

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> Any:
        self.timers.append((delay_s, callback, args))

    def pass_time(self) -> None:
        (delay_s, callback, args), *self.timers = self.timers
        assert delay_s == RETRY_S
        callback(*args)


def test_work_is_done_again_until_a_shortage_is_over() -> None:
    direct, failed, results = Direct(), list[Exception](), list[int]()
    thread = ReadThread(direct, failed.append, direct, ShortageLog("reading rows", "here"))  # type: ignore[arg-type]
    outcomes: list[int | OSError] = [
        OSError(errno.EMFILE, "none left"),
        OSError(errno.ENOMEM, "no"),
        5,
    ]

    def work() -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    thread.submit(work, results.append)
    assert results == []
    direct.pass_time()
    direct.pass_time()

    assert (results, failed, direct.timers) == ([5], [], [])


@pytest.mark.parametrize("is_closed", [False, True])
def test_an_error_that_does_not_pass_is_the_stores(*, is_closed: bool) -> None:
    direct, failed = Direct(), list[Exception]()
    thread = ReadThread(direct, failed.append, direct, ShortageLog("reading rows", "here"))  # type: ignore[arg-type]
    error = OSError(errno.EIO, "bad sector")

    def work() -> None:
        if is_closed:
            thread.end()
        raise error

    thread.submit(work, failed.append)

    assert failed == ([] if is_closed else [error])
    assert direct.timers == []
