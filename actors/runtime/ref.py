"""The address of an actor: one incarnation, never used again after it died."""

from __future__ import annotations

from typing import Final

from thespian.actors import ActorAddress

from leveret.actors.runtime.cell import DEAD, DEAD_CELL, Cell


class Ref(ActorAddress):  # type: ignore[misc]  # Thespian has no types
    """The address of one incarnation of an actor.

    Refs are made by the runtime, one per actor, and compared by identity; unlike Thespian's own
    addresses they can be keys of a dict. A successor started by a supervisor has another ref.

    Attributes:
        cell: the runtime's part; the common dead cell once the actor died.
        node: name and creation number of the runtime, ``name/creation``.
        num: number within the node, never given twice.
    """

    __slots__ = ("cell", "node", "num")

    def __init__(self, node: str, num: int, cell: Cell) -> None:  # the base keeps nothing we need
        self.node = node
        self.num = num
        self.cell = cell

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    @property
    def is_alive(self) -> bool:
        return not self.cell.state & DEAD

    @property
    def addressDetails(self) -> str:  # noqa: N802  # Thespian's name
        return f"({self.node}.{self.num})"

    @property
    def actorAddressString(self) -> str:  # noqa: N802  # Thespian's name
        return self.addressDetails

    def __str__(self) -> str:
        return self.addressDetails

    def __repr__(self) -> str:
        return f"<Ref {self.cell.describe() if self.is_alive else 'dead'} {self.addressDetails}>"


TIMER: Final = Ref("timer", 0, DEAD_CELL)  # the sender of mails that an actor's own timer sends
