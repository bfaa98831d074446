"""Deliveries a channel has handed out and the client has not settled.

``tag -> (source, seq)``: tags ascend by one per delivery of the channel (those of no-ack deliveries are
used up and never stored), ``source`` is where a settlement goes, ``seq`` the queue's name for it. All
work is done per batch, at the speed of dict and zip.

Sans-IO. Errors are RabbitMQ's: an unknown, settled or no-ack tag is 406.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice, repeat, takewhile
from typing import TYPE_CHECKING, Final

from leveret.amqp.errors import PreconditionFailed
from leveret.broker.channel.records import Source
from leveret.core.segmented_dict import SEGMENT_KEYS, grown

if TYPE_CHECKING:
    from leveret.core.clock import Clock
    from leveret.core.segmented_dict import ByNumber

SETTLED_MAX: Final = 2_000  # in a turn, with multiple
_FREED: Final = 50_000  # per turn
_SPARSE: Final = 1_000


Settled = list[tuple[Source, list[int]]]


class Unacked:
    """The unsettled deliveries of one channel."""

    __slots__ = ("_lowest", "_records", "next_tag")

    def __init__(self) -> None:
        self.next_tag = 1
        self._records: ByNumber[tuple[Source, int]] = {}
        self._lowest = 1  # no record has a smaller tag

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, tag: int) -> bool:
        return tag in self._records

    def tags(self) -> list[int]:
        """Return all tags, ascending; a million take some milliseconds."""
        return list(self._records)

    def free_later(self, clock: Clock) -> None:
        """Have very many records freed a slice a turn, after the end of their channel: a million take 50 ms."""
        if len(self._records) > SETTLED_MAX:
            clock.call_later(0.0, partial(_free, clock, self._records))

    def skip(self, count: int) -> int:
        """Use up tags of no-ack deliveries; return the first."""
        first = self.next_tag
        self.next_tag = first + count
        if not self._records:
            self._lowest = self.next_tag
        return first

    def add(self, source: Source, seqs: list[int]) -> int:
        """Remember deliveries of one source; return the tag of the first."""
        first = self.next_tag
        records = self._records
        if type(records) is not dict or len(records) > SEGMENT_KEYS:
            records = self._records = grown(records)
        if len(seqs) == 1:
            self.next_tag = first + 1
            records[first] = (source, seqs[0])
            return first
        self.next_tag = first + len(seqs)
        pairs = zip(repeat(source), seqs, strict=False)
        records.update(zip(range(first, self.next_tag), pairs, strict=True))
        return first

    def take(self, tags: list[int]) -> tuple[Settled, int]:
        """Take out single tags, in the order given, up to the first unknown one.

        Returns the settled deliveries by source, and the unknown tag (-1: none).
        """
        records: list[tuple[Source, int]] = []
        try:
            records += map(self._records.pop, tags)  # compiled, ``extend`` would take all or none
        except KeyError:  # the records before the unknown tag have been taken
            return _by_source(records), tags[len(records)]
        return _by_source(records), -1

    def last_of(self, tag: int) -> int:
        """Return the last tag that ``tag`` with multiple means; PreconditionFailed: it is unknown."""
        if tag == 0:
            return self.next_tag - 1
        if tag not in self._records:
            raise unknown_tag(tag)
        return tag

    def take_to(self, last: int) -> Settled:
        """Take out the first of the tags up to ``last``, a turn's worth; return nothing when none is left."""
        records = self._records
        while records and self._lowest <= last:
            tags: Sequence[int] = range(self._lowest, last + 1)
            if len(tags) > 2 * len(records) + _SPARSE:  # most were settled singly, long ago
                tags = list(islice(takewhile(last.__ge__, records), SETTLED_MAX))
                self._lowest = tags[-1] + 1 if tags else last + 1
            else:
                tags = tags[:SETTLED_MAX]
                self._lowest = tags[-1] + 1
            pop = records.pop
            found = [record for each in tags if (record := pop(each, None)) is not None]
            if not records and len(found) == SETTLED_MAX:
                self._records = {}  # a dict keeps the room of keys that were deleted
            if found:
                return _by_source(found)
        return []

    def has_to(self, last: int) -> bool:
        """Tell whether tags up to ``last`` may be left."""
        return bool(self._records) and self._lowest <= last

    def take_single(self, tag: int, method: int | None = None) -> tuple[Source, int]:
        """Take out one tag; return its source and seq. PreconditionFailed, which names ``method``: it is unknown."""
        record = self._records.pop(tag, None)
        if record is None:
            raise unknown_tag(tag, method)
        return record

    def count_of_consumers(self) -> int:
        """Return how many came from consumers.

        Differs from RabbitMQ: it counts those of basic.get as well when a channel-wide limit starts,
        and their acks do not give the places back.
        """
        return sum(source.consumer is not None for source, _ in self._records.values())

    def oldest_tag(self) -> int | None:
        return next(iter(self._records), None)


def unknown_tag(tag: int, method: int | None = None) -> PreconditionFailed:
    """Return RabbitMQ's error for a tag that cannot be settled."""
    return PreconditionFailed(f"unknown delivery tag {tag}", method)


def _free(clock: Clock, records: ByNumber[tuple[Source, int]]) -> None:
    for _ in range(min(len(records), _FREED)):
        records.popitem()
    if records:
        clock.call_later(0.0, partial(_free, clock, records))


def _by_source(records: list[tuple[Source, int]]) -> Settled:
    """Group by source, each in the order given; almost always there is one."""
    if not records:
        return []
    first = records[0][0]
    seqs = [seq for source, seq in records if source is first]
    if len(seqs) == len(records):
        return [(first, seqs)]
    grouped: dict[Source, list[int]] = {}
    for source, seq in records:
        grouped.setdefault(source, []).append(seq)
    return list(grouped.items())
