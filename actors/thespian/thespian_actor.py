"""OtpActor as an instance of Thespian's ``Actor``, for code that checks the class."""

from __future__ import annotations

from thespian.actors import Actor

from leveret.actors.actor import OtpActor
from leveret.core.errors import ActorError


class ThespianActor(OtpActor, Actor):  # type: ignore[misc]  # Thespian has no types
    """An ``OtpActor`` that is a Thespian ``Actor`` as well; a class of Thespian's may be mixed in.

    Its exceptions, links and exits go by OTP's rules. What a runtime has nothing for, such as ``updateCapability``,
    raises ``ActorError``, which ends the actor.
    """

    @property
    def _myRef(self) -> object:  # noqa: N802  # Thespian's name
        return _NO_SYSTEM


class _NoSystem:
    """What stands where an actor of Thespian has its system."""

    def __getattr__(self, name: str) -> object:
        raise ActorError(f"Thespian's {name} is not supported")


_NO_SYSTEM = _NoSystem()
