"""The callbacks of a member, and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from leveret.gm.records.group import MemberId


@dataclass(frozen=True, slots=True)
class Stop:
    """Answer of a callback: leave the group. After it only ``handle_terminate`` is called.

    The member ends when its messages have been round; until then it passes on messages of others.
    """

    reason: object = "normal"


@dataclass(frozen=True, slots=True)
class Become:
    """Answer of a callback: ``callbacks`` are called from now on."""

    callbacks: Callbacks


Answer: TypeAlias = Stop | Become | None


class Callbacks:
    """The user of a member. Its methods run in turns of the member's actor, one after the other.

    An exception in one of them ends the member. None of them may wait for a confirmed broadcast: the ring stands still
    meanwhile. Subclasses override the methods they need.
    """

    def joined(self, me: MemberId, members: frozenset[MemberId]) -> Answer:
        """The member, ``me``, has joined; it is one of ``members``."""

    def members_changed(self, births: frozenset[MemberId], deaths: frozenset[MemberId]) -> Answer:
        """Members have joined or died.

        ``handle_msg`` has had every message of the dead that any member has had, and gets no further ones.
        """

    def handle_msg(self, publisher: MemberId, message: bytes) -> Answer:
        """Handle a message of any member, this one included."""

    def flow(self, is_blocked: bool) -> None:
        """Broadcasts should stop (True), since too many have not been round, or may be resumed (False)."""

    def handle_terminate(self, reason: object) -> None:
        """The member has ended, after it had joined; not called after a kill."""


class Dialogue:
    """The calls of one member's callbacks, and the handling of their answers.

    Args:
        callbacks: called first.

    Attributes:
        stopping: the reason that a callback has given with ``Stop``; None: none has.
    """

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._has_joined = False
        self.stopping: object = None

    def joined(self, me: MemberId, members: frozenset[MemberId]) -> None:
        if self.stopping is None:
            self._has_joined = True
            self._take(self._callbacks.joined(me, members))

    def members_changed(self, births: frozenset[MemberId], deaths: frozenset[MemberId]) -> None:
        if self.stopping is None:
            self._take(self._callbacks.members_changed(births, deaths))

    def deliver(self, publisher: MemberId, bodies: list[bytes | None]) -> None:
        """Give messages to ``handle_msg``, as long as nothing else is answered."""
        if self.stopping is not None:
            return
        for body in bodies:
            if body is not None:
                answer = self._callbacks.handle_msg(publisher, body)
                if answer is not None and self._take(answer):
                    return

    def flow(self, is_blocked: bool) -> None:
        if self.stopping is None:
            self._callbacks.flow(is_blocked)

    def terminated(self, reason: object) -> None:
        if self._has_joined:  # a join may be tried again with the same callbacks
            self._callbacks.handle_terminate(reason)

    def _take(self, answer: object) -> bool:
        """Do as a callback has answered; return whether nothing is to be called any more."""
        if isinstance(answer, Stop):
            self.stopping = answer.reason
        elif isinstance(answer, Become):
            self._callbacks = answer.callbacks
        elif answer is not None:
            raise TypeError(f"a callback answered {answer!r}: it must be None, Stop or Become")
        return self.stopping is not None
