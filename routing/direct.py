"""Direct exchanges: the binding's key equals the routing key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.amqp.tables import Table
    from leveret.routing.bindings import Binding


class DirectMatcher:
    """Targets by key; with reference counts, as bindings that differ in arguments share a target."""

    __slots__ = ("_targets",)

    uses_headers: ClassVar[bool] = False

    def __init__(self) -> None:
        self._targets: dict[bytes, dict[Any, int]] = {}

    @staticmethod
    def check(key: bytes, arguments: Table) -> None:
        """Accept every binding; arguments have no effect."""

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

    def match(self, keys: Iterable[bytes], headers: Table | None, found: dict[Any, Any]) -> None:
        for key in keys:
            targets = self._targets.get(key)
            if targets:
                found.update(targets)


def forget(targets: dict[Any, int], target: Any) -> None:
    """Decrement the count of ``target``; remove it at 0."""
    left = targets[target] - 1
    if left:
        targets[target] = left
    else:
        del targets[target]
