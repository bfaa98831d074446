"""The changes of one node on their way to etcd.

A *write* is a list of changes of keys. Each change has the revision of its key on which the writer has decided. etcd
makes the write only if all keys still have these revisions; otherwise it is a *conflict*, and the writer decides again
when this node has applied the conflicting change. A write may build on a pending write: then it expects the revision
that the pending write will get, and shares its outcome.

So when ``ConflictError`` is answered, this node has applied the conflicting revision: that of the key in conflict, or,
where that is not known (``answer_later``), that of the node's next transaction. A writer that decides again finds
other rows than before, and need not wait.

A node has one transaction under way at a time. Waiting writes go into the next one, as many as fit, so a burst of
writes costs few round trips, and a node's writes keep the order of the calls. If a transaction fails, the writes in
conflict are taken out, and the others are sent again.

This file composes the next transaction, and applies its answer to the writes; ``transactor`` sends it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from leveret.core.errors import StoreError
from leveret.etcd.gateway_txns import OPERATIONS_MAX, TXN_BYTES_MAX, size_bytes
from leveret.etcd.key_values import Delete, Expect, Put
from leveret.metadata.interface import ConflictError

if TYPE_CHECKING:
    from leveret.metadata.etcd.codec import Entry, Keys
    from leveret.metadata.etcd.replica import Replica

WRITES_MAX: Final = OPERATIONS_MAX - 2  # of one transaction, beside the own key and a read
BYTES_MAX: Final = TXN_BYTES_MAX - 4096  # the rest is for the own key


_T = TypeVar("_T")
OnMade: TypeAlias = Callable[[StoreError | None, int], None]


class Change(NamedTuple):
    """A change of one key.

    Attributes:
        write: the put or the deletion.
        entry: the row that is put; None: the row is deleted, or it is no row.
    """

    write: Put | Delete
    entry: Entry | None = None


class Write:
    """Changes that are made together, in one transaction.

    Args:
        changes: at most one of each key, at most ``WRITES_MAX``.
        since_s: when it was asked for.
        then: gets None and the revision when it is applied here, or the error.
        after: another write without which it is not made.

    Attributes:
        revision: with which it was made; 0: it was not yet.
        has_failed: it was not made, and will not be.
        judged: once this node has applied its revision, the error or None that it is answered with.
    """

    def __init__(
        self, changes: list[Change], since_s: float, then: OnMade, after: Write | None = None
    ) -> None:
        self.changes = changes
        self.after = after
        self.since_s = since_s
        self.then = then
        self.expects: list[_Expected] = []
        self.revision = 0
        self.has_failed = False
        self.judged: list[ConflictError | None] = []
        self.size_bytes = sum(size_bytes(each.write) for each in changes)


class _Expected(NamedTuple):
    """The revision that a key must have: a number, or that of a write before, which puts (or deletes) it."""

    revision: int
    after: Write | None
    is_put: bool

    def now(self) -> int:
        """Return the revision; the write before has been made."""
        if self.after is None:
            return self.revision
        return self.after.revision if self.is_put else 0


class _Conflict(NamedTuple):
    """A write that failed, to be answered when this node has applied the conflicting change."""

    write: Write
    key: str
    expected: int
    found: int


Outcome: TypeAlias = tuple[Write, StoreError | None]


class Writes:
    """The changes of one node on their way.

    Args:
        keys: where they are.
        replica: the rows as this node has them.
    """

    def __init__(self, keys: Keys, replica: Replica) -> None:
        self._keys = keys
        self._replica = replica
        self._queue: deque[Write] = deque()
        self._latest: dict[str, tuple[Write, Change]] = {}
        self._made: deque[Write] = deque()  # in etcd, not applied here yet
        self._conflicts: list[_Conflict] = []
        self._singly = 0  # so many transactions have one write each, to find out which is refused

    # What a writer sees.

    def entry(self, key: str) -> Entry | None:
        """Return the live row of a key, as it will be when all writes so far are made."""
        latest = self._latest.get(key)
        entry = latest[1].entry if latest is not None else self._replica.entries.get(key)
        if entry is None:
            return None
        for parent, incarnation in entry.parents:
            found = self.entry(parent)
            if found is None or found.incarnation != incarnation:
                return None
        return entry

    def add(self, write: Write, revisions: dict[str, int] | None = None) -> None:
        """Take a write in.

        Args:
            write: expects its keys as they will be after all writes so far.
            revisions: of keys that are no rows.
        """
        for change in write.changes:
            key = change.write.key
            latest = self._latest.get(key)
            if latest is not None:
                expected = _Expected(0, latest[0], isinstance(latest[1].write, Put))
            elif revisions is not None and key in revisions:
                expected = _Expected(revisions[key], None, True)
            else:
                expected = _Expected(self._replica.revision(key), None, True)
            write.expects.append(expected)
            self._latest[key] = write, change
        self._queue.append(write)

    def is_busy(self, key: str) -> bool:
        """Return whether a write of a key is on its way."""
        return key in self._latest

    @property
    def is_empty(self) -> bool:
        """Whether every write has been answered."""
        return not (self._queue or self._made or self._conflicts)

    # Transactions.

    def take(self) -> list[Write]:
        """Return the writes of the next transaction; a write that shares another's outcome has no changes."""
        group: list[Write] = []
        keys: set[str] = set()
        count = size = 0
        while self._queue:
            write = self._queue[0]
            before = [write.after, *(each.after for each in write.expects)]
            if any(each is not None and each.has_failed for each in before):
                error = ConflictError("it builds on a write that was not made; look again")
                self.answer_later(self._queue.popleft(), error)
                continue
            names = {change.write.key for change in write.changes}
            count += len(names)
            size += write.size_bytes
            is_full = count > WRITES_MAX or size > BYTES_MAX or self._singly > 0
            if group and (is_full or names & keys):
                break
            keys |= names
            group.append(self._queue.popleft())
        if group and self._singly:
            self._singly -= 1
        return group

    @staticmethod
    def expects(group: Iterable[Write]) -> list[Expect]:
        return [
            Expect(change.write.key, expected.now())
            for write in group
            for change, expected in zip(write.changes, write.expects, strict=True)
        ]

    def put_back(self, group: Sequence[Write]) -> None:
        """Have writes whose transaction has had no effect tried again, before all others."""
        self._queue.extendleft(reversed(group))

    def try_singly(self, group: Sequence[Write]) -> None:
        """Have each of these writes tried in a transaction of its own."""
        self._singly = len(group)
        self.put_back(group)

    def made(self, group: Iterable[Write], revision: int) -> None:
        """Note that a transaction was made."""
        for write in group:
            write.revision = revision
            self._made.append(write)

    def judge(self, group: Iterable[Write]) -> None:
        """Judge writes with whose revision the replica is now; that they were made may be answered later."""
        for write in group:
            write.judged = write.judged or [self._gone(write)]

    def conflicted(self, group: Sequence[Write], found: dict[str, int]) -> None:
        """Take out the writes that expect other revisions than were found; the others are tried again."""
        others = []
        for write in group:
            conflict = self._conflict(write, found)
            if conflict is None:
                others.append(write)
            else:
                self._conflicts.append(conflict)
                self.refused(write)
        self.put_back(others)

    def refused(self, write: Write) -> None:
        """Note that a write is not made."""
        write.has_failed = True
        self._settle(write)

    def answer_later(self, write: Write, error: ConflictError) -> None:
        """Have a write that cannot be made take part in a transaction without its changes, and be answered with it.

        What is in its way is in etcd, or in a write before it. So this node has applied that when it has applied the
        transaction.
        """
        self.refused(write)
        write.changes, write.after, write.judged = [], None, [error]
        self._queue.append(write)

    def give_up(self, before_s: float) -> list[Write]:
        """Take out the writes that were asked for before a time, and are not on their way."""
        old = [write for write in self._queue if write.since_s < before_s]
        for write in old:
            self._queue.remove(write)
            self.refused(write)
        return old

    # What is applied.

    def applied(self, revision: int) -> list[Outcome]:
        """Return the writes that are decided by this revision, which the replica has just applied."""
        outcomes: list[Outcome] = []
        while self._made and self._made[0].revision <= revision:
            write = self._made.popleft()
            outcomes.append((write, write.judged[0] if write.judged else self._gone(write)))
            self._settle(write)
        if self._conflicts:
            known = [each for each in self._conflicts if self._is_known(each)]
            self._conflicts = [each for each in self._conflicts if not self._is_known(each)]
            outcomes += [(each.write, _conflict_error(each.key)) for each in known]
        return outcomes

    def _gone(self, write: Write) -> ConflictError | None:
        """Return an error if a row was put that is not live, as a row on which it hangs was deleted at the same time.

        The row itself may be gone when this is asked: after it was made, another node has deleted it. So the error must
        be that of the revision with which it was made.
        """
        live = self._replica.live
        for change in write.changes:
            for parent, incarnation in change.entry.parents if change.entry is not None else ():
                if parent not in live or live[parent].incarnation != incarnation:
                    return _conflict_error(parent)
        return None

    def _conflict(self, write: Write, found: dict[str, int]) -> _Conflict | None:
        for change, expected in zip(write.changes, write.expects, strict=True):
            key = change.write.key
            if found[key] != expected.now():
                return _Conflict(write, key, expected.now(), found[key])
        return None

    def _is_known(self, conflict: _Conflict) -> bool:
        """Return whether the replica has applied the conflicting change."""
        replica, key = self._replica, conflict.key
        if conflict.found or not self._keys.is_row(key):
            return replica.applied >= conflict.found
        # It was deleted, and revisions never come again.
        return replica.applied >= conflict.expected and replica.revision(key) != conflict.expected

    def _settle(self, write: Write) -> None:
        for change in write.changes:
            latest = self._latest.get(change.write.key)
            if latest is not None and latest[0] is write:
                del self._latest[change.write.key]
        write.expects.clear()  # else each write would keep all before it


def in_parts(changes: Sequence[_T], write: Callable[[_T], Put | Delete]) -> list[list[_T]]:
    """Return changes in parts that fit into one transaction each, in their order."""
    parts: list[list[_T]] = []
    size = 0
    for change in changes:
        more = size_bytes(write(change))
        size += more
        if not parts or len(parts[-1]) == WRITES_MAX or size > BYTES_MAX:
            parts.append([])
            size = more
        parts[-1].append(change)
    return parts


def _conflict_error(key: str) -> ConflictError:
    return ConflictError(f"another node has changed {key} meanwhile; look again")
