"""A group's record: an epoch, a version, and the members in ring order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from leveret.core.errors import LeveretError

NEW_EPOCH: Final = 0  # in a record to be written: the epoch is the revision of this write
ENTRIES_MAX: Final = 1_000  # of a record


class GmError(LeveretError):
    """A request to guaranteed multicast has failed."""


class LostMembershipError(GmError):
    """The group's record does not list this member any more: others have declared it dead."""


class MemberId(NamedTuple):
    """One incarnation of a member; never given twice.

    Attributes:
        node: name and incarnation of the node it runs on, such as ``leveret/3735928559``.
        number: of the member's actor on that node; not used again while the node has this incarnation.
    """

    node: str
    number: int

    def __str__(self) -> str:
        return f"{self.node}.{self.number}"


class Entry(NamedTuple):
    """A place in the ring: a member that is alive, or one that is dead and has messages under way."""

    member: MemberId
    is_alive: bool


class Stamp(NamedTuple):
    """Orders the views of a group: first by epoch, then by version."""

    epoch: int
    version: int


NO_STAMP: Final = Stamp(0, 0)  # below that of every record that was written


@dataclass(frozen=True, slots=True)
class Group:
    """The record of a group.

    Attributes:
        epoch: number of the group's life. A record that replaces none, or one without a member alive, begins a new
            epoch: the store's revision of that write, so epochs increase even if the record was deleted meanwhile.
        version: counts the changes of ``entries``, one by one.
        entries: the ring, each entry to the right of the one before; the last one's right is the first.
    """

    epoch: int
    version: int
    entries: tuple[Entry, ...]

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.epoch, self.version)

    def alive(self) -> tuple[MemberId, ...]:
        """Return the members that are alive, in ring order."""
        return tuple(entry.member for entry in self.entries if entry.is_alive)

    def is_alive(self, member: MemberId) -> bool:
        return Entry(member, True) in self.entries

    def lists(self, member: MemberId) -> bool:
        """Whether the member has a place, alive or dead."""
        return any(entry.member == member for entry in self.entries)

    def replaced(self, entries: tuple[Entry, ...]) -> Group:
        """Return the next version, with other entries."""
        return Group(self.epoch, self.version + 1, entries)
