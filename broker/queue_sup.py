"""The supervisor of one queue: its pair is one failure unit (SETTLED 2).

``one_for_all`` 5/10: the backing actor (permanent) is started first, then the amqqueue (intrinsic:
its normal end, when the queue is deleted, ends the supervisor). If either crashes both are started
again; beyond five times in ten seconds the queue stays down, ``crashed``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.amqqueue import AmqQueue
from leveret.broker.mail import QueueFailed
from leveret.queue_backing.backing_actor import BackingActor
from leveret.queue_backing.memory_queue import MemoryQueue
from leveret.queue_backing.stored_index import StoredIndex
from leveret.queue_backing.variable_queue import VariableQueue
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor

if TYPE_CHECKING:
    from leveret.broker.queue_registry import QueueEntry
    from leveret.core.clock import Clock
    from leveret.msg_store.msg_store import MsgStore
    from leveret.queue_backing.backing_actor import MakeQueue
    from leveret.queue_backing.backing_queue import BackingQueue
    from leveret.queue_backing.stored_index import IndexOwner

RESTARTS_MAX: Final = 5
WINDOW_S: Final = 10.0
STOP_S: Final = 600.0


def in_memory(owner: IndexOwner) -> BackingQueue:
    """Make the backing of a queue whose messages live as long as the node, or its pair."""
    return MemoryQueue()


def stored(store: MsgStore, queue_no: int, clock: Clock) -> MakeQueue:
    """Return what makes the backing of a queue whose persistent messages are in a store.

    Args:
        store: the vhost's.
        queue_no: the queue's number there.
        clock: the node's.
    """
    client = store.client(queue_no)

    def make(owner: IndexOwner) -> BackingQueue:
        store.queue_down(queue_no)  # what was on its way to a pair before this one is lost
        return VariableQueue(StoredIndex(client, owner), clock)

    return make


class QueueSup(Supervisor):
    """Runs the pair of one queue; started with its registry entry, and what makes its backing."""

    __slots__ = ("_entry", "_is_stopped")

    def init(
        self, entry: QueueEntry, make_backing: MakeQueue = in_memory
    ) -> tuple[SupervisorSpec, tuple[QueueEntry]]:
        """Leave the address in the entry and say what to run."""
        self._entry = entry
        self._is_stopped = False
        entry.supervised(self.ref)
        spec = _IN_MEMORY if make_backing is in_memory else _spec(make_backing)
        return spec, (entry,)

    def _end(self, reason: object, _: object) -> None:
        """End because the vhost does, which may start the queue again."""
        self._is_stopped = True
        super()._end(reason, _)

    def terminate(self, reason: object) -> None:
        """Tell the entry, and by it who waits for the queue; tell its consumers' channels."""
        super().terminate(reason)
        entry = self._entry
        if entry.supervisor is not self.ref:
            return  # a successor runs already
        if self._is_stopped:
            entry.stopped()
        for channel in entry.crashed():
            self.post(channel, QueueFailed(entry))


def _spec(make_backing: MakeQueue) -> SupervisorSpec:
    return SupervisorSpec(
        "one_for_all",
        RESTARTS_MAX,
        WINDOW_S,
        children=(
            ChildSpec("backing", BackingActor, (make_backing,), shutdown=STOP_S),
            ChildSpec("amqqueue", AmqQueue, restart="intrinsic", shutdown=STOP_S),
        ),
    )


_IN_MEMORY: Final = _spec(in_memory)
