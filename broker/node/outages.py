"""Outages: which vhosts of a node do not serve, why, since when, and when they are started again.

A plain object of the node, which follows the states of its vhosts (``broker/vhost/states.py``). An outage begins with
the start of a vhost and ends when its queues have been started. ``status``, ``leveret serve`` and embedding services
read the outages.

The log has a line when a vhost is down, one per minute until it serves, and one when it serves again. A start that
takes less than ``SLOW_S`` has none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from leveret.broker.vhost.states import ENDED, State
from leveret.core.errors import StoreError
from leveret.core.log.loggers import logger
from leveret.msg_store.format.errors import StoreFailed

if TYPE_CHECKING:
    from leveret.broker.vhost.vhost import VHost
    from leveret.core.clock import Clock


log = logger(__name__)

PAUSE_S: Final = 1.0  # within it a vhost that has failed is started again
SLOW_S: Final = 5.0  # a start that takes longer is logged as an outage
REMINDER_S: Final = 60.0  # between two lines about a vhost that is still down

OPENING: Final = "its message store is being opened"
STAYS_DOWN: Final = (
    "restart limit reached, see the errors in the log; leveret ctl restart_vhost starts it"
)
_BEGIN: Final = frozenset({State.OPENING, State.REOPENING, State.FAILED, State.DOWN})


class Outage(Struct, eq=False):
    """A vhost that does not serve.

    Attributes:
        reason: why, for operators.
        since_s: when it went down; wall time, as ``next_try_s``.
        is_retried: it is started again and again; else it stays down until an operator does something.
        tries: how often it was started in vain since.
        next_try_s: when it is started again; None if it is not, or is being started.
        is_logged: the log has a line that it is down.
        logged_s: when it was logged last, or else when the vhost went down; monotonic time.
    """

    reason: str
    since_s: float
    logged_s: float
    is_retried: bool = True
    tries: int = 0
    next_try_s: float | None = None
    is_logged: bool = False


class Outages:
    """The vhosts that do not serve, by name: they are being started, or have failed.

    Attributes:
        by_vhost: in the order in which they went down.
        on_begun: called each time an outage begins while there is no other.
        on_over: called each time the last outage is over.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.by_vhost: dict[str, Outage] = {}
        self.on_begun: Callable[[], object] = lambda: None
        self.on_over: list[Callable[[], None]] = []

    def changed(self, vhost: VHost) -> None:
        """Begin or end the outage of a vhost by its new state; a vhost that is being deleted begins none."""
        now = vhost.state.now
        if now is State.RUNNING:
            self._over(vhost.name)
        elif now in _BEGIN and not vhost.is_closing:
            if not self.by_vhost:
                self.on_begun()
            times_s = self._clock.wall_s(), self._clock.monotonic_s()
            outage = self.by_vhost.setdefault(vhost.name, Outage(OPENING, *times_s))
            outage.next_try_s = None
            if now in ENDED:
                self._failed(vhost, outage)

    def _failed(self, vhost: VHost, outage: Outage) -> None:
        error = vhost.store.error
        outage.is_retried = error is not None
        if outage.is_retried:
            outage.next_try_s = self._clock.wall_s() + PAUSE_S
        reason = STAYS_DOWN if error is None else str(error) or type(error).__name__
        if outage.reason != OPENING:
            outage.tries += 1
        if outage.reason != reason:
            outage.reason = reason
            self._log_down(vhost.name, outage)

    def _over(self, name: str) -> None:
        outage = self.by_vhost.get(name)
        if outage is not None and outage.is_logged:
            log.warning(
                "vhost serves again vhost=%s down_s=%.1f tries=%d",
                name, self._clock.wall_s() - outage.since_s, outage.tries + 1,
            )  # fmt: skip
        self.forget(name)

    def forget(self, name: str) -> None:
        """Forget an outage, since it is over or the vhost is deleted."""
        if self.by_vhost.pop(name, None) is not None and not self.by_vhost:
            for call in list(self.on_over):
                call()

    def remind(self) -> None:
        """Log vhosts that start slowly, and failed vhosts that were not logged for a while."""
        now_s = self._clock.monotonic_s()
        for name, outage in self.by_vhost.items():
            quiet_s = now_s - outage.logged_s
            if not outage.is_logged and quiet_s >= SLOW_S:
                self._log_down(name, outage)
            elif outage.is_logged and quiet_s >= REMINDER_S:
                outage.logged_s = now_s
                log.error(
                    "vhost is still down vhost=%s reason=%s tries=%d down_s=%d",
                    name, outage.reason, outage.tries, self._clock.wall_s() - outage.since_s,
                )  # fmt: skip

    def _log_down(self, name: str, outage: Outage) -> None:
        outage.is_logged, outage.logged_s = True, self._clock.monotonic_s()
        again = f"every {PAUSE_S:g} s" if outage.is_retried else "never"
        log.error("vhost is down vhost=%s reason=%s started_again=%s", name, outage.reason, again)


def is_of_machine(error: BaseException) -> bool:
    """Return whether an error comes from disk, descriptors, memory or damaged files, and may pass; bugs do not."""
    cause = error.__cause__ if isinstance(error, StoreFailed) else error
    return isinstance(cause, OSError | MemoryError | StoreError)
