"""An etcd in virtual time: answers are late or lost, watches lag and break, leases end, history is compacted.

``SimulatedEtcd`` has the keys, their history and the leases. Each node asks it through a ``SimulatedClient`` of its
own, which has the faults. What a fault means for a transaction:

* it never reaches etcd, or etcd is cut off: ``UnavailableError``, without effect;
* its answer is lost: ``UnknownOutcomeError``; it was made, or never is, or arrives up to ``late_s`` later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from leveret.etcd.errors import (
    ClusterError,
    CompactedError,
    LeaseGoneError,
    UnavailableError,
    UnknownOutcomeError,
)
from leveret.etcd.gateway_txns import txn_request
from leveret.etcd.key_values import (
    Event,
    OnAlive,
    OnEvents,
    OnLease,
    OnScan,
    OnTxn,
    Put,
    Row,
    Scan,
    Txn,
    TxnAnswer,
)

if TYPE_CHECKING:
    from leveret.core.clock import Clock


class SimulatedEtcd:
    """The keys of an etcd, every revision of them, and its leases.

    Args:
        clock: for the ends of leases.

    Attributes:
        revision: of the last write.
        rows: what there is, by key.
        history: the writes of each revision; index 0 is revision 1, which has none.
        compacted: the history up to this revision is not kept any more.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.revision = 1
        self.rows: dict[str, Row] = {}
        self.history: list[list[Event]] = [[]]
        self.compacted = 0
        self._leases: dict[int, tuple[int, float]] = {}  # time to live, and the end
        self._next_lease = 1
        self.on_write: list[Callable[[], None]] = []

    def transact(self, txn: Txn) -> TxnAnswer:
        """Make a transaction at once; LeaseGoneError: a lease of a put has ended."""
        txn_request(txn)  # the limits of the real one
        self.end_leases()
        found = {each.key: self._revision_of(each.key) for each in txn.expects}
        is_done = all(found[each.key] == each.revision for each in txn.expects)
        if is_done:
            for write in txn.writes:
                if isinstance(write, Put) and write.lease and write.lease not in self._leases:
                    raise LeaseGoneError("requested lease not found")
            self._write([self._event(write) for write in txn.writes])
        rows = [row for key, row in sorted(self.rows.items()) if key.startswith(txn.read)]
        return TxnAnswer(is_done, self.revision, rows, {} if is_done else found)

    def scan(self, prefix: str) -> Scan:
        self.end_leases()
        rows = [row for key, row in sorted(self.rows.items()) if key.startswith(prefix)]
        return Scan(rows, self.revision)

    def grant(self, ttl_s: int) -> int:
        lease, self._next_lease = self._next_lease, self._next_lease + 1
        self._leases[lease] = ttl_s, self._clock.monotonic_s() + ttl_s
        return lease

    def keep_alive(self, lease: int) -> bool:
        self.end_leases()
        if lease not in self._leases:
            return False
        ttl_s, _ = self._leases[lease]
        self._leases[lease] = ttl_s, self._clock.monotonic_s() + ttl_s
        return True

    def revoke(self, lease: int) -> bool:
        if self._leases.pop(lease, None) is None:
            return False
        self._write([Event(key, None, 0) for key, row in self.rows.items() if row.lease == lease])
        return True

    def end_leases(self) -> None:
        """End the leases that were not kept alive; a test with nobody who asks calls this itself."""
        now_s = self._clock.monotonic_s()
        for lease in [each for each, (_, end_s) in self._leases.items() if end_s <= now_s]:
            self.revoke(lease)

    def compact(self) -> None:
        """Forget the history."""
        self.compacted = self.revision

    def put(self, key: str, value: bytes | None) -> None:
        """Write as somebody else, without conditions."""
        self._write([Event(key, value, 0)])

    def _revision_of(self, key: str) -> int:
        row = self.rows.get(key)
        return 0 if row is None else row.revision

    def _event(self, write: Any) -> Event:
        if isinstance(write, Put):
            return Event(write.key, write.value, 0, write.lease)
        return Event(write.key, None, 0)

    def _write(self, events: Sequence[Event]) -> None:
        events = [each for each in events if each.value is not None or each.key in self.rows]
        if not events:
            return
        self.revision += 1
        made = [each._replace(revision=self.revision) for each in events]
        for each in made:
            if each.value is None:
                del self.rows[each.key]
            else:
                self.rows[each.key] = Row(each.key, each.value, self.revision, each.lease)
        self.history.append(made)
        for tell in list(self.on_write):
            tell()


@dataclass(slots=True)
class Faults:
    """What can go wrong between a node and etcd.

    Attributes:
        delay_s: the longest way of a request, and of an answer.
        watch_delay_s: the longest time until a watch tells of a write.
        lost: the share of requests that are not answered.
        late_s: how much later a request can arrive that was not answered.
        broken: the share of times that a watch breaks instead of telling of a write.
        is_cut: no request, answer or news goes through.
        is_silent: watches that are there tell of nothing any more.
    """

    delay_s: float = 0.003
    watch_delay_s: float = 0.005
    lost: float = 0.0
    late_s: float = 2.0
    broken: float = 0.0
    is_cut: bool = False
    is_silent: bool = False


class SimulatedClient:
    """A ``WatchedStore``: one node's way to a simulated etcd.

    Args:
        etcd: where it leads.
        clock: for delays.
        random: for delays and faults.

    Attributes:
        faults: those of now; they may be changed.
    """

    def __init__(self, etcd: SimulatedEtcd, clock: Clock, random: Random) -> None:
        self._etcd = etcd
        self._clock = clock
        self._random = random
        self.faults = Faults()

    def scan(self, prefix: str, then: OnScan) -> None:
        self._ask(lambda: self._etcd.scan(prefix), then)

    def transact(self, txn: Txn, then: OnTxn) -> None:
        self._ask(lambda: self._etcd.transact(txn), then, is_write=bool(txn.writes))

    def grant(self, ttl_s: int, then: OnLease) -> None:
        self._ask(lambda: self._etcd.grant(ttl_s), then, is_write=True)

    def keep_alive(self, lease: int, then: OnAlive) -> None:
        self._ask(lambda: self._etcd.keep_alive(lease), then)

    def revoke(self, lease: int, then: OnAlive) -> None:
        self._ask(lambda: self._etcd.revoke(lease), then)

    def watch(self, prefix: str, revision: int, on_events: OnEvents) -> SimulatedWatch:
        return SimulatedWatch(
            self._etcd, self._clock, self._random, self.faults, prefix, revision, on_events
        )

    def _ask(
        self, operation: Callable[[], Any], then: Callable[[Any], None], *, is_write: bool = False
    ) -> None:
        faults, random = self.faults, self._random
        if faults.is_cut or random.random() < faults.lost / 3:
            self._later(faults.delay_s, then, UnavailableError("it was asked in vain"))
        elif random.random() < faults.lost:
            if random.random() < 0.6:  # it is made, now or later
                late_s = faults.late_s if random.random() < 0.5 else faults.delay_s
                self._later(late_s, self._made, operation)
            kind = UnknownOutcomeError if is_write else UnavailableError
            self._later(4 * faults.delay_s, then, kind("its answer was lost"))
        else:
            self._later(faults.delay_s, self._arrived, operation, then, is_write)

    def _arrived(
        self, operation: Callable[[], Any], then: Callable[[Any], None], is_write: bool
    ) -> None:
        answer = self._made(operation)
        if self.faults.is_cut:  # meanwhile
            kind = UnknownOutcomeError if is_write else UnavailableError
            answer = kind("it was cut off before the answer")
        self._later(self.faults.delay_s, then, answer)

    @staticmethod
    def _made(operation: Callable[[], Any]) -> Any:
        try:
            return operation()
        except ClusterError as error:
            return error

    def _later(self, up_to_s: float, call: Callable[..., Any], *args: Any) -> None:
        self._clock.call_later(self._random.random() * up_to_s, call, *args)


class SimulatedWatch:
    """Tells of the writes to keys with a prefix, each revision in one piece, its keys in any order."""

    def __init__(
        self,
        etcd: SimulatedEtcd,
        clock: Clock,
        random: Random,
        faults: Faults,
        prefix: str,
        revision: int,
        on_events: OnEvents,
    ) -> None:
        self._etcd = etcd
        self._clock = clock
        self._random = random
        self._faults = faults
        self._prefix = prefix
        self._next = revision
        self._on_events = on_events
        self._is_waiting = self._is_deaf = False
        etcd.on_write.append(self._written)
        self._written()

    def cancel(self) -> None:
        self._is_waiting = True  # for ever
        if self._written in self._etcd.on_write:
            self._etcd.on_write.remove(self._written)

    def _written(self) -> None:
        self._is_deaf = self._is_deaf or self._faults.is_silent
        if not self._is_waiting and not self._is_deaf:
            self._is_waiting = True
            delay_s = self._random.random() * self._faults.watch_delay_s
            self._clock.call_later(delay_s, self._tell)

    def _tell(self) -> None:
        if self._is_deaf or self._written not in self._etcd.on_write:
            return
        self._is_waiting = False
        if self._faults.is_cut or self._random.random() < self._faults.broken:
            self._break(UnavailableError("the watch was cut"))
            return
        if self._next < self._etcd.compacted:
            self._break(CompactedError(f"compacted to {self._etcd.compacted}"))
            return
        newest = self._etcd.revision
        if newest >= self._next and self._random.random() < 0.3:
            newest = self._random.randint(self._next, newest)
        events: list[Event] = []
        for revision in range(self._next, newest + 1):
            some = [e for e in self._etcd.history[revision - 1] if e.key.startswith(self._prefix)]
            self._random.shuffle(some)
            events += some
        self._next = max(self._next, newest + 1)
        if newest < self._etcd.revision:
            self._written()
        if events:
            self._on_events(events)

    def _break(self, error: ClusterError) -> None:
        self.cancel()
        self._on_events(error)
