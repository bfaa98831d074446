"""Exchanges that cannot route: their type is not installed any more, or refuses the arguments that are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leveret.routing.exchange_type import Head, Matcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.routing.bindings import Binding


class UnusableMatcher(Matcher):
    """Accepts bindings and leads nowhere. A publish to such an exchange is refused by the channel."""

    __slots__ = ()

    def add(self, binding: Binding) -> None:
        """Keep no index; the exchange keeps the binding."""

    def remove(self, binding: Binding) -> None:
        """Keep no index."""

    def match(self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]) -> int:
        return 0
