"""Simulated links between members, in virtual time.

The contract is that of links between nodes: what one member sends another arrives in order, without a gap or a copy.
When one ends, or the link between their nodes is cut, the other hears of it after all that has arrived, and nothing
comes from that incarnation any more. Members that start later on nodes whose link was cut and healed have new links.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Protocol

from leveret.gm.records.group import MemberId
from leveret.gm.ring.frames import Frame

if TYPE_CHECKING:
    from leveret.core.clock import TimerLoop


class Receiver(Protocol):
    """A member, as the network reaches it."""

    def receive(self, sender: MemberId, frame: Frame) -> None:
        """Take a frame."""

    def down(self, peer: MemberId, reason: object) -> None:
        """Hear of an end."""


class _Pipe:
    """One direction of a link: when its last frame arrives, and when it was or will be closed."""

    __slots__ = ("closes_s", "frames", "last_s", "reason", "watched")

    def __init__(self) -> None:
        self.last_s = 0.0
        self.closes_s: float | None = None
        self.reason: object = None
        self.watched = False
        self.frames: deque[Frame] = deque()


class Network:
    """Links between the members of one or more rings.

    Args:
        clock: for the delays.
        random: for the delays.
        delay_s: the longest way of a frame.
        now_s: tells the time of ``clock``.
        carry: what a frame becomes on its way; as it is by default.

    Attributes:
        frames: how many were sent.
    """

    def __init__(
        self,
        clock: TimerLoop,
        now_s: Callable[[], float],
        random: Random,
        delay_s: float = 0.01,
        carry: Callable[[Frame], Frame] = lambda frame: frame,
    ) -> None:
        self._clock = clock
        self._now_s = now_s
        self._random = random
        self._delay_s = delay_s
        self._carry = carry
        self._receivers: dict[MemberId, Receiver] = {}
        self._pipes: dict[tuple[MemberId, MemberId], _Pipe] = {}
        self._cut_nodes: set[frozenset[str]] = set()
        self.frames = 0

    def add(self, member: MemberId, receiver: Receiver) -> None:
        self._receivers[member] = receiver

    def remove(self, member: MemberId, reason: object) -> None:
        """End a member: a part of what it has sent may still arrive."""
        del self._receivers[member]
        for (sender, to), pipe in self._pipes.items():
            if sender == member and to in self._receivers:
                self._close(sender, to, pipe, reason)

    def cut(self, one: str, other: str) -> None:
        """Cut the link between two nodes."""
        self._cut_nodes.add(frozenset((one, other)))
        for (sender, to), pipe in self._pipes.items():
            if {sender.node, to.node} == {one, other}:
                self._close(sender, to, pipe, "noconnection")

    def heal(self, one: str, other: str) -> None:
        """Connect two nodes again; members that were cut off stay so."""
        self._cut_nodes.discard(frozenset((one, other)))

    def send(self, sender: MemberId, to: MemberId, frame: Frame) -> None:
        pipe = self._pipe(sender, to)
        if pipe.closes_s is not None:
            return
        self.frames += 1
        at_s = max(pipe.last_s, self._now_s() + self._random.random() * self._delay_s)
        pipe.last_s = at_s
        pipe.frames.append(self._carry(frame))
        self._clock.call_later(at_s - self._now_s(), self._arrive, pipe, sender, to)

    def monitor(self, watcher: MemberId, peer: MemberId) -> None:
        pipe = self._pipe(peer, watcher)
        pipe.watched = True
        if pipe.closes_s is not None:
            delay_s = max(0.0, pipe.closes_s - self._now_s())
            self._clock.call_later(delay_s, self._tell, pipe, peer, watcher)

    def demonitor(self, watcher: MemberId, peer: MemberId) -> None:
        self._pipe(peer, watcher).watched = False

    def _pipe(self, sender: MemberId, to: MemberId) -> _Pipe:
        pipe = self._pipes.get((sender, to))
        if pipe is None:
            pipe = self._pipes[sender, to] = _Pipe()
            if sender not in self._receivers or to not in self._receivers:
                pipe.closes_s, pipe.reason = self._now_s(), "noproc"
            elif frozenset((sender.node, to.node)) in self._cut_nodes:
                pipe.closes_s, pipe.reason = self._now_s(), "noconnection"
        return pipe

    def _close(self, sender: MemberId, to: MemberId, pipe: _Pipe, reason: object) -> None:
        if pipe.closes_s is not None:
            return
        delay_s = self._random.random() * self._delay_s
        if isinstance(reason, str) and reason in {"killed", "noconnection"}:
            pipe.closes_s = self._now_s() + delay_s
        else:  # an orderly end: everything arrives
            pipe.closes_s = max(pipe.last_s, self._now_s()) + delay_s
        pipe.reason = reason
        self._clock.call_later(pipe.closes_s - self._now_s(), self._tell, pipe, sender, to)

    def _tell(self, pipe: _Pipe, peer: MemberId, watcher: MemberId) -> None:
        receiver = self._receivers.get(watcher)
        if pipe.watched and receiver is not None:
            pipe.watched = False
            receiver.down(peer, pipe.reason)

    def _arrive(self, pipe: _Pipe, sender: MemberId, to: MemberId) -> None:
        frame = pipe.frames.popleft()
        receiver = self._receivers.get(to)
        if receiver is None or (pipe.closes_s is not None and self._now_s() > pipe.closes_s):
            return
        receiver.receive(sender, frame)
