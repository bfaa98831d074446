"""What a member's actor is asked. A refused request is answered with the ``GmError`` that says why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WhenJoined:
    """Answered with the member's name when it has joined."""


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Publish messages. As a call, answered with True: at once, or, if too much has not been round, when less is left.

    As a mail it is not answered. Its sender must then heed the callback ``flow``; a refusal is logged.
    """

    messages: list[bytes]


@dataclass(frozen=True, slots=True)
class ConfirmedBroadcast:
    """Publish a message; answered with True when all members have had it."""

    message: bytes


@dataclass(frozen=True, slots=True)
class Leave:
    """Take no more broadcasts, and end when everything of this member has been round; answered with True, at once."""

    reason: object = "normal"


@dataclass(frozen=True, slots=True)
class ForgetGroup:
    """Delete the group's record; answered with True, at once. The member ends when that is done, and then the others.

    Members that a supervisor starts again begin the group anew.
    """


@dataclass(frozen=True, slots=True)
class Status:
    """Answered with a ``MemberStatus``."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What a member is.

    Attributes:
        phase: ``joining``, ``waiting`` for a state, ``ready`` or ``stopped``.
        epoch: of its group's record.
        version: of its group's record.
        members: alive, in ring order.
        pending: publications that have not been round, by publisher.
        store_trouble: why the store of records has not carried out what this member waits for; empty: it has.
    """

    phase: str
    epoch: int
    version: int
    members: tuple[str, ...]
    pending: dict[str, int]
    store_trouble: str = ""
