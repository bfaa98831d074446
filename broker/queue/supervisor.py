"""QueueSup: the supervisor of one queue, whose pair fails and restarts as one.

``one_for_all`` 5/10: the backing actor (permanent) is started first, then the amqqueue, or DelayQueue (intrinsic:
its normal end, when the queue is deleted, ends the supervisor). If either crashes both are restarted;
after more than five crashes in ten seconds the queue stays down, ``crashed``. A pair whose store has failed is
not restarted: it ends in order, and the vhost starts it anew with its store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.actors.actor import IGNORE
from leveret.actors.runtime.signals import NOPROC, is_exit_of_call
from leveret.broker.queue.amqqueue import AmqQueue
from leveret.broker.queue.delays.delay_queue import DelayQueue
from leveret.broker.queue.storage.factory import in_memory
from leveret.broker.registry.registry import QueueFailed
from leveret.queue_backing.actor import BackingActor
from leveret.supervisors.core import is_shutdown_tuple
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor

if TYPE_CHECKING:
    from leveret.actors.runtime.signals import Exit
    from leveret.broker.registry.registry import QueueEntry
    from leveret.queue_backing.actor import MakeQueue
    from leveret.supervisors.spec import Report

RESTARTS_MAX: Final = 5
WINDOW_S: Final = 10.0
STOP_S: Final = 600.0


class QueueSup(Supervisor):
    """Runs the pair of one queue; its ``init`` takes the registry entry and the factory of the backing."""

    __slots__ = ("_entry", "_is_stopped")

    def init(self, entry: QueueEntry, make_backing: MakeQueue = in_memory) -> object:
        """Leave the address in the entry; return the specification of the pair.

        IGNORE where the queue runs already, as its vhost and a declaration may both have asked for it, or has been
        deleted meanwhile.
        """
        supervisor = entry.supervisor
        if entry.state == "deleted" or (supervisor is not None and supervisor.is_alive):
            return IGNORE
        self._entry = entry
        if entry.account:
            self.charge_to(entry.account)
        self._is_stopped = False
        entry.supervised(self.ref)
        if entry.delayed_exchange is not None:
            return _spec(make_backing, DelayQueue), (entry,)
        spec = _IN_MEMORY if make_backing is in_memory else _spec(make_backing)
        return spec, (entry,)

    def _handle_exit(self, message: Exit) -> None:
        """Stop with a pair whose store has failed: the vhost starts all its queues anew."""
        if is_shutdown_tuple(message.reason):
            self._stop_children_and_end(message.reason)
        else:
            super()._handle_exit(message)

    def log_report(self, report: Report) -> None:
        """Leave out an end that follows from that of the store or of the partner, which has a line itself."""
        if not _follows(report.reason):
            super().log_report(report)

    def _stop_children_and_end(self, reason: object) -> None:
        """End with the vhost, which may start the queue again."""
        self._is_stopped = True
        super()._stop_children_and_end(reason)

    def terminate(self, reason: object) -> None:
        """Tell the entry, which calls its waiters, and the channels of its consumers."""
        super().terminate(reason)
        entry = self._entry
        if self._is_stopped:
            entry.stopped()
        for channel in entry.crashed():
            self.post(channel, QueueFailed(entry))


def _follows(reason: object) -> bool:
    """Whether a pair's actor ended for its store or its partner, or had ended for them before it was told to stop."""
    return reason == NOPROC or is_shutdown_tuple(reason) or is_exit_of_call(reason)


def _spec(make_backing: MakeQueue, queue: type[AmqQueue | DelayQueue] = AmqQueue) -> SupervisorSpec:
    return SupervisorSpec(
        "one_for_all",
        RESTARTS_MAX,
        WINDOW_S,
        children=(
            ChildSpec("backing", BackingActor, (make_backing,), shutdown=STOP_S),
            ChildSpec("amqqueue", queue, restart="intrinsic", shutdown=STOP_S),
        ),
    )


_IN_MEMORY: Final = _spec(in_memory)
