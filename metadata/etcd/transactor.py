"""The transactions of one node, one after the other; each expects the revision of the node's key that the last left.

The node's key has the number of the last transaction that wrote it (``seq``). When an answer is lost, a *barrier*, a
transaction that writes only that key, finds the outcome: if the barrier succeeds, the lost transaction was not made,
and never will be, since the revision that it expects is gone. If the barrier fails, the number in the key says which
transaction was the last.

If a transaction finds the key gone, or with another lease, this node was taken for dead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from leveret.core.errors import StoreError
from leveret.etcd.errors import (
    ClusterError,
    LeaseGoneError,
    UnavailableError,
    UnknownOutcomeError,
)
from leveret.etcd.key_values import Delete, Expect, Put, Txn, TxnAnswer
from leveret.metadata.etcd.codec import Keys, NodeState, packed_node, unpacked_node
from leveret.metadata.interface import ConflictError

if TYPE_CHECKING:
    from leveret.core.clock import Clock
    from leveret.etcd.key_values import Row as Stored
    from leveret.etcd.key_values import WatchedStore
    from leveret.metadata.etcd.writes import Write, Writes


class Owner(Protocol):
    """The receiver of the outcomes."""

    def found_own(self, sent_s: float, answer: TxnAnswer) -> None:
        """A transaction sent at a time has found the node's key in place."""

    def lost_own(self) -> None:
        """The node's key is gone."""

    def decided(self) -> None:
        """Writes have been made, or have met a conflict."""

    def went_back(self, revision: int) -> None:
        """Etcd has a lower revision than the node had applied when it sent the transaction."""

    def not_answered(self, why: str) -> None:
        """A transaction was not answered; ``send`` is to be called again, a little later."""


class Transactor:
    """The transactions of one node.

    Args:
        store: etcd.
        clock: for the times of ``found_own``.
        keys: of the node.
        state: what the node says of itself, but for its transactions.
        writes: the writes to send.
        owner: gets their outcomes.

    Attributes:
        revision: of the node's key; 0: it has none.
        lease: of the node; 0: it has none.
        recorded_applied: the applied revision that is in the node's key.
        has_left: whether its key says that it serves nobody any more.
    """

    def __init__(
        self,
        store: WatchedStore,
        clock: Clock,
        keys: Keys,
        state: NodeState,
        writes: Writes,
        owner: Owner,
    ) -> None:
        self._store = store
        self._clock = clock
        self._keys = keys
        self._state = state
        self._writes = writes
        self._owner = owner
        self.revision = self.lease = self.recorded_applied = 0
        self.has_left = False
        self._is_asking = False
        self._asked: list[Write] = []  # in the transaction that is on its way
        self._unknown: tuple[int, list[Write]] | None = (
            None  # whose answer was lost, and its number
        )
        self._terms = 0  # how often the node has joined, or has lost its key

    @property
    def is_settled(self) -> bool:
        """Whether no transaction is on its way, and none has lost its answer."""
        return not self._is_asking and self._unknown is None

    def joined(self, revision: int, lease: int, applied: int) -> None:
        """Begin: the node's key is written."""
        self.revision, self.lease, self.recorded_applied = revision, lease, applied
        self._terms += 1

    def left(self) -> list[Write]:
        """End: the node's key is gone. Return the writes that may have been made with it."""
        self.revision = self.lease = 0
        self._terms += 1
        _, unknown = self._unknown or (0, [])
        self._unknown = None
        return unknown

    def own_value(self, applied: int, has_left: bool = False) -> bytes:
        """Return the value of the node's key for the next transaction."""
        return packed_node(self._state._replace(applied=applied, has_left=has_left))

    def send(self, applied: int, *, is_put: bool, is_due: bool) -> None:
        """Send the next transaction, if none is on its way.

        Args:
            applied: the revision that the node has applied.
            is_put: whether its key must be written also without writes that wait.
            is_due: whether its key must at least be read.
        """
        if self._is_asking or not self.revision:
            return
        group: list[Write] = []
        if self._unknown is None:
            group = self._writes.take()
        is_put = is_put or bool(group) or self._unknown is not None
        if is_put or is_due:
            self._send(applied, group, is_put)

    def applied(self, seq: int) -> None:
        """Note that this node has just applied the transaction of this number, answered or not."""
        if self._unknown is not None and seq == self._unknown[0]:
            self._writes.judge(self._unknown[1])
        elif seq == self._state.seq:
            self._writes.judge(self._asked)

    def leave(self, applied: int) -> None:
        """Write into the node's key that it serves nobody any more; to be called when ``is_settled``."""
        self._send(applied, [], True, has_left=True)

    def _send(self, applied: int, group: list[Write], is_put: bool, has_left: bool = False) -> None:
        writes: list[Put | Delete] = [change.write for write in group for change in write.changes]
        if is_put:
            self._state = self._state._replace(seq=self._state.seq + 1)
            own = Put(self._keys.own, self.own_value(applied, has_left), self.lease)
            writes.insert(0, own)
        expects = [Expect(self._keys.own, self.revision), *self._writes.expects(group)]
        sent_s, term, seq = self._clock.monotonic_s(), self._terms, self._state.seq
        self._is_asking, self._asked = True, group

        def answered(answer: TxnAnswer | ClusterError) -> None:
            self._is_asking, self._asked = False, []
            if isinstance(answer, TxnAnswer) and answer.revision < applied:
                self._owner.went_back(answer.revision)
            if term != self._terms:
                self._orphaned(group, answer)
            elif isinstance(answer, ClusterError):
                self._not_answered(group, seq if is_put else 0, answer)
            elif answer.is_done:
                if is_put:
                    self.revision, self.recorded_applied = answer.revision, applied
                    self.has_left = has_left
                self._done(group, sent_s, answer)
            else:
                self._not_done(group, sent_s, answer)

        self._store.transact(Txn(expects, writes, self._keys.nodes), answered)

    def _done(self, group: list[Write], sent_s: float, answer: TxnAnswer) -> None:
        if self._unknown is not None:  # this was the barrier
            self._writes.put_back(self._unknown[1])
            self._unknown = None
        self._writes.made(group, answer.revision)
        self._owner.decided()
        self._owner.found_own(sent_s, answer)

    def _not_done(self, group: list[Write], sent_s: float, answer: TxnAnswer) -> None:
        if answer.found[self._keys.own] == self.revision:
            self._writes.conflicted(group, answer.found)
        else:
            self._writes.put_back(group)
            own = next((row for row in answer.rows if row.key == self._keys.own), None)
            if own is None or own.lease != self.lease:
                self._owner.lost_own()
                return
            self._take_up(own)
        self._owner.decided()
        self._owner.found_own(sent_s, answer)

    def _take_up(self, own: Stored) -> None:
        """Go on with the node's key as a transaction has left it whose answer was lost."""
        self.revision = own.revision
        if self._unknown is not None:
            (seq, unknown), self._unknown = self._unknown, None
            if unpacked_node(own).seq == seq:
                self._writes.made(unknown, own.revision)
            else:  # a barrier has been made
                self._writes.put_back(unknown)

    def _not_answered(self, group: list[Write], seq: int, error: ClusterError) -> None:
        """Decide what becomes of the writes of a transaction; ``seq`` is its number, 0: it only reads."""
        if isinstance(error, UnknownOutcomeError) and seq:
            if self._unknown is None:
                self._unknown = seq, group
        elif isinstance(error, UnavailableError | UnknownOutcomeError):
            self._writes.put_back(group)
        elif len(group) > 1:
            self._writes.try_singly(group)
        else:
            for write in group:
                self._refuse(write, error)
        self._owner.not_answered(str(error))

    def _orphaned(self, group: list[Write], answer: TxnAnswer | ClusterError) -> None:
        """Decide what becomes of writes that were on their way when this node was taken for dead."""
        if isinstance(answer, TxnAnswer) and answer.is_done:
            self._writes.made(group, answer.revision)
            self._owner.decided()
            return
        for write in group:
            self._writes.refused(write)
            write.then(lost_error(isinstance(answer, UnknownOutcomeError)), 0)

    def _refuse(self, write: Write, error: ClusterError) -> None:
        if isinstance(error, LeaseGoneError) and write.changes:  # else it is the lease of this node
            gone = ConflictError("the node on which a row hangs has ended; look again")
            self._writes.answer_later(write, gone)
        else:
            self._writes.refused(write)
            write.then(StoreError(f"metadata not written: {error}"), 0)


def lost_error(may_be_made: bool) -> StoreError:
    """Return the error of writes of a node that was taken for dead."""
    done = "it is not known whether metadata was written" if may_be_made else "metadata not written"
    return StoreError(f"{done}: this node was taken for dead by others")
