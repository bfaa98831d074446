"""Links between the actors of members.

The contract, for members on one node and for those on several:

* what one member sends another arrives in order, without a gap or a copy, or not at all from some point on;
* those who monitor a member get its end after everything that it sent;
* after that, nothing of it arrives any more. If the link between two nodes breaks, the members of each node have
  ended for the members of the other, with the reason ``noconnection``, also after the nodes are linked again;
* a reason other than ``noconnection`` says that the member has ended indeed, wherever it was reached from. The end of a
  node that does not come back must be found out by other means, such as the end of its lease.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leveret.actors.runtime.actor_ref import ActorRef
from leveret.actors.runtime.links import unwatch, watch
from leveret.actors.runtime.ref import DEAD_CELL, Ref
from leveret.actors.runtime.signals import MonitorRef
from leveret.gm.records.group import MemberId
from leveret.gm.ring.frames import Frame

if TYPE_CHECKING:
    from leveret.actors.runtime.runtime import Runtime


class FromPeer(NamedTuple):
    """Mail: a frame from another member."""

    sender: MemberId
    frame: Frame


class PeerDown(NamedTuple):
    """Mail: a monitored member has ended, or cannot be reached any more."""

    peer: MemberId
    reason: object


class Links(Protocol):
    """Carries frames between members. A member gets ``FromPeer`` and ``PeerDown`` as mail."""

    def open(self, actor: Ref) -> MemberId:
        """Return the name under which an actor of this node is a member, until it ends."""

    def send(self, sender: MemberId, to: MemberId, frame: Frame) -> None:
        """Send a frame; it is lost if ``to`` has ended."""

    def monitor(self, watcher: MemberId, peer: MemberId) -> None:
        """Send ``watcher`` one ``PeerDown`` when ``peer`` ends, or at once if it has."""

    def demonitor(self, watcher: MemberId, peer: MemberId) -> None:
        """Take the monitor back; a ``PeerDown`` may be on its way."""


class _PeerMonitor(MonitorRef):
    """Monitors a member."""

    __slots__ = ("_peer",)

    def __init__(self, watcher: Ref, target: Ref, peer: MemberId) -> None:
        super().__init__(watcher, target)
        self._peer = peer

    def mail(self, reason: object) -> object:
        return PeerDown(self._peer, reason)


class ActorLinks:
    """Links between members by mail of their actors.

    Args:
        runtime: of this node's members.
        find: returns the actor of the second member, as the first may reach it; a dead address if it may not.
    """

    def __init__(self, runtime: Runtime, find: Callable[[MemberId, MemberId], Ref]) -> None:
        self._runtime = runtime
        self._find = find
        self._monitors: dict[MemberId, dict[MemberId, _PeerMonitor]] = {}

    def open(self, actor: Ref) -> MemberId:
        member = MemberId(actor.node, actor.num)
        self._monitors[member] = {}
        self._runtime.watch(actor, lambda _: self._close(member))
        return member

    def _close(self, member: MemberId) -> None:
        del self._monitors[member]

    def send(self, sender: MemberId, to: MemberId, frame: Frame) -> None:
        own = self._runtime.by_number(sender.number)
        self._runtime.send(self._find(sender, to), FromPeer(sender, frame), own)

    def monitor(self, watcher: MemberId, peer: MemberId) -> None:
        self.demonitor(watcher, peer)
        own = self._runtime.by_number(watcher.number)
        if own is not None:
            monitor = _PeerMonitor(own, self._find(watcher, peer), peer)
            self._monitors[watcher][peer] = monitor
            watch(monitor)

    def demonitor(self, watcher: MemberId, peer: MemberId) -> None:
        monitor = self._monitors.get(watcher, {}).pop(peer, None)
        if monitor is not None:
            unwatch(monitor)


def local_links(runtime: Runtime) -> ActorLinks:
    """Return links between the members of one runtime. Frames travel as they are."""

    def find(_: MemberId, member: MemberId) -> Ref:
        return runtime.by_number(member.number) or ActorRef(member.node, member.number, DEAD_CELL)

    return ActorLinks(runtime, find)
