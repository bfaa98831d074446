"""Writing of metadata: a change that was made in memory is put on disk before its client is answered.

Actors commit by script, through the metadata server; an operator's task writes past it, to the same store.
Both note the rows on their way in ``pending``, so that neither brings back a row that the other has deleted.

In a cluster a script decides on the rows that this node has applied, and waits for revisions, never for a time:

=================  ======================================================================================
``commit``         until all nodes have applied the revision of the write
``retried``        after a conflict: until this node has applied the conflicting row; then the script begins anew
``until_put``      until the puts of other clients of this node are answered
``until_deleted``  until rows that were deleted in the memory of this node are deleted in the store
``until_applied``  until all nodes have applied this node's revision, before answers about rows of other nodes
=================  ======================================================================================

So every answer holds on all nodes when the client has it. Calls to other nodes are answered in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from leveret.actors.runtime.signals import CallFailed
from leveret.amqp.errors import InternalError
from leveret.broker.script import Ask, Steps, Until
from leveret.broker.vhost.metadata.pending_writes import PendingWrites
from leveret.core.errors import StoreError
from leveret.core.log.loggers import logger
from leveret.core.slices import SLICE_ITEMS
from leveret.metadata.interface import ConflictError
from leveret.metadata.tables import DeletedQueueRow, ExchangeRow

if TYPE_CHECKING:
    from leveret.actors.runtime.runtime import Runtime
    from leveret.metadata.interface import Metadata, SharedMetadata
    from leveret.metadata.tables import Row

log = logger(__name__)

METADATA_SERVER: Final = "metadata_store"
ATTEMPTS_MAX: Final = 1_000  # each a round trip to etcd, with another node's write in the way
_RETRY_S: Final = 0.02  # while the metadata server is restarted


class OvertakenError(InternalError):
    """Another node of the cluster has changed a row since this node decided on it: nothing was written.

    Args:
        reason: names the row and says how it changed; it is logged.
    """

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


def retried(attempt: Callable[[], Steps]) -> Steps:
    """Run the script that ``attempt`` makes; repeat it each time another node was faster, whose row is applied then.

    Raises:
        InternalError: it was so ``ATTEMPTS_MAX`` times; the memory of this node differs from the metadata store.
    """
    attempts = 0
    while True:
        try:
            return (yield from attempt())
        except OvertakenError as error:
            attempts = _again(attempts, error.reason)


def _again(attempts: int, reason: str) -> int:
    """Count an attempt that failed since another node was faster; InternalError: there were too many."""
    if attempts + 1 < ATTEMPTS_MAX:
        return attempts + 1
    log.error(
        "rows in memory differ from the metadata store, a client is refused attempts=%d reason=%s",
        ATTEMPTS_MAX, reason,
    )  # fmt: skip
    raise InternalError()


class Write(Struct, eq=False):
    """To the metadata server: put and delete rows; answered None, or the StoreError."""

    puts: Sequence[Row]
    deletes: Sequence[Row]


class Delete(Struct, eq=False):
    """To the metadata server: delete these rows, as far as they are still owed, without an answer."""

    rows: Sequence[Row]


class MetadataWriter:
    """Writes a node's changes to its metadata store.

    Attributes:
        store: the metadata store; its maker closes it.
        pending: changes that are not known to be on disk yet.
        deleted_queues: numbers of deleted queues that may have messages in a store still.
        shared: the store, if several nodes share it; None: there is no cluster.
        on_settled: in a cluster, gets rows whose put or deletion has ended: other nodes may have changed them
            meanwhile, so that this node's memory differs from the store.
    """

    def __init__(self, runtime: Runtime, store: Metadata) -> None:
        self._runtime = runtime
        self.store = store
        self.pending = PendingWrites(runtime.after_drain)
        self.deleted_queues: set[int] = set()
        self.shared: SharedMetadata | None = None
        self.on_settled: Callable[[Sequence[Row]], None] | None = None

    def commit(self, puts: Sequence[Row], deletes: Sequence[Row]) -> Steps:
        """Wait until rows are on disk; ask again when the metadata server was restarted.

        Raises:
            InternalError: the disk refused them. The deletes are owed all the same.
            OvertakenError: another node has changed one of the rows to put; it is known here already.
        """
        pending = self.pending
        pending.delete(deletes)
        replaced = pending.put(puts)
        is_refused = is_settled = False
        try:
            yield from self._commit(puts, deletes, replaced)
            pending.deleted(deletes)
            is_settled = True
        except (InternalError, GeneratorExit) as end:
            is_refused = isinstance(end, InternalError)
            is_settled = isinstance(end, OvertakenError)
            self._delete_owed(deletes)
            raise
        finally:
            if self.shared is None:  # else the put ends with the write
                self._put_ended(puts, is_refused)
            if is_settled:
                self.settled([*puts, *deletes])

    def _commit(
        self, puts: Sequence[Row], deletes: Sequence[Row], replaced: Sequence[Row]
    ) -> Steps:
        attempts = 0
        while True:
            answer, owed = yield from self._attempt(puts, deletes, replaced)
            if answer is None:
                self.pending.deleted(owed)
                if len(owed) == len(deletes):
                    return
                puts = replaced = ()
            elif not isinstance(answer, ConflictError):
                log.error("metadata not written, its client is refused error=%s", answer)
                raise InternalError()
            elif puts:
                raise OvertakenError(str(answer))
            elif self.pending.owed(deletes):
                attempts = _again(attempts, str(answer))
                continue
            # Other clients put these rows again. Where that is refused, the deletion is owed once more.
            yield from self.until_put(*deletes)
            if not self.pending.owed(deletes):
                return

    def _attempt(
        self, puts: Sequence[Row], deletes: Sequence[Row], replaced: Sequence[Row]
    ) -> Steps:
        """Have rows written; return None or the store's error, and the deletes that were owed and written with them."""
        while True:
            owed = self.pending.owed(deletes)
            server = self._runtime.whereis(METADATA_SERVER)
            if self.shared is not None:
                answer = yield Until(partial(self._write_shared, puts, [*owed, *replaced]))
                return answer, owed
            if server is not None:
                answer = yield Ask(server, Write(self.pending.latest(puts), owed))
                if not isinstance(answer, CallFailed):
                    return answer, owed
            yield Until(lambda resume: self._runtime.clock.call_later(_RETRY_S, resume))

    def _write_shared(
        self, puts: Sequence[Row], deletes: Sequence[Row], resume: Callable[[Any], None]
    ) -> None:
        """Have the store write rows in the same turn in which their client's script has decided on them.

        Changes of other nodes are applied between two turns. So the script has decided on the store's present rows; if
        they have changed when the write is made, it is a conflict. Other clients wait for the rows until the store has
        answered, even if this client has gone.
        """

        def written(error: StoreError | None) -> None:
            self._put_ended(puts, is_refused=error is not None)
            resume(error)
            self.settled(puts)

        try:
            self.store.write(puts, deletes, written)
        except StoreError as error:  # it is closed
            written(error)

    def until_applied(self) -> Steps:
        """Wait until all nodes of the cluster have applied the revision that this one has applied.

        A client that is answered afterwards finds the rows of other nodes on every node.
        """
        shared = self.shared
        if shared is not None:
            yield Until(lambda resume: shared.when_applied(lambda: resume(None)))

    def until_put(self, *rows: Row) -> Steps:
        """Wait until rows that clients of this node put are written or refused, and all nodes have applied that."""
        for row in rows:
            while self.pending.is_being_put(row):
                yield Until(partial(self.pending.when_put, row))
        yield from self.until_applied()

    def until_deleted(self, *rows: Row) -> Steps:
        """Wait until rows that were deleted on this node are so on disk, and on all nodes."""
        for row in rows:
            owed = self.pending.deletes_of(row)
            if owed:
                yield from self.commit([], owed)
            else:
                yield from self.until_put(row)

    async def write(self, puts: list[Row], deletes: list[Row] | None = None) -> None:
        """Write rows from outside the actors; return when they are on disk, or raise StoreError."""
        done: asyncio.Future[StoreError | None] = asyncio.get_running_loop().create_future()
        slices = [puts[start : start + SLICE_ITEMS] for start in range(0, len(puts), SLICE_ITEMS)]
        noted: list[list[Row]] = []
        is_refused = False

        def written(error: StoreError | None) -> None:
            if not done.done():  # else the caller was cancelled
                done.set_result(error)

        try:
            for some in slices:
                if noted:
                    await asyncio.sleep(0)
                self.pending.put(some)
                noted.append(some)
            self.store.write(puts, deletes or [], written)
            error = await done
            if error is not None:
                raise error
        except StoreError:
            is_refused = True
            raise
        finally:
            for some in noted:
                self._put_ended(some, is_refused)
                if len(noted) > 1:
                    await asyncio.sleep(0)

    def delete_later(self, rows: Sequence[Row]) -> None:
        """Have rows deleted without waiting for it; later commits come behind the first attempt."""
        self.pending.delete(rows)
        self._delete_owed(rows)

    def delete_left(self, rows: Iterable[Row]) -> None:
        """Delete auto-delete exchanges that ended with deletions by other nodes, which may have deleted them too."""
        shared = self.shared
        if shared is None:
            return
        left = [
            row
            for row in rows
            if isinstance(row, ExchangeRow)
            and not self.pending.is_pending(row)
            and (stored := shared.find(row)) is not None
            and stored.to_fields() == row.to_fields()
        ]
        if left:
            self.delete_later(left)

    def note_deleted(self, queue_nos: Sequence[int]) -> None:
        """Note deleted queues whose messages are not removed at once.

        If the disk refuses the note and the broker crashes before they are removed, they stay for a while.
        """
        self.deleted_queues.update(queue_nos)
        with suppress(StoreError):  # the store is being restarted
            self.store.write([DeletedQueueRow(no) for no in queue_nos], [], lambda _: None)

    def forget_deleted(self, queue_nos: Sequence[int]) -> None:
        """Forget deleted queues whose messages are gone."""
        self.deleted_queues.difference_update(queue_nos)
        self.delete_later([DeletedQueueRow(no) for no in queue_nos])

    def settled(self, rows: Sequence[Row]) -> None:
        """Note that the put or deletion of rows has come to its end."""
        if self.on_settled is not None and rows:
            self.on_settled(rows)

    def _put_ended(self, rows: Sequence[Row], is_refused: bool) -> None:
        again = self.pending.waited_for(rows, is_refused)
        if again:
            self._delete_owed(again)

    def _delete_owed(self, rows: Sequence[Row]) -> None:
        server = self._runtime.whereis(METADATA_SERVER)
        if server is not None:  # else its successor begins with them
            self._runtime.send(server, Delete(rows))
