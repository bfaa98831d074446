"""Birth and death of actors.

``start_link`` is Erlang's: the new actor runs ``init`` at once and nested in the caller, linked
before ``init``, and the result comes through ``then``; children started inside ``init`` nest.

An actor's end, in this order: ``terminate`` runs (not after a kill); names are freed, timers and
monitors cancelled; waiting mail becomes dead letters; the instance's attributes are dropped, so
that no cycle keeps messages alive; links and monitors are told; a start that was not acknowledged
has failed. Nothing here recurses along links: whoever dies of a signal does so in its own turn.

Differs from OTP: ``terminate`` also runs when an actor that does not trap exits dies of a signal,
and a parent that does not trap exits is not ended by a child whose start fails; it has ``then``.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from typing import TYPE_CHECKING, Any

from leveret.actors.actor import OtpActor
from leveret.actors.runtime import links, timers
from leveret.actors.runtime.cell import (
    ACTIVE,
    COROUTINES,
    DEAD,
    DEAD_CELL,
    DOOMED,
    PRIORITY,
    UNACKED,
    Cell,
)
from leveret.actors.runtime.inline import InlineCalls
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.scheduler import reason_of
from leveret.actors.runtime.signals import (
    IGNORE,
    LATER,
    NORMAL,
    Ignored,
    Started,
    StartError,
    StartFailed,
    StartResult,
)
from leveret.actors.runtime.small_set import items_of, with_item, without_item
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)


class Lifecycle(InlineCalls):
    """Starts and ends actors and keeps their names.

    Attributes:
        name: of the node.
        node: name and creation number; part of every address.
        started_count: actors ever started.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None, name: str) -> None:
        super().__init__(loop)
        self.name = name
        self.node = f"{name}/{secrets.randbits(32)}"
        self.started_count = 0
        self._numbers = itertools.count(1)
        self._cells: dict[Cell, None] = {}
        self._names: dict[str, Ref] = {}
        self._is_closed = False
        self._on_empty: Callable[[], None] | None = None

    # Start.

    def spawn(
        self,
        actor_class: type,
        *args: object,
        name: str = "",
        label: str | Callable[[], str] = "",
    ) -> Ref:
        """Start an actor that nobody is linked with.

        Raises:
            StartError: ``init`` failed, or the name is taken.
        """
        outcome: list[StartResult] = []
        ref = self.start_link(None, actor_class, args, outcome.append, label, name)
        if outcome and isinstance(outcome[0], StartFailed):
            raise StartError(outcome[0].reason)
        return ref

    def start_link(
        self,
        parent: Ref | None,
        actor_class: type,
        args: tuple[Any, ...],
        then: Callable[[StartResult], None],
        label: str | Callable[[], str] = "",
        name: str = "",
    ) -> Ref:
        """Start an actor linked with ``parent``; ``then`` gets the outcome, once.

        ``then`` is called before this returns unless ``init`` returns LATER; in that case it is
        called, as code of the parent, when the actor calls ``started`` or dies before.

        Returns:
            The address, which is dead already if the start failed or was ignored.
        """
        if self._is_closed:
            raise ActorError("the runtime is shut down")
        if not issubclass(actor_class, OtpActor):
            from leveret.actors.runtime.thespian_host import ThespianHost  # noqa: PLC0415  # it imports us

            actor_class, args = ThespianHost, (actor_class,)
        cell = self._new_cell(actor_class, label)
        if parent is not None:
            if not parent.is_alive:
                raise ActorError(f"parent {parent} is dead")
            cell.parent = parent
            links.link(cell, parent.cell)
        ref = cell.ref
        self._cells[cell] = None
        self.started_count += 1
        cell.starting = then
        cell.state = ACTIVE
        if name and name in self._names:
            self.end(cell, ("already_started", self._names[name]), is_graceful=False)
            return ref
        if name:
            self.register(name, ref)
        self._init(cell, args)
        return ref

    def _new_cell(self, actor_class: type[OtpActor], label: str | Callable[[], str]) -> Cell:
        cell = Cell()
        cell.ref = Ref(self.node, next(self._numbers), cell)
        cell.runtime = self
        cell.label = label
        cell.kind = UNACKED
        if actor_class.async_handlers:
            cell.kind |= COROUTINES
        if hasattr(actor_class, "prioritise"):
            cell.kind |= PRIORITY
        cell.actor = actor = actor_class()
        actor.ref = cell.ref
        actor.runtime = self  # type: ignore[assignment]  # Runtime is the one class below us
        return cell

    def _init(self, cell: Cell, args: tuple[Any, ...]) -> None:
        try:
            value = cell.actor.init(*args)
        except BaseException as error:  # whatever it is, the start failed
            self.end(cell, reason_of(error, cell), is_graceful=False)
            if isinstance(error, KeyboardInterrupt):
                raise
            return
        if value is IGNORE:
            self.ignore(cell)
        elif value is LATER or cell.starting is None or cell.state & DOOMED:
            self._leave(cell)
        else:
            then, cell.starting = cell.starting, None
            cell.kind &= ~UNACKED
            self._leave(cell)
            self._tell(cell.parent, then, Started(cell.ref, value))

    def ignore(self, cell: Cell) -> None:
        """End an actor whose start is not acknowledged as one that returned IGNORE."""
        parent, then = cell.parent, cell.starting
        cell.starting = None
        self._unlink_parent(cell)
        self.end(cell, NORMAL, is_graceful=False)
        if then is not None:
            self._tell(parent, then, Ignored())

    def acknowledge(self, cell: Cell, value: object) -> None:
        """Report the start of an actor whose ``init`` returned, or will return, LATER."""
        then, cell.starting = cell.starting, None
        if then is None:
            raise ActorError(f"{cell.describe()} has acknowledged its start already")
        cell.kind &= ~UNACKED
        self._tell(cell.parent, then, Started(cell.ref, value))

    def _tell(
        self, parent: Ref | None, then: Callable[[StartResult], None], result: StartResult
    ) -> None:
        """Run ``then`` as code of the parent."""
        if parent is not None:
            if parent.is_alive:
                self.run_as(parent, then, result)
            return
        try:
            then(result)
        except Exception as error:  # noqa: BLE001  # it is nobody's code
            self._report("callback of a start failed", error)

    # End.

    def end(self, cell: Cell, reason: object, is_graceful: bool = True) -> None:
        """End an actor now, whatever it has waiting."""
        if is_graceful:
            reason = self._terminate(cell, reason)
        cell.state, cell.doom = DEAD, reason
        ref, parent, then = cell.ref, cell.parent, cell.starting
        if then is not None:
            self._unlink_parent(cell)
        ref.cell = DEAD_CELL
        self._cells.pop(cell, None)
        self._free(cell)
        linked = () if cell.links is None else links.leave_links(cell)
        watchers = () if cell.watchers is None else links.leave_watchers(cell)
        self._empty(cell)
        for other in linked:
            if other.is_alive:
                self._signal(other.cell, reason, ref, may_ignore=True)
        for watcher in watchers:
            watcher.tell(reason)
        if then is not None:
            self._tell(parent, then, StartFailed(reason))
        if not self._cells and self._on_empty is not None:
            self._on_empty()

    def _terminate(self, cell: Cell, reason: object) -> object:
        """Run ``terminate`` and return the final reason."""
        cell.state |= ACTIVE
        try:
            cell.actor.terminate(reason)
        except BaseException as error:  # noqa: BLE001  # it is dying anyhow
            return reason_of(error, cell)
        return reason

    def _free(self, cell: Cell) -> None:
        """Give back the names, timers and monitors of a dying actor; most have none."""
        if cell.names is not None:
            for name in items_of(cell.names):
                self._names.pop(name, None)
        if cell.timers is not None:
            timers.cancel_all(cell)
        if cell.monitors is not None:
            links.leave_monitors(cell)

    def _empty(self, cell: Cell) -> None:
        """Drop everything a dead actor held."""
        task, cell.task = cell.task, None
        if task is not None:
            task.cancel()
        waiting = [*(cell.inbox or ()), *(cell.levels or ())] if cell.has_mail() else ()
        actor = cell.actor
        cell.inbox = cell.levels = cell.actor = cell.parent = cell.starting = cell.names = None
        cell.label = ""
        actor.drop_attributes()
        for message, sender in waiting:
            self._dead_letter(message, sender)

    @staticmethod
    def _unlink_parent(cell: Cell) -> None:
        if cell.parent is not None:
            links.unlink(cell, cell.parent.cell)

    # Names.

    def register(self, name: str, ref: Ref) -> None:
        """Give a live actor a name; it is freed when the actor ends.

        Raises:
            ActorError: the name is taken or the actor dead.
        """
        if name in self._names:
            raise ActorError(f"name {name!r} is taken by {self._names[name]!r}")
        if not ref.is_alive:
            raise ActorError(f"cannot name the dead actor {ref} {name!r}")
        self._names[name] = ref
        ref.cell.names = with_item(ref.cell.names, name)

    def unregister(self, name: str) -> None:
        """Free a name; one that nobody has is fine."""
        ref = self._names.pop(name, None)
        if ref is not None:
            ref.cell.names = without_item(ref.cell.names, name)

    def whereis(self, name: str) -> Ref | None:
        """Return who has the name."""
        return self._names.get(name)

    # What there is.

    @property
    def is_closed(self) -> bool:
        """Whether it is shut down, or is being shut down: nothing can be started any more."""
        return self._is_closed

    @property
    def actor_count(self) -> int:
        """How many actors are alive."""
        return len(self._cells)

    def cells(self) -> Iterator[Cell]:
        """Iterate over the live actors' cells, in the order of their start."""
        return iter(list(self._cells))
