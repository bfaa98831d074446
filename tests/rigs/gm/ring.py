"""Members of one ring on a simulated network, in virtual time."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from leveret.gm.callbacks import Answer, Callbacks, Dialogue
from leveret.gm.records.group import Group, MemberId
from leveret.gm.records.transactor import Transactor
from leveret.gm.ring import effects
from leveret.gm.ring.limits import Limits
from leveret.gm.ring.member import FLUSH, Member, Phase
from leveret.testing.virtual_clock import VirtualClock
from rigs.gm.history import RingHistory
from rigs.gm.network import Network
from rigs.gm.store import FaultyGroupStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.gm.ring.frames import Frame

NAME: Final = "ring"


class _Recorder(Callbacks):
    """Callbacks that record what they hear."""

    def __init__(self, history: RingHistory) -> None:
        self._history = history
        self._me = MemberId("", 0)

    def joined(self, me: MemberId, members: frozenset[MemberId]) -> Answer:
        self._me = me
        self._history.joined(me, members)
        return None

    def members_changed(self, births: frozenset[MemberId], deaths: frozenset[MemberId]) -> Answer:
        self._history.members_changed(self._me, births, deaths)
        return None

    def handle_msg(self, publisher: MemberId, message: bytes) -> Answer:
        self._history.delivered(self._me, publisher, message)
        return None


class SimulatedMember:
    """A member and its driver.

    Attributes:
        member: the machine.
        reason: why it has ended; None: it runs.
    """

    def __init__(self, ring: SimulatedRing, me: MemberId, callbacks: Callbacks) -> None:
        self.member = Member(me, ring.random, ring.limits)
        self.reason: object = None
        self.is_blocked = False
        self._ring = ring
        self._dialogue = Dialogue(callbacks)
        self._transactor = Transactor(ring.store, NAME, ring.clock)
        self._is_idle_due = False

    @property
    def me(self) -> MemberId:
        return self.member.me

    @property
    def is_ready(self) -> bool:
        return self.member.phase is Phase.READY and not self.member.is_leaving

    # What the world does.

    def start(self) -> None:
        self.member.start()
        self._act()

    def receive(self, sender: MemberId, frame: Frame) -> None:
        self.member.receive(sender, frame)
        self._act()

    def down(self, peer: MemberId, reason: object) -> None:
        self.member.down(peer, reason)
        self._act()

    def broadcast(self, message: bytes) -> None:
        self._ring.history.published(self.me, message)
        self.member.broadcast([message])
        self._act()

    def confirmed_broadcast(self, message: bytes) -> None:
        self._ring.history.published(self.me, message)
        self.member.confirmed_broadcast(message, message)
        self._act()

    def leave(self, reason: object = "normal") -> None:
        self.member.leave(reason)
        self._act()

    def forget(self) -> None:
        self.member.forget()
        self._act()

    def crash(self) -> None:
        """End as by a kill: a part of what it has sent may still arrive."""
        self._end("killed")

    # What the member wants.

    def _act(self) -> None:
        for effect in self.member.take_effects():
            self._does[type(effect)](self, effect)
            if self.reason is not None:
                return
        stopping = self._dialogue.stopping
        if stopping is not None and not self.member.is_leaving:
            self.leave(stopping)
        elif self.member.is_urgent and self._ring.random.random() < self._ring.idleness:
            self.member.idle()
            self._act()
        elif self.member.has_unsent and not self._is_idle_due:
            self._is_idle_due = True
            self._ring.clock.call_later(self._ring.random.random() * 0.004, self._idle)

    def _idle(self) -> None:
        self._is_idle_due = False
        if self.reason is None and self._ring.random.random() < self._ring.idleness:
            self.member.idle()
            self._act()

    def _send(self, effect: effects.Send) -> None:
        self._ring.network.send(self.me, effect.to, effect.frame)

    def _monitor(self, effect: effects.Monitor) -> None:
        self._ring.network.monitor(self.me, effect.peer)

    def _demonitor(self, effect: effects.Demonitor) -> None:
        self._ring.network.demonitor(self.me, effect.peer)

    def _transact(self, effect: effects.Transact) -> None:
        self._transactor.run(effect.transaction, self._answered)

    def _answered(self, result: Any) -> None:
        if self.reason is None:
            self.member.answered(result)
            self._act()

    def _start_timer(self, effect: effects.StartTimer) -> None:
        due = self.member.flush_due if effect.name == FLUSH else self.member.retry
        self._ring.clock.call_later(effect.delay_s, self._due, due)

    def _due(self, due: Callable[[], None]) -> None:
        if self.reason is None:
            due()
            self._act()

    def _joined(self, effect: effects.Joined) -> None:
        self._dialogue.joined(self.me, effect.members)

    def _members_changed(self, effect: effects.MembersChanged) -> None:
        self._dialogue.members_changed(effect.births, effect.deaths)

    def _deliver(self, effect: effects.Deliver) -> None:
        self._dialogue.deliver(effect.publisher, effect.bodies)

    def _confirmed(self, effect: effects.Confirmed) -> None:
        assert self.member.view is not None
        for message in effect.tags:
            self._ring.history.confirmed(self.me, message, self.member.view.alive)

    def _flow(self, effect: effects.Flow) -> None:
        self.is_blocked = effect.is_blocked

    def _stopped(self, effect: effects.Stopped) -> None:
        self._dialogue.terminated(effect.reason)
        self._end(effect.reason)

    def _end(self, reason: object) -> None:
        self.reason = reason
        self._transactor.close()
        self._ring.ended(self, reason)

    _does: Final[dict[type, Any]] = {
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


class SimulatedRing:
    """Members of one group, links, nodes and a store, in virtual time.

    Args:
        seed: of all delays and choices.
        limits: of the members.
        faults: the share of operations on the store that get no answer.
        idleness: how likely a member finds nothing to do after a while, or at once if something is urgent, and sends
            what waits; else the timer does.
        carry: what a frame becomes on its way.

    Attributes:
        clock: the time; nothing happens until ``clock.jump``.
        members: that run, by name.
        history: what they did.
    """

    def __init__(
        self,
        seed: int | str = 0,
        limits: Limits | None = None,
        faults: float = 0.0,
        idleness: float = 0.7,
        carry: Callable[[Frame], Frame] = lambda frame: frame,
    ) -> None:
        self.random = Random(seed)
        self.limits = limits or Limits()
        self.idleness = idleness
        self.clock = VirtualClock()
        self.network = Network(self.clock, self.clock.monotonic_s, self.random, carry=carry)
        self.store = FaultyGroupStore(self.clock, self.random, faults=faults)
        self.members: dict[MemberId, SimulatedMember] = {}
        self.history = RingHistory()
        self._count = 0

    @property
    def record(self) -> Group | None:
        """The record as it is in the store."""
        return self.store.memory.current(NAME).group

    def start(self, node: str, callbacks: Callbacks | None = None) -> SimulatedMember:
        """Start a member on a node; it joins by and by."""
        self._count += 1
        me = MemberId(node, self._count)
        member = SimulatedMember(self, me, callbacks or _Recorder(self.history))
        self.members[me] = member
        self.network.add(me, member)
        self.clock.call_later(0.0, partial(_start, member))
        return member

    def started(self, count: int) -> list[SimulatedMember]:
        """Start members on nodes ``n1``, ``n2``... one after the other, and return them when they have joined."""
        found = []
        for number in range(1, count + 1):
            found.append(self.start(f"n{number}"))
            self.clock.jump(0.5)
            assert found[-1].is_ready
        return found

    def ready(self) -> list[SimulatedMember]:
        """Return the members that can broadcast."""
        return [each for each in self.members.values() if each.is_ready]

    def survivors(self) -> list[SimulatedMember]:
        """Return the members of the final ring: those that run, and that the record lists."""
        record = self.record
        alive = record.alive() if record is not None else ()
        return [each for each in self.members.values() if each.me in alive]

    def violations(self) -> list[str]:
        return self.history.violations(each.me for each in self.survivors())

    def ended(self, member: SimulatedMember, reason: object) -> None:
        """Take out a member that has ended."""
        del self.members[member.me]
        self.network.remove(member.me, reason)
        self.history.ended(member.me)


def _start(member: SimulatedMember) -> None:
    if member.reason is None:
        member.start()
