"""Messages between supervised actors on one of Thespian's own systems.

Everything here is pickled by Thespian where its actors are processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(slots=True)
class Begin:
    """The first message to a supervised actor: its class, arguments and place.

    Attributes:
        token: names the child in its supervisor's messages; None when a program starts the actor.
        pid: the process of its starter.
        actor_class: a plain Thespian ``Actor`` or an ``OtpActor``.
        args: for its ``__init__`` or ``init``.
        path: place of its starter in the tree.
        label: its own name there; empty: that of the class.
    """

    token: int | None
    pid: int
    actor_class: type
    args: tuple[Any, ...]
    path: str = ""
    label: str = ""


@dataclass(slots=True)
class Began:
    """The actor runs, in the process ``pid``."""

    token: int | None
    pid: int


@dataclass(slots=True)
class Ignored:
    """The actor's ``init`` returned IGNORE; it goes."""

    token: int | None


@dataclass(slots=True)
class Ended:
    """The actor goes, of ``reason``; before ``Began`` that means that the start failed."""

    token: int | None
    reason: Any


@dataclass(slots=True)
class Gone:
    """Mail to oneself: a child is gone, and its last message has come by now."""

    token: int


@dataclass(slots=True)
class CheckChildren:
    """Mail to oneself: find children whose processes have ended without a message of Thespian."""


@dataclass(slots=True)
class Signal:
    """An exit signal; with ``is_asked`` the sender wants an ``Ended`` in return."""

    reason: Any
    is_asked: bool = False


@dataclass(slots=True)
class Call:
    """A call: an ``OtpActor`` handles it with ``handle_call``, the answer is sent back as it is.

    Plain actors get ``request`` as an ordinary message.
    """

    request: Any


@dataclass(slots=True)
class Alarm:
    """Payload of the wakeups that drive a runtime's timers."""

    number: int


@dataclass(slots=True)
class Unheard:
    """Payload of the wakeup of an actor that has ended and got no ``ActorExitRequest``."""


FROM_CHILDREN: Final = (Began, Ignored, Ended)
OURS: Final = (Begin, Gone, CheckChildren, Signal, *FROM_CHILDREN)
