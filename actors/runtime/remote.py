"""Addresses of actors on other nodes, and the ways there.

A ``RemoteRef`` is sent to, monitored, linked with and ended as any other address. Its cell is not an actor: the cell's
mailbox is the way to the other node, so that a mail is written to the link in its sender's turn, and a send to an
actor of this node has no further test. Nothing is kept for an address that nobody holds.

An address belongs to one incarnation of the other node: when the link to it breaks, the cell becomes ``LOST_CELL`` for
good, whose monitors and calls end at once with ``noconnection``.

A process that this one has started is a node as well; its name is this node's with a dot and a number. So a node need
know only its neighbours: what is below it goes to the process of that name, what is below a linked node goes to that
node, and a process gives all else to its parent (``Routes``). Each step goes towards the node, so mail cannot go round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

from leveret.actors.runtime.actor_ref import ActorRef
from leveret.actors.runtime.ref import COROUTINES, DEAD_CELL, LOST_CELL, REMOTE, Cell, Ref

if TYPE_CHECKING:
    from leveret.actors.runtime.inbox import Mail

Target: TypeAlias = int | tuple[str, int]
"""An actor as a neighbour knows it: by its number there, or by node and number if it is behind the neighbour."""


class RemoteInbox(Protocol):
    """The mailbox of a remote actor: always empty, because mail put into it goes over the link."""

    def append(self, mail: Mail) -> None:
        """Send a mail; an ``Exit`` from a dead sender is the end of a linked actor."""

    def watch(self) -> None:
        """Have the other node tell of the actor's end."""

    def link(self, other: Ref) -> None:
        """Tell the other node that an actor is linked with this one."""

    def unlink(self, other: Ref) -> None:
        """Tell the other node that it is not any more."""

    def end_link(self, reason: object, ended: Ref) -> None:
        """Tell the other node of the end of an actor that was linked with this one."""

    @property
    def is_behind(self) -> bool:
        """Whether the actor is behind the neighbour to which mail goes."""

    def is_waiting(self, sender: Ref | None) -> bool:
        """Whether mail of a sender waits here, for credit or for the socket."""

    def when_written(self, sender: Ref | None, call: Callable[[], None]) -> bool:
        """Call back when all mail of a sender that waits here has left, or is lost; return False if none waits."""

    def __len__(self) -> int:
        """Return 0."""

    def __iter__(self) -> Iterator[Mail]:
        """Iterate over nothing."""


class _Remote:
    """In the place of an actor's instance: exit signals are mail for the link."""

    trap_exits: Final = True


_REMOTE: Final = _Remote()


class RemoteRef(ActorRef):
    """The address of an actor on another node.

    Args:
        node: of the actor, ``name/creation``.
        num: of the actor there.
        inbox: the way to it.
    """

    __slots__ = ()

    def __init__(self, node: str, num: int, inbox: RemoteInbox, turns: Any) -> None:
        cell = Cell()
        cell.state = REMOTE
        cell.kind = COROUTINES  # so that inline calls, which cannot wait, are refused
        cell.actor = _REMOTE
        cell.label = "remote"
        cell.inbox = cast("Any", inbox)
        cell.turns = turns
        super().__init__(node, num, cell)


class Route(Protocol):
    """A neighbour: a linked node, a process of this one, or its parent."""

    def ref(self, target: Target) -> Ref:
        """Return the address of an actor there, or behind it."""

    def answer(self, target: Target, value: object) -> None:
        """Answer a call that came from a task there, or behind it."""


class Routes:
    """The ways from one node to others.

    Args:
        node: this one, ``name/creation``.
        by_number: finds its own actors.

    Attributes:
        parent: the way to the process that has started this one, if there is one.
    """

    def __init__(self, node: str, by_number: Callable[[int], Ref | None]) -> None:
        self.parent: Route | None = None
        self._node = node
        self._by_number = by_number
        self._neighbours: dict[str, Route] = {}
        self._children = count(1)

    def add(self, node: str, route: Route) -> None:
        """Add the way to a neighbour, unless there is one: a process may also dial its parent as a node."""
        self._neighbours.setdefault(node, route)

    def remove(self, node: str, route: Route) -> None:
        """Forget a neighbour that is lost."""
        if self._neighbours.get(node) is route:
            del self._neighbours[node]
        if self.parent is route:
            self.parent = None

    def new_child(self) -> str:
        """Return the name of a process that this one starts, which no other has had."""
        return f"{self._node.rpartition('/')[0]}.{next(self._children)}"

    def ref(self, node: str, number: int) -> Ref:
        """Return the address of an actor of any node; one that is lost if there is no way to the node."""
        if node == self._node:
            return self._by_number(number) or ActorRef(node, number, DEAD_CELL)
        near, route = self._towards(node)
        if route is None:
            return ActorRef(node, number, LOST_CELL)
        return route.ref(number if near == node else (node, number))

    def answer(self, node: str, number: int, value: object) -> None:
        """Answer a call of a task of any node; nothing if there is no way there."""
        near, route = self._towards(node)
        if route is not None:
            route.answer(number if near == node else (node, number), value)

    def _towards(self, node: str) -> tuple[str, Route | None]:
        """Return the neighbour by which a node is reached: itself, one that it is below, or the parent."""
        near = node
        name, _, creation = node.rpartition("/")
        while near != self._node:
            route = self._neighbours.get(near)
            if route is not None:
                return near, route
            name, dot, _ = name.rpartition(".")
            if not dot:
                return "", self.parent
            near = f"{name}/{creation}"
        return near, None
