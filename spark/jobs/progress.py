"""How a job tells how far it is; the command line draws a bar of it where stderr is a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the step's name, how much of it is done, and how much there is (0: not known)."""


def silent(step: str, done: int, total: int) -> None:
    """Tell nobody: the default of jobs that a program calls."""
