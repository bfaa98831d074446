"""Addresses of actors on other nodes.

A ``RemoteRef`` is sent to, monitored, linked with and ended as any other address. Its cell is not an actor: the cell's
mailbox is the way to the other node, so that a mail is written to the link in its sender's turn, and a send to an
actor of this node has no further test. Nothing is kept for an address that nobody holds.

An address belongs to one incarnation of the other node: when the link to it breaks, the cell becomes ``LOST_CELL`` for
good, whose monitors and calls end at once with ``noconnection``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from leveret.actors.runtime.cell import COROUTINES, REMOTE, Cell
from leveret.actors.runtime.ref import Ref

if TYPE_CHECKING:
    from leveret.actors.runtime.cell import Mail


class RemoteInbox(Protocol):
    """The mailbox of a remote actor: always empty, because mail put into it goes over the link."""

    def append(self, mail: Mail) -> None:
        """Send a mail; an ``Exit`` from a dead sender is the end of a linked actor."""

    def watch(self) -> None:
        """Have the other node tell of the actor's end."""

    def link(self, local: Ref) -> None:
        """Tell the other node that an actor of this one is linked with the actor."""

    def unlink(self, local: Ref) -> None:
        """Tell the other node that it is not any more."""

    def __len__(self) -> int:
        """Return 0."""

    def __iter__(self) -> Iterator[Mail]:
        """Iterate over nothing."""


class _Remote:
    """In the place of an actor's instance: exit signals are mail for the link."""

    trap_exits: Final = True


_REMOTE: Final = _Remote()


class RemoteRef(Ref):
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
