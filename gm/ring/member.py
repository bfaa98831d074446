"""One member of a ring: guaranteed multicast as a state machine.

**The ring.** The members of a group form a ring, kept in the group's record: a list with an epoch and a version, which
changes only by transactions (``gm.records``). A *view* is one version of it as a member sees it. A member sends to its
right neighbour only, and monitors both neighbours.

**A publication** goes round once as such and once as an acknowledgement. Its publisher numbers it and sends it to the
right; each member keeps it, delivers it and passes it on. When it is back at its publisher, all members have had it:
the broadcast is confirmed, and the number goes round as ``acked``, which lets the members drop it. Publications of one
publisher keep their order, because each link does. There is no order between publishers.

A member's state per publisher is a ``Stream``: the last publication that came, the last that was acknowledged, and the
publications between the two. Round the ring from a publisher both numbers only fall. News are merged by numbers: what
a member has already is skipped, what it lacks is added. So the same news may come twice, and by two ways.

What the right neighbour has not been sent waits in ``News`` for the flush, and then goes in one frame. The driver
flushes when nothing else is to be done, and behind its turn if there are others' publications or confirmed ones. A new
right neighbour gets all with the catch-up. The last hop, to the publisher itself, is without the messages.

**A death.** Links report the end of a neighbour after everything that it had sent. The neighbours mark it dead in the
record; then the members left and right of it are neighbours. A member that has a new right neighbour sends it its whole
state, the *catch-up*, which repairs what died on the way. From a new left neighbour nothing else is taken before its
catch-up. The next member alive to the right of the dead one *inherits* it: a publication of the dead that comes from
the left has been round, so the heir turns it into an acknowledgement.

The dead stay in the record, and so in all views, while messages of theirs may be in the ring. To find out, the heir
publishes a *mark*, a publication that is delivered to nobody. Members pass on what they have of the dead before the
mark, so when the mark is back, everything of the dead has been everywhere. Then the heir erases the dead from the
record. A member reports a death when it sees the version without the dead, and so after all messages of the dead.

**A join.** A newcomer asks a random member, which adds it to its right. It asks its left neighbour for the catch-up,
takes that state without delivering anything, and has joined: what is published from now on it delivers. While it waits
it passes nothing on and admits nobody. If its left neighbour dies, the next one is asked; if nobody in the ring has a
state, because all who had are dead, the question comes back to who asked, and it begins with an empty state. A newcomer
declares dead only whom it knows to have ended. Members whose nodes it cannot reach may be a ring that works; if it
reaches none of them it ends, with ``noconnection``.

**Fencing.** Each frame has the stamp (epoch, version) of its sender's view. A member whose view is older reads the
record before it handles the frame, and later frames wait. If the record does not list it any more, it stops.
Frames of an older epoch, or from a member that is dead in the receiver's view, are dropped; their sender gets the
stamp, reads the record and stops. Each change of view goes round, so an idle ring hears of it too. Transactions see the
record as it is, so one older than the member's view comes from a store that was restored from a backup: it stops.

**Alone** in its group a member delivers to itself only, and confirms at once.

**The store.** Transactions are asked for with ``Transact``, one at a time. While one is under way the member goes on
in the view that it has; only frames of a newer view wait.

Turned down: RabbitMQ's rule that the heir erases the dead as soon as all that it knows of has been acknowledged; an
heir that has just joined may not know of everything. Its assertions on numbers, which two ways for one message break.
Its newcomers that declare dead whom they cannot reach, so that one cut link makes two rings. Ending the ring's traffic
during a transaction. Reporting ``joined`` before the catch-up: messages in it would never be delivered to a member that
others may already count on.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leveret.gm.records.group import NO_STAMP, GmError, Group, LostMembershipError, MemberId, Stamp
from leveret.gm.records.transactions import Add, Create, Erase, Forget, MarkDead, Read, Transaction
from leveret.gm.ring.effects import (
    Confirmed,
    Deliver,
    Demonitor,
    Effect,
    Flow,
    Joined,
    MembersChanged,
    Monitor,
    Send,
    StartTimer,
    Stopped,
    Transact,
)
from leveret.gm.ring.frames import (
    Activity,
    Ask,
    Body,
    CatchUp,
    Check,
    Entry,
    Frame,
    JoinRequest,
    NotReady,
    Welcome,
)
from leveret.gm.ring.limits import BODY_BYTES_MAX, Limits
from leveret.gm.ring.newcomer import Newcomer, Step
from leveret.gm.ring.news import News
from leveret.gm.ring.outbox import Outbox
from leveret.gm.ring.streams import GapError, Stream, state_in_parts
from leveret.gm.ring.view import View

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

FLUSH: Final = "flush"
RETRY: Final = "retry"

NOCONNECTION: Final = "noconnection"  # of a peer whose node cannot be reached, perhaps by others
LOST: Final = "shutdown"  # the reason of a member that the record does not list any more
RING_SHUTDOWN: Final = ("shutdown", "ring_shutdown")  # the reason when all members are to end
FORGOTTEN: Final = ("shutdown", "group_forgotten")  # of the member that deleted the record

_OF_JOINS: Final = (JoinRequest, Welcome, NotReady)

_Task: TypeAlias = "tuple[Transaction, Callable[[Group | None], None]]"
_Input: TypeAlias = tuple[MemberId, Frame | None, object]  # sender and frame, or who ended and why


class Phase(Enum):
    """How far a member is in its life."""

    JOINING = "joining"  # it is in no record yet
    WAITING = "waiting"  # it is in the record and has no state
    READY = "ready"
    STOPPED = "stopped"


class NotJoinedError(GmError):
    """The member cannot broadcast: it has not joined yet, is about to leave, or has ended."""


class Member:
    """One member of a ring, driven from outside.

    Its driver calls the methods under "Inputs" and then does what ``take_effects`` returns, in order.

    Args:
        me: the member's name, never used before.
        random: chooses whom a newcomer asks.
        limits: bounds and times.

    Attributes:
        me: the member's name.
        phase: how far it is.
        view: of the group; None before the member is in the record.
    """

    def __init__(self, me: MemberId, random: Random, limits: Limits) -> None:
        self.me = me
        self.phase = Phase.JOINING
        self.view: View | None = None
        self._limits = limits
        self._effects: list[Effect] = []
        self._streams: dict[MemberId, Stream] = {}
        self._news = News(limits.frame_bytes)
        self._outbox = Outbox(limits.pending_bytes)
        self._leaving: object = None  # the reason, once it is about to leave
        self._newcomer = Newcomer(me, random)
        self._monitored: set[MemberId] = set()
        self._tasks: deque[_Task] = deque()  # transactions; the first is under way
        self._needs: Stamp | None = None  # inputs wait for a view of this stamp
        self._waiting: deque[_Input] = deque()  # for that view, or for the first one
        self._is_synced = False  # the left neighbour's catch-up has come
        self._parts: list[Entry] | None = None  # of a catch-up, while there is no state
        self._pushed = NO_STAMP  # of the view when the right neighbour was sent the catch-up
        self._marks: dict[MemberId, int] = {}  # number of the mark per inherited member
        self._erasing: set[MemberId] = set()
        self._is_flush_due = False  # the timer runs

    # What it is.

    @property
    def is_blocked(self) -> bool:
        """Whether publishers should stop: too much has not been round."""
        return self._outbox.is_blocked

    @property
    def has_unsent(self) -> bool:
        """Whether something waits for the next flush."""
        return bool(self._news)

    @property
    def is_urgent(self) -> bool:
        """Whether others' publications or confirmed broadcasts wait, which are sent without waiting for more."""
        return self._news.is_urgent

    @property
    def is_leaving(self) -> bool:
        return self._leaving is not None

    @property
    def pending(self) -> dict[MemberId, int]:
        """How many publications have not been round, per publisher that has any."""
        streams = self._streams.items()
        return {name: each.last - each.acked for name, each in streams if not each.is_empty}

    def take_effects(self) -> list[Effect]:
        """Return the effects since the last call; the driver carries them out in order."""
        effects, self._effects = self._effects, []
        return effects

    # Inputs.

    def start(self) -> None:
        """Join the group."""
        self._transact(Read(), self._join)

    def broadcast(self, bodies: list[bytes]) -> None:
        """Publish messages to all members; this one delivers them at once.

        Raises:
            NotJoinedError: the member has not joined, is about to leave, or has ended.
            GmError: a message is too large.
        """
        self._publish(bodies, is_urgent=False)

    def confirmed_broadcast(self, body: bytes, tag: Any) -> None:
        """Publish a message; ``Confirmed`` with ``tag`` follows when all members have had it.

        Raises:
            NotJoinedError: the member has not joined, is about to leave, or has ended.
            GmError: the message is too large.
        """
        self._publish([body], is_urgent=True)
        own = self._streams[self.me]
        if own.is_empty:  # nobody else is there
            self._effects.append(Confirmed([tag]))
        else:
            self._outbox.await_confirm(own.last, tag)

    def idle(self) -> None:
        """Send what waits for the right neighbour: the driver has nothing else to do."""
        self._flush()

    def flush_due(self) -> None:
        """Send what waits for the right neighbour: the flush timer has run."""
        self._is_flush_due = False
        self._flush()

    def retry(self) -> None:
        """Read the record again: after a stale one, or to go on with the join."""
        if self._needs is not None:
            self._transact(Read(), self._refreshed)
        elif self.phase is Phase.JOINING and self._newcomer.asked is None:
            self._transact(Read(), self._join)

    def leave(self, reason: object) -> None:
        """Take no more broadcasts, and stop when everything of this member has been round.

        With ``RING_SHUTDOWN`` it stops when everything that it knows of has been round: it is for a message that
        makes all members leave.
        """
        if self.phase is Phase.STOPPED or self.is_leaving:
            return
        self._leaving = reason
        if self.phase is Phase.READY:
            self._flush()
            self._stop_if_drained()
        else:
            self._stop(reason)

    def forget(self) -> None:
        """Delete the group's record, and stop with ``FORGOTTEN`` when that is done; the others then stop, too.

        Raises:
            NotJoinedError: the member has not joined, or has ended.
        """
        if self.phase is not Phase.READY:
            raise NotJoinedError(f"{self.me} is {self.phase.value}: it cannot forget its group")
        self._transact(Forget(self._stamp.epoch), lambda _: self._stop(FORGOTTEN))

    def receive(self, sender: MemberId, frame: Frame) -> None:
        """Take a frame from another member."""
        if self.phase is Phase.STOPPED:
            return
        if self._needs is not None or (self.view is None and not isinstance(frame, _OF_JOINS)):
            self._waiting.append((sender, frame, None))
        else:
            self._handle(sender, frame)

    def down(self, peer: MemberId, reason: object) -> None:
        """Hear that a member has ended, or cannot be reached any more, after everything that it sent."""
        if self.phase is Phase.STOPPED:
            return
        if self._needs is not None:
            self._waiting.append((peer, None, reason))
        else:
            self._handle_down(peer, reason)

    def answered(self, result: Group | LostMembershipError | None) -> None:
        """Take the result of the transaction under way."""
        if self.phase is Phase.STOPPED:
            return
        if isinstance(result, LostMembershipError):
            self._stop(LOST)
            return
        self._tasks[0][1](result)
        if self._tasks:
            self._tasks.popleft()
        if self._tasks:
            self._effects.append(Transact(self._tasks[0][0]))
        while self._waiting and self._needs is None and self.view is not None:
            sender, frame, reason = self._waiting.popleft()
            if frame is None:
                self._handle_down(sender, reason)
            else:
                self._handle(sender, frame)

    # Joining.

    def _join(self, group: Group | None) -> None:
        """Go on with the join, by the record as it is now."""
        step = self._newcomer.step(group)
        if step is Step.JOINED:
            self.phase = Phase.WAITING
            self._switch(group)
        elif step is Step.CREATE:
            self._transact(Create(self.me), self._join)
        elif step is Step.ASK:
            assert group is not None
            assert self._newcomer.asked is not None
            self._monitor(self._newcomer.asked)
            self._send(self._newcomer.asked, JoinRequest(group.stamp))
        else:
            self._stop(LOST if step is Step.LOST else NOCONNECTION)

    def _handle_answer(self, sender: MemberId, frame: Welcome | NotReady) -> None:
        """Take the answer of the member that the newcomer has asked."""
        if sender != self._newcomer.asked:
            return
        if type(frame) is Welcome:
            self._newcomer.asked = None
            self._transact(Read(), self._join)
        else:
            pause_s = self._limits.retry_s * self._newcomer.was_refused()
            self._demonitor(sender)
            self._effects.append(StartTimer(RETRY, pause_s))

    def _admit(self, newcomer: MemberId) -> None:
        if self.phase is not Phase.READY or self.is_leaving:
            self._send(newcomer, NotReady(self._stamp))
        else:
            self._transact(Add(newcomer, self.me), partial(self._added, newcomer))

    def _added(self, newcomer: MemberId, group: Group | None) -> None:
        self._switch(group)
        if self.phase is not Phase.STOPPED:
            is_in = group is not None and group.lists(newcomer)  # else the record is full
            self._send(newcomer, Welcome(self._stamp) if is_in else NotReady(self._stamp))

    def _become_ready(self) -> None:
        assert self.view is not None
        self.phase = Phase.READY
        self._effects.append(Joined(self.view.known))
        if self.view.right != self.me:
            self._push()
        self._mark_inherited()

    # Frames and ends.

    def _handle(self, sender: MemberId, frame: Frame) -> None:
        kind = type(frame)
        view = self.view
        if kind is Welcome or kind is NotReady:
            self._handle_answer(sender, frame)  # type: ignore[arg-type]  # see kind
        elif view is None:
            self._send(sender, NotReady(NO_STAMP))
        elif frame.stamp > view.stamp:
            self._needs = frame.stamp
            self._waiting.appendleft((sender, frame, None))
            self._transact(Read(), self._refreshed)
        elif kind is JoinRequest:
            self._admit(sender)
        elif kind is not Check:
            self._handle_neighbour(view, sender, frame)

    def _handle_neighbour(self, view: View, sender: MemberId, frame: Frame) -> None:
        """Take a frame whose view is this member's or an older one."""
        if frame.stamp.epoch < view.stamp.epoch or sender not in view.alive:
            self._send(sender, Check(view.stamp))  # fenced: let it find out
        elif type(frame) is Ask:
            self._handle_ask(view, sender, frame)
        elif sender != view.left:
            return  # it will learn of the newer view, and send its catch-up to its new right
        elif type(frame) is CatchUp:
            self._handle_catch_up(frame)
        elif type(frame) is Activity and self._is_synced:
            self._merge(view, frame.entries)

    def _refreshed(self, group: Group | None) -> None:
        """Take the record that was read because of a newer stamp."""
        if group is not None and self._needs is not None and group.stamp < self._needs:
            self._effects.append(StartTimer(RETRY, self._limits.retry_s))
            return
        self._needs = None
        self._switch(group)

    def _handle_ask(self, view: View, sender: MemberId, frame: Ask) -> None:
        if sender != view.right:
            if frame.stamp < view.stamp:
                self._send(sender, Check(view.stamp))
        elif self.phase is Phase.READY:
            if frame.waiting is not None or self._pushed < frame.stamp:
                self._push()
        elif frame.waiting is not None and frame.stamp == view.stamp:
            if frame.waiting == self.me:
                self._become_ready()  # nobody in the ring has a state
            else:
                self._send(view.left, Ask(view.stamp, frame.waiting))

    def _handle_down(self, peer: MemberId, reason: object) -> None:
        self._monitored.discard(peer)
        if peer == self._newcomer.asked:
            if reason == NOCONNECTION:
                self._newcomer.was_cut_off()
                self._transact(Read(), self._join)
            else:
                self._newcomer.asked = None
                self._transact(MarkDead(peer, by=None), self._join)
        elif self.view is None or peer not in (self.view.left, self.view.right):
            return
        elif reason == RING_SHUTDOWN == self._leaving:
            self._flush()
            self._stop(RING_SHUTDOWN)  # the other has seen that all members know
        else:
            self._transact(MarkDead(peer, by=self.me), self._switch)

    # Views.

    def _switch(self, group: Group | None) -> None:
        """Go on with a newer version of the record."""
        old = self.view
        if group is not None and old is not None and group.stamp <= old.stamp:
            if group.stamp < old.stamp:  # the store was put back to an older state
                self._stop(LOST)
            return
        if group is None or not group.is_alive(self.me):
            self._stop(LOST)
            return
        self.view = view = View(group, self.me)
        before = old.known if old is not None else frozenset()
        births, deaths = view.known - before, before - view.known
        self._apply_membership(births, deaths)
        if self.phase is Phase.READY and (births or deaths):
            self._effects.append(MembersChanged(births, deaths))
        self._watch_neighbours(view)
        if old is None or old.left != view.left:
            self._is_synced = False
            self._parts = None
            if old is not None and old.left != self.me:
                self._send(old.left, Check(view.stamp))
        self._switch_right_neighbour(view, old)
        if view.left == self.me:
            self._finish_rounds(view)
        elif not self._is_synced:
            waiting = self.me if self.phase is Phase.WAITING else None
            self._send(view.left, Ask(view.stamp, waiting))
        if self.phase is Phase.READY:
            self._mark_inherited()
            self._stop_if_drained()

    def _apply_membership(self, births: frozenset[MemberId], deaths: frozenset[MemberId]) -> None:
        for name in sorted(births):
            self._streams[name] = Stream(name)
        for name in deaths:
            del self._streams[name]
            self._news.forget(name)
            self._marks.pop(name, None)
            self._erasing.discard(name)

    def _watch_neighbours(self, view: View) -> None:
        for peer in sorted(self._monitored - {view.left, view.right}):
            self._demonitor(peer)
        for peer in (view.left, view.right):
            if peer != self.me and peer not in self._monitored:
                self._monitor(peer)

    def _switch_right_neighbour(self, view: View, old: View | None) -> None:
        """Tell the right neighbour, old or new, of the view."""
        if old is not None and old.right == view.right:
            if view.right != self.me:
                self._send(view.right, Check(view.stamp))
            return
        self._pushed = NO_STAMP
        if old is not None and old.right != self.me:
            self._send(old.right, Check(view.stamp))  # perhaps it lives, and was cut off
        if view.right == self.me:
            return
        if self.phase is Phase.READY:
            self._push()
        else:
            self._send(view.right, Check(view.stamp))

    def _finish_rounds(self, view: View) -> None:
        """Consider every publication to have been round: this member is alone."""
        for stream in self._streams.values():
            stream.ack(stream.last)
        self._news.clear()
        self._is_synced = True
        if self.phase is Phase.WAITING:
            self._become_ready()
        self._own_acked()
        self._erase(view.aliases)

    # The dead.

    def _mark_inherited(self) -> None:
        """Publish the mark that shows when nothing of the dead is left in the ring."""
        assert self.view is not None
        if self.view.right == self.me:
            return
        fresh = self.view.aliases - self._marks.keys() - self._erasing
        if fresh:
            own = self._streams[self.me]
            own.add(own.last + 1, [None])
            self._marks.update(dict.fromkeys(fresh, own.last))
            self._note(own, is_urgent=True)
            self._flush()

    def _erase(self, members: frozenset[MemberId]) -> None:
        fresh = members - self._erasing
        if fresh:
            self._erasing |= fresh
            self._transact(Erase(fresh, self.me), self._switch)

    # The state.

    def _handle_catch_up(self, frame: CatchUp) -> None:
        assert self.view is not None
        if self.phase is Phase.READY:
            if frame.is_first:
                self._is_synced = True
            if self._is_synced:
                self._merge(self.view, frame.entries)
            return
        if frame.is_first:
            self._parts = []
        if self._parts is not None:
            self._parts += frame.entries
            if frame.is_last:
                self._adopt(self.view, self._parts)

    def _adopt(self, view: View, entries: list[Entry]) -> None:
        """Begin with the left neighbour's state; nothing of it is delivered."""
        begun = set()
        for publisher, first, bodies, acked in entries:
            stream = self._streams.get(publisher)
            if stream is None:
                continue  # erased since
            if publisher in begun:
                stream.add(first, bodies)
            else:
                begun.add(publisher)
                stream.start(first, bodies, acked)
        for name in view.aliases:
            self._streams[name].ack(self._streams[name].last)
        self._parts = None
        self._is_synced = True
        self._become_ready()

    def _merge(self, view: View, entries: list[Entry]) -> None:
        """Merge the left neighbour's news: deliver new publications, and note them for the right neighbour."""
        for publisher, first, bodies, acked in entries:
            stream = self._streams.get(publisher)
            if stream is None:
                continue  # erased since; everything of it has been here
            new = stream.add(first, bodies) if bodies else bodies
            if new:
                if publisher == self.me:
                    raise GapError(
                        f"{view.left} sent {self.me} a publication {first} of its own that it never made"
                    )
                self._effects.append(Deliver(publisher, new))
            round_to = acked
            if publisher == self.me or publisher in view.aliases:
                round_to = max(acked, first + len(bodies) - 1)
            if stream.ack(round_to) or new:
                self._note(stream, is_urgent=bool(new))
        if self._news.is_full:
            self._flush()
        self._own_acked()
        self._stop_if_drained()

    def _push(self) -> None:
        """Send the right neighbour the catch-up.

        The dead come first, so that nothing of them is overtaken by their heir's mark.
        """
        view = self.view
        assert view is not None
        if self._pushed != NO_STAMP:
            self._flush()  # the second catch-up lacks messages that have gone round since the first
        self._pushed = view.stamp
        names = sorted(view.known, key=lambda name: (name in view.alive, name))
        streams = [self._streams[name] for name in names]
        parts = list(state_in_parts(streams, view.right, self._limits.frame_bytes))
        for stream in streams:
            stream.take_unsent()
        self._news.clear()
        for number, entries in enumerate(parts):
            self._send(view.right, CatchUp(view.stamp, entries, number == 0, entries is parts[-1]))

    # Own publications.

    def _publish(self, bodies: list[bytes], is_urgent: bool) -> None:
        """Deliver messages to this member, and have them wait to be sent unless it is alone."""
        if self.phase is not Phase.READY or self.is_leaving:
            state = "about to leave" if self.is_leaving else self.phase.value
            raise NotJoinedError(
                f"{self.me} is {state}: it can broadcast from joined() until leave()"
            )
        assert self.view is not None
        for body in bodies:
            if len(body) > BODY_BYTES_MAX:
                raise GmError(
                    f"message of {len(body)} bytes, limit {BODY_BYTES_MAX}: send it in parts"
                )
        published: list[Body] = list(bodies)
        self._effects.append(Deliver(self.me, published))
        if self.view.right != self.me and published:
            own = self._streams[self.me]
            own.add(own.last + 1, published)
            self._note(own, is_urgent)
            if self._news.is_full:
                self._flush()
            self._report_flow()

    def _note(self, stream: Stream, is_urgent: bool) -> None:
        """Have a stream's news sent to the right neighbour: with the next flush, or when the timer has run."""
        self._news.note(stream, is_urgent)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._effects.append(StartTimer(FLUSH, self._limits.flush_s))

    def _flush(self) -> None:
        """Send the right neighbour what waits, in frames of about ``frame_bytes``."""
        if self._news and self.view is not None:
            for entries in self._news.take(self.view):
                self._send(self.view.right, Activity(self.view.stamp, entries))

    def _own_acked(self) -> None:
        """Confirm the own publications that have been round."""
        acked = self._streams[self.me].acked
        tags = self._outbox.confirmed(acked)
        if tags:
            self._effects.append(Confirmed(tags))
        if self._marks:
            assert self.view is not None
            self._erase(
                frozenset(
                    name
                    for name in self.view.aliases
                    if name in self._marks and self._marks[name] <= acked
                )
            )
        if self._outbox.is_blocked:
            self._report_flow()

    def _report_flow(self) -> None:
        is_blocked = self._outbox.flow(self._streams[self.me].size_bytes)
        if is_blocked is not None:
            self._effects.append(Flow(is_blocked))

    # The end.

    def _stop_if_drained(self) -> None:
        if self._leaving is None or self.phase is not Phase.READY:
            return
        drained: list[Stream] = [self._streams[self.me]]
        if self._leaving == RING_SHUTDOWN:
            drained = list(self._streams.values())
        if all(stream.is_empty for stream in drained):
            self._flush()  # news of others
            self._stop(self._leaving)

    def _stop(self, reason: object) -> None:
        self.phase = Phase.STOPPED
        self._tasks.clear()
        self._waiting.clear()
        self._needs = None
        self._effects.append(Stopped(reason))

    # Effects.

    @property
    def _stamp(self) -> Stamp:
        return NO_STAMP if self.view is None else self.view.stamp

    def _send(self, to: MemberId, frame: Frame) -> None:
        self._effects.append(Send(to, frame))

    def _monitor(self, peer: MemberId) -> None:
        self._monitored.add(peer)
        self._effects.append(Monitor(peer))

    def _demonitor(self, peer: MemberId) -> None:
        self._monitored.discard(peer)
        self._effects.append(Demonitor(peer))

    def _transact(self, transaction: Transaction, then: Callable[[Group | None], None]) -> None:
        self._tasks.append((transaction, then))
        if len(self._tasks) == 1:
            self._effects.append(Transact(transaction))
