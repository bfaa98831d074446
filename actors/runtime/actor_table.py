"""The live actors of a runtime and their names."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Final

from leveret.actors.runtime.ref import IDLE, REMOTE, Cell
from leveret.core import small_set
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leveret.actors.runtime.ref import Ref

# A dict with its keys takes less than 100 bytes for each; one that has lost most of its keys keeps their room.
_BYTES_PER_ACTOR: Final = 256
_SMALL_TABLE_ACTORS: Final = 256  # not worth a copy


class ActorTable:
    """Cells by number, in the order of their start, and refs by name.

    Attributes:
        live: cells by the numbers of their actors, in the order of their start.
        on_empty: called when the last actor has ended, if set.
    """

    def __init__(self) -> None:
        self.on_empty: Callable[[], None] | None = None
        self.live: dict[int, Cell] = {}
        self._names: dict[str, Ref] = {}
        self._swept_to = 0

    def remove(self, cell: Cell) -> None:
        """Forget an actor that ends, and free its names."""
        self.live.pop(cell.ref.num, None)
        if cell.names is not None:
            for name in small_set.items(cell.names):
                self._names.pop(name, None)

    def cells(self) -> Iterator[Cell]:
        """Iterate over the cells of a moment, in the order of their start."""
        return iter(list(self.live.values()))

    def register(self, name: str, ref: Ref) -> None:
        """Give an actor a name until it ends; ActorError: the name is taken or it is dead."""
        if name in self._names:
            raise ActorError(f"name {name!r} is taken by {self._names[name]!r}")
        if not ref.is_alive:
            raise ActorError(f"cannot name the dead actor {ref} {name!r}")
        if ref.cell.state & REMOTE:
            raise ActorError(f"{ref!r} is on another node: register {name!r} there")
        self._names[name] = ref
        ref.cell.names = small_set.add(ref.cell.names, name)

    def unregister(self, name: str) -> None:
        """Free a name; an unknown one is fine."""
        ref = self._names.pop(name, None)
        if ref is not None:
            ref.cell.names = small_set.discard(ref.cell.names, name)

    def whereis(self, name: str) -> Ref | None:
        return self._names.get(name)

    def by_number(self, number: int) -> Ref | None:
        """Return the live actor of that number."""
        cell = self.live.get(number)
        return None if cell is None else cell.ref

    def sweep(self, actors_max: int | None = None) -> int:
        """Give back the empty mailboxes of idle actors, about 700 bytes each; return how many.

        The table itself gives back the room of actors that have ended.

        Args:
            actors_max: look at no more than so many actors; the next call goes on near the last one
                (places shift when actors end).
        """
        first = self._swept_to
        if actors_max is None or first >= len(self.live):
            first = 0
        last = len(self.live) if actors_max is None else first + actors_max
        self._swept_to = last
        swept = 0
        for cell in islice(self.live.values(), first, last):
            if cell.state == IDLE and not cell.inbox and not cell.levels:
                swept += cell.inbox is not None
                cell.inbox = cell.levels = None
        if sys.getsizeof(self.live) > _BYTES_PER_ACTOR * max(len(self.live), _SMALL_TABLE_ACTORS):
            self.live = dict(self.live)
        return swept
