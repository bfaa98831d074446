"""A newcomer, a member that is not in the record yet: which member it asks to add it, and when it must give up."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

    from leveret.gm.records.group import Group, MemberId, Stamp

_VERSIONS_OF_A_LIFE: Final = 3  # to add, mark and erase a member takes so many
_PAUSES_MAX: Final = 32


class Step(Enum):
    """The next step of a newcomer."""

    JOINED = auto()  # it is in the record
    CREATE = auto()  # there is no group
    ASK = auto()  # ``asked`` is to add it
    LOST = auto()  # it may have been in the record, and declared dead
    UNREACHABLE = auto()  # no member can be reached


class Newcomer:
    """The join of one member.

    A member asked may have added this one although no answer has come. If the record no longer tells, because enough
    versions have passed to add it, to declare it dead and to erase it, others have reported its death, and it must not
    come back under the same name.

    Args:
        me: the member.
        random: chooses whom it asks.

    Attributes:
        asked: the member whose answer it waits for.
    """

    __slots__ = ("_asked_at", "_me", "_pauses", "_random", "_unreachable", "asked")

    def __init__(self, me: MemberId, random: Random) -> None:
        self._me = me
        self._random = random
        self._unreachable: set[MemberId] = set()  # they may have got the request
        self._asked_at: Stamp | None = None  # None: nobody can have added it
        self._pauses = 1
        self.asked: MemberId | None = None

    def step(self, group: Group | None) -> Step:
        """Return what to do by the record as it is now."""
        if group is not None and group.is_alive(self._me):
            return Step.JOINED
        if self._asked_at is not None and self._may_have_died(group, self._asked_at):
            return Step.LOST
        if group is None or not group.alive():
            return Step.CREATE
        reached = [member for member in group.alive() if member not in self._unreachable]
        if not reached:
            return Step.UNREACHABLE
        self.asked = self._random.choice(reached)
        if not self._unreachable:
            self._asked_at = group.stamp
        return Step.ASK

    def was_refused(self) -> int:
        """Note that the member asked has not added it; return how many pauses it waits before it reads again."""
        self.asked = None
        if not self._unreachable:
            self._asked_at = None
        pauses, self._pauses = self._pauses, min(_PAUSES_MAX, 2 * self._pauses)
        return pauses

    def was_cut_off(self) -> None:
        """Note that the member asked cannot be reached, but may live."""
        if self.asked is not None:
            self._unreachable.add(self.asked)
        self.asked = None

    def _may_have_died(self, group: Group | None, since: Stamp) -> bool:
        if group is None or group.epoch != since.epoch or group.lists(self._me):
            return True
        return group.version >= since.version + _VERSIONS_OF_A_LIFE
