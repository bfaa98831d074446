"""Rings of actors on the real runtime, with a store of records of the test's choice; their history is recorded.

``Hooks`` are links that show every frame to the test, which may end members at that point.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

from leveret.actors.runtime.actor_ref import ActorRef
from leveret.actors.runtime.ref import DEAD_CELL, Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.gm import Callbacks, Group, GroupEndedError, MemberId, RingNode
from leveret.gm.links import ActorLinks, PeerDown
from leveret.gm.records.group import Group as Record
from leveret.gm.records.store import GroupStore, Stored
from leveret.gm.ring.frames import Frame
from leveret.gm.ring.member import NOCONNECTION, Member
from rigs.gm.history import RingHistory
from rigs.waiting import eventually

NAME = "g"
WITHIN_S = 30.0


class Hooks(ActorLinks):
    """Links that call ``on_send(sender, to, frame)`` first, and drop the frame if a hook returns True.

    A frame may be dropped only if its sender ends, else the links would break their promise.
    """

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime, lambda _, member: self.actor(member))
        self.on_send: Callable[[MemberId, MemberId, Frame], object] = lambda *_: False

    def send(self, sender: MemberId, to: MemberId, frame: Frame) -> None:
        if self.on_send(sender, to, frame) is not True:
            super().send(sender, to, frame)

    def actor(self, member: MemberId) -> Ref:
        """Return the actor of a member, dead if it has ended."""
        found = self._runtime.by_number(member.number)
        return found or ActorRef(member.node, member.number, DEAD_CELL)


class BreakingLinks(Hooks):
    """Links with delays, of which some break: both ends hear ``noconnection``, and stay cut off from each other.

    Frames keep their order in each direction. What is under way when its sender ends, or its link breaks, is lost.

    Attributes:
        loss: the share of frames with which a link breaks.
        breaks: how many have broken.
    """

    def __init__(self, runtime: Runtime, random: Random, delay_s: float, loss: float) -> None:
        super().__init__(runtime)
        self._random = random
        self._delay_s = delay_s
        self.loss = loss
        self._broken: set[frozenset[MemberId]] = set()
        self._last_s: dict[tuple[MemberId, MemberId], float] = {}
        self._loop = asyncio.get_running_loop()

    @property
    def breaks(self) -> int:
        return len(self._broken)

    def send(self, sender: MemberId, to: MemberId, frame: Frame) -> None:
        if self._random.random() < self.loss:
            self._break(sender, to)
            return
        due_s = self._loop.time() + self._random.random() * self._delay_s
        due_s = max(due_s, self._last_s.get((sender, to), 0.0) + 1e-6)
        self._last_s[sender, to] = due_s
        self._loop.call_at(due_s, self._arrive, sender, to, frame)

    def monitor(self, watcher: MemberId, peer: MemberId) -> None:
        if frozenset((watcher, peer)) in self._broken:
            self._runtime.send(self.actor(watcher), PeerDown(peer, NOCONNECTION))
        else:
            super().monitor(watcher, peer)

    def _arrive(self, sender: MemberId, to: MemberId, frame: Frame) -> None:
        if self.actor(sender).is_alive and frozenset((sender, to)) not in self._broken:
            super().send(sender, to, frame)

    def _break(self, one: MemberId, other: MemberId) -> None:
        self._broken.add(frozenset((one, other)))
        for watcher, peer in ((one, other), (other, one)):
            if peer in self._monitors.get(watcher, {}):
                self.demonitor(watcher, peer)
                self._runtime.send(self.actor(watcher), PeerDown(peer, NOCONNECTION))


class Recorder(Callbacks):
    """Callbacks of one member; write its history, and keep what it heard."""

    def __init__(self, history: RingHistory) -> None:
        self._history = history
        self._me = MemberId("", 0)
        self.messages: list[tuple[MemberId, bytes]] = []
        self.deaths: list[MemberId] = []

    def joined(self, me: MemberId, members: frozenset[MemberId]) -> None:
        self._me = me
        self._history.joined(me, members)

    def members_changed(self, births: frozenset[MemberId], deaths: frozenset[MemberId]) -> None:
        self._history.members_changed(self._me, births, deaths)
        self.deaths += deaths

    def handle_msg(self, publisher: MemberId, message: bytes) -> None:
        self._history.delivered(self._me, publisher, message)
        self.messages.append((publisher, message))


class LiveRing:
    """Members of one group in one runtime.

    Args:
        runtime: theirs.
        store: of the record.
        links: of the members; by default those that show all frames.

    Attributes:
        links: of the members.
        history: what they did.
        groups: those that have joined and not ended.
    """

    def __init__(self, runtime: Runtime, store: GroupStore, links: Hooks | None = None) -> None:
        self.links = links or Hooks(runtime)
        self.history = RingHistory()
        self.groups: list[Group] = []
        self.recorders: dict[MemberId, Recorder] = {}
        self._runtime = runtime
        self._store = store
        self._node = RingNode(runtime, store, self.links)
        self._numbers = itertools.count(1)

    async def join(self, timeout_s: float = WITHIN_S) -> Group:
        recorder = Recorder(self.history)
        group = await Group.join(NAME, recorder, self._node, timeout_s)
        self.recorders[group.me] = recorder
        self.groups.append(group)
        self._runtime.watch(group.actor, lambda _: self._ended(group))
        return group

    async def joined(self, count: int) -> list[Group]:
        return [await self.join() for _ in range(count)]

    def _ended(self, group: Group) -> None:
        self.history.ended(group.me)
        self.groups.remove(group)

    def kill(self, group: Group | MemberId) -> None:
        actor = self.links.actor(group) if isinstance(group, MemberId) else group.actor
        self._runtime.exit(actor, "kill")

    def messages(self, group: Group) -> list[bytes]:
        return [message for _, message in self.recorders[group.me].messages]

    async def publish(self, group: Group, is_confirmed: bool = False) -> bytes:
        """Publish another message, and return it; nothing happens if the member has ended."""
        message = b"%d" % next(self._numbers)
        if not group.actor.is_alive:
            return message
        self.history.published(group.me, message)
        try:
            if is_confirmed:
                await group.confirmed_broadcast(message, WITHIN_S)
                view = self.member(group).view
                assert view is not None
                self.history.confirmed(group.me, message, view.alive)
            else:
                await group.broadcast(message)
        except GroupEndedError:
            if group.actor.is_alive:  # it was not killed meanwhile: it has no answer
                raise
        return message

    async def flood(self, group: Group, until: asyncio.Event) -> None:
        """Publish until the event is set or the member has ended."""
        while not until.is_set() and group.actor.is_alive:
            await self.publish(group)
            await asyncio.sleep(0)

    @staticmethod
    def member(group: Group) -> Member:
        """Return the machine in a member's actor."""
        member: Member = group.actor.cell.actor._member  # type: ignore[union-attr]
        return member

    @staticmethod
    def trouble(group: Group) -> str:
        """Return what the member says of the store of records."""
        trouble: str = group.actor.cell.actor._transactor.trouble  # type: ignore[union-attr]
        return trouble

    async def record(self) -> Record | None:
        """Return the record as it is in the store; wait while that is not available."""
        while True:
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._store.read(NAME, answer.set_result)
            found = await answer
            if isinstance(found, Stored):
                return found.group
            await asyncio.sleep(0.05)

    async def rests(self) -> None:
        """Have every member confirm a message, wait until nothing is under way, and judge the history."""
        await asyncio.gather(*(self.publish(group, is_confirmed=True) for group in self.groups))
        for _ in range(1000):
            record = await self.record()
            if record is not None and not self._unrest(record):
                break
            await asyncio.sleep(0.03)
        else:
            raise AssertionError(self._unrest(record) if record is not None else "no record")
        assert self.history.violations(group.me for group in self.groups) == []

    def _unrest(self, record: Record) -> list[str]:
        """Return what is not as it must be at rest."""
        found = [f"dead in {record}"] if len(record.alive()) < len(record.entries) else []
        if set(record.alive()) != {group.me for group in self.groups}:
            found.append(f"{record} has not the members {[str(each.me) for each in self.groups]}")
        for group in self.groups:
            member = self.member(group)
            if member.view is None or member.view.stamp != record.stamp:
                found.append(f"{group.me} has not seen {record.stamp}")
            if member.pending:
                found.append(f"{group.me} keeps {member.pending}")
        return found


async def hears(ring: LiveRing, group: Group, *dead: MemberId) -> None:
    """Wait until a member has heard of these deaths."""
    deaths = ring.recorders[group.me].deaths
    await eventually(lambda: set(dead) <= set(deaths), within_s=WITHIN_S)
