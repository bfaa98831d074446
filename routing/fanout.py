"""Fanout exchanges: every binding matches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from leveret.routing.direct import forget

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leveret.amqp.tables import Table
    from leveret.routing.bindings import Binding


class FanoutMatcher:
    """All targets, each counted once per binding."""

    __slots__ = ("_targets",)

    uses_headers: ClassVar[bool] = False

    def __init__(self) -> None:
        self._targets: dict[Any, int] = {}

    @staticmethod
    def check(key: bytes, arguments: Table) -> None:
        """Accept every binding; key and arguments have no effect."""

    def add(self, binding: Binding) -> None:
        self._targets[binding.target] = self._targets.get(binding.target, 0) + 1

    def remove(self, binding: Binding) -> None:
        forget(self._targets, binding.target)

    def match(self, keys: Sequence[bytes], headers: Table | None, found: dict[Any, Any]) -> int:
        found.update(self._targets)
        return 1

    def walk(
        self, keys: Sequence[bytes], headers: Table | None, found: dict[Any, Any]
    ) -> Iterator[int]:
        yield self.match(keys, headers, found)
