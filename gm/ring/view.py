"""The ring as a member sees it: a version of the group's record, and this member's place in it."""

from __future__ import annotations

from leveret.gm.records.group import Group, LostMembershipError, MemberId, Stamp


class View:
    """One version of the group, seen from one member.

    Attributes:
        stamp: epoch and version of the record.
        alive: the members that are alive, in ring order.
        left: the neighbour that sends to this member; the member itself if it is alone.
        right: the neighbour that it sends to.
        aliases: the dead members between ``left`` and this one. It *inherits* them: it acts as
            the publisher of their publications.
        known: all members of the record, dead ones too. Only these have messages in the ring.
    """

    __slots__ = ("aliases", "alive", "known", "left", "right", "stamp")

    def __init__(self, group: Group, member: MemberId) -> None:
        """LostMembershipError: the member is not alive in the record."""
        alive = group.alive()
        if member not in alive:
            raise LostMembershipError(
                f"{member} is not alive in version {group.version} of its group"
            )
        place = alive.index(member)
        self.stamp: Stamp = group.stamp
        self.alive = alive
        self.left = alive[place - 1]
        self.right = alive[(place + 1) % len(alive)]
        self.aliases = _dead_before(group, member)
        self.known = frozenset(entry.member for entry in group.entries)


def _dead_before(group: Group, member: MemberId) -> frozenset[MemberId]:
    """Return the dead members between a member and the next one alive to its left."""
    names = [entry.member for entry in group.entries]
    place = names.index(member)
    found = set()
    for entry in reversed(group.entries[place + 1 :] + group.entries[:place]):
        if entry.is_alive:
            break
        found.add(entry.member)
    return frozenset(found)
