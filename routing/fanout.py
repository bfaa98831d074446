"""Fanout exchanges: every binding matches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leveret.routing.direct import forget
from leveret.routing.exchange_type import Head, Matcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leveret.amqp.tables import Table
    from leveret.routing.bindings import Binding


class FanoutMatcher(Matcher):
    """All targets, each counted once per binding."""

    __slots__ = ("_targets",)

    def __init__(self, arguments: Table | None = None) -> None:
        super().__init__(arguments)
        self._targets: dict[Any, int] = {}

    def add(self, binding: Binding) -> None:
        self._targets[binding.target] = self._targets.get(binding.target, 0) + 1

    def remove(self, binding: Binding) -> None:
        forget(self._targets, binding.target)

    def match(self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]) -> int:
        found.update(self._targets)
        return 1

    def walk(
        self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]
    ) -> Iterator[int]:
        yield self.match(keys, head, found)
