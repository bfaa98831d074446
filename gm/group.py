"""Group: a member of a group, for tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from leveret.actors.runtime.signals import CallExit, StartError
from leveret.gm.actor import GmActor
from leveret.gm.records.group import GmError, MemberId
from leveret.gm.requests import (
    Broadcast,
    ConfirmedBroadcast,
    ForgetGroup,
    Leave,
    MemberStatus,
    Status,
    WhenJoined,
)
from leveret.gm.ring.member import FORGOTTEN, LOST

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.gm.callbacks import Callbacks
    from leveret.gm.node import RingNode


class GroupEndedError(GmError):
    """The member has ended; ``reason`` is its actor's, or ``timeout`` if it has not answered in time."""

    def __init__(self, reason: object) -> None:
        super().__init__(
            f"the member of the group has ended, or does not answer: {reason!r}; join again"
        )
        self.reason = reason


class Group:
    """A member of a group.

    Attributes:
        me: the member's name.
        actor: the actor that it is.
    """

    def __init__(self, node: RingNode, actor: Ref, me: MemberId) -> None:
        self._runtime = node.runtime
        self.actor = actor
        self.me = me

    @classmethod
    async def join(
        cls, name: str, callbacks: Callbacks, node: RingNode, timeout_s: float | None = None
    ) -> Self:
        """Join a group, or begin one.

        A newcomer ends that cannot know whether others have already declared it dead; another one is then started
        in its place, with another name.

        Args:
            name: of the group.
            callbacks: get members and messages, from now on.
            node: what the members of this process share.
            timeout_s: for the join; None: as long as it takes.

        Raises:
            GroupEndedError: it did not succeed; the member is gone.
        """
        runtime = node.runtime
        due_s = None if timeout_s is None else runtime.clock.monotonic_s() + timeout_s
        while True:
            left_s = None if due_s is None else due_s - runtime.clock.monotonic_s()
            try:
                actor = runtime.spawn(GmActor, node, name, callbacks, label=f"gm:{name}")
            except StartError as error:
                raise GroupEndedError(error.reason) from None
            try:
                return cls(node, actor, await runtime.call(actor, WhenJoined(), left_s))
            except CallExit as error:
                runtime.exit(actor, "shutdown")
                if error.reason != LOST or runtime.is_closed:
                    raise GroupEndedError(error.reason) from None
            except BaseException:
                runtime.exit(actor, "shutdown")
                raise

    async def broadcast(self, *messages: bytes) -> None:
        """Send messages to all members; this one has them when this returns.

        It waits while too much has not been round.

        Raises:
            NotJoinedError: the member is about to leave.
            GroupEndedError: the member has ended.
            GmError: a message is too large.
        """
        await self._ask(Broadcast(list(messages)))

    async def confirmed_broadcast(self, message: bytes, timeout_s: float | None = None) -> None:
        """Send a message to all members, and return when all have had it.

        Raises:
            NotJoinedError: the member is about to leave.
            GroupEndedError: the member has ended, or the time is over; others may have the message, now or later.
            GmError: the message is too large.
        """
        await self._ask(ConfirmedBroadcast(message), timeout_s)

    async def status(self) -> MemberStatus:
        """Return the member's view, what is under way, and whether the store of records answers."""
        status: MemberStatus = await self._ask(Status())
        return status

    async def leave(self) -> None:
        """Leave when everything that this member has sent has been round; does nothing if it has ended."""
        try:
            await self._ask(Leave())
        except GroupEndedError:
            return
        await self._runtime.join(self.actor)

    async def forget(self) -> None:
        """Delete the group's record: this member ends, and so do the others, one after the other.

        What has not been round is lost. Who joins afterwards begins a new group of that name.

        Raises:
            GroupEndedError: the member has ended before; the record may be there.
        """
        ended = asyncio.ensure_future(self._runtime.join(self.actor))
        try:
            await self._ask(ForgetGroup())
            reason = await ended
        finally:
            ended.cancel()
        if reason != FORGOTTEN:
            raise GroupEndedError(reason)

    async def _ask(self, request: object, timeout_s: float | None = None) -> Any:
        try:
            answer = await self._runtime.call(self.actor, request, timeout_s)
        except CallExit as error:
            raise GroupEndedError(error.reason) from None
        if isinstance(answer, GmError):
            raise answer
        return answer
