"""The bound of all producers that the queues of a node remember together.

``producers.max`` bounds one queue. A publisher chooses the ids of its producers, and each queue that a message goes to
remembers them, so that a few thousand messages could fill the memory for as long as the entries live. The entries of a
node take a tenth of the memory limit at most. Beyond it the queue with most producers, in the vhost with most
producers, forgets its least recently used ones, a few more than were added. So whoever uses many ids loses the oldest
of them, and a vhost or a queue with few producers keeps all of its own.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from leveret.core.limits import NODE_PRODUCERS_MIN, NODE_PRODUCERS_SHARE
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.broker.registry.registry import RememberingQueue
    from leveret.core.clock import Clock

log = logger(__name__)

ENTRY_BYTES: Final = 400  # with its id of some 50 bytes, about; the store has as much
FORGOTTEN_AT_ONCE: Final = 64
_LOG_S: Final = 60.0


class NodeProducers:
    """The queues of one node that remember producers.

    Args:
        memory_limit_bytes: of the node; the bound follows it.
        clock: of the log's lines.
    """

    def __init__(self, memory_limit_bytes: Callable[[], int], clock: Clock) -> None:
        self._memory_limit_bytes = memory_limit_bytes
        self._clock = clock
        self._queues: set[RememberingQueue] = set()
        self._count = 0  # at least as many as there are
        self._forgotten = 0  # since the last line in the log
        self._logs_from_s = 0.0

    @property
    def most(self) -> int:
        """How many producers the queues may remember together."""
        share_bytes = self._memory_limit_bytes() // NODE_PRODUCERS_SHARE
        return max(NODE_PRODUCERS_MIN, share_bytes // (2 * ENTRY_BYTES))

    def register(self, queue: RememberingQueue, count: int) -> None:
        """Count a queue in, with the producers that it remembers already."""
        self._queues.add(queue)
        self._count += count

    def ended(self, queue: RememberingQueue) -> None:
        """Forget a queue whose actor has ended."""
        self._queues.discard(queue)

    def added(self, count: int) -> None:
        """Note new producers of registered queues; beyond the bound, others are forgotten."""
        self._count += count
        if self._count <= self.most:
            return
        counts = {queue: queue.count() for queue in self._queues}
        self._count = sum(counts.values())
        if self._count <= self.most:
            return
        by_vhost: Counter[str] = Counter()
        for queue, each in counts.items():
            by_vhost[queue.vhost_name] += each
        vhost_name = max(by_vhost, key=by_vhost.__getitem__)
        of_vhost = [queue for queue in counts if queue.vhost_name == vhost_name]
        self._forget(max(of_vhost, key=counts.__getitem__), 2 * count + FORGOTTEN_AT_ONCE)

    def _forget(self, queue: RememberingQueue, count: int) -> None:
        before = queue.count()
        queue.forget_oldest(count)
        forgotten = before - queue.count()
        self._count -= forgotten
        self._forgotten += forgotten
        now_s = self._clock.monotonic_s()
        if now_s >= self._logs_from_s:
            log.warning(
                "producers forgotten count=%d queue=%s most=%d", self._forgotten, queue, self.most
            )
            self._forgotten, self._logs_from_s = 0, now_s + _LOG_S
