"""The five transactions on a group's record, and reading it: pure functions from record to record.

``apply`` returns the new record, the very record it was given when nothing has to be written, or None to delete it.
Each may be applied again after a write whose outcome is unknown: it changes nothing then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from leveret.gm.records.group import (
    ENTRIES_MAX,
    NEW_EPOCH,
    Entry,
    Group,
    LostMembershipError,
    MemberId,
)


class Transaction(Protocol):
    """A change of a group's record."""

    def apply(self, group: Group | None) -> Group | None:
        """Return the record as it shall be; None: there shall be none.

        Raises:
            LostMembershipError: the member in whose name it is made is not alive in the record.
        """


@dataclass(frozen=True, slots=True)
class Read:
    """Change nothing."""

    def apply(self, group: Group | None) -> Group | None:
        return group


@dataclass(frozen=True, slots=True)
class Create:
    """Begin a group with one member, unless there is one with a member alive."""

    member: MemberId

    def apply(self, group: Group | None) -> Group | None:
        if group is not None and group.alive():
            return group
        version = 0 if group is None else group.version + 1
        return Group(NEW_EPOCH, version, (Entry(self.member, True),))


@dataclass(frozen=True, slots=True)
class Add:
    """Put a new member to the right of ``left``, which makes the transaction; not if the record is full.

    It may be applied again, as long as ``left`` has not seen the new member: until then that cannot be erased.
    """

    member: MemberId
    left: MemberId

    def apply(self, group: Group | None) -> Group | None:
        group = _listing(group, self.left)
        entries = group.entries
        if group.lists(self.member) or len(entries) >= ENTRIES_MAX:
            return group
        after = entries.index(Entry(self.left, True)) + 1
        return group.replaced((*entries[:after], Entry(self.member, True), *entries[after:]))


@dataclass(frozen=True, slots=True)
class MarkDead:
    """Declare a member dead; its place is kept until its messages have gone round.

    ``by`` is the neighbour that makes the transaction. It is None for a newcomer, which is in no record yet.
    """

    member: MemberId
    by: MemberId | None

    def apply(self, group: Group | None) -> Group | None:
        if self.by is not None:
            group = _listing(group, self.by)
        if group is None or not group.is_alive(self.member):
            return group
        dead = Entry(self.member, False)
        return group.replaced(
            tuple(dead if entry.member == self.member else entry for entry in group.entries)
        )


@dataclass(frozen=True, slots=True)
class Erase:
    """Take dead members out whose messages have all gone round; ``by`` makes the transaction."""

    members: frozenset[MemberId]
    by: MemberId

    def apply(self, group: Group | None) -> Group | None:
        group = _listing(group, self.by)
        left = tuple(
            each for each in group.entries if each.is_alive or each.member not in self.members
        )
        return group if len(left) == len(group.entries) else group.replaced(left)


@dataclass(frozen=True, slots=True)
class Forget:
    """Delete the record: the group is no longer wanted, and its members stop when they find out.

    Applied again, it must not delete a group that was begun meanwhile: hence the epoch.
    """

    epoch: int

    def apply(self, group: Group | None) -> Group | None:
        return None if group is not None and group.epoch == self.epoch else group


def _listing(group: Group | None, member: MemberId) -> Group:
    if group is None:
        raise LostMembershipError(f"{member} has no group any more: its record was deleted")
    if not group.is_alive(member):
        raise LostMembershipError(f"{member} is not alive in version {group.version} of its group")
    return group
