"""Following archives: where a stream begins, and where its batches end.

A follower lives as long as a query, beside the driver, and keeps nothing that a restart would miss: ``offsets`` has
the theory. To find how far a store can be read it

1. reads ``archive.json``: the watermark;
2. lists the segments from the start to the watermark, and reads their headers;
3. reads ``archive.json`` again: what was freed, which is told there before a segment goes. So a segment that went
   before step 2 is noticed, and one that goes later is missed where it is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from leveret.core.log.loggers import logger
from leveret.msg_store.archive.archive import ArchivedQueue, Position
from leveret.msg_store.archive.archive_file import ArchiveContents
from leveret.spark.errors import NotAnArchive, OptionError
from leveret.spark.scan.manifest import local_path
from leveret.spark.scan.options import EARLIEST, LATEST, StreamOptions
from leveret.spark.scan.routed_rows import routed_rows
from leveret.spark.scan.segment import Segment
from leveret.spark.stream.admission import Limit, Meter, cut, shares
from leveret.spark.stream.archived_store import ArchivedStore, find_archives
from leveret.spark.stream.losses import at, begin_of, losses, missing
from leveret.spark.stream.offsets import Offsets, Range, StoreOffset, decoded, encoded
from leveret.spark.stream.tasks import report
from leveret.spark.stream.unread import position_at, torn_in, unread, where
from leveret.spark.stream.walking import Damaged, places_of

log = logger(__name__)


class Follower:
    """Finds the ends of batches. Offsets are in the form that ``offsets.encoded`` gives them."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._paths = [local_path(path) for path in options.paths]
        self._targets: dict[str, Position] | None = None  # with Trigger.AvailableNow

    # Where a query begins.

    def initial(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins.

        Raises:
            NotAnArchive: no queue that is wanted is archived.
            OptionError: ``startingOffsets`` names a store that there is not.
            StoreError: an ``archive.json`` is damaged.
        """
        stores = self._stores()
        if not stores:
            raise NotAnArchive(self._why_none())
        starting = self._options.starting
        if isinstance(starting, Mapping):
            named = _by_store(starting, stores)
            starting = EARLIEST
        else:
            named = {}
        begins = {no: named.get(no) or self._first(store, starting) for no, store in stores.items()}
        for store_id, begin in begins.items():
            self._tell_gaps(stores[store_id], begin)
        return encoded(begins)

    def _stores(self) -> dict[str, ArchivedStore]:
        """Return the stores with queues that are wanted."""
        found = find_archives(self._paths)
        return {no: store for no, store in found.items() if self._is_wanted(store)}

    def _is_wanted(self, store: ArchivedStore) -> bool:
        return self._options.pruning.wants_vhost(store.vhost) and bool(self._wanted(store.contents))

    def _wanted(self, contents: ArchiveContents) -> list[ArchivedQueue]:
        wants_queue = self._options.pruning.wants_queue
        return [queue for queue in contents.queues if wants_queue(queue.name)]

    def _why_none(self) -> str:
        archived = [
            f"'{queue.name}' of vhost '{store.vhost}'"
            for store in find_archives(self._paths).values()
            for queue in store.contents.queues
        ]
        have = f"archived are {', '.join(archived[:10])}" if archived else "no queue is archived"
        return (
            f"no queue that is wanted is archived in {', '.join(map(str, self._paths))} ({have}); a policy does it: "
            'leveret ctl set_policy --apply-to queues NAME PATTERN \'{"replay-retention":"24h"}\''
        )

    def _first(self, store: ArchivedStore, starting: str | int) -> StoreOffset:
        contents = store.contents
        wanted = self._wanted(contents)
        earliest = min(map(self._begin, wanted))
        if starting == EARLIEST:
            position = earliest
        elif starting == LATEST:
            position = contents.watermark
        else:
            position = position_at(store, earliest, int(starting), self._report)
        return StoreOffset(position, contents.frees, self._names(wanted, position))

    def _begin(self, queue: ArchivedQueue) -> Position:
        return begin_of(queue, is_complete=self._options.reading.fail_on_data_loss)

    def _names(self, wanted: Iterable[ArchivedQueue], position: Position) -> dict[int, str]:
        """Return the names of the queues that are read at a position, by their numbers."""
        begun = [queue for queue in wanted if self._begin(queue) <= position]
        return {queue.queue_nos[0]: queue.name for queue in begun}

    def _tell_gaps(self, store: ArchivedStore, start: StoreOffset) -> None:
        """Log which queues may have messages behind which others were freed before the query began."""
        freed = [
            (queue, begin_of(queue, is_complete=True))
            for queue in self._wanted(store.contents)
            if queue.freed is not None and queue.freed.no <= start.frees  # else it is a loss
        ]
        passed = [(queue, begin) for queue, begin in freed if begin >= start.position]
        if not passed:
            return
        first = min(queue.since for queue, _ in passed)
        last = Position(max(begin.segment for _, begin in passed), 0)
        existing = [part.segment for part in unread(store, first, last, lambda _: None)]
        for queue, begin in passed:
            older = [number for number in existing if queue.since.segment <= number < begin.segment]
            if older:
                log.warning(
                    "queue '%s' of vhost '%s' is complete from %s on: segments %s are gone, and its messages in older"
                    " ones are %s",
                    queue.name,
                    store.vhost,
                    at(begin),
                    missing(older, begin.segment),
                    "passed over" if self._options.reading.fail_on_data_loss else "read",
                )

    # Where a batch ends.

    def prepare(self) -> None:
        """Read no further than to what there is now, as ``Trigger.AvailableNow`` wants it."""
        self._targets = {no: store.contents.watermark for no, store in self._stores().items()}

    def reported(self) -> dict[str, Any]:
        """Return how far the stores could be read now."""
        return {no: store.contents.watermark._asdict() for no, store in self._stores().items()}

    def latest(self, start: Mapping[str, Any], limit: Limit) -> dict[str, Any]:
        """Return where the batch ends that begins at ``start``; the same if there is nothing to read.

        Raises:
            DataLoss: messages were freed before they were read, or are damaged, and that is to be an error.
            OptionError: ``start`` has another form.
            StoreError: an ``archive.json`` is damaged, or a segment ends before the watermark.
        """
        begin, found = decoded(start), find_archives(self._paths)
        ends: Offsets = {}
        for store_id, before in begin.items():
            store = found.get(store_id)
            if store is None:
                self._lost(f"store {store_id}", losses(None, (), before))
            elif self._options.pruning.wants_vhost(store.vhost):
                self._put_end(ends, store, before)
        for store_id, store in found.items():
            is_new = store_id not in begin and self._is_wanted(store)
            if is_new and (self._targets is None or store_id in self._targets):
                first = self._first(store, EARLIEST)
                self._put_end(ends, store, first)
                if store_id in ends:
                    self._tell_gaps(store, first)
        unread_bytes = {no: _size_bytes(end.ranges) for no, end in ends.items()}
        if limit:
            for store_id, own in shares(limit, unread_bytes).items():
                ends[store_id] = self._admitted(found[store_id], ends[store_id], own)
        return encoded(begin | ends)

    def _put_end(self, ends: Offsets, store: ArchivedStore, before: StoreOffset) -> None:
        """Note where a batch ends that reads all there is of a store, unless there is nothing new.

        It ends where another queue begins, so it has the same queues from its first byte to its last.
        """
        contents = store.contents
        target = contents.watermark
        if self._targets is not None:
            target = min(target, self._targets.get(store.store_id, target))
        begin = max(before.position, Position(contents.begun, 0))
        ranges = unread(store, begin, target, self._report)
        now = store.contents_now()
        wanted = self._wanted(now) if now is not None else []
        self._lost(f"vhost '{store.vhost}' ({store.path})", losses(now, wanted, before))
        if now is None or target <= before.position <= now.watermark:
            return
        begins = [self._begin(queue) for queue in wanted]
        begin = min(max(begin, min(begins, default=begin)), target)
        end = min([target, *(each for each in begins if each > begin)])
        names = self._names(wanted, begin)
        ends[store.store_id] = StoreOffset(end, now.frees, names, cut(ranges, end, begin))

    def _lost(self, place: str, lost: Iterable[str]) -> None:
        for each in lost:
            self._report(f"{place}: {each}")

    def _report(self, lost: str) -> None:
        report(lost, self._options.reading.fail_on_data_loss)

    # Admission.

    def _admitted(self, store: ArchivedStore, end: StoreOffset, limit: Limit) -> StoreOffset:
        """Return the end of a batch that takes no more than its limit."""
        meter, queue_nos = Meter(limit), sorted(end.queues)
        for part in end.ranges:
            try:
                segment = Segment(store.segment_path(part.segment), store.contents.uuid)
            except FileNotFoundError:
                continue  # the batch will miss it, too
            damaged = self._damaged(where(store, part.segment))
            with segment:
                for places in places_of(segment, part, torn_in(store, part.segment), damaged):
                    rows = routed_rows(segment, places.offsets, segment.headers(places.offsets))
                    wanted = rows.record[np.isin(rows.queue_nos, queue_nos)]
                    counts = np.bincount(wanted, minlength=len(places.offsets))
                    taken = meter.take(counts, places.lengths)
                    if taken < len(counts) or meter.is_far:
                        position = Position(part.segment, places.end_of(taken))
                        ranges = cut(end.ranges, position)
                        return StoreOffset(position, end.frees, end.queues, ranges)
        return end

    def _damaged(self, place: str) -> Damaged:
        return lambda offset, why: self._report(f"{place} is damaged at byte {offset}: {why}")


def _size_bytes(ranges: Sequence[Range]) -> int:
    return sum(part.size_bytes for part in ranges)


def _by_store(starting: Mapping[str, Any], stores: Mapping[str, ArchivedStore]) -> Offsets:
    """Return given offsets by ``store_id``; they may be named by vhost."""
    found: Offsets = {}
    for name, offset in decoded(starting).items():
        named = [no for no, store in stores.items() if name in {no, store.vhost}]
        if len(named) != 1:
            have = ", ".join(f"{no} (vhost '{store.vhost}')" for no, store in stores.items())
            why = "names several stores" if named else "is no store that is read"
            raise OptionError(f"startingOffsets: {name!r} {why}; there are {have}")
        found[named[0]] = StoreOffset(offset.position, offset.frees, offset.queues)
    return found
