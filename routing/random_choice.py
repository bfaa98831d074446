"""Exchanges of the type ``x-random``: each message goes to one binding, chosen at random.

As in RabbitMQ's plug-in ``rabbitmq_random_exchange``, a queue that is bound twice gets twice as many messages.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from leveret.routing.exchange_type import Head, Matcher
from leveret.routing.work import NEEDS_WALK, WALK_STEP_WORK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leveret.amqp.tables import Table
    from leveret.routing.bindings import Binding

_TRIES: Final = 8  # to find a binding whose target is not leaving


class RandomMatcher(Matcher):
    """The bindings in a list, where each knows its place.

    Attributes:
        random: of all exchanges of this type.
    """

    __slots__ = ("_bindings", "_places")

    uses_headers = True
    per_message = True
    random = Random()

    def __init__(self, arguments: Table | None = None) -> None:
        super().__init__(arguments)
        self._bindings: list[Binding] = []
        self._places: dict[Binding, int] = {}

    def add(self, binding: Binding) -> None:
        self._places[binding] = len(self._bindings)
        self._bindings.append(binding)

    def remove(self, binding: Binding) -> None:
        place = self._places.pop(binding)
        last = self._bindings.pop()
        if last is not binding:
            self._bindings[place] = last
            self._places[last] = place

    def match(self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]) -> int:
        bindings = self._bindings
        if not bindings:
            return 0
        for tries in range(1, _TRIES + 1):
            target = self.random.choice(bindings).target
            if target not in self.leaving:
                found[target] = None
                return 5 * tries
        return NEEDS_WALK

    def walk(
        self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]
    ) -> Iterator[int]:
        """Choose among the bindings whose target is not leaving, when they are few among the others."""
        bindings = list(self._bindings)
        stay: list[Any] = []
        for start in range(0, len(bindings), WALK_STEP_WORK):
            some = bindings[start : start + WALK_STEP_WORK]
            stay += [each.target for each in some if each.target not in self.leaving]
            yield len(some)
        if stay:
            found[self.random.choice(stay)] = None
