"""Which nodes serve clients, and up to which revision each has applied the rows.

A node has a key on its lease, with the revision that it has applied (``NodeState.applied``). It *serves* only as long
as its last transaction that found the key in place was sent less than ``valid_s`` ago. So a node whose key is gone, by
whatever cause, serves nobody ``valid_s`` later: it *fades*.

A writer is answered when its revision is *settled*: every node that has a key, or fades, has applied it. Then a client
finds it on any node. A node that has not applied it after ``suspect_s`` is taken for dead: its key is deleted. So a
node that hangs holds up writers for ``suspect_s + valid_s``, once. It may well be alive: then it finds its key gone,
and joins again.

A node that has just loaded cannot know which nodes were taken for dead before. So nothing is settled for it before
``valid_s`` is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from leveret.metadata.etcd.codec import NodeState


class Seen(NamedTuple):
    """A node's key as this node has seen it.

    Attributes:
        state: the value of the key.
        revision: of the last write.
        lease: of the node.
    """

    state: NodeState
    revision: int
    lease: int


class _Fading(NamedTuple):
    applied: int
    until_s: float


class Nodes:
    """The nodes, as one of them sees them.

    Args:
        own: the key of the node that this is.
        suspect_s: how long a node may take to apply a revision that is waited for.
        valid_s: how long a node serves after its last transaction.

    Attributes:
        known: the nodes by key, this one included.
        on_change: called when a node has come or gone, or has another address.
    """

    def __init__(self, own: str, suspect_s: float, valid_s: float) -> None:
        self._own = own
        self._suspect_s = suspect_s
        self._valid_s = valid_s
        self.known: dict[str, Seen] = {}
        self._fading: list[_Fading] = []
        self._waiting: list[tuple[int, int, float, Callable[[], None]]] = []
        self._numbers = count()
        self.on_change: Callable[[], None] = _nobody

    def load(self, found: Mapping[str, Seen], now_s: float, *, is_first: bool = False) -> None:
        """Replace the nodes by those at a revision; ``is_first``: there never was any."""
        self.known = dict(found)
        self._fading = [] if is_first else [_Fading(0, now_s + self._valid_s)]
        self.on_change()

    def put(self, key: str, seen: Seen) -> None:
        """Note that a node has written its key."""
        before = self.known.get(key)
        self.known[key] = seen
        if before is None or _place(before) != _place(seen):
            self.on_change()

    def deleted(self, key: str, now_s: float) -> None:
        """Note that a node's key is gone."""
        seen = self.known.pop(key, None)
        if seen is not None and not seen.state.has_left and key != self._own:
            self._fading.append(_Fading(seen.state.applied, now_s + self._valid_s))
        if seen is not None:
            self.on_change()

    def addresses(self) -> dict[str, str]:
        """Return where the other nodes that serve clients are dialled, by key."""
        return {key: seen.state.address for key, seen in self._others() if seen.state.address}

    def validities(self) -> dict[str, float]:
        """Return ``valid_s`` of the other nodes that serve clients, by key."""
        return {key: seen.state.valid_s for key, seen in self._others()}

    @property
    def has_others(self) -> bool:
        return any(key != self._own for key in self.known)

    @property
    def is_first(self) -> bool:
        """Whether this node does the work that one node does for all, such as collecting garbage."""
        serving = [key for key, seen in self.known.items() if not seen.state.has_left]
        return bool(serving) and min(serving) == self._own

    def wait(self, revision: int, now_s: float, then: Callable[[], None]) -> None:
        """Have ``then`` returned by ``settled`` when all nodes have applied a revision."""
        heappush(self._waiting, (revision, next(self._numbers), now_s, then))

    def settled(self, applied: int, now_s: float) -> list[Callable[[], None]]:
        """Return who has waited for revisions that all nodes have applied now.

        Args:
            applied: the revision that this node has applied.
            now_s: the time.
        """
        if not self._waiting:
            return []
        floor = min([applied, *(seen.state.applied for _, seen in self._others())])
        self._fading = [each for each in self._fading if each.until_s > now_s]
        floor = min([floor, *(each.applied for each in self._fading)])
        done = []
        while self._waiting and self._waiting[0][0] <= floor:
            done.append(heappop(self._waiting)[3])
        return done

    def suspects(self, applied: int, now_s: float) -> list[tuple[str, Seen]]:
        """Return the other nodes that have not applied a revision for too long, by key."""
        late = [
            revision
            for revision, _, since_s, _ in self._waiting
            if revision <= applied and now_s - since_s >= self._suspect_s
        ]
        if not late:
            return []
        return [(key, seen) for key, seen in self._others() if seen.state.applied < min(late)]

    @property
    def is_waited_for(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def _others(self) -> list[tuple[str, Seen]]:
        return [
            (key, seen)
            for key, seen in self.known.items()
            if key != self._own and not seen.state.has_left
        ]


def _place(seen: Seen) -> tuple[str, bool]:
    return seen.state.address, seen.state.has_left


def _nobody() -> None:
    """Nobody wants to know of nodes."""
