"""Which classes may go to other processes: dataclasses marked with ``message``.

A marked class must be importable under the same name on the other side.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Final, TypeVar

from leveret.core.errors import ActorError

MAIN: Final = "__main__"
HOSTED_MAIN: Final = "__leveret_main__"  # the name of the parent's program in the child

_C = TypeVar("_C", bound=type)
_classes: dict[str, type] = {}
_names: dict[type, str] = {}


class WireError(ActorError):
    """A value cannot be sent to another process, or a message from there cannot be read."""


def message(cls: _C) -> _C:
    """Let instances of a dataclass go to other processes; for use as a class decorator."""
    if not is_dataclass(cls):
        raise WireError(f"{cls.__qualname__} is not a dataclass")
    module = MAIN if cls.__module__ == HOSTED_MAIN else cls.__module__
    name = f"{module}:{cls.__qualname__}"
    _classes[name], _names[cls] = cls, name
    return cls


def name_of(cls: type) -> str | None:
    """Return the name of a marked class on a link; None if it is not marked."""
    return _names.get(cls)


def class_of(name: str) -> type:
    """Return the class of that name.

    Raises:
        KeyError: it is not marked, or not imported here.
    """
    return _classes[name]
