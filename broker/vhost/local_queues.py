"""The queues of a vhost that run on this node, for the other nodes of a cluster.

The delegate finds them by the number of their actor; the queue directory takes the changes since its last
announcement, and announces them to the other nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.ref import Ref
    from leveret.broker.registry.registry import QueueEntry


class LocalQueues:
    """The queues of one vhost on this node.

    Args:
        note_change: called when there is a change to announce.

    Attributes:
        delegate: of the vhost; None while it does not run.
        by_number: the running queues, by the number of the amqqueue.
    """

    def __init__(self, note_change: Callable[[], None]) -> None:
        self._note_change = note_change
        self.delegate: Ref | None = None
        self.by_number: dict[int, QueueEntry] = {}
        self._numbers: dict[QueueEntry, int] = {}
        self._changed: dict[QueueEntry, None] = {}

    def changed(self, entry: QueueEntry) -> None:
        """Note that a queue is up, has crashed, was stopped or deleted (``QueueEntry.on_change``)."""
        before = self._numbers.pop(entry, None)
        if before is not None:
            del self.by_number[before]
        if entry.state == "running" and entry.ref is not None:
            self._numbers[entry] = entry.ref.num
            self.by_number[entry.ref.num] = entry
        self._changed[entry] = None
        self._note_change()

    def delegate_started(self, delegate: Ref) -> None:
        """Note the vhost's delegate."""
        self.delegate = delegate
        self._note_change()

    def take_changed(self) -> list[QueueEntry]:
        """Return the queues that have changed since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed)
