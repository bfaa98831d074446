"""What a module that may be compiled tells mypyc, without a need for mypyc's package when it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_: bool):
        """Decorate a class with what mypyc must know of it, such as ``allow_interpreted_subclasses=True``."""
        return lambda made: made
