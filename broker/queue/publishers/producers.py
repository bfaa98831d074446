"""The producer filter of a queue: a message that comes twice is taken in once.

A publisher that numbers its messages (``amqp/producer_headers``) may send all that was not confirmed once more. For
each producer the queue keeps the epoch and the last sequence that it took in:

====================================  ==============================================================
the message                           what the queue does
====================================  ==============================================================
sequence above the last               takes it in; the sequence is the last one then
sequence not above it                 a *duplicate*: it is confirmed when the original is safe, and dropped
higher epoch                          takes it in; older lives of the producer are fenced off
lower epoch                           refuses it, and fails the channel: 406
its predecessor was never taken in    refuses it (``broker/channel/publishing/producers``)
====================================  ==============================================================

A message that the queue refuses (reject-publish) leaves the entry as it is. One that is taken in and dropped at once
(drop-head, expired) counts as taken in.

**With the row.** The store writes the sequence of a persistent message in the same frame as its row
(``msg_store/wal/producers``). All happens within the turn that publishes, and no flush begins within a turn. The
sequences of other messages are in RAM and end with this actor, as the messages do.

**Duplicates wait** until every row that came through the filter before them is safe, so also the original's. Rows
become safe in order, so that is a flush later at most. If the disk refuses such rows for now, the duplicates are
refused, too; the rows stay in the queue, and the next duplicate waits for them again.

**Bounds.** The settings limit the number of entries, of which the least recently used goes first, and the time without
use after which an entry counts as unknown. ``node_producers`` bounds those of all queues. A purge keeps them.

Turned down: a set of seen message ids (unbounded, or a window that a late duplicate misses); a filter in the exchange,
which knows nothing of what a queue took in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.core.limits import PRODUCER_EXPIRY_S, PRODUCERS_MAX

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.broker.mail import ProducerSeq
    from leveret.broker.registry.registry import StoredProducers

NEW, DUPLICATE, REFUSED, FENCED = range(4)
_EXPIRED_AT_ONCE: Final = 16
DEFAULT_LIMITS: Final = PRODUCERS_MAX, int(PRODUCER_EXPIRY_S * 1000)

Entry: TypeAlias = tuple[int, int, int]  # epoch, last sequence, used at (ms since 1970)
Change: TypeAlias = tuple[
    int, bytes, int, int, int
]  # row seq, id, epoch, sequence (-1: forgotten), used at
Waiting: TypeAlias = "tuple[int, Ref, int, int]"  # the last row before, channel, first seqno, count


class ProducerFilter:
    """The producers of one queue, the least recently used first.

    Args:
        kept: the store's; None: the queue does not survive a restart, and neither do its producers.
        wall_ms: the time, ms since 1970.
        limits: how many producers it knows, and after how many ms without use it forgets one.
    """

    __slots__ = (
        "_entries",
        "_expiry_ms",
        "_kept",
        "_max",
        "_newest_row",
        "_unsafe",
        "_waiting",
        "_wall_ms",
    )

    def __init__(
        self,
        kept: StoredProducers | None,
        wall_ms: Callable[[], int],
        limits: tuple[int, int] = DEFAULT_LIMITS,
    ) -> None:
        self._kept = kept
        self._max, self._expiry_ms = limits
        self._wall_ms = wall_ms
        known = kept.entries() if kept is not None else {}
        self._entries = dict(sorted(known.items(), key=lambda item: item[1][2]))
        self._unsafe: set[int] = set()  # rows that are not on disk yet
        self._newest_row = -1
        self._waiting: list[Waiting] = []

    @property
    def count(self) -> int:
        """How many producers it knows."""
        return len(self._entries)

    def entries(self) -> list[tuple[bytes, Entry]]:
        """Return all, the least recently used first."""
        return list(self._entries.items())

    def next_run(
        self, producer_seqs: Sequence[ProducerSeq | None], start: int, count_max: int
    ) -> tuple[int, int]:
        """Return the verdict on the message at ``start``, and for how many messages it holds, ``count_max`` at most.

        New messages of a run are all taken in before the next call.
        """
        ahead: dict[bytes, tuple[int, int]] = {}
        verdict = self._verdict(producer_seqs[start], ahead)
        at = start + 1
        end = min(len(producer_seqs), start + count_max)
        while at < end and self._verdict(producer_seqs[at], ahead) == verdict:
            at += 1
        return verdict, at - start

    def _verdict(self, sent: ProducerSeq | None, ahead: dict[bytes, tuple[int, int]]) -> int:
        if sent is None:
            return NEW
        producer, epoch, seq, predecessor = sent
        known = ahead.get(producer) or self._known(producer)
        last = -1
        if known is not None:
            if epoch < known[0]:
                return FENCED
            if epoch == known[0]:
                last = known[1]
        if seq <= last:
            return DUPLICATE
        if predecessor > last:
            return REFUSED
        ahead[producer] = epoch, seq
        return NEW

    def _known(self, producer: bytes) -> tuple[int, int] | None:
        entry = self._entries.get(producer)
        if entry is None or entry[2] + self._expiry_ms < self._wall_ms():
            return None
        return entry[0], entry[1]

    def epoch_of(self, producer: bytes) -> int:
        """Return the epoch of a producer that is known."""
        return self._entries[producer][0]

    def taken_in(
        self,
        producer_seqs: Sequence[ProducerSeq | None],
        base: int,
        rows_from: int,
        is_persistent: bool,
    ) -> None:
        """Note messages that were taken in.

        Args:
            producer_seqs: they.
            base: the seq that the first one has, or would have.
            rows_from: those before this position went straight to consumers, and have no row.
            is_persistent: of the messages, and the queue is durable.
        """
        now_ms, entries = self._wall_ms(), self._entries
        changes: list[Change] = []
        for at, sent in enumerate(producer_seqs):
            if sent is None:
                continue
            producer, epoch, seq, _ = sent
            entries.pop(producer, None)
            entries[producer] = epoch, seq, now_ms
            if is_persistent:
                changes.append((max(0, base + at), producer, epoch, seq, now_ms))
                if at >= rows_from:
                    self._unsafe.add(base + at)
                    self._newest_row = max(self._newest_row, base + at)
        changes += self._expired(now_ms)
        if self._kept is None:
            self._unsafe.clear()
        elif changes:
            self._kept.changed(changes)

    def _expired(self, now_ms: int) -> list[Change]:
        """Forget producers that are too many, and some that were not used for long."""
        entries, gone = self._entries, list[bytes]()
        too_many = len(entries) - self._max
        for producer, entry in entries.items():
            if len(gone) >= max(too_many, 0) and (
                entry[2] + self._expiry_ms >= now_ms or len(gone) >= _EXPIRED_AT_ONCE
            ):
                break
            gone.append(producer)
        return [self._dropped(producer) for producer in gone]

    def _dropped(self, producer: bytes) -> Change:
        epoch, _, used_ms = self._entries.pop(producer)
        return 0, producer, epoch, -1, used_ms

    def forget(self, producer: bytes) -> bool:
        """Forget a producer; return whether it was known."""
        if producer not in self._entries:
            return False
        change = self._dropped(producer)
        if self._kept is not None:
            self._kept.changed([change])
        return True

    def forget_oldest(self, count: int) -> None:
        """Forget the least recently used producers."""
        changes = [self._dropped(producer) for producer in list(islice(self._entries, count))]
        if self._kept is not None:
            self._kept.changed(changes)

    # Duplicates.

    def use(self, producers: Sequence[ProducerSeq | None]) -> None:
        """Note that producers are in use, by their duplicates."""
        now_ms, entries = self._wall_ms(), self._entries
        for sent in producers:
            if sent is not None:
                epoch, seq, _ = entries.pop(sent[0])
                entries[sent[0]] = epoch, seq, now_ms

    @property
    def is_safe(self) -> bool:
        """All rows that came through the filter are on disk."""
        return not self._unsafe

    def wait(self, channel: Ref, seqno: int, count: int) -> None:
        """Have duplicates wait for the rows that came through the filter up to now."""
        self._waiting.append((self._newest_row, channel, seqno, count))

    def became_safe(self, runs: Sequence[tuple[int, int]]) -> list[Waiting]:
        """Note rows ``(first seq, count)`` that are on disk; return the duplicates that waited for them."""
        unsafe = self._unsafe
        for first, count in runs:
            if count == 1:
                unsafe.discard(first)
            else:
                unsafe.difference_update(range(first, first + count))
        if not self._waiting:
            return []
        lowest = min(unsafe, default=inf)
        due = [each for each in self._waiting if each[0] < lowest]
        self._waiting = [each for each in self._waiting if each[0] >= lowest]
        return due

    def refused(self, runs: Sequence[tuple[int, int]]) -> list[Waiting]:
        """Return, once, the duplicates that wait for one of these rows, which cannot be written now."""
        first = min([run[0] for run in runs])
        due = [each for each in self._waiting if each[0] >= first]
        self._waiting = [each for each in self._waiting if each[0] < first]
        return due
