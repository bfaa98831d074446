"""Rows and places as the index has them, and the index's interface: LMDB, or memory in tests.

The index is the state of the log as of a checkpoint. One thread writes it, in atomic transactions that are
synced when ``write`` returns; any thread reads it.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from leveret.msg_store.format.errors import Corrupt

IndexRow: TypeAlias = tuple[int, int, int, int, int]  # seq, msg_no, body_size, expiry_ms, flags
# file_no, offset, total_len, body_size, log_count
Location: TypeAlias = tuple[int, int, int, int, int]

ProducerRow: TypeAlias = tuple[int, int, int]  # epoch, last sequence, used at (ms since 1970)
ProducerKey: TypeAlias = tuple[int, bytes]  # queue_no, producer id
Producers: TypeAlias = dict[int, dict[bytes, ProducerRow]]  # by queue_no and producer id

SEQ_END: Final = 1 << 64  # above all seqs


class IndexDamaged(Corrupt):
    """The index is damaged; it can be rebuilt from the segments."""


class IndexMissing(IndexDamaged):
    """There is no index to read."""


class IndexFull(Exception):  # noqa: N818  an event, not an error
    """The disk is full; nothing of the transaction was written."""

    errno: Final = errno.ENOSPC  # for ``core.shortage``


class QueueTerms(NamedTuple):
    """A queue as of the checkpoint."""

    next_seq: int  # above all seqs of durable rows; that of ``terminate`` if ``is_clean``
    next_deliver: int  # every message below it had been handed out; only if ``is_clean``
    messages: int  # how many rows it has
    size_bytes: int  # the bodies of those rows
    is_clean: bool  # nothing happened to the queue after its ``terminate``


class FileRow(NamedTuple):
    """A segment as of the checkpoint: bytes of live records, length."""

    valid_bytes: int
    size_bytes: int


class Checkpoint(NamedTuple):
    """How far the index goes."""

    lsn: int  # all records of the log below it are in the index, none above
    first_journal: int  # the number of the first journal file that may have records above
    boot_epoch: int  # of the start that made it
    next_file_no: int  # above all numbers of segments that were ever used
    is_clean: bool = False  # the store was stopped after it, with nothing left to do
    # All messages with rows above lie in segments from this place on; None: an older version wrote the checkpoint, and
    # no end mark (``end_mark``).
    since: tuple[int, int] | None = None


@dataclass(slots=True)
class Batch:
    """One transaction; acked rows are removed before ``rows`` are added.

    It may be written twice: a full index grows and begins the transaction anew.
    """

    rows: Mapping[int, Mapping[int, IndexRow]] = field(default_factory=dict)
    acked: Mapping[int, Collection[int]] = field(default_factory=dict)
    locations: Iterable[tuple[int, Location | None]] = ()
    files: Mapping[int, FileRow | None] = field(default_factory=dict)
    queues: Iterable[tuple[int, QueueTerms | None]] = ()
    checkpoint: Checkpoint | None = None
    producers: Mapping[ProducerKey, ProducerRow | None] = field(default_factory=dict)


class Index(Protocol):
    """Rows of queues, places of messages. Every method but ``write`` and ``close`` from any thread.

    Reading raises ``IndexDamaged`` where a page or a value cannot have been written by the store.
    """

    def rows(self, queue_no: int, low: int, high: int, limit: int) -> list[IndexRow]:
        """Return the first ``limit`` rows with ``low <= seq < high``, ascending."""

    def locations(self, msg_nos: Iterable[int]) -> dict[int, Location]:
        """Return the places of the messages; unknown messages are left out."""

    def scan_locations(self, low: int, limit: int) -> list[tuple[int, Location]]:
        """Return the first ``limit`` messages with numbers from ``low`` on, with their places."""

    def queue_nos(self) -> list[int]:
        """Return the numbers of queues with rows, ascending."""

    def queues(self) -> dict[int, QueueTerms]: ...
    def files(self) -> dict[int, FileRow]: ...

    def producers(self) -> Producers:
        """Return the producers of all queues."""

    def checkpoint(self) -> Checkpoint | None:
        """Return how far the index goes; None if it is new."""

    def write(self, batch: Batch) -> None:
        """Write and sync a transaction.

        Raises:
            IndexFull: the disk is full; nothing was written, and a later try may succeed.
            IndexDamaged: the index has been changed by something else.
            OSError: the disk fails.
        """

    def copy_to(self, folder: Any) -> None:
        """Write a copy of the last transaction into a new folder, not synced; raises as ``write``."""

    @property
    def size_bytes(self) -> int:
        """The size of a copy, at most."""

    def close(self) -> None:
        """End; no read may be under way."""


class IndexFiles(Protocol):
    """Where the index of a store lies."""

    def open(self) -> Index:
        """Open it, or make a new one; ``IndexDamaged`` if it must be set aside."""

    def set_aside(self, quarantine: Any, name: str) -> None: ...

    def condemn(self) -> None:
        """Have the next ``open`` raise ``IndexDamaged``."""
