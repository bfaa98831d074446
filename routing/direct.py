"""Direct exchanges: the binding's key equals the routing key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leveret.routing.exchange_type import Head, Matcher
from leveret.routing.work import FEW_KEYS, NEEDS_WALK, WALK_STEP_WORK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leveret.amqp.tables import Table
    from leveret.routing.bindings import Binding


class DirectMatcher(Matcher):
    """Targets by key; with reference counts, as bindings that differ in arguments share a target."""

    __slots__ = ("_targets",)

    def __init__(self, arguments: Table | None = None) -> None:
        super().__init__(arguments)
        self._targets: dict[bytes, dict[Any, int]] = {}

    def add(self, binding: Binding) -> None:
        targets = self._targets.get(binding.key)
        if targets is None:
            targets = self._targets[binding.key] = {}
        targets[binding.target] = targets.get(binding.target, 0) + 1

    def remove(self, binding: Binding) -> None:
        targets = self._targets[binding.key]
        forget(targets, binding.target)
        if not targets:
            del self._targets[binding.key]

    def match(self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]) -> int:
        if len(keys) > FEW_KEYS:
            return NEEDS_WALK
        for key in keys:
            targets = self._targets.get(key)
            if targets:
                found.update(targets)
        return len(keys)

    def walk(
        self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]
    ) -> Iterator[int]:
        work = 0
        for key in keys:
            work += 1
            targets = self._targets.get(key)
            if targets:
                found.update(targets)
                work += len(targets)
            if work >= WALK_STEP_WORK:
                yield work
                work = 0
        yield work


def forget(targets: dict[Any, int], target: Any) -> None:
    """Decrement the count of ``target``; remove it at 0."""
    left = targets[target] - 1
    if left:
        targets[target] = left
    else:
        del targets[target]
