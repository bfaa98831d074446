"""The other nodes of a cluster, asked for an operator of this one (``operator_server``)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.runtime.signals import NOCONNECTION, TIMEOUT, CallExit
from leveret.core.errors import LeveretError
from leveret.management import json_text
from leveret.management.audit_log import OPERATOR
from leveret.management.errors import RefusedError
from leveret.management.operator_server import OPERATORS, Answered, AskVerb, NextRows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from leveret.actors.links.node import Node as LinkedNode
    from leveret.actors.runtime.ref import Ref
    from leveret.management.json_text import Row

FOUND_S: Final = 5.0  # for the operator server of a node
ANSWER_S: Final = 15.0  # for the answer of a verb, or the next rows of a list


class NotAnsweredError(LeveretError):
    """A node has not answered; what it was asked for may have been done."""


class OtherNodes:
    """Asks other nodes.

    Args:
        links: of this node.
        serving: returns the names of the other nodes that serve clients, as the metadata of the cluster says.
    """

    def __init__(self, links: LinkedNode, serving: Callable[[], Iterable[str]]) -> None:
        self._links = links
        self._serving = serving

    @property
    def own(self) -> str:
        """The name of this node."""
        return self._links.name

    @property
    def linked(self) -> list[str]:
        """The names of the nodes that can be asked."""
        return sorted(self._links.nodes)

    @property
    def unlinked(self) -> list[str]:
        """The names of nodes that serve clients, and cannot be asked."""
        return sorted(set(self._serving()) - set(self._links.nodes))

    async def ask(
        self, name: str, verb: str, arguments: dict[str, Any], timeout_s: float = ANSWER_S
    ) -> Any:
        """Have a node carry out a verb; return its value.

        Raises:
            RefusedError: the node has refused.
            NotAnsweredError: it has not answered, or has failed.
        """
        _, answered = await self._begin(name, verb, arguments, timeout_s)
        return _value(name, answered)

    async def ask_all(
        self, verb: str, arguments: dict[str, Any], warnings: list[str]
    ) -> dict[str, Any]:
        """Have all other nodes carry out a verb at once; return the values by node, without those not answered."""
        names = self.linked
        asked = [self.ask(name, verb, arguments) for name in names]
        found = dict(zip(names, await asyncio.gather(*asked, return_exceptions=True), strict=True))
        self._warn_of_unlinked(warnings)
        values = {}
        for name, value in found.items():
            if isinstance(value, LeveretError):
                warnings.append(_missing(name, value))
            elif isinstance(value, BaseException):
                raise value
            else:
                values[name] = value
        return values

    async def rows(
        self,
        names: list[str],
        verb: str,
        arguments: dict[str, Any],
        warnings: list[str],
        timeout_s: float = ANSWER_S,
    ) -> AsyncIterator[Row]:
        """Yield the rows of a list, one node after the other; there is a warning for each that does not answer."""
        begun = {
            name: asyncio.ensure_future(self._begin(name, verb, arguments, timeout_s))
            for name in names
        }
        try:
            for name, first in begun.items():
                try:
                    server, part = await first
                    for row in _value(name, part):
                        yield row
                    while part.more:
                        part = await self._call(name, server, NextRows(part.more), timeout_s)
                        for row in _value(name, part):
                            yield row
                except LeveretError as error:
                    warnings.append(_missing(name, error))
            self._warn_of_unlinked(warnings)
        finally:
            for each in begun.values():
                each.cancel()

    def _warn_of_unlinked(self, warnings: list[str]) -> None:
        warnings += [
            _missing(name, f"node {name} is not linked with this one") for name in self.unlinked
        ]

    async def _begin(
        self, name: str, verb: str, arguments: dict[str, Any], timeout_s: float
    ) -> tuple[Ref, Answered]:
        try:
            server = await self._links.whereis(OPERATORS, name, FOUND_S)
        except CallExit as error:
            raise _not_answered(name, error, FOUND_S) from error
        if server is None:
            raise NotAnsweredError(f"node {name} is being started")
        operator = f"{OPERATOR.get()}, on node {self._links.name}"
        question = AskVerb(verb, json_text.encode(arguments), operator)
        return server, await self._call(name, server, question, timeout_s)

    async def _call(
        self, name: str, server: Ref, request: AskVerb | NextRows, timeout_s: float
    ) -> Answered:
        try:
            answered: Answered = await self._links.runtime.call(server, request, timeout_s)
        except CallExit as error:
            raise _not_answered(name, error, timeout_s) from error
        return answered


def _value(name: str, answered: Answered) -> Any:
    answer = json_text.decode(answered.answer)
    if "refused" in answer:
        is_bare = answer.get("bare", False)
        raise RefusedError(answer["refused"], answer["exit_code"], is_bare=is_bare)
    if "failed" in answer:
        raise NotAnsweredError(f"node {name} has failed: {answer['failed']}")
    return answer["ok"]


def _not_answered(name: str, error: CallExit, timeout_s: float) -> NotAnsweredError:
    if error.reason == TIMEOUT:
        return NotAnsweredError(f"node {name} has not answered within {timeout_s:g} s")
    if error.reason == NOCONNECTION:
        return NotAnsweredError(f"node {name} is not linked with this one any more")
    return NotAnsweredError(f"node {name} has not answered: {error.reason}")


def _missing(name: str, why: object) -> str:
    return f"what node {name} has is missing: {why}"
