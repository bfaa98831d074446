"""A store of groups' records that answers late, or not at all, in virtual time."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from leveret.gm.records.group import Group
from leveret.gm.records.memory_store import MemoryGroupStore
from leveret.gm.records.store import Conflict, Stored, Then, Unavailable

if TYPE_CHECKING:
    from leveret.core.clock import TimerLoop


class FaultyGroupStore:
    """A ``GroupStore`` over one in memory: each operation takes effect after a delay, and is answered after another.

    Args:
        clock: for the delays.
        random: for delays and faults.
        delay_s: the longest way to the store, and the longest way back.
        faults: the share of operations that get no answer; half of these have taken effect.

    Attributes:
        memory: what it keeps.
        is_up: while False no operation takes effect, or is answered.
    """

    def __init__(
        self, clock: TimerLoop, random: Random, delay_s: float = 0.005, faults: float = 0.0
    ) -> None:
        self.memory = MemoryGroupStore()
        self.is_up = True
        self.faults = faults
        self._clock = clock
        self._random = random
        self._delay_s = delay_s

    def read(self, name: str, then: Then) -> None:
        self._later(lambda: self.memory.read(name, self._answer(then)), then)

    def write(self, name: str, group: Group | None, revision: int, then: Then) -> None:
        self._later(lambda: self.memory.write(name, group, revision, self._answer(then)), then)

    def _later(self, operation: object, then: Then) -> None:
        self._clock.call_later(
            self._random.random() * self._delay_s, self._operate, operation, then
        )

    def _operate(self, operation: object, then: Then) -> None:
        if not self.is_up or self._random.random() < self.faults / 2:
            then(Unavailable("it was asked in vain"))
        else:
            operation()  # type: ignore[operator]

    def _answer(self, then: Then) -> Then:
        def answer(answer: Stored | Conflict | Unavailable) -> None:
            if self._random.random() < self.faults / 2:
                answer = Unavailable("its answer was lost")
            self._clock.call_later(self._random.random() * self._delay_s, then, answer)

        return answer
