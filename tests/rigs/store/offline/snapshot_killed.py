"""Programs that end, as by kill -9, at a named point of a snapshot.

python snapshot_killed.py POINT serve ARGUMENT...      a broker that does
python snapshot_killed.py POINT create DATA NAME [DIR] the command that does
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from leveret.core.system.files import Files
from leveret.management.snapshots.making import Wanted
from leveret.msg_store.checkpoint.snapshot import Snapshot
from leveret.server.cli.main import main
from leveret.server.cli.snapshot_command import create


def die_at(point: str) -> Any:
    def reached(here: str) -> None:
        if here == point:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached


def serve(point: str, arguments: list[str]) -> int:
    run, reached = Snapshot.run, die_at(point)

    def deadly(*given: Any) -> Iterator[str]:
        for here in run(*given):
            reached(here)
            yield here

    Snapshot.run = deadly  # type: ignore[method-assign]
    return main(["serve", *arguments])


def made(point: str, data: str, name: str, *copy_to: str) -> int:
    target = Path(copy_to[0]) if copy_to else None
    create(Files(), Path(data), Wanted(name), target, 60.0, die_at(point))
    return 0


if __name__ == "__main__":
    _, at, what, *rest = sys.argv
    sys.exit(serve(at, rest) if what == "serve" else made(at, *rest))
