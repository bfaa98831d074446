"""Which classes may go to other processes and nodes: dataclasses marked with ``message``, and registered classes.

A marked or registered class must be importable under the same name on the other side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, overload

from leveret.core.errors import ActorError

MAIN: Final = "__main__"
HOSTED_MAIN: Final = "__leveret_main__"  # the name of the parent's program in the child

_C = TypeVar("_C", bound=type)
_T = TypeVar("_T")
ToParts: TypeAlias = Callable[[Any], list[Any]]
FromParts: TypeAlias = Callable[[list[Any]], Any]


class WireError(ActorError):
    """A value cannot be sent to another process, or a message from there cannot be read."""


class Pieces(NamedTuple):
    """Bytes that lie in pieces: they are sent without being joined, and received as one read-only ``memoryview``."""

    pieces: list[bytes]


class Form(NamedTuple):
    """How instances of a class travel: the name of the class, and the way to a list of values and back."""

    name: str
    to_parts: ToParts
    from_parts: FromParts


_forms: dict[type, Form] = {}
_names: dict[str, Form] = {}


@overload
def message(cls: _C) -> _C: ...


@overload
def message(*, sent_as: str) -> Callable[[_C], _C]: ...


def message(
    cls: type[Any] | None = None, *, sent_as: str | None = None
) -> type[Any] | Callable[[type[Any]], type[Any]]:
    """Let instances of a dataclass go to other processes; for use as a class decorator.

    Args:
        cls: the class.
        sent_as: as of ``register``.
    """
    if cls is None:
        return lambda marked: _mark(marked, sent_as)
    return _mark(cls, sent_as)


def _mark(cls: type[Any], sent_as: str | None) -> type[Any]:
    if not is_dataclass(cls):
        raise WireError(f"{cls.__qualname__} is not a dataclass")
    names = [field.name for field in fields(cls) if field.init]

    def to_parts(value: Any) -> list[Any]:
        return [getattr(value, name) for name in names]

    def from_parts(parts: list[Any]) -> Any:
        return cls(**dict(zip(names, parts, strict=True)))

    register(cls, to_parts, from_parts, sent_as=sent_as)
    return cls


def register(
    cls: type[_T],
    to_parts: Callable[[_T], list[Any]],
    from_parts: Callable[[list[Any]], _T],
    *,
    sent_as: str | None = None,
) -> None:
    """Let instances of a class go to other processes in a form of their own.

    Args:
        cls: the class.
        to_parts: returns an instance's values, each of which can be sent.
        from_parts: returns the instance on the other side; an exception says that the values are wrong.
        sent_as: the name of the class between processes. The default is ``module:qualname``, so a class that moves or
            is renamed keeps its first name here, or nodes of the version before could not read it.
    """
    module = MAIN if cls.__module__ == HOSTED_MAIN else cls.__module__
    name = sent_as or f"{module}:{cls.__qualname__}"
    _forms[cls] = _names[name] = Form(name, to_parts, from_parts)


def form_of(cls: type) -> Form | None:
    """Return how instances of a class travel; None if they cannot."""
    return _forms.get(cls)


def form_named(name: str) -> Form:
    """Return the form of the class of that name.

    Raises:
        KeyError: it is not marked, or not imported here.
    """
    return _names[name]
