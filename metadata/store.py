"""Metadata on one node: rows in LMDB, written by one thread in groups.

Records (all integers big-endian)::

    key    table:u8 blake2b-160(msgpack(row key))      rows
           0:u8 name                                   counters: format, boot, queue
    value  crc32:u32 msgpack(fields)

A row's key can be longer than LMDB's 511 bytes (a binding has three names of 255 bytes and its
arguments), so its digest stands for it; the row itself carries all its fields. Field tables are stored
in AMQP's own encoding, so that no type letter is lost.

``write`` encodes the rows and hands the bytes to the writer thread, which commits all pending writes in one synced
transaction: a burst of declares costs one fdatasync. The thread itself encodes large writes, so that the caller is not
held up. The outcomes of a group are delivered by one call, in order. The map starts small; when it is full it is
doubled and the group written again.

When a group fails, its writes without puts are committed alone: on a full disk, room is kept for deletions. Every error
is an outcome; the thread goes on with the next group.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgpack

from leveret.core.errors import StoreError
from leveret.core.gil_yielding import NEVER, GilYielding, PendingWork
from leveret.core.threads import start_thread
from leveret.metadata.environment import (
    BOOT_KEY,
    NODE_KEY,
    QUEUE_KEY,
    Change,
    Environment,
    MetadataLostError,
    packed,
    unpacked,
)
from leveret.metadata.tables import ROWS, Contents, Row

if TYPE_CHECKING:
    from leveret.metadata.interface import Deliver, Then

MAP_BYTES: Final = 16 * 1024 * 1024
QUEUE_NOS: Final = 8_192  # reserved at a time
OUTCOMES_PER_TURN: Final = 50  # a script that resumes with one takes up to 0.1 ms

ENCODED_HERE: Final = 64  # rows; about 10 us each

_Write: TypeAlias = "tuple[Callable[[], list[Change]], Then, PendingWork]"


class MetadataStore:
    """Rows in an LMDB environment.

    Args:
        directory: created with mode 0700 and an empty store if missing.
        deliver: called by the writer thread with a function to run in the owner's thread.
        may_create: create missing or empty metadata.

    Raises:
        MetadataLostError: the metadata is missing, empty or damaged.
        StoreError: not a metadata store, of a later version, or already open.
        OSError: no thread is left.
    """

    def __init__(
        self,
        directory: Path,
        deliver: Deliver,
        map_bytes: int = MAP_BYTES,
        gil_yielding: GilYielding = NEVER,
        may_create: bool = True,
    ) -> None:
        self._directory = directory
        self._gil_yielding = gil_yielding
        self._deliver = deliver
        self._environment = Environment(directory, map_bytes, may_create)
        self._condition = threading.Condition()
        self._waiting: deque[_Write] = deque()
        self._outcomes: deque[tuple[Then, StoreError | None]] = deque()  # outcomes to report
        self._is_closing = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="leveret-metadata", daemon=True)
        try:
            self._boot_epoch: int = self._environment.own(BOOT_KEY)
            self._queue_no: int = self._environment.own(QUEUE_KEY)
            self._queue_nos_end = self._queue_no  # on disk
            self._is_reserving = False
            start_thread(self._thread)
        except BaseException:
            self._environment.close()
            raise

    @property
    def node(self) -> str:
        """The UUID of the node that owns the metadata; "": no node yet."""
        return self._environment.node()

    @property
    def last_transaction(self) -> int:
        """The number of the last transaction, also after ``close``; it grows with each commit."""
        return self._environment.last_transaction

    def belongs_to(self, node: str) -> None:
        """Record the node that owns the metadata; the record is durable when this returns."""
        self._environment.commit([(NODE_KEY, packed(node))], may_use_reserve=True)

    def load(self) -> Contents:
        """Return all rows; StoreError: a record is damaged."""
        contents = Contents()
        for key, value in self._environment.rows():
            contents.add(row_at(key, value))
        return contents

    def write(self, puts: Sequence[Row], deletes: Sequence[Row], then: Then) -> None:
        """As ``Metadata.write``; StoreError: the store is closed, or its thread has died."""
        if len(puts) + len(deletes) > ENCODED_HERE:
            self._enqueue(lambda: row_changes(puts, deletes), then)
            return
        changes = row_changes(puts, deletes)
        self._enqueue(lambda: changes, then)

    def next_boot_epoch(self) -> int:
        """Count this start; the number is durable when this returns."""
        self._boot_epoch += 1
        end = self._queue_no + QUEUE_NOS
        counters: list[Change] = [(BOOT_KEY, packed(self._boot_epoch)), (QUEUE_KEY, packed(end))]
        self._environment.commit(counters, may_use_reserve=True)
        self._queue_nos_end = end
        return self._boot_epoch

    def next_queue_no(self) -> int:
        """Return the next number.

        The end of a block is durable before any number of the block is used, so that no number is used
        again after a crash, not even if its row was never written. The thread reserves the next block while
        the second half of the last is used; the caller waits for the disk only when that has not sufficed.

        Raises:
            StoreError: a new block could not be written.
        """
        left = self._queue_nos_end - self._queue_no
        if left <= QUEUE_NOS // 2 and not self._is_reserving:
            with suppress(StoreError):  # the call that finds no number left raises it
                self._reserve_ahead()
        if not left:
            end = self._queue_nos_end + QUEUE_NOS
            self._environment.commit([(QUEUE_KEY, packed(end))])
            self._queue_nos_end = end
        self._queue_no += 1
        return self._queue_no

    def _reserve_ahead(self) -> None:
        end = self._queue_nos_end + QUEUE_NOS

        def reserved(refusal: StoreError | None) -> None:
            self._is_reserving = False
            if refusal is None:
                self._queue_nos_end = max(self._queue_nos_end, end)

        self._enqueue(lambda: [(QUEUE_KEY, packed(end))], reserved)
        self._is_reserving = True

    def copy_to(self, directory: Path) -> None:
        self._environment.copy_to(directory)

    def close(self) -> None:
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        self._thread.join()
        self._environment.close()

    def _enqueue(self, changes: Callable[[], list[Change]], then: Then) -> None:
        with self._condition:
            if self._failure is not None:
                raise StoreError(f"metadata writer has died: {self._failure}")
            if self._is_closing:
                raise StoreError(f"metadata store in {self._directory} is closed")
            self._waiting.append((changes, then, self._gil_yielding.submitted()))
            self._condition.notify()

    # The writer thread.

    def _run(self) -> None:
        try:
            while group := self._take():
                self._commit(group)
                del group  # a waiting thread must not keep the rows of the last writes
        except BaseException as failure:
            with self._condition:
                self._failure = failure
            raise

    def _take(self) -> list[_Write]:
        with self._condition:
            while not self._waiting and not self._is_closing:
                self._condition.wait()
            group = list(self._waiting)
            self._waiting.clear()
            return group

    def _commit(self, group: list[_Write]) -> None:
        writes = [_encoded(encode) for encode, *_ in group]
        good = [each for each in writes if not isinstance(each, StoreError)]
        refusal = deletions_refusal = self._written(good)
        if refusal is not None:
            deletions = [each for each in good if _is_deletion(each)]
            if 0 < len(deletions) < len(good):  # their room is kept for them
                deletions_refusal = self._written(deletions)

        for (_, then, _), each in zip(group, writes, strict=True):
            if isinstance(each, StoreError):
                self._outcomes.append((then, each))
            else:
                self._outcomes.append((then, deletions_refusal if _is_deletion(each) else refusal))
        self._deliver(self._report)
        for *_, pending in group:
            pending.done()

    def _written(self, writes: list[list[Change]]) -> StoreError | None:
        """Commit writes together; return why they are refused."""
        try:
            self._environment.commit([change for changes in writes for change in changes])
        except Exception as error:  # noqa: BLE001  # its clients are answered, and the thread goes on
            return _as_store_error(error)
        return None

    def _report(self) -> None:
        """Call back the first outcomes, and the others in later turns, also if one of these raises."""
        outcomes = self._outcomes
        try:
            for _ in range(min(len(outcomes), OUTCOMES_PER_TURN)):
                then, outcome = outcomes.popleft()
                then(outcome)
        finally:
            if outcomes:
                self._deliver(self._report)


def take_over(directory: Path, node: str, boot_epoch: int, queue_no: int) -> int:
    """Make a node the owner of existing metadata; return the number of the last transaction.

    Args:
        directory: of the metadata, which is created if it is missing or empty.
        node: the node's UUID; "": no node.
        boot_epoch: the highest boot epoch in use.
        queue_no: the highest queue number in use.

    Raises:
        StoreError: the metadata is damaged, in use, or cannot be written.
    """
    environment = Environment(directory, MAP_BYTES)
    try:
        owner = packed(node) if node else None
        epoch = max(boot_epoch, environment.own(BOOT_KEY))
        counters: list[Change] = [(BOOT_KEY, packed(epoch)), (QUEUE_KEY, packed(queue_no))]
        environment.commit([(NODE_KEY, owner), *counters], may_use_reserve=True)
        return environment.last_transaction
    finally:
        environment.close()


def row_changes(puts: Sequence[Row], deletes: Sequence[Row]) -> list[Change]:
    """Return the changes of an environment that put and delete rows."""
    changes: list[Change] = [(_key(row), None) for row in deletes]
    return changes + [(_key(row), packed(row.to_fields())) for row in puts]


def _encoded(encode: Callable[[], list[Change]]) -> list[Change] | StoreError:
    try:
        return encode()
    except Exception as error:  # noqa: BLE001  # of this write alone
        return _as_store_error(error)


def _as_store_error(error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    return StoreError(f"metadata cannot be written: {str(error) or type(error).__name__}")


def _is_deletion(changes: list[Change]) -> bool:
    return all(value is None for _, value in changes)


def _key(row: Row) -> bytes:
    name = msgpack.packb(row.key, unicode_errors="surrogateescape")
    return bytes((row.TABLE,)) + blake2b(name, digest_size=20).digest()


def row_at(key: bytes, value: bytes) -> Row:
    """Return a stored row; StoreError: as ``row_of``, or the key is another row's."""
    row = row_of(key[0], value)
    if _key(row) != key:
        raise MetadataLostError(f"metadata record is damaged: {row.key} under the key of another")
    return row


def row_of(table: int, value: bytes) -> Row:
    """Return a stored row; StoreError: it is damaged, or of a later version."""
    kind = ROWS.get(table)
    if kind is None:
        raise StoreError(f"metadata record of table {table}, which this version does not know")
    fields = unpacked(value)
    try:
        return kind.from_fields(fields)
    except (TypeError, AttributeError) as error:
        raise StoreError(f"metadata record does not fit {kind.__name__}: {error}") from error
