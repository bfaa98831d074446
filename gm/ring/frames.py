"""The frames that members of a ring send each other.

Every frame has the stamp of its sender's view. In one process frames travel as they are; ``gm.wire`` is their form
between nodes.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias, cast

from leveret.gm.records.group import MemberId, Stamp

Body: TypeAlias = bytes | None  # of a publication; None: a mark, which is delivered to nobody

BODY_OVERHEAD_BYTES: Final = 64  # that each publication counts for besides its own


def weight(bodies: list[Body]) -> int:
    """Return what publications count for where bytes are bounded, so that empty ones are bounded, too."""
    try:
        size = sum(map(len, cast("list[bytes]", bodies)))
    except TypeError:  # there is a mark among them
        size = sum(len(body) for body in bodies if body is not None)
    return size + BODY_OVERHEAD_BYTES * len(bodies)


class Entry(NamedTuple):
    """News of one publisher's publications.

    Attributes:
        publisher: whose.
        first: number of the first of ``bodies``; each publisher counts its publications from 0.
        bodies: publications, in order, without a gap.
        acked: all publications up to this number have been round.
    """

    publisher: MemberId
    first: int
    bodies: list[Body]
    acked: int


class Activity(NamedTuple):
    """News for the right neighbour."""

    stamp: Stamp
    entries: list[Entry]


class CatchUp(NamedTuple):
    """A part of the sender's whole state, for its new right neighbour: all publications that have not been round.

    Attributes:
        stamp: of the sender's view.
        entries: as in ``Activity``.
        is_first: the state begins with this part.
        is_last: the state is complete.
    """

    stamp: Stamp
    entries: list[Entry]
    is_first: bool
    is_last: bool


class Ask(NamedTuple):
    """The sender, whose left neighbour this goes to, needs its state.

    ``waiting`` is the member without a state that began to ask; None: the sender has one. A member that has no state
    either asks its own left neighbour in the name of the same member.
    """

    stamp: Stamp
    waiting: MemberId | None


class Check(NamedTuple):
    """Read the record, if your view is older than mine."""

    stamp: Stamp


class JoinRequest(NamedTuple):
    """A newcomer wants to be the receiver's right neighbour; ``stamp`` is of the record that it has read."""

    stamp: Stamp


class Welcome(NamedTuple):
    """The newcomer is in the record."""

    stamp: Stamp


class NotReady(NamedTuple):
    """The newcomer must ask again, perhaps another member."""

    stamp: Stamp


Frame: TypeAlias = Activity | CatchUp | Ask | Check | JoinRequest | Welcome | NotReady
