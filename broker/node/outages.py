"""Outages: which vhosts of a node do not serve, why, since when, and when they are started again.

A plain object of the node. An outage begins when a vhost is started and ends when its queues have been; the restarter
of the vhosts (``vhost_restarter``) notes failures. ``status``, ``leveret serve`` and embedding services read them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from leveret.core.errors import StoreError
from leveret.core.log.loggers import logger
from leveret.msg_store.format.errors import StoreFailed

if TYPE_CHECKING:
    from leveret.core.clock import Clock


log = logger(__name__)

OPENING: Final = "its message store is being opened"


class Outage(Struct, eq=False):
    """A vhost that does not serve.

    Attributes:
        reason: why, for operators.
        since_s: when it went down; wall time, as ``next_try_s``.
        is_retried: it is started again and again; else it stays down until an operator does something.
        tries: how often it was started in vain since.
        next_try_s: when it is started again; None if it is not, or is being started.
        is_logged: the log says that it is down.
        logged_s: when it said so last, or else when the vhost went down; monotonic time.
    """

    reason: str
    since_s: float
    logged_s: float
    is_retried: bool = True
    tries: int = 0
    next_try_s: float | None = None
    is_logged: bool = False


class Outages:
    """The vhosts that do not serve, by name: those that are being started, and those that have failed.

    Attributes:
        by_vhost: in the order in which they went down.
        on_over: called each time the last outage is over.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.by_vhost: dict[str, Outage] = {}
        self.on_over: list[Callable[[], None]] = []

    def starts(self, name: str) -> Outage:
        """Note that a vhost is being started; return its outage, which is an earlier one if it had failed."""
        outage = self.by_vhost.get(name)
        if outage is None:
            outage = Outage(OPENING, self._clock.wall_s(), self._clock.monotonic_s())
            self.by_vhost[name] = outage
        outage.next_try_s = None
        return outage

    def serves(self, name: str) -> None:
        """Note that a vhost serves."""
        outage = self.by_vhost.get(name)
        if outage is not None and outage.is_logged:
            down_s = self._clock.wall_s() - outage.since_s
            log.warning(
                "vhost serves again vhost=%s down_s=%.1f tries=%d", name, down_s, outage.tries + 1
            )
        self.forget(name)

    def forget(self, name: str) -> None:
        """Forget an outage, since it is over or the vhost is deleted."""
        if self.by_vhost.pop(name, None) is not None and not self.by_vhost:
            for call in list(self.on_over):
                call()


def is_of_machine(error: BaseException) -> bool:
    """Return whether an error comes from disk, descriptors, memory or damaged files, and may pass; bugs do not."""
    cause = error.__cause__ if isinstance(error, StoreFailed) else error
    return isinstance(cause, OSError | MemoryError | StoreError)
