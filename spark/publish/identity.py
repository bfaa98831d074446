"""Who publishes: the partition, and the numbers by which duplicates are recognised.

A batch numbers a row by its key: producer ``ID/PARTITION/[QUEUE_NO/]VHOST/QUEUE``, sequence ``seq_id``. One row's
number then does not depend on the rows before it, and rows of one source queue in two partitions do not hide each
other. A stream numbers by place: producer ``QUERY/PARTITION``, sequence ``batch << 40 | row``, because Spark sends a
batch that failed once more, with the same rows in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from leveret.core.limits import SHORTSTR_BYTES_MAX
from leveret.spark.publish.errors import PublishError

ROW_BITS: Final = 40  # of a stream's sequence; the batch has the other 23


class Key(NamedTuple):
    """Where a row came from; keys rise as tuples, strings by code point, as Spark sorts them.

    A queue with priorities has a ``queue_no`` for each, and the seqs of each begin anew.
    Rows of other sources have none: 0.
    """

    vhost: str
    queue: str
    queue_no: int
    seq_id: int


class Number(NamedTuple):
    """A producer and its sequence number, for the broker's filter."""

    producer: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a job.

    Attributes:
        number: from 0.
        scope: the folder inside the ledger, ``""`` for a batch job, ``batch-N`` for a stream.
        query: the streaming query's id, empty for a batch job.
        batch: the stream's batch number.
    """

    number: int = 0
    scope: str = ""
    query: str = ""
    batch: int = 0

    @property
    def has_places(self) -> bool:
        """Whether rows are numbered by their place in a stream."""
        return bool(self.query)

    def number_of(self, producer_id: str, key: Key | None, row: int) -> Number:
        """Return the number of a row; ``row`` is its place in the partition.

        Raises:
            PublishError: the sequence is outside 0 to 2**63 - 1.
        """
        if self.has_places:
            if row >= 1 << ROW_BITS or self.batch >= 1 << 63 - ROW_BITS:
                raise PublishError(
                    f"batch {self.batch} row {row} of the stream does not fit a sequence number:"
                    " start the query with a new checkpoint"
                )
            return Number(f"{self.query}/{self.number}", self.batch << ROW_BITS | row)
        assert key is not None, "the columns were checked"
        if key.seq_id < 0:
            raise PublishError(f"seq_id {key.seq_id} of row {row} is below 0")
        return Number(_bounded(f"{producer_id}/{self.number}/", _place(key)), key.seq_id)

    def message_id(self, key: Key | None, row: int) -> str:
        """Return the message-id of a row that has none; the same row has the same in each attempt."""
        if self.has_places:
            return f"{self.query}/{self.number}/{self.batch << ROW_BITS | row}"
        assert key is not None, "the columns were checked"
        return _bounded("", f"{_place(key)}/{key.seq_id}")


def _place(key: Key) -> str:
    # The vhost's length tells "a/b" of "c" from "a" of "b/c".
    number = f"{key.queue_no}/" if key.queue_no else ""
    return f"{number}{len(key.vhost)}:{key.vhost}/{key.queue}"


def _bounded(start: str, end: str) -> str:
    """Return both together, the end as a digest if they are longer than a short string."""
    text = start + end
    if len(text.encode()) <= SHORTSTR_BYTES_MAX:
        return text
    return start + blake2b(end.encode(), digest_size=24).hexdigest()
