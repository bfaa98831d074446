"""Outages: which vhosts of a node do not serve, why, since when, and when they are started again.

A plain object of the node. The keeper of the vhosts (``vhost_keeper``) begins and ends outages; ``status``,
``leveret serve`` and embedding services read them.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from leveret.core.errors import StoreError
from leveret.msg_store.format.errors import StoreFailed


class Outage(Struct, eq=False):
    """A vhost that is down.

    Attributes:
        reason: why, for operators.
        since_s: when it went down; wall time, as ``next_try_s``.
        is_retried: it is started again and again; else it stays down until an operator does something.
        tries: how often it was started in vain since.
        next_try_s: when it is started again; None if it is not, or is being started.
        reminded_s: when a line in the log last said that it is down; monotonic time.
    """

    reason: str
    since_s: float
    is_retried: bool
    tries: int = 0
    next_try_s: float | None = None
    reminded_s: float = 0.0


class Outages:
    """The vhosts that are down, by name.

    Attributes:
        by_vhost: in the order in which they went down.
        on_over: called each time the last outage is over.
    """

    def __init__(self) -> None:
        self.by_vhost: dict[str, Outage] = {}
        self.on_over: list[Callable[[], None]] = []

    def end(self, name: str) -> Outage | None:
        """Forget an outage, since the vhost serves again or is deleted."""
        outage = self.by_vhost.pop(name, None)
        if outage is not None and not self.by_vhost:
            for call in list(self.on_over):
                call()
        return outage


def is_of_machine(error: BaseException) -> bool:
    """Return whether an error comes from disk, descriptors, memory or damaged files, and may pass; bugs do not."""
    cause = error.__cause__ if isinstance(error, StoreFailed) else error
    return isinstance(cause, OSError | MemoryError | StoreError)
