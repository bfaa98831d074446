"""Deletions: the removals of a vhost's topology that take more than one step.

A deletion takes effect in memory at once. Its bindings are dropped in steps (``routing/topology.py``), the first in
the turn of the deleting actor, each other one after a drain of the run queue, so that clients are served between two
steps; several deletions take turns. Rows are deleted with the step that removes their objects, the row of the deleted
queue or exchange with the first: after a crash at any step, the object is either there with all its bindings
or gone, and a start deletes the rows of bindings that lack an end (``VHost.forget_bindings``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.mail import ExchangeDeleted
from leveret.broker.script import Steps, Until
from leveret.broker.vhost.rows import exchange_row
from leveret.metadata.tables import BindingKey
from leveret.routing.delayed import queue_of

if TYPE_CHECKING:
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.vhost.metadata.metadata_writer import MetadataWriter
    from leveret.metadata.tables import Row
    from leveret.routing.topology import Removal, Removed, Topology

BINDINGS_PER_TURN: Final = 1_000  # of a deletion; long keys and arguments count for more


class Deletions:
    """The unfinished deletions of one vhost.

    Args:
        writes_all: objects that are not durable have rows, too: the vhost is one of a cluster.
    """

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataWriter,
        topology: Topology[Any],
        writes_all: bool,
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._topology = topology
        self._writes_all = writes_all
        self._under_way: deque[tuple[object, Removal, bool]] = deque()
        self._waiting: list[tuple[Callable[[], bool], Callable[[Any], None]]] = []

    def begin(self, target: object, removal: Removal, is_own: bool = True) -> list[Row]:
        """Take the first step; return the rows to delete now.

        Args:
            target: the queue entry or exchange.
            removal: of the topology.
            is_own: this node deletes the rows; else another does.
        """
        rows = self.removed_rows(self._topology.step(removal, BINDINGS_PER_TURN))
        if not removal.is_done:
            self._under_way.append((target, removal, is_own))
            if len(self._under_way) == 1:
                self._runtime.after_drain(self._step)
        return rows

    def ended(self, target: object) -> Steps:
        """Wait until all bindings of this deleted queue or exchange are dropped."""
        removal = next((own for each, own, _ in self._under_way if each is target), None)
        if removal is not None:
            yield from self._until(lambda: removal.is_done)

    def name_free(self, kind: str, name: str) -> Steps:
        """Wait until no deleted queue or exchange of this name has bindings any more."""
        if self._topology.is_leaving(kind, name):
            yield from self._until(lambda: not self._topology.is_leaving(kind, name))

    def all_ended(self) -> Steps:
        """Wait for the deletions that are under way now."""
        for target, *_ in list(self._under_way):
            yield from self.ended(target)

    def finish(self, kind: str, name: str) -> None:
        """Drop now all bindings of deleted queues or exchanges of this name: another node uses it again already."""
        if not self._topology.is_leaving(kind, name):
            return
        while self._topology.is_leaving(kind, name):
            self._drop_some()
        # A script that waits for this resumes when the other node's queue or exchange is in memory.
        self._runtime.after_drain(self._tell_waiting)

    def removed_rows(self, removed: Removed) -> list[Row]:
        """Return the rows of the objects that a step has removed; notify the queues of delayed exchanges."""
        topology, writes_all = self._topology, self._writes_all
        rows: list[Row] = [
            BindingKey(topology.vhost, each.source, *each.identity)
            for each in removed.bindings
            if each.is_durable or writes_all
        ]
        rows += [
            exchange_row(topology.vhost, each)
            for each in removed.exchanges
            if each.durable or writes_all
        ]
        for exchange in removed.exchanges:
            entry = topology.queues.get(queue_of(exchange.name))
            if entry is not None and entry.ref is not None and not entry.is_remote:
                self._runtime.send(entry.ref, ExchangeDeleted())
        return rows

    def _until(self, is_over: Callable[[], bool]) -> Steps:
        while not is_over():
            yield Until(lambda resume: self._waiting.append((is_over, resume)))

    def _step(self) -> None:
        if self._under_way:  # else ``finish`` has done it
            self._drop_some()
            self._tell_waiting()

    def _drop_some(self) -> None:
        target, removal, is_own = self._under_way.popleft()
        rows = self.removed_rows(self._topology.step(removal, BINDINGS_PER_TURN))
        if not removal.is_done:
            self._under_way.append((target, removal, is_own))
        if self._under_way:
            self._runtime.after_drain(self._step)
        if not is_own:
            self._metadata.delete_left(rows)
        elif rows:
            self._metadata.delete_later(rows)

    def _tell_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            is_over, resume = each
            if is_over():
                resume(None)
            else:
                self._waiting.append(each)
