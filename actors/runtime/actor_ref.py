"""Refs as the runtime makes them: addresses of Thespian's API, too."""

from __future__ import annotations

from typing import Final

from thespian.actors import ActorAddress

from leveret.actors.runtime.ref import DEAD_CELL, Ref


class ActorRef(Ref, ActorAddress):  # type: ignore[misc]  # Thespian has no types
    """A ``Ref`` that Thespian takes for one of its addresses. It is made as a ``Ref`` is.

    Refs are made by the runtime, one per actor, and compared by identity; unlike Thespian's own
    addresses they can be keys of a dict. A successor started by a supervisor has another ref.
    """

    __slots__ = ()

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    @property
    def addressDetails(self) -> str:  # noqa: N802  # Thespian's name
        return str(self)

    @property
    def actorAddressString(self) -> str:  # noqa: N802  # Thespian's name
        return str(self)


# The sender of mails that an actor's own timer sends.
TIMER: Final = ActorRef("timer", 0, DEAD_CELL)
