"""GmActor: a member of a ring as an actor. It drives a ``Member`` and carries out its effects."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leveret.actors.gen_server import NOREPLY, From, GenServer
from leveret.actors.links.codec import Unreadable
from leveret.actors.runtime.signals import is_orderly
from leveret.core.log.loggers import logger
from leveret.gm.callbacks import Callbacks, Dialogue
from leveret.gm.links import FromPeer, PeerDown
from leveret.gm.records.group import NO_STAMP, GmError
from leveret.gm.records.transactor import Result, Transactor
from leveret.gm.requests import (
    Broadcast,
    ConfirmedBroadcast,
    ForgetGroup,
    Leave,
    MemberStatus,
    Status,
    WhenJoined,
)
from leveret.gm.ring import effects
from leveret.gm.ring.member import FLUSH, Member, Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.gm.node import RingNode

log = logger(__name__)


class _Answered(NamedTuple):
    """Mail: the result of the transaction under way."""

    result: Result


class GmActor(GenServer):
    """A member of a group; joins when it starts, and is asked with ``leveret.gm.requests``.

    Its start is acknowledged before it has joined; ``WhenJoined`` waits for that. It ends with ``shutdown`` when
    others have declared it dead, and with ``noconnection`` when it reaches nobody of the group: a supervisor that
    wants another member in its place says ``permanent``.
    """

    def init(
        self, node: RingNode, group: str, callbacks: Callbacks, random: Random | None = None
    ) -> None:
        """Begin to join.

        Args:
            node: what the members of this node share.
            group: its name.
            callbacks: get members and messages.
            random: chooses which member is asked to add this one.
        """
        self._group = group
        self._links = node.links
        self._me = me = node.links.open(self.ref)
        self._member = Member(me, random or Random(), node.limits)  # no secret
        self._dialogue = Dialogue(callbacks)
        self._transactor = transactor = Transactor(node.store, group, self.runtime.clock)
        self.runtime.watch(self.ref, lambda _: transactor.close())  # also after a kill
        self._joining: list[From] = []
        self._held: list[From] = []  # broadcasts to be answered when there is room
        self._is_idle_due = False
        self._member.start()
        self._act()

    # Mail.

    def handle_cast(self, message: Any) -> None:
        kind = type(message)
        if kind is FromPeer:
            self._member.receive(message.sender, message.frame)
        elif kind is PeerDown:
            self._member.down(message.peer, message.reason)
        elif kind is _Answered:
            self._member.answered(message.result)
        elif kind is Broadcast:
            try:
                self._member.broadcast(message.messages)
            except GmError as error:
                log.warning("broadcast refused: group=%s reason=%s", self._group, error)
        elif kind is Unreadable:
            super().handle_cast(message)  # fails: it may have been a frame, and none may be missing
        else:
            log.warning("unknown mail dropped: group=%s kind=%s", self._group, kind.__name__)
        self._act()

    def handle_info(self, message: Any) -> None:
        if message == FLUSH:
            self._member.flush_due()
        else:
            self._member.retry()
        self._act()

    def handle_call(self, request: Any, frm: From | None) -> Any:
        answer = self._answers.get(type(request))
        if answer is None:
            return super().handle_call(request, frm)
        try:
            value = answer(self, request, frm)
        except GmError as error:
            return error
        self._act()
        return value

    def _when_joined(self, _: WhenJoined, frm: From | None) -> Any:
        if self._member.phase is Phase.READY:
            return self._me
        if frm is None:
            raise GmError(
                f"{self._me} has not joined {self._group} yet; ask with a call that can wait"
            )
        self._joining.append(frm)
        return NOREPLY

    def _broadcast(self, request: Broadcast, frm: From | None) -> Any:
        self._member.broadcast(request.messages)
        if self._member.is_blocked and frm is not None:
            self._held.append(frm)
            return NOREPLY
        return True

    def _confirmed_broadcast(self, request: ConfirmedBroadcast, frm: From | None) -> Any:
        if frm is None:
            raise GmError("a confirmed broadcast takes a call that can wait")
        self._member.confirmed_broadcast(request.message, frm)
        return NOREPLY

    def _leave(self, request: Leave, _: From | None) -> bool:
        self._member.leave(request.reason)
        return True

    def _forget(self, _: ForgetGroup, __: From | None) -> bool:
        self._member.forget()
        return True

    def _status(self, _: Status, __: From | None) -> MemberStatus:
        member = self._member
        view = member.view
        epoch, version = view.stamp if view is not None else NO_STAMP
        alive = view.alive if view is not None else ()
        pending = {str(name): count for name, count in member.pending.items()}
        return MemberStatus(
            member.phase.value,
            epoch,
            version,
            tuple(map(str, alive)),
            pending,
            self._transactor.trouble,
        )

    _answers: Final[dict[type, Callable[[Any, Any, From | None], Any]]] = {
        WhenJoined: _when_joined,
        Broadcast: _broadcast,
        ConfirmedBroadcast: _confirmed_broadcast,
        Leave: _leave,
        ForgetGroup: _forget,
        Status: _status,
    }

    # The end.

    def terminate(self, reason: object) -> None:
        """Send the waiting frames, unless the member has failed, and call ``handle_terminate``."""
        if is_orderly(reason):
            self._member.idle()
            for effect in self._member.take_effects():
                if isinstance(effect, effects.Send):
                    self._send(effect)
        self._dialogue.terminated(reason)

    # What the member wants.

    def _act(self) -> None:
        """Do what the member wants; then, if a callback said so, leave."""
        member = self._member
        while wanted := member.take_effects():
            for effect in wanted:
                self._does[type(effect)](self, effect)
            if self._dialogue.stopping is not None:
                member.leave(self._dialogue.stopping)
            if member.is_urgent and not self.ref.cell.has_mail():
                member.idle()
        if member.has_unsent and not self._is_idle_due:
            self._is_idle_due = True
            self.runtime.after_drain(self._rest)

    def _rest(self) -> None:
        """Have the member send what waits, if no mail does or somebody waits for it."""
        if not self.ref.is_alive:
            return
        if self.ref.cell.has_mail() and not self._member.is_urgent:
            self.runtime.after_drain(self._rest)
        else:
            self.runtime.run_as(self.ref, self._idle)

    def _idle(self) -> None:
        self._is_idle_due = False
        self._member.idle()
        self._act()

    def _send(self, effect: effects.Send) -> None:
        self._links.send(self._me, effect.to, effect.frame)

    def _monitor(self, effect: effects.Monitor) -> None:
        self._links.monitor(self._me, effect.peer)

    def _demonitor(self, effect: effects.Demonitor) -> None:
        self._links.demonitor(self._me, effect.peer)

    def _transact(self, effect: effects.Transact) -> None:
        self._transactor.run(effect.transaction, self._answer)

    def _answer(self, result: Result) -> None:
        self.runtime.send(self.ref, _Answered(result))

    def _start_timer(self, effect: effects.StartTimer) -> None:
        self.start_timer(effect.delay_s, effect.name)

    def _joined(self, effect: effects.Joined) -> None:
        self._dialogue.joined(self._me, effect.members)
        for frm in self._joining:
            self.reply(frm, self._me)
        self._joining.clear()

    def _members_changed(self, effect: effects.MembersChanged) -> None:
        self._dialogue.members_changed(effect.births, effect.deaths)

    def _deliver(self, effect: effects.Deliver) -> None:
        self._dialogue.deliver(effect.publisher, effect.bodies)

    def _confirmed(self, effect: effects.Confirmed) -> None:
        for frm in effect.tags:
            self.reply(frm, True)

    def _flow(self, effect: effects.Flow) -> None:
        self._dialogue.flow(effect.is_blocked)
        if not effect.is_blocked:
            for frm in self._held:
                self.reply(frm, True)
            self._held.clear()

    def _stopped(self, effect: effects.Stopped) -> None:
        self.stop(effect.reason)

    _does: Final[dict[type, Callable[[Any, Any], None]]] = {
        effects.Send: _send,
        effects.Monitor: _monitor,
        effects.Demonitor: _demonitor,
        effects.Transact: _transact,
        effects.StartTimer: _start_timer,
        effects.Joined: _joined,
        effects.MembersChanged: _members_changed,
        effects.Deliver: _deliver,
        effects.Confirmed: _confirmed,
        effects.Flow: _flow,
        effects.Stopped: _stopped,
    }
