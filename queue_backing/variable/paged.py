"""PagedParts: the ready messages of a queue that were paged out, Q3, delta and Q2, and how they come back.

::

    Q4 -> [ Q3 -> delta -> Q2 ] -> Q1

Q3 and Q2 hold betas and gammas, delta is a range of seqs of which only the index knows (``delta.py``).
Delta is loaded window by window, each becoming betas at Q3's tail. RabbitMQ reads the index there and then
(``maybe_deltas_to_betas``). Here the rows may have to be read first: then only ``rows_awaited`` changes, and
the queue's ``resume`` tries again. Meanwhile the queue works as usual: a new message goes to Q1 as if Q3 held
something, and a fetch says ``pending``.

While messages are fetched from Q3, contents are *read ahead*: the queue has asked for the contents of a
stretch, Q3's first messages and, behind Q3's end, delta's, up to a count and a size. When a quarter of the
stretch has been fetched (the *mark*), the contents between its *end* and the new end are asked for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Final

from leveret.core.entry import (
    INDEX_ON_DISK,
    MESSAGE,
    PERSISTENT,
    SEQ,
    message_of,
    seq_of,
    size_of,
    trimmed,
)
from leveret.core.segmented_dict import those_in
from leveret.msg_store.format.kernel import bytes_of
from leveret.queue_backing.variable.delta import (
    BLANK,
    Delta,
    expand,
    next_boundary,
    window_end,
    window_start,
)
from leveret.queue_backing.variable.limits import DEFAULT_LIMITS
from leveret.queue_backing.variable.pending_acks import PendingAcks

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.core.message import Message
    from leveret.queue_backing.index.api import QueueIndex
    from leveret.queue_backing.variable.limits import Limits

NOTHING: Final[deque[Entry]] = deque()  # shared by parts that are empty; never written to
# Merging one entry costs as much as rotating a deque by so many places. An insertion rotates it twice, on
# average by a quarter of its length.
_MERGE_TURNS: Final = 200


class PagedParts:
    """The three parts of one queue, and its index.

    Args:
        index: the queue's.
        pending: its unacked messages, which are in the index too.
        limits: the constants.

    Attributes:
        q3, delta, q2: the parts, from the head to the tail.
        transient_threshold: transients below this seq are left from before a restart.
        rows_awaited: Q3 is empty, delta is not, and its rows are not in RAM yet.
        loads_next_turn: the search for rows that are not unacked is resumed in the next turn.
        paged_bytes: bodies on disk only, of ready and unacked messages.
        reads, writes: contents read back and paged out.
        fetch_is_pending: the amqqueue was told that a message is pending.
        keeps_q3_head: nothing was taken since then, so Q3's head must not go back to delta.
        fetch_is_ready: the pending message may be in RAM now.
    """

    __slots__ = ("_pending", "_read_ahead_end", "_read_ahead_mark", "delta", "fetch_is_pending",
        "fetch_is_ready", "index", "keeps_q3_head", "limits", "loads_next_turn", "paged_bytes", "q2", "q3",
        "reads", "rows_awaited", "transient_threshold", "writes")  # fmt: skip

    def __init__(self, index: QueueIndex, pending: PendingAcks, limits: Limits) -> None:
        self.index = index
        self.limits = limits
        self._pending = pending
        self.q2 = self.q3 = NOTHING
        self.delta: Delta = BLANK
        self.transient_threshold = self.paged_bytes = self.reads = self.writes = 0
        self.rows_awaited = self.loads_next_turn = False
        self.fetch_is_pending = self.keeps_q3_head = self.fetch_is_ready = False
        # When Q3's head passes the mark, more contents are asked for, from the end on. The mark is -1 after a
        # change of Q3 other than fetching at its head and loading at its tail.
        self._read_ahead_mark = self._read_ahead_end = -1

    def count(self) -> int:
        return len(self.q3) + self.delta.length + len(self.q2)

    # Towards the disk; contents are there already.

    def trim(self, entries: list[Entry]) -> list[Entry]:
        """Return the entries without their contents."""
        self.paged_bytes += bytes_of([entry for entry in entries if entry[MESSAGE] is not None])
        return trimmed(entries)

    def forget(self, entries: Iterable[Entry]) -> None:
        """Count the entries without content as paged out no more."""
        if self.paged_bytes:
            self.paged_bytes -= bytes_of([entry for entry in entries if entry[MESSAGE] is None])

    def append(self, entries: list[Entry]) -> None:
        """Append entries taken from Q1's head."""
        if self.delta is BLANK:
            if self.q3 is NOTHING:
                self.q3 = deque()
            self.q3.extend(self.trim(entries))
        else:
            if self.q2 is NOTHING:
                self.q2 = deque()
            self.q2.extend(self.trim(entries))

    def prepend(self, entries: list[Entry]) -> None:
        """Prepend entries taken from Q4's tail, the youngest first."""
        if self.q3 is NOTHING:
            self.q3 = deque()
        self.q3.extendleft(self.trim(entries))
        self._read_ahead_mark = -1

    def insert(self, entries: list[Entry]) -> None:
        """Put entries that come before delta to their places in Q3."""
        if self.q3 is NOTHING:
            self.q3 = deque()
        merge(self.q3, self.trim(entries))
        self._read_ahead_mark = -1

    def insert_into_delta(self, entries: list[Entry]) -> None:
        """Put entries that lie behind delta's start into it."""
        self.add_to_delta(self.trim(entries))
        self._read_ahead_mark = -1

    def push_to_delta(self, quota: int, is_lazy: bool) -> None:
        """Push Q3's tail, then Q2's head to delta; only in lazy mode also entries of the head's segment."""
        q3 = self.q3
        if q3:
            head: int = q3[0][SEQ]
            lowest = head if is_lazy else next_boundary(head, self.limits.segment)
            batch: list[Entry] = []
            while q3 and len(batch) < quota and q3[-1][SEQ] >= lowest:
                batch.append(q3.pop())
            self.add_to_delta(batch)
            quota -= len(batch)
        count = min(quota, len(self.q2))
        if count and not is_lazy:
            take = self.q2.popleft
            self.add_to_delta([take() for _ in range(count)])

    def add_to_delta(self, entries: list[Entry]) -> None:
        """Add entries, sorted up or down; rows are written where missing."""
        if not entries:
            return
        missing = [entry for entry in entries if not entry[INDEX_ON_DISK]]
        if missing:
            self.index.add(missing)
        self.delta = expand(self.delta, entries)

    def clear(self) -> None:
        self.q2 = self.q3 = NOTHING
        self.delta = BLANK
        self.paged_bytes = self._pending.size_on_disk()
        self.rows_awaited = self.loads_next_turn = self.keeps_q3_head = False

    # Delta comes back.

    def load(self) -> bool:
        """Append the next entries of delta to Q3, if there is a delta.

        Returns:
            Whether Q3 has got them; if not, they are awaited.
        """
        limits = self.limits
        for _ in range(limits.windows):
            delta = self.delta
            if delta is BLANK:
                return True
            end = window_end(delta, limits.segment, limits.read_max)
            rows = self.index.read(delta.start, end, limits.read_max)
            if rows is None:
                self.rows_awaited = True
                return False
            betas = self._ready(rows) if rows else rows
            if betas:
                self._append_loaded(betas, end)
                return True
            if not rows and not self._skip_hole(end):
                return False
            if rows:
                self.delta = delta._replace(start=end)
        # All rows of these windows were unacked: the next turn goes on.
        self.rows_awaited = self.loads_next_turn = True
        return False

    def _ready(self, rows: list[Entry]) -> list[Entry]:
        """Leave out rows of unacked messages; ack rows of transients from before a restart."""
        for unacked in (self._pending.in_ram, self._pending.on_disk):
            if unacked and (held := those_in(unacked, list(map(seq_of, rows)))):
                rows = [row for row in rows if row[SEQ] not in held]
        threshold = self.transient_threshold
        if rows and rows[0][SEQ] < threshold:
            left = [row for row in rows if row[SEQ] < threshold and not row[PERSISTENT]]
            if left:
                self.index.ack(left)
                rows = [row for row in rows if row[SEQ] >= threshold or row[PERSISTENT]]
        return rows

    def _skip_hole(self, end: int) -> bool:
        """Go on to the window that holds the next row; return False when rows are awaited."""
        delta, limits = self.delta, self.limits
        following = self.index.read(end, delta.end, 1)
        if following is None:
            self.rows_awaited = True
            return False
        assert following, f"{delta} has {delta.length} messages without rows"
        start = window_start(end, following[0][SEQ], limits.segment, limits.read_max)
        self.delta = delta._replace(start=start)
        return True

    def _append_loaded(self, betas: list[Entry], end: int) -> None:
        if self.q3 is NOTHING:
            self.q3 = deque()
        self.q3.extend(betas)
        delta = self.delta
        transient = 0
        if delta.transient:
            transient = len(betas) - sum([row[PERSISTENT] for row in betas])
        left = delta.length - len(betas)
        assert left >= 0, f"{delta} has more rows than messages"
        if left:
            self.delta = Delta(end, left, delta.transient - transient, delta.end)
        else:
            self.delta = BLANK
            self.q3.extend(self.q2)
            self.q2 = NOTHING
        self.rows_awaited = False

    # Contents come back.

    def note_fetch_ready(self) -> None:
        """Remember that the pending message may be in RAM now, if there was one."""
        if self.fetch_is_pending:
            self.fetch_is_pending, self.fetch_is_ready = False, True

    def take_fetch_ready(self) -> bool:
        is_ready, self.fetch_is_ready = self.fetch_is_ready, False
        return is_ready

    def fetch_contents(self, entries: list[Entry]) -> list[Message | None]:
        """Return the contents in order: None where it must be read first, ``LOST`` where it is damaged."""
        missing = [entry for entry in entries if entry[MESSAGE] is None]
        if not missing:
            return list(map(message_of, entries))
        found = self.read_back(missing)
        if len(missing) == len(entries):
            return found
        more = iter(found)
        return [next(more) if entry[MESSAGE] is None else entry[MESSAGE] for entry in entries]

    def read_back(self, entries: list[Entry]) -> list[Message | None]:
        found = self.index.fetch_contents(entries)
        self.reads += len(found) - found.count(None)
        return found

    def prefetch(self, entries: Iterable[Entry]) -> None:
        self.index.prefetch(self._within(list(islice(entries, self.limits.read_ahead))))

    def read_ahead(self) -> None:
        """Have the contents of the next messages in Q3, which is not empty, and delta read, if it is time."""
        if self.q3[0][SEQ] <= self._read_ahead_mark:
            return
        ahead = self._within(self._next())
        new = ahead
        if self._read_ahead_mark >= 0:
            new = ahead[bisect_right(ahead, self._read_ahead_end, key=seq_of) :]
        if new:
            self.index.prefetch(new)
        mark = min(len(ahead) // 2, self.limits.read_ahead // 4)
        self._read_ahead_mark, self._read_ahead_end = ahead[mark][SEQ], ahead[-1][SEQ]

    def _next(self) -> list[Entry]:
        """Return the known entries of the next messages; delta's rows are read if there are too few."""
        count, delta = self.limits.read_ahead, self.delta
        ahead = list(islice(self.q3, count))
        if len(ahead) == len(self.q3) and delta is not BLANK:
            ahead += self.index.ahead(delta.start, delta.end, max(1, count - len(ahead)))
        return ahead

    def _within(self, ahead: list[Entry]) -> list[Entry]:
        """Leave out the entries beyond the bytes, but never the first."""
        bytes_max = self.limits.read_ahead_bytes
        if bytes_of(ahead) > bytes_max:
            reached = accumulate(map(size_of, ahead))
            del ahead[max(1, bisect_right(list(reached), bytes_max)) :]
        return ahead


def merge(ready: deque[Entry], back: list[Entry]) -> None:
    """Put sorted entries back to their places in a sorted deque, without a walk over the rest.

    A few entries are inserted into a long queue one by one; many are merged with the stretch of the queue
    between the first and the last of them.
    """
    low = bisect_left(ready, back[0][SEQ], key=seq_of)
    between = bisect_left(ready, back[-1][SEQ], lo=low, key=seq_of) - low
    if len(back) * len(ready) < _MERGE_TURNS * between:
        for entry in back:
            ready.insert(bisect_left(ready, entry[SEQ], key=seq_of), entry)
        return
    ready.rotate(-low)
    if between:
        back = sorted([*back, *[ready.popleft() for _ in range(between)]])
    ready.extendleft(reversed(back))
    ready.rotate(low)


NOTHING_PAGED: Final = PagedParts(None, PendingAcks(), DEFAULT_LIMITS)  # type: ignore[arg-type]  # of queues that do not page; always empty
