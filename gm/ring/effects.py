"""The effects of a member: its driver carries them out in the order in which they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from leveret.gm.records.group import MemberId
from leveret.gm.records.transactions import Transaction
from leveret.gm.ring.frames import Body, Frame


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame to another member; it is lost if that has ended."""

    to: MemberId
    frame: Frame


@dataclass(frozen=True, slots=True)
class Monitor:
    """Monitor another member, and report its end with ``down``."""

    peer: MemberId


@dataclass(frozen=True, slots=True)
class Demonitor:
    """Stop monitoring another member."""

    peer: MemberId


@dataclass(frozen=True, slots=True)
class Transact:
    """Carry out a transaction on the group's record; then call ``answered``. There is one at a time."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Call ``flush_due`` or ``retry`` after ``delay_s``."""

    name: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class Joined:
    """Callback ``joined``: the member gets all messages from now on."""

    members: frozenset[MemberId]


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """Callback ``members_changed``."""

    births: frozenset[MemberId]
    deaths: frozenset[MemberId]


@dataclass(frozen=True, slots=True)
class Deliver:
    """Callback ``handle_msg``, for each body that is not None."""

    publisher: MemberId
    bodies: list[Body]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Answer confirmed broadcasts: all members have had the message."""

    tags: list[Any]


@dataclass(frozen=True, slots=True)
class Flow:
    """Publishers must stop (True), or may go on."""

    is_blocked: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """The member has ended; nothing comes after this."""

    reason: object


Effect: TypeAlias = (
    Send
    | Monitor
    | Demonitor
    | Transact
    | StartTimer
    | Joined
    | MembersChanged
    | Deliver
    | Confirmed
    | Flow
    | Stopped
)
