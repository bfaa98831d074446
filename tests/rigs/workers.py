"""A pytest plugin: how ``pytest -n N --dist loadfile`` shares the tests among workers.

A worker takes a file as a whole, and with it the fixtures of the file. One worker takes all files of ``tests/spark``,
since a session of Spark starts in ten seconds. Files that take long come first, so that the workers end together.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

SPARK = "tests/spark/"
LONG = (  # they start processes, and wait for them and for disks
    SPARK,
    "tests/durable/",
    "tests/soak/",
    "tests/actors/thespian/",
    "tests/mutants/",
    "tests/supervisors/",
    "tests/server/",
    "tests/clients/",
    "tests/conformance/",
    "tests/testing/",
    "tests/metadata/",
    "tests/gm/",
    "tests/fuzz/",
    "tests/examples/",
)


class FileScheduling(LoadFileScheduling):
    """``--dist loadfile`` with a single scope for all that lies in ``tests/spark``, in the order of the collection."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(SPARK) else super()._split_scope(nodeid)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("dist", None) == "loadfile":
        items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    return next((at for at, folder in enumerate(LONG) if item.nodeid.startswith(folder)), len(LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None
