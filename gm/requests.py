"""The requests to a member's actor. A refused one is answered with a ``GmError``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WhenJoined:
    """Answered with the member's name when it has joined."""


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Publish messages. A call is answered with True; while too much is under way, the answer waits.

    A mail is not answered: its sender must heed the callback ``flow``, and a refusal is logged.
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
    """The state of a member.

    Attributes:
        phase: ``joining``, ``waiting`` for a state, ``ready`` or ``stopped``.
        epoch: of its group's record.
        version: of its group's record.
        members: alive, in ring order.
        pending: publications that have not been round, by publisher.
        store_trouble: the store's last error in the transaction that the member waits for; empty: there is none.
    """

    phase: str
    epoch: int
    version: int
    members: tuple[str, ...]
    pending: dict[str, int]
    store_trouble: str = ""
