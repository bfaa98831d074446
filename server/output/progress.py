"""The progress of a long command: a bar if stderr is a terminal, else nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]  # step, done, total


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Show a bar while the block runs; the block calls the yielded function with its progress."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console  # noqa: PLC0415 - only on a terminal
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title, total=None)

        def show(what: str, done: int, total: int) -> None:
            bars.update(task, description=f"{title}: {what}", completed=done, total=total or None)

        yield show
