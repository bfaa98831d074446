"""The session of one node with etcd: it loads and follows the rows, writes, records what it has applied, and rejoins.

::

    load all keys at revision R -> watch from R+1 -> lease -> put the own key at J -> applied J: the node serves

No request blocks. ``is_live`` says whether the node may serve clients; while it may not, clients must not see its
rows.

When nothing is to be written, a transaction that only reads is made every ``renew_s``: it finds the node's key in
place, so the node may serve for ``valid_s`` more (``nodes``). A node whose key is gone was taken for dead, or has not
kept its lease. It answers all writes with an error, ends its lease, which deletes its exclusive queues on all nodes,
and joins again. Its rows stay as they are until it has loaded all again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from itertools import groupby
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Final, Protocol

from leveret.core.errors import StoreError
from leveret.core.log.loggers import logger
from leveret.etcd.errors import ClusterError, LeaseGoneError
from leveret.etcd.key_values import Delete, Event, Expect, Put, Scan, Txn, TxnAnswer
from leveret.etcd.key_values import Row as Stored
from leveret.metadata.etcd.codec import (
    FORMAT,
    Keys,
    NodeState,
    check_format,
    packed_number,
    refusal_of_key,
    unpacked_node,
    unpacked_number,
)
from leveret.metadata.etcd.following import Following
from leveret.metadata.etcd.nodes import Nodes, Seen
from leveret.metadata.etcd.replica import Changed, Replica
from leveret.metadata.etcd.row_writes import RowWrites
from leveret.metadata.etcd.session_settings import SessionSettings
from leveret.metadata.etcd.transactor import Transactor, lost_error
from leveret.metadata.etcd.writes import Change, OnMade, Write, Writes
from leveret.metadata.interface import ConflictError
from leveret.metadata.tables import ExchangeRow

if TYPE_CHECKING:
    from leveret.core.clock import Clock
    from leveret.etcd.key_values import WatchedStore
    from leveret.metadata.interface import Then
    from leveret.metadata.tables import Row

log = logger(__name__)

GARBAGE_MAX: Final = 100  # keys that are collected at a time
EVENTS_PER_TURN: Final = 500  # 10 to 20 ms
ROWS_PER_TURN: Final = 252  # of a large write: two transactions
DEFAULTS: Final = SessionSettings()


class Listener(Protocol):
    """What a session reports to its node."""

    def changed(self, changed: Changed) -> None:
        """Rows have changed, by this node or another."""

    def live(self, is_live: bool) -> None:
        """The node may serve clients from now on, or may not."""


class Session:
    """One node's part in the rows of a cluster.

    Args:
        store: etcd.
        clock: for time-outs.
        node: the node's name.
        uuid: of its data directory.
        listener: gets changes of rows, and whether the node may serve.
        settings: how it takes part.
        random: for incarnations; None: the system's.
        address: where other nodes dial this one.
        directory: the data directory that this process has locked: no other process uses it.

    Attributes:
        keys: where everything is.
        replica: the rows.
        nodes: the nodes that have joined.
        trouble: why the node may not serve, or its writes fail; "": it may, and they do not.
        taken: an error text if another node has the name; "": none has.

    Raises:
        ConfigError: prefix or name are not usable.
    """

    def __init__(
        self,
        store: WatchedStore,
        clock: Clock,
        node: str,
        uuid: str,
        listener: Listener,
        settings: SessionSettings = DEFAULTS,
        random: Random | None = None,
        address: str = "",
        directory: str = "",
    ) -> None:
        self.keys = Keys(settings.prefix, node)
        self.replica = Replica(self.keys)
        self.nodes = Nodes(self.keys.own, settings.suspect_s, settings.valid_s)
        self.trouble = self.taken = ""
        self._store = store
        self._clock = clock
        self._listener = listener
        self._settings = settings
        self._following = Following(
            store, clock, self.keys.all, settings.retry_s, settings.suspect_s / 4, self
        )
        self._writes = Writes(self.keys, self.replica)
        self._rows = RowWrites(self.keys, self._writes, random or SystemRandom())
        self._state = state = NodeState(
            uuid, 0, 0, address=address, valid_s=settings.valid_s, directory=directory
        )
        self._transactor = Transactor(store, clock, self.keys, state, self._writes, self)
        self._numbers: dict[str, Stored] = {}  # counters and the format
        self._taking: dict[str, int] = {}  # the last numbers that this node has asked for
        self._lease = self._joined_at = 0  # of the node's key, and the revision that made it
        self._is_loaded = self._is_joining = self._has_joined = False
        self._received: deque[tuple[int, list[Event]]] = deque()  # writes to apply, by revision
        self._is_applying = False
        self._changed_at = 0  # the last revision with a change of rows
        self._renewed_s = self._renew_at_s = 0.0
        self._was_live = self._expires = self._is_collecting = False
        self._gone_back = ""  # why this etcd is of no use any more
        self._ending: Callable[[], None] | None = None
        self._has_ended = False

    # The node's interface.

    @property
    def is_live(self) -> bool:
        """Whether the node may serve clients now: its key is in place, and applied here."""
        return (
            self._transactor.revision > 0
            and self._joined_at <= self.replica.applied
            and self._is_loaded
            and self._clock.monotonic_s() < self._valid_to_s()
            and self._ending is None
            and not self._has_ended
        )

    def start(self) -> None:
        """Begin; ``listener.live`` is called when the rows are loaded."""
        self._tick()
        self._following.load()

    def stop(self, then: Callable[[], None]) -> None:
        """Stop serving, make the waiting writes, mark the node's key as left, and end; then call ``then``."""
        self._ending = then
        self._update_live()
        if not self._transactor.revision:
            self._end()
        else:
            self._advance()

    def abort(self) -> None:
        """End at once, as by a crash; nothing is called any more."""
        self._has_ended = True
        self._following.end()

    def find(self, row: Row) -> Row | None:
        """Return the row that has the key of ``row``, as this node has seen it last."""
        try:
            entry = self.replica.live.get(self.keys.row(row))
        except StoreError:  # its names are too long: there is none
            return None
        return None if entry is None else copy(entry.row)

    def hanging_on(self, row: Row) -> list[Row]:
        """Return the rows that are gone when ``row`` is deleted, as this node has seen them last."""
        try:
            entries = self.replica.hanging_on(self.keys.row(row))
        except StoreError:  # its names are too long: there is none
            return []
        return [copy(entry.row) for entry in entries]

    def write(self, puts: Sequence[Row], deletes: Sequence[Row], then: Then) -> None:
        """Put and delete rows; ``then`` is called with None when this is durable, and all nodes have applied it.

        It is made only if no other node has changed these rows since this one saw them (``ConflictError``).

        Raises:
            StoreError: the session has ended.
        """
        if self._ending is not None or self._has_ended:
            raise StoreError("metadata store is closed")

        def made(error: StoreError | None, revision: int) -> None:
            if error is not None:
                then(error)
            else:
                # Nodes record a revision only if it has changed rows; a deletion of missing rows has not.
                needed = min(revision, self._changed_at)
                self.nodes.wait(needed, self._clock.monotonic_s(), lambda: then(None))

        if not self._transactor.lease:
            why = self.trouble or "it has just begun"
            error = StoreError(f"metadata not written: this node is in no cluster: {why}")
            self._clock.call_later(0.0, then, error)
            return
        if len(puts) > ROWS_PER_TURN:
            self._write_slices(sorted(puts, key=_table), deletes, made)
            return
        now_s, lease = self._clock.monotonic_s(), self._transactor.lease
        try:
            self._rows.add(puts, deletes, lease, now_s, made)
        except ConflictError as error:  # with a write that is on its way
            self._writes.answer_later(Write([], now_s, made), error)
        except StoreError as error:
            self._clock.call_later(0.0, then, error)
            return
        self._advance()

    def _write_slices(self, puts: list[Row], deletes: Sequence[Row], made: OnMade) -> None:
        """Make a large write, parents before their children, some rows in each turn; the first error ends it.

        What this node has written or seen meanwhile is newer than the rows that are still to be written: a conflict.
        """
        term, slices = self._transactor.lease, -(-len(puts) // ROWS_PER_TURN)
        left, is_over, last, began = slices, False, None, self.replica.applied
        put = {(row.TABLE, row.key) for row in puts} if deletes else set()
        deletes = [row for row in deletes if (row.TABLE, row.key) not in put]

        def slice_made(error: StoreError | None, revision: int) -> None:
            nonlocal left, is_over
            left -= 1
            if not is_over and (error is not None or not left):
                is_over = True
                made(error, revision)

        def add(at: int) -> None:
            nonlocal last
            if is_over or self._has_ended:
                return
            some, now_s = puts[at * ROWS_PER_TURN :][:ROWS_PER_TURN], self._clock.monotonic_s()
            first = deletes if at == 0 else ()
            try:
                if self._transactor.lease != term:
                    raise lost_error(False)
                if at > 0:
                    self._check_unchanged(some, began)
                last = self._rows.add(some, first, term, now_s, slice_made, last)
            except StoreError as error:
                self._clock.call_later(0.0, slice_made, error, 0)
                return
            self._advance()
            if at + 1 < slices:
                self._clock.call_later(0.0, add, at + 1)

        add(0)

    def _check_unchanged(self, rows: Sequence[Row], since: int) -> None:
        """Raise ConflictError for a row that was written after a revision."""
        for key in map(self.keys.row, rows):
            if self._writes.is_busy(key) or self.replica.revision(key) > since:
                raise ConflictError(f"{key} was changed during a large write; look again")

    def when_applied(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all nodes have applied what this node has applied; perhaps at once.

        A client that is answered after that finds the rows on every node.
        """
        self.nodes.wait(self._changed_at, self._clock.monotonic_s(), then)
        self._settle()

    def take_numbers(self, key: str, count: int, then: Callable[[int | StoreError], None]) -> None:
        """Take the next ``count`` numbers of a counter; call ``then`` with the last of them when it is durable."""
        stored = self._numbers.get(key)
        try:
            taken = 0 if stored is None else unpacked_number(key, stored.value)
        except StoreError as error:
            self._clock.call_later(0.0, then, error)
            return
        if self._writes.is_busy(key):  # this node is taking some already
            taken = self._taking[key]
        last = self._taking[key] = taken + count

        def made(error: StoreError | None, _: int) -> None:
            if isinstance(error, ConflictError):  # another node has taken them
                self.take_numbers(key, count, then)
            else:
                then(last if error is None else error)

        revision = 0 if stored is None else stored.revision
        self._write_keys([Put(key, packed_number(last))], made, {key: revision})

    # What etcd has (``Follower``).

    @property
    def received_to(self) -> int:
        received = self._received[-1][0] if self._received else 0
        return max(received, self.replica.applied)

    def decode(self, rows: Sequence[Stored]) -> None:
        self.replica.decode(rows)

    def loaded(self, scan: Scan) -> None:
        if scan.revision < self.replica.applied:
            self.went_back(scan.revision)
        if self._gone_back:
            raise StoreError(self._gone_back)
        found = {each.key: each for each in scan.rows}
        is_new = not check_format(self.keys, found)
        nodes = {key: _seen(row) for key, row in found.items() if self.keys.is_node(key)}
        changed = self.replica.load(scan.rows, scan.revision)
        self._numbers = {key: row for key, row in found.items() if self._is_number(key)}
        is_first = is_new and not nodes
        self.nodes.load(nodes, self._clock.monotonic_s(), is_first=is_first)
        self._is_loaded = True
        # Each node's key has the revision of the last change of rows that it has applied. The revision of the scan may
        # be higher, and no node would record that one. The scan does not show deletions: the other nodes have applied
        # them before ``valid_s`` is over, and ``nodes`` settles nothing earlier.
        newest = max((each.revision for each in scan.rows if self.keys.is_row(each.key)), default=0)
        self._tell(changed, max(self._changed_at, newest))
        if self._transactor.revision and self.keys.own not in nodes:
            self.lost_own()
        elif not self._transactor.revision:
            self._join()
        self._advance()

    def received(self, events: Sequence[Event]) -> None:
        groups = groupby(events, key=lambda event: event.revision)
        self._received += [(revision, list(group)) for revision, group in groups]
        if not self._is_applying:
            self._apply_some()

    def _apply_some(self) -> None:
        """Apply received revisions; after ``EVENTS_PER_TURN`` the rest in a later turn, as clients are served.

        Raises:
            StoreError: a row is damaged. All must be loaded again.
        """
        left = EVENTS_PER_TURN
        while self._received and left > 0:
            revision, events = self._received.popleft()
            if revision <= self.replica.applied:
                continue
            left -= len(events)
            try:
                self._apply(events, revision)
            except StoreError:
                self._received.clear()
                self._is_applying = False
                raise
        self._is_applying = bool(self._received) and not self._has_ended
        if self._is_applying:
            self._clock.call_later(0.0, self._apply_rest)
        self._advance()

    def _apply_rest(self) -> None:
        try:
            self._apply_some()
        except StoreError as error:
            self.in_trouble(str(error), is_stale=True)
            self._following.load()

    def in_trouble(self, why: str, is_stale: bool) -> None:
        self._complain(why)
        if is_stale:
            self._is_loaded = False
            self._update_live()

    def _apply(self, events: list[Event], revision: int) -> None:
        nodes = {
            each.key: _seen(Stored(each.key, each.value, each.revision, each.lease))
            for each in events
            if self.keys.is_node(each.key) and each.value is not None
        }
        changed = self.replica.apply(events, revision)
        for key, seen in nodes.items():
            self.nodes.put(key, seen)
        lease = self._transactor.lease
        if any(each.key == self.keys.own and each.lease == lease != 0 for each in events):
            changed = changed._replace(is_own=True)  # each transaction puts the key of its node
            self._transactor.applied(nodes[self.keys.own].state.seq)
        has_lost = False
        for each in events:
            if self._is_number(each.key):
                self._take_number(each)
            elif self.keys.is_node(each.key) and each.value is None:
                self.nodes.deleted(each.key, self._clock.monotonic_s())
                own = self._transactor.revision
                has_lost = has_lost or (each.key == self.keys.own and revision > own > 0)
        self._tell(changed, revision)
        if has_lost:
            self.lost_own()

    def _is_number(self, key: str) -> bool:
        return key in (self.keys.format, self.keys.boot_epoch, self.keys.queue_no)

    def _take_number(self, event: Event) -> None:
        if event.value is None:
            self._numbers.pop(event.key, None)
        else:
            self._numbers[event.key] = Stored(event.key, event.value, event.revision)

    def _tell(self, changed: Changed, changed_at: int) -> None:
        """Tell of changes, then of the writes that made them."""
        if changed.deletes or changed.puts:
            self._changed_at = changed_at
            self._listener.changed(changed)
        self.decided()

    # The transactions (``Owner``).

    def decided(self) -> None:
        if self._has_ended:
            return
        for write, error in self._writes.applied(self.replica.applied):
            write.then(error, write.revision)

    def found_own(self, sent_s: float, answer: TxnAnswer) -> None:
        if self._following.is_following:
            self.trouble = ""
        self._renewed_s = max(self._renewed_s, sent_s)
        self._renew_at_s = sent_s + self._settings.renew_s
        self._following.expect_revision(max((row.revision for row in answer.rows), default=0))
        self._advance()

    def lost_own(self) -> None:
        if self._has_ended:
            return
        log.warning("node was taken for dead by others, it joins again node=%s", self.keys.own)
        lease, unknown = self._transactor.lease, self._transactor.left()
        self.trouble = "it was taken for dead by others"
        self._is_loaded = False
        self._update_live()
        for write in unknown:
            self._writes.refused(write)
            write.then(lost_error(True), 0)
        for write in self._writes.give_up(float("inf")):
            write.then(lost_error(False), 0)
        self._lease = 0
        if self._ending is not None:
            self._revoke(lease, self._end)
        else:
            self._revoke(lease, self._following.load)  # it joins when it is loaded

    def went_back(self, revision: int) -> None:
        if not self._gone_back:
            self._gone_back = (
                f"etcd has revision {revision}, this node has seen {self.replica.applied}: it was restored from a "
                "backup, or is another etcd; restart all nodes"
            )
            self._reload()

    def _reload(self) -> None:
        """Serve nobody until all rows are loaded again."""
        self._is_loaded = False
        self._update_live()
        self._following.load()

    def not_answered(self, why: str) -> None:
        self._complain(why)
        self._later(self._advance)

    def _advance(self) -> None:
        """Answer writers whose revisions are settled, and send the next transaction, if one is due."""
        if self._has_ended:
            return
        self._settle()
        self._update_live()
        transactor = self._transactor
        is_ending = self._ending is not None and transactor.is_settled
        if is_ending and self._writes.is_empty and not self.nodes.is_waited_for:
            if not transactor.revision:
                return  # its lease is being revoked
            if transactor.has_left:
                self._revoke(transactor.lease, self._end)
                transactor.left()
            else:
                transactor.leave(self.replica.applied)
            return
        is_behind = self.nodes.has_others and transactor.recorded_applied < self._changed_at
        is_due = self._clock.monotonic_s() >= self._renew_at_s
        transactor.send(self.replica.applied, is_put=is_behind, is_due=is_due)

    def _settle(self) -> None:
        for then in self.nodes.settled(self.replica.applied, self._clock.monotonic_s()):
            then()

    def _end(self) -> None:
        then, self._ending = self._ending, None
        self.abort()
        if then is not None:
            then()

    # Joining.

    def _join(self) -> None:
        if self._has_ended or self._transactor.revision or self._is_joining or not self._is_loaded:
            return
        self._is_joining = True
        if self._lease:
            self._put_own()
        else:
            self._store.grant(self._settings.lease_s, self._granted)

    def _join_again(self, why: str) -> None:
        self._is_joining = False
        self._complain(why)
        self._later(self._join)

    def _granted(self, lease: int | ClusterError) -> None:
        if isinstance(lease, ClusterError):
            self._join_again(str(lease))
        elif not self._has_ended:
            self._lease = lease
            self._put_own()

    def _put_own(self) -> None:
        sent_s, applied = self._clock.monotonic_s(), self.replica.applied
        own = Put(self.keys.own, self._transactor.own_value(applied), self._lease)

        def answered(answer: TxnAnswer | ClusterError) -> None:
            if self._has_ended:
                return
            if isinstance(answer, ClusterError):
                if isinstance(answer, LeaseGoneError):
                    self._lease = 0
                self._join_again(str(answer))
                return
            found = next((row for row in answer.rows if row.key == own.key), None)
            if found is None:
                self._join_again("the key of this node was deleted while it joined")
            elif answer.is_done or found.lease == self._lease:  # else an answer was lost
                self._joined(found.revision, applied, sent_s, answer)
            else:
                self._replace(found)

        self._store.transact(Txn([Expect(own.key, 0)], [own], self.keys.nodes), answered)

    def _joined(self, revision: int, applied: int, sent_s: float, answer: TxnAnswer) -> None:
        log.info("node has joined node=%s revision=%d", self.keys.own, revision)
        self._is_joining = False
        self.taken = ""
        self._joined_at = revision
        self._transactor.joined(revision, self._lease, applied)
        if self.keys.format not in self._numbers:
            format_ = Put(self.keys.format, packed_number(FORMAT))
            self._write_keys([format_], _ignored, {self.keys.format: 0})
        is_first_of_all = not self._has_joined and len(answer.rows) == 1
        self._has_joined = True
        if is_first_of_all:  # there was no other node: transient exchanges have ended
            for key, entry in list(self.replica.live.items()):
                if isinstance(entry.row, ExchangeRow) and not entry.row.durable:
                    self._write_keys([Delete(key)], _ignored)
        self.found_own(sent_s, answer)

    def _replace(self, found: Stored) -> None:
        """Delete the key that an earlier process of this node has left, and its lease.

        If that process had locked the same directory, it has ended: this process has the lock now. Otherwise it may
        have been this node on another machine, or before a restart of this machine: then the key goes with its lease.
        """
        try:
            other = unpacked_node(found)
        except StoreError as error:
            self._join_again(str(error))
            return
        if refusal := refusal_of_key(found.key, self._state, other):
            self.taken = refusal
            self._join_again(refusal)
            return
        expect = Expect(found.key, found.revision)

        def answered(answer: TxnAnswer | ClusterError) -> None:
            if isinstance(answer, ClusterError):
                self._join_again(str(answer))
            else:
                self._is_joining = False
                self._revoke(found.lease, self._join)

        self._store.transact(Txn([expect], [Delete(found.key)], self.keys.nodes), answered)

    def _revoke(self, lease: int, then: Callable[[], None]) -> None:
        def answered(answer: bool | ClusterError) -> None:
            if isinstance(answer, ClusterError):
                self._complain(str(answer))
                self._later(self._revoke, lease, then)
            elif not self._has_ended:
                then()

        if not self._has_ended:
            self._store.revoke(lease, answered)

    # Time.

    def _tick(self) -> None:
        """Give up old writes, keep the lease alive, take hung nodes for dead, collect garbage."""
        if self._has_ended:
            return
        now_s = self._clock.monotonic_s()
        self._clock.call_later(self._settings.renew_s, self._tick)
        timeout_s = self._settings.write_timeout_s
        is_stuck = self._renewed_s < now_s - timeout_s  # else writes before this one are being made
        for write in self._writes.give_up(now_s - timeout_s) if is_stuck else ():
            text = f"metadata not written: etcd has taken nothing for {timeout_s} s"
            write.then(StoreError(f"{text}: {self.trouble}" if self.trouble else text), 0)
        if self._transactor.revision:
            self._store.keep_alive(self._transactor.lease, _not_needed)
            if self.is_live:
                self._take_for_dead(now_s)
                self._collect()
        self._advance()

    def _take_for_dead(self, now_s: float) -> None:
        """Delete the keys of nodes that have not applied an awaited revision in time."""
        for key, seen in self.nodes.suspects(self.replica.applied, now_s):
            if self._writes.is_busy(key):
                continue
            log.warning("node is taken for dead node=%s applied=%d", key, seen.state.applied)

            def deleted(error: StoreError | None, _: int, lease: int = seen.lease) -> None:
                if error is None:  # else it has answered meanwhile
                    self._store.revoke(lease, _not_needed)

            self._write_keys([Delete(key)], deleted, {key: seen.revision})

    def _collect(self) -> None:
        """Delete keys of rows that are not live; one node does it."""
        if self._is_collecting or not self.replica.dead or not self.nodes.is_first:
            return
        some = list(self.replica.dead)[:GARBAGE_MAX]
        garbage = [Delete(key) for key in some if not self._writes.is_busy(key)]

        def collected(error: StoreError | None, revision: int) -> None:
            self._is_collecting = False

        if garbage:
            self._is_collecting = True
            self._write_keys(garbage, collected)

    def _write_keys(
        self,
        writes: Sequence[Put | Delete],
        then: OnMade,
        revisions: dict[str, int] | None = None,
    ) -> None:
        changes = [Change(each) for each in writes]
        self._writes.add(Write(changes, self._clock.monotonic_s(), then), revisions)
        self._advance()

    def _update_live(self) -> None:
        is_live = self.is_live
        if is_live != self._was_live:
            self._was_live = is_live
            self._listener.live(is_live)
        if is_live and not self._expires:
            self._expires = True
            self._clock.call_later(self._valid_to_s() - self._clock.monotonic_s(), self._expire)

    def _valid_to_s(self) -> float:
        return self._renewed_s + self._settings.valid_s

    def _expire(self) -> None:
        self._expires = False
        if self._has_ended:
            return
        if self._clock.monotonic_s() >= self._valid_to_s() and not self.trouble:
            self._complain(f"etcd has not answered for {self._settings.valid_s} s")
        self._update_live()

    def _complain(self, why: str) -> None:
        if why != self.trouble and not self._has_ended:
            self.trouble = why
            log.warning("metadata in etcd, tried again: node=%s reason=%s", self.keys.own, why)

    def _later(self, call: Callable[..., None], *args: object) -> None:
        """Try again after a while."""
        self._clock.call_later(self._settings.retry_s, call, *args)


def _seen(stored: Stored) -> Seen:
    return Seen(unpacked_node(stored), stored.revision, stored.lease)


def _table(row: Row) -> int:
    return row.TABLE


def _ignored(error: StoreError | None, revision: int) -> None:
    """It does not matter: if it was not made, another node has."""


def _not_needed(answer: object) -> None:
    """It does not matter: a lease that is not kept alive ends, and its keys say so."""
