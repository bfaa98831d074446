"""Loading all keys with a prefix, and following them.

All keys are read at one revision, and decoded a slice in each turn; a watch brings every later write. A watch that
breaks is begun again behind the last revision that was received. Where etcd has compacted that revision away, or breaks
the watch again and again (its gateway cannot send more than 4 MiB in one piece), all keys are loaded again. A request
that fails is repeated, for as long as it takes.

A watch may fall silent without an error. So other requests report the revisions that they have found
(``expect_revision``); if the watch does not bring one of them in ``lag_s``, it is begun again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from leveret.core.errors import StoreError
from leveret.core.log.loggers import logger
from leveret.etcd.errors import ClusterError, CompactedError
from leveret.etcd.key_values import Event, Row, Scan

if TYPE_CHECKING:
    from leveret.core.clock import TimerLoop
    from leveret.etcd.key_values import Watch, WatchedStore

log = logger(__name__)

ROWS_PER_TURN: Final = 500  # 10 to 20 ms
WATCHES_MAX: Final = 3  # that break without news, before all is loaded again


class Follower(Protocol):
    """The receiver of the keys."""

    @property
    def received_to(self) -> int:
        """The revision up to which the follower has received all writes; it may apply some later."""

    def decode(self, rows: Sequence[Row]) -> None:
        """Decode some of the rows that ``loaded`` will bring."""

    def loaded(self, scan: Scan) -> None:
        """Receive all keys as they are at a revision; StoreError: they are unusable."""

    def received(self, events: Sequence[Event]) -> None:
        """Receive writes, some perhaps again; StoreError: they are unusable."""

    def in_trouble(self, why: str, is_stale: bool) -> None:
        """Note that no keys arrive for now; ``is_stale``: the keys received so far are void."""


class Following:
    """Loads and follows the keys with a prefix.

    Args:
        store: etcd.
        clock: for trying again.
        prefix: of the keys.
        retry_s: until what has failed is tried again.
        lag_s: how long the watch may take to bring a revision.
        follower: receives the keys.
    """

    def __init__(
        self,
        store: WatchedStore,
        clock: TimerLoop,
        prefix: str,
        retry_s: float,
        lag_s: float,
        follower: Follower,
    ) -> None:
        self._store = store
        self._clock = clock
        self._prefix = prefix
        self._retry_s = retry_s
        self._lag_s = lag_s
        self._follower = follower
        self._watch: Watch | None = None
        self._steps = 0  # an answer to an earlier step is ignored
        self._broken = 0  # watches in a row, without an event between
        self._is_checking = False

    @property
    def is_following(self) -> bool:
        """Whether there is a watch."""
        return self._watch is not None

    def load(self) -> None:
        """Load all keys, now, and follow them."""
        step = self._next_step()

        def scanned(scan: Scan | ClusterError) -> None:
            if step != self._steps:
                return
            if isinstance(scan, ClusterError):
                self._try_again(self.load, str(scan))
            else:
                self._take(scan, 0, step)

        self._store.scan(self._prefix, scanned)

    def _take(self, scan: Scan, start: int, step: int) -> None:
        """Have a slice of rows decoded, from ``start`` on, and the next one in a later turn; then load all."""
        if step != self._steps:
            return
        end = start + ROWS_PER_TURN
        self._follower.decode(scan.rows[start:end])
        if end < len(scan.rows):
            self._clock.call_later(0.0, self._take, scan, end, step)
            return
        try:
            self._follower.loaded(scan)
        except StoreError as error:
            self._try_again(self.load, str(error), is_stale=True)
            return
        self._broken = 0
        self._follow()

    def end(self) -> None:
        """End; the follower receives nothing any more."""
        self._next_step()

    def expect_revision(self, revision: int) -> None:
        """Begin the watch again if it does not bring a revision, which a key has, in ``lag_s``."""
        if revision > self._follower.received_to and self.is_following and not self._is_checking:
            self._is_checking = True
            self._clock.call_later(self._lag_s, self._check_progress, revision, self._steps)

    def _check_progress(self, revision: int, step: int) -> None:
        self._is_checking = False
        if step == self._steps and self._follower.received_to < revision:
            log.warning(
                "watch of etcd has not told of a revision, it is begun again revision=%d", revision
            )
            self._broken += 1
            self._next_watch()()

    def _next_step(self) -> int:
        self._steps += 1
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        return self._steps

    def _follow(self) -> None:
        step = self._next_step()

        def received(events: Sequence[Event] | ClusterError) -> None:
            if step != self._steps:
                return
            if isinstance(events, CompactedError):
                log.warning("all metadata is loaded again: %s", events)
                self.load()
            elif isinstance(events, ClusterError):
                self._break(f"the watch has ended: {events}")
            else:
                self._broken = 0
                try:
                    self._follower.received(events)
                except StoreError as error:
                    self._try_again(self.load, str(error), is_stale=True)

        self._watch = self._store.watch(self._prefix, self._follower.received_to + 1, received)

    def _break(self, why: str) -> None:
        self._broken += 1
        self._try_again(self._next_watch(), why)

    def _next_watch(self) -> Callable[[], None]:
        return self.load if self._broken >= WATCHES_MAX else self._follow

    def _try_again(self, again: Callable[[], None], why: str, *, is_stale: bool = False) -> None:
        step = self._next_step()
        self._follower.in_trouble(why, is_stale)

        def retry() -> None:
            if step == self._steps:
                again()

        self._clock.call_later(self._retry_s, retry)
