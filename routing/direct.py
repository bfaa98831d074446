"""Direct exchanges: the binding's key equals the routing key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.amqp.tables import Table
    from leveret.routing.bindings import Binding


class DirectMatcher:
    """Targets by key; counted, because bindings that differ in arguments share a target."""

    __slots__ = ("_targets",)

    uses_headers: ClassVar[bool] = False

    def __init__(self) -> None:
        self._targets: dict[bytes, dict[Any, int]] = {}

    @staticmethod
    def check(key: bytes, arguments: Table) -> None:
        """Accept every binding; arguments mean nothing here."""

    def add(self, binding: Binding) -> None:
        """Take a new binding in."""
        targets = self._targets.get(binding.key)
        if targets is None:
            targets = self._targets[binding.key] = {}
        targets[binding.target] = targets.get(binding.target, 0) + 1

    def remove(self, binding: Binding) -> None:
        """Forget a binding that was added."""
        targets = self._targets[binding.key]
        forget(targets, binding.target)
        if not targets:
            del self._targets[binding.key]

    def match(self, keys: Iterable[bytes], headers: Table | None, found: dict[Any, Any]) -> None:
        """Put the targets of every key into ``found``."""
        for key in keys:
            targets = self._targets.get(key)
            if targets:
                found.update(targets)


def forget(targets: dict[Any, int], target: Any) -> None:
    """Take one from the count of ``target``; the last one takes it away."""
    left = targets[target] - 1
    if left:
        targets[target] = left
    else:
        del targets[target]
