"""What the shared store holds: values by key, each with the revision of its last write.

``KeyValues`` is the store for who changes one key at a time, ``WatchedStore`` for who follows all keys with a prefix
and changes several at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from leveret.etcd.errors import ClusterError


class Row(NamedTuple):
    """A value in the store.

    Attributes:
        key: its name.
        value: the bytes.
        revision: of its last write; revisions count all writes to the store, so they increase for every key.
        lease: with whose end the key is deleted; 0: it stays.
    """

    key: str
    value: bytes
    revision: int
    lease: int = 0


class Swap(NamedTuple):
    """The outcome of a compare-and-swap.

    Attributes:
        is_done: whether the key had the revision that was expected, and was written.
        row: what the store has now under the key; None: nothing.
    """

    is_done: bool
    row: Row | None


class Read(NamedTuple):
    """An operation: read a key. The answer is its ``Row``, or None."""

    key: str


class CompareAndSwap(NamedTuple):
    """An operation: write a value, or delete it if ``value`` is None, if the key's revision is ``revision``.

    The answer is a ``Swap``.
    """

    key: str
    value: bytes | None
    revision: int


Operation: TypeAlias = Read | CompareAndSwap
Outcome: TypeAlias = Row | Swap | None

OnRow: TypeAlias = Callable[[Row | ClusterError | None], None]
OnSwap: TypeAlias = Callable[[Swap | ClusterError], None]


class KeyValues(Protocol):
    """The store, for requests that do not block. ``then`` is called exactly once, on the event loop's thread."""

    def read(self, key: str, then: OnRow) -> None:
        """Answer the row of a key, or the error."""

    def swap(self, key: str, value: bytes | None, revision: int, then: OnSwap) -> None:
        """Answer the outcome of a compare-and-swap, or the error."""


class Scan(NamedTuple):
    """The keys with a prefix, in order, as they were at one revision of the store."""

    rows: list[Row]
    revision: int


class Event(NamedTuple):
    """A write to a key, as a watch reports it.

    Attributes:
        key: that was written.
        value: the bytes; None: the key was deleted.
        revision: of the write; writes of one transaction have the same.
        lease: of the key; 0: none.
    """

    key: str
    value: bytes | None
    revision: int
    lease: int = 0


class Expect(NamedTuple):
    """A precondition: the key's last write has this revision; 0: there is no such key."""

    key: str
    revision: int


class Put(NamedTuple):
    """Write a value, to be deleted with the end of a lease if that is not 0."""

    key: str
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    """Delete a key; a missing one is fine."""

    key: str


class Txn(NamedTuple):
    """A transaction: all its writes, if all its preconditions hold; otherwise none.

    Attributes:
        expects: the preconditions.
        writes: at most one for each key.
        read: a prefix whose keys are read in any case, behind the writes.
    """

    expects: Sequence[Expect]
    writes: Sequence[Put | Delete]
    read: str


class TxnAnswer(NamedTuple):
    """The outcome of a transaction.

    Attributes:
        is_done: whether the preconditions held.
        revision: of the store, after it.
        rows: that were read.
        found: if it was not done, the revision of the last write of each expected key, 0 without one.
    """

    is_done: bool
    revision: int
    rows: list[Row]
    found: dict[str, int]


OnOutcomes: TypeAlias = Callable[[Sequence[Outcome] | ClusterError], None]
OnScan: TypeAlias = Callable[[Scan | ClusterError], None]
OnTxn: TypeAlias = Callable[[TxnAnswer | ClusterError], None]
OnLease: TypeAlias = Callable[[int | ClusterError], None]
OnAlive: TypeAlias = Callable[[bool | ClusterError], None]
OnEvents: TypeAlias = Callable[[Sequence[Event] | ClusterError], None]


class Watch(Protocol):
    """A running watch."""

    def cancel(self) -> object:
        """End it: no events are reported any more. A second call does nothing."""


class WatchedStore(Protocol):
    """The store, for requests that do not block. ``then`` is called exactly once, on the loop, never at once."""

    def scan(self, prefix: str, then: OnScan) -> None:
        """Answer all keys with a prefix."""

    def transact(self, txn: Txn, then: OnTxn) -> None:
        """Answer the outcome of a transaction.

        ``UnknownOutcomeError``: it may take effect, now or later; any other error: it has had no effect.
        ``LeaseGoneError``: a lease of its puts does not exist.
        """

    def grant(self, ttl_s: int, then: OnLease) -> None:
        """Answer the number of a new lease, which ends so long after it was kept alive last."""

    def keep_alive(self, lease: int, then: OnAlive) -> None:
        """Answer whether the lease still exists."""

    def revoke(self, lease: int, then: OnAlive) -> None:
        """End a lease, and its keys; answer whether there was one."""

    def watch(self, prefix: str, revision: int, on_events: OnEvents) -> Watch:
        """Report all writes to keys with a prefix, from a revision on and in their order.

        The events of one revision come in one call. An error comes last; then the watch has ended.
        ``CompactedError``: the store does not keep that revision any more.
        """
