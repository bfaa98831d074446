"""Carries transactions out on a store: read, apply, compare-and-swap, and again after a conflict or a silence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.core.log.loggers import logger
from leveret.gm.records.group import Group, LostMembershipError
from leveret.gm.records.store import Conflict, GroupStore, Stored, Unavailable

if TYPE_CHECKING:
    from leveret.core.clock import TimerHandle, TimerLoop
    from leveret.gm.records.transactions import Transaction

log = logger(__name__)

RETRY_S: Final = 0.05  # after the first silence of the store; doubled with each further one
RETRY_MAX_S: Final = 1.0
SILENCES_LOGGED: Final = 3  # so many in a row are not worth a line in the log

Result: TypeAlias = Group | LostMembershipError | None


class Transactor:
    """The transactions of one member on its group's record.

    A store that is not available is asked again until it answers: without it the ring keeps its members, and so goes
    on as long as none of them dies.

    Args:
        store: keeps the record.
        name: of the group.
        clock: for the pauses before it asks an unavailable store again.

    Attributes:
        trouble: why the store has not answered lately; empty: it has.
    """

    def __init__(self, store: GroupStore, name: str, clock: TimerLoop) -> None:
        self._store = store
        self._name = name
        self._clock = clock
        self._timers: set[TimerHandle] = set()
        self._silences = 0
        self._is_closed = False
        self.trouble = ""

    def run(self, transaction: Transaction, then: Callable[[Result], None]) -> None:
        """Carry a transaction out; ``then`` gets the record after it, or ``LostMembershipError``."""
        self._store.read(self._name, partial(self._answered, transaction, then))

    def close(self) -> None:
        """Ask no more; transactions under way get no result."""
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _answered(
        self,
        transaction: Transaction,
        then: Callable[[Result], None],
        answer: Stored | Conflict | Unavailable,
    ) -> None:
        """Apply the transaction to the record that was read."""
        if self._is_closed:
            return
        if isinstance(answer, Unavailable):
            self._again(transaction, then, answer)
            return
        self._heard()
        group, revision = answer.stored if isinstance(answer, Conflict) else answer
        try:
            wanted = transaction.apply(group)
        except LostMembershipError as lost:
            then(lost)
            return
        if wanted is group:
            then(group)
        else:
            self._store.write(
                self._name, wanted, revision, partial(self._written, transaction, then)
            )

    def _written(
        self,
        transaction: Transaction,
        then: Callable[[Result], None],
        answer: Stored | Conflict | Unavailable,
    ) -> None:
        if isinstance(answer, Stored):
            if not self._is_closed:
                self._heard()
                then(answer.group)
        else:
            self._answered(transaction, then, answer)

    def _again(
        self, transaction: Transaction, then: Callable[[Result], None], silence: Unavailable
    ) -> None:
        if self._silences == SILENCES_LOGGED:
            log.warning(
                "store of group records is not available, the ring cannot change: group=%s reason=%s",
                self._name,
                silence.reason,
            )
        self.trouble = silence.reason
        pause_s = min(RETRY_MAX_S, RETRY_S * 2 ** min(self._silences, 10))
        self._silences += 1

        def ask() -> None:
            self._timers.discard(timer)
            self.run(transaction, then)

        timer = self._clock.call_later(pause_s, ask)
        self._timers.add(timer)

    def _heard(self) -> None:
        if self._silences > SILENCES_LOGGED:
            log.info("store of group records answers again: group=%s", self._name)
        self._silences = 0
        self.trouble = ""
