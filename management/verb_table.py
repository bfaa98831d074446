"""The verbs of a broker by name, and the form of their answers.

A verb takes the arguments of its function, those with a default if they are given. Its answer is an object::

    {"ok": value}   {"refused": text, "exit_code": 65}   {"failed": text}

The control socket sends it to the operator; in a cluster the operator server of another node sends it over a link. A
refusal may have ``bare``, as ``RefusedError`` has ``is_bare``, and a value ``warnings``, texts for the operator.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeAlias

from leveret.core.errors import LeveretError
from leveret.core.log.loggers import logger
from leveret.management.audit_log import OPERATOR
from leveret.management.errors import RefusedError

log = logger(__name__)

Verb: TypeAlias = Callable[..., Awaitable[Any]]


@dataclass(slots=True)
class WithWarnings:
    """A value of a verb.

    Attributes:
        value: an iterator is sent as a list.
        warnings: texts for the operator; they are read when the value has been sent.
    """

    value: Any
    warnings: list[str]


class VerbTable:
    """Verbs by name.

    Args:
        verbs: the functions; they refuse with ``RefusedError``.
    """

    def __init__(self, verbs: Mapping[str, Verb]) -> None:
        self._verbs = {
            name: (verb, signature(verb).parameters.values()) for name, verb in verbs.items()
        }

    async def answer(self, name: str, arguments: Any) -> dict[str, Any]:
        """Carry a verb out; what it raises becomes a part of the answer."""
        try:
            verb = self._verb(name, arguments)
            value = await verb(**arguments)
        except Exception as error:  # noqa: BLE001 - it becomes the answer
            return failure(name, error)
        if isinstance(value, WithWarnings):
            return {"ok": value.value, "warnings": value.warnings}
        return {"ok": value}

    def _verb(self, name: str, arguments: Any) -> Verb:
        if name not in self._verbs:
            raise RefusedError(f"unknown verb {name!r}")
        verb, parameters = self._verbs[name]
        wanted = [each.name for each in parameters]
        needed = {each.name for each in parameters if each.default is each.empty}
        if not isinstance(arguments, dict) or not needed <= arguments.keys() <= set(wanted):
            raise RefusedError(f"{name} takes the arguments {', '.join(wanted) or 'none'}")
        return verb


def failure(name: str | None, error: Exception) -> dict[str, Any]:
    """Log what a verb has raised; return the answer that says so."""
    operator = OPERATOR.get()
    if isinstance(error, RefusedError):
        log.info("control request refused verb=%s by=%s reason=%s", name, operator, error)
        bare = {"bare": True} if error.is_bare else {}
        return {"refused": str(error), "exit_code": error.exit_code} | bare
    if isinstance(error, LeveretError):  # usually the disk
        log.error("control request failed verb=%s by=%s error=%s", name, operator, error)
        return {"failed": str(error)}
    log.error("control request failed verb=%s by=%s", name, operator, exc_info=error)
    return {"failed": f"{type(error).__name__}: {error}"}
