"""Which rows are wanted: queues, times, seqs, states.

The same pruning comes from options and from filters that Spark pushes down. It is applied three times, each time
to less: to segments, by the index of locators; to rows, by their locator; nothing of a message is read before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from leveret.spark.scan.gather import Numbers
from leveret.spark.scan.locators import NO_SEGMENT, SegmentFacts, StoreFacts

Range = tuple[int | None, int | None]  # from, and up to but not including; None: open

ALL: Final[Range] = (None, None)
_GLOB: Final = "*?["


def both(one: Range, other: Range) -> Range:
    """Return what is in both ranges."""
    lows = [low for low in (one[0], other[0]) if low is not None]
    highs = [high for high in (one[1], other[1]) if high is not None]
    return max(lows, default=None), min(highs, default=None)


@dataclass(frozen=True, slots=True)
class Names:
    """A set of names: any of ``listed``, and any that fits one of ``globs``; everything if both are None."""

    listed: frozenset[str] | None = None
    globs: tuple[str, ...] = ()

    @classmethod
    def of(cls, words: tuple[str, ...]) -> Names:
        """Return the names that words stand for; words with ``*``, ``?`` or ``[`` are globs."""
        globs = tuple(word for word in words if set(word) & set(_GLOB))
        return cls(frozenset(words) - set(globs), globs)

    def __contains__(self, name: str) -> bool:
        if self.listed is None:
            return True
        return name in self.listed or any(fnmatchcase(name, glob) for glob in self.globs)


@dataclass(frozen=True, slots=True)
class Pruning:
    """The rows that are wanted; they satisfy all of it.

    Attributes:
        vhosts, queues: each name must be in all of these sets.
        times_ms: when the broker took them in, ms since 1970.
        seqs: of the rows' seqs.
        queue_seqs: by queue name, or by vhost and queue name, ranges of their own; other queues are not restricted.
        states: of ``locators.STATES``; None: all that the view has.
    """

    vhosts: tuple[Names, ...] = ()
    queues: tuple[Names, ...] = ()
    times_ms: Range = ALL
    seqs: Range = ALL
    queue_seqs: Mapping[str | tuple[str, str], Range] = field(default_factory=dict)
    states: frozenset[int] | None = None

    def and_names(self, vhosts: Names | None = None, queues: Names | None = None) -> Pruning:
        """Return this and further sets of names."""
        return replace(
            self,
            vhosts=self.vhosts + ((vhosts,) if vhosts is not None else ()),
            queues=self.queues + ((queues,) if queues is not None else ()),
        )

    def wants_vhost(self, name: str) -> bool:
        return all(name in names for names in self.vhosts)

    def wants_queue(self, name: str) -> bool:
        return all(name in names for names in self.queues)

    def seqs_of(self, vhost: str, queue: str) -> Range:
        """Return the range of seqs of a queue."""
        own = both(self.queue_seqs.get(queue, ALL), self.queue_seqs.get((vhost, queue), ALL))
        return both(self.seqs, own)

    def of_store(self, store: StoreFacts, states: frozenset[int]) -> RowFilter | None:
        """Return the filter for the rows of a store; None if it has no wanted queue.

        Rows of queues without a definition, which were being deleted, are not wanted.
        """
        if not self.wants_vhost(store.vhost):
            return None
        wanted = [queue for queue in store.queues if self.wants_queue(queue.name)]
        ranges = {
            number: self.seqs_of(store.vhost, queue.name)
            for queue in wanted
            for number in queue.queue_nos
        }
        if not ranges:
            return None
        states = states if self.states is None else states & self.states
        return RowFilter(tuple(sorted(ranges.items())), self.times_ms, tuple(sorted(states)))


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The pruning of one store: numbers instead of names. Executors get it.

    Attributes:
        queues: numbers of the wanted queues, ascending, each with its range of seqs.
    """

    queues: tuple[tuple[int, Range], ...]
    times_ms: Range
    states: tuple[int, ...]

    def rows_in(self, segment: SegmentFacts) -> int:
        """Return how many rows of a segment may be wanted; 0: it need not be read."""
        count = sum(
            segment.rows.get(number, 0)
            for number, seqs in self.queues
            if _meets(seqs, segment.min_seq, segment.max_seq)
        )
        if segment.number != NO_SEGMENT and not _meets(
            self.times_ms, segment.min_ms, segment.max_ms
        ):
            return 0
        return count

    def mask(self, locator: dict[str, Numbers]) -> Numbers:
        """Return for each row of a locator whether it is wanted. Rows without a message have no time: they are."""
        mask = np.isin(locator["state"], np.array(self.states, np.uint8))
        mask &= np.isin(locator["queue_no"], np.array([no for no, _ in self.queues], np.uint32))
        mask &= inside(locator["time_ms"], self.times_ms) | (locator["length"] == 0)
        restricted: dict[Range, list[int]] = {}
        for number, seqs in self.queues:
            restricted.setdefault(seqs, []).append(number)
        for seqs, numbers in restricted.items():
            if seqs != ALL:
                here = np.isin(locator["queue_no"], np.array(numbers, np.uint32))
                mask &= ~here | inside(locator["seq"], seqs)
        return mask


def _meets(wanted: Range, low: int, high: int) -> bool:
    return (wanted[0] is None or wanted[0] <= high) and (wanted[1] is None or low < wanted[1])


def inside(values: Numbers, wanted: Range) -> Numbers:
    """Return for each value whether it is in a range."""
    mask = np.ones(len(values), np.bool_)
    if wanted[0] is not None:
        mask &= values >= wanted[0]
    if wanted[1] is not None:
        mask &= values < wanted[1]
    return mask
