"""Records of groups for several nodes, kept by one of them: an actor with a ``MemoryGroupStore``.

For examples, tests and clusters of which one node outlives the others. Its records are lost with it; a cluster whose
nodes may all fail keeps them in a store that survives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from leveret.actors.gen_server import From, GenServer
from leveret.actors.links.sendable import message
from leveret.actors.links.server import WhereIs
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import CallFailed
from leveret.gm.records.codec import pack, unpack
from leveret.gm.records.group import NEW_EPOCH, Group
from leveret.gm.records.memory_store import MemoryGroupStore
from leveret.gm.records.store import Conflict, Stored, Then, Unavailable

if TYPE_CHECKING:
    from leveret.actors.links.node import Node

_TIMEOUT_S = 5.0


@message
@dataclass(frozen=True, slots=True)
class ReadRecord:
    """Answered with a ``Record``."""

    name: str


@message
@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Answered with a ``Record``; ``packed`` None: delete it."""

    name: str
    packed: bytes | None
    revision: int


@message
@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is in the store; ``is_conflict``: nothing was written, because it has this revision."""

    packed: bytes | None
    revision: int
    is_conflict: bool


class GroupStoreServer(GenServer):
    """Keeps the records; spawned with the name by which ``LinkedGroupStore`` finds it."""

    def init(self) -> None:
        self._store = MemoryGroupStore()

    def handle_call(self, request: Any, frm: From | None) -> Any:
        found: list[Stored | Conflict | Unavailable] = []
        if isinstance(request, ReadRecord):
            self._store.read(request.name, found.append)
        elif isinstance(request, WriteRecord):
            group = None if request.packed is None else unpack(request.packed, NEW_EPOCH)
            self._store.write(request.name, group, request.revision, found.append)
        else:
            return super().handle_call(request, frm)
        (answer,) = found
        stored = answer.stored if isinstance(answer, Conflict) else answer
        assert isinstance(stored, Stored)
        packed = None if stored.group is None else pack(stored.group)
        return Record(packed, stored.revision, isinstance(answer, Conflict))


class _Asker(GenServer):
    """Asks the server, which it finds by its name."""

    def init(self, node: Node, server: tuple[str, str]) -> None:
        self._node = node
        self._name, self._at = server
        self._server: Ref | None = None

    def ask(self, request: object, then: Callable[[Any], object]) -> None:
        if self._server is not None and self._server.is_alive:
            self.call(self._server, request, then, _TIMEOUT_S)
            return
        found = partial(self._found, request, then)
        self.call(self._node.server_of(self._at), WhereIs(self._name), found, _TIMEOUT_S)

    def _found(self, request: object, then: Callable[[Any], object], server: Any) -> None:
        if isinstance(server, Ref):
            self._server = server
            self.call(server, request, then, _TIMEOUT_S)
        else:
            then(server if isinstance(server, CallFailed) else CallFailed("noproc"))


class LinkedGroupStore:
    """A ``GroupStore`` on another node, or this one.

    Args:
        node: this one.
        name: of the server's actor.
        at: name of its node.
    """

    def __init__(self, node: Node, name: str, at: str) -> None:
        self._runtime = node.runtime
        self._asker = node.runtime.spawn(_Asker, node, (name, at), label=f"group store:{name}@{at}")

    def read(self, name: str, then: Then) -> None:
        self._ask(ReadRecord(name), then)

    def write(self, name: str, group: Group | None, revision: int, then: Then) -> None:
        self._ask(WriteRecord(name, None if group is None else pack(group), revision), then)

    def _ask(self, request: object, then: Then) -> None:
        if self._asker.is_alive:
            actor: _Asker = self._asker.cell.actor
            self._runtime.run_as(self._asker, actor.ask, request, partial(_answered, then))
        else:
            then(Unavailable("the node is shut down"))


def _answered(then: Then, answer: Any) -> None:
    if not isinstance(answer, Record):
        then(Unavailable(f"the store does not answer: {answer!r}"))
        return
    group = None if answer.packed is None else unpack(answer.packed, answer.revision)
    stored = Stored(group, answer.revision)
    then(Conflict(stored) if answer.is_conflict else stored)
