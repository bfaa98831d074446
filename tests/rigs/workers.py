"""A pytest plugin: how ``pytest -n N --dist loadfile`` shares the tests among workers.

A worker takes a file as a whole, and with it the fixtures of the file. One worker takes all files of ``tests/spark``,
since a session of Spark starts in ten seconds.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

SPARK = "tests/spark/"


class FileScheduling(LoadFileScheduling):
    """``--dist loadfile`` with a single scope for all that lies in ``tests/spark``."""

    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(SPARK) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None
