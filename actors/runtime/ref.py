"""The address of an actor: one incarnation, never used again after it died."""

from __future__ import annotations

from leveret.actors.runtime.cell import DEAD, Cell
from leveret.core.mypyc import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Ref:
    """The address of one incarnation of an actor, as all code but Thespian's sees it; each is an ``ActorRef``.

    Attributes:
        cell: the runtime's part; the common dead cell once the actor died.
        node: name and creation number of the runtime, ``name/creation``.
        num: number within the node, never given twice.
    """

    __slots__ = ("cell", "node", "num")

    def __init__(self, node: str, num: int, cell: Cell) -> None:
        self.cell = cell
        self.node = node
        self.num = num

    @property
    def is_alive(self) -> bool:
        return not self.cell.state & DEAD

    def __str__(self) -> str:
        return f"({self.node}.{self.num})"

    def __repr__(self) -> str:
        return f"<Ref {self.cell.describe() if self.is_alive else 'dead'} {self}>"
