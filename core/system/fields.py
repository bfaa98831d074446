"""Emptying an object that others may still hold, so that cycles through it end without the collector.

The collector runs seldom (docs/decisions/0025-no-full-collections.md), and a dead actor is held by timers, callbacks
and its own parts. Objects of compiled classes have no ``__dict__``, and their fields cannot be deleted one by one, so
what the collector itself would call does it. Where the kernel is not compiled no class is, and Python can do it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def _clear_in_python(emptied: object) -> None:
    getattr(emptied, "__dict__", {}).clear()
    for base in type(emptied).__mro__:
        for name in vars(base).get("__slots__", ()):
            if name not in {"__dict__", "__weakref__"} and hasattr(emptied, name):
                delattr(emptied, name)


def _chosen() -> Callable[[object], None]:
    try:
        chosen: Callable[[object], None] = import_module(
            "leveret.core.system._kernel_c"
        ).clear_fields
    except (ImportError, AttributeError):  # not compiled, or before this function came
        return _clear_in_python
    return chosen


clear_fields = _chosen()
"""Let go of all that an object refers to; its attributes are gone, as after ``del``."""
