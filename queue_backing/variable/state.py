"""QueueState: what a variable queue consists of, and the few steps that all its operations share.

Order, head to tail: **Q4, Q3, delta, Q2, Q1**. Q4 and Q1 hold alphas, Q3 and Q2 betas and gammas
(``status.py`` says what these are). The unacked stand in two dicts by seq: ``rpa``, *RAM pending
acks*, with their content in RAM, and ``dpa``, *disk pending acks*, without.

Delta is never the head, so Q3 is not empty while delta is not. The one exception is ``rows_awaited``:
the rows of delta's first window have been asked for and are not in RAM yet. Q4 may hold entries
without content for the same reason: a message that was put back there while its content was not in
RAM is read when it is handed out. ``absent`` counts those.

Containers are made on first use; until then they are the shared, always empty ``NOTHING`` and
``NOBODY``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leveret.msg_store.format.kernel import bytes_of
from leveret.queue_backing.api import FOREVER_S
from leveret.queue_backing.rates import Rates
from leveret.queue_backing.status import CONTENT_ON_DISK, PERSISTENT, SEQ, SIZE, seq_of
from leveret.queue_backing.variable.columns import NO_COLUMNS
from leveret.queue_backing.variable.delta import BLANK, Delta
from leveret.queue_backing.variable.release import Release

if TYPE_CHECKING:
    from leveret.core.clock import Clock
    from leveret.queue_backing.api import QueueMode
    from leveret.queue_backing.index.api import QueueIndex
    from leveret.queue_backing.status import Entry

NOTHING: Final[deque[Entry]] = deque()
NOBODY: Final[dict[int, Entry]] = {}
AHEAD: Final = 256  # entries made of columns at once, so that small fetches cost no more
INFINITE: Final = FOREVER_S  # a RAM target that is none


class Limits(NamedTuple):
    """Constants of a variable queue.

    Attributes:
        segment: seqs of an index segment; Q3 keeps at least what it has of its head's segment.
        io_batch: betas that must be too many before any is pushed to delta.
        step: transitions of each kind in one turn. RabbitMQ makes 8,000, twice its store credit; ours
            are this few so that a turn, with the store's part of it, stays below 5 ms.
        read_max: seqs of delta that are loaded at once.
        slack: messages, or a 16th of the target if that is more, by which the target may be passed
            before a publish looks at it.
        windows: windows of delta that are looked through in one turn.
        read_ahead: contents that are asked for before they are wanted.
        read_ahead_bytes: and their size, of which one message may be more.
    """

    segment: int = 2048
    io_batch: int = 4096
    step: int = 1000
    read_max: int = 2048
    slack: int = 64
    windows: int = 8
    read_ahead: int = 2048
    read_ahead_bytes: int = 2 * 1024 * 1024


DEFAULT_LIMITS: Final = Limits()
_NO_RATES: Final = Rates(0.0)


class QueueState:
    """The parts, the counters and the shared steps.

    Attributes:
        count: ready messages.
        ready_bytes: their bodies.
        unacked_bytes: bodies of the unacked.
        persistent_count: persistent messages, ready and unacked.
        persistent_bytes: their bodies.
        ram_count: ready messages with content in RAM.
        ram_bytes: bodies in RAM, ready and unacked.
        delta_transient_bytes: bodies of the transients in delta.
        absent: entries of Q4 without content.
        can_page: there is an index.
        open_index: makes the index of a queue that is not durable when it first has to page; returns
            None when that cannot be now. None: a durable queue, or a node without stores.
        columns: the young end of Q4 where messages came in batches or are many.
        uses_columns: new messages may stand in columns: they have no rows, and no gaps in their seqs.
        target: how many messages, ready and unacked, may be in RAM.
        reduce_above: how many a publish lets pass before it looks.
        to_lazy: the change to lazy mode is under way.
        has_stored: something may be on disk; when False, certainly nothing is.
        rpa_sorted: ``rpa`` is in the order of seqs.
        bump: reduction goes on in the next turn.
        loading_goes_on: so does the search for rows that are not unacked.
        ram_before: messages in RAM when the RAM duration was last asked for.
        rows_awaited: Q3 is empty, delta is not, and its rows are not in RAM yet.
        waiting: the amqqueue was told that something is pending.
        wanted: nothing was taken since then, so Q3's head must not go back to delta.
        news: it may be there now.
        read_ahead_mark: when Q3's head passes this seq, more is asked for; -1 if Q3 has changed but at
            its ends: what was taken, or loaded.
        read_ahead_end: up to this seq contents of Q3 and delta were asked for before.
    """

    __slots__ = (
        "absent",
        "ack_in",
        "ack_out",
        "bump",
        "can_page",
        "clock",
        "columns",
        "count",
        "delta",
        "delta_transient_bytes",
        "disk_reads",
        "disk_writes",
        "dpa",
        "has_stored",
        "incoming",
        "index",
        "limits",
        "loading_goes_on",
        "mode",
        "news",
        "next_deliver",
        "next_seq",
        "open_index",
        "outgoing",
        "persistent_bytes",
        "persistent_count",
        "q1",
        "q2",
        "q3",
        "q4",
        "ram_before",
        "ram_bytes",
        "ram_count",
        "rates",
        "read_ahead_end",
        "read_ahead_mark",
        "ready_bytes",
        "reduce_above",
        "releasing",
        "rows_awaited",
        "rpa",
        "rpa_last",
        "rpa_sorted",
        "target",
        "to_lazy",
        "transient_threshold",
        "unacked_bytes",
        "uses_columns",
        "waiting",
        "wanted",
    )  # fmt: skip

    def __init__(
        self,
        index: QueueIndex | None = None,
        clock: Clock | None = None,
        limits: Limits = DEFAULT_LIMITS,
        open_index: Callable[[], QueueIndex | None] | None = None,
    ) -> None:
        self.index: QueueIndex = index  # type: ignore[assignment]  # None only if not can_page
        self.can_page = index is not None
        self.open_index = open_index
        self.uses_columns = index is None
        self.columns = NO_COLUMNS
        self.clock: Clock = clock  # type: ignore[assignment]  # None only if it never pages
        self.limits = limits
        self.mode: QueueMode = "default"
        self.to_lazy = False
        self.q1 = self.q2 = self.q3 = self.q4 = NOTHING
        self.delta: Delta = BLANK
        self.rpa = self.dpa = NOBODY
        self.rpa_last = -1
        self.rpa_sorted = True
        self.next_seq = self.next_deliver = self.transient_threshold = 0
        self.count = self.ready_bytes = self.unacked_bytes = 0
        self.persistent_count = self.persistent_bytes = 0
        self.ram_count = self.ram_bytes = self.absent = self.delta_transient_bytes = 0
        self.ram_before = 0
        self.incoming = self.outgoing = self.ack_in = self.ack_out = 0
        self.disk_reads = self.disk_writes = 0
        self.rates = _NO_RATES if index is None else Rates(self.clock.monotonic_s())
        self.target: float = INFINITE
        self.reduce_above: float = INFINITE
        self.has_stored = False
        self.bump = self.loading_goes_on = self.rows_awaited = False
        self.waiting = self.wanted = self.news = False
        self.read_ahead_mark = self.read_ahead_end = -1
        self.releasing: Release | None = None

    def len_q4(self) -> int:
        """Return how many messages are in Q4."""
        return len(self.q4) + len(self.columns.messages)

    def make_entries(self, count: int) -> deque[Entry]:
        """Make entries of the oldest messages in the columns, at least some, and return Q4."""
        if self.q4 is NOTHING:
            self.q4 = deque()
        self.q4.extend(self.columns.take(min(max(count, AHEAD), len(self.columns.messages))))
        return self.q4

    def skip_to(self, seq: int) -> None:
        """Let the next message have this seq, which is not below that it would have."""
        if self.next_deliver == self.next_seq:
            self.next_deliver = seq
        self.next_seq = seq

    # Unacked.

    def await_acks(self, seqs: list[int] | range, entries: Iterable[Entry]) -> None:
        """Take entries with content as unacked; ``seqs`` are theirs, ascending, not empty."""
        rpa = self.rpa
        if not rpa:
            if rpa is NOBODY:
                rpa = self.rpa = {}
            self.rpa_sorted = True
        elif seqs[0] < self.rpa_last:
            self.rpa_sorted = False
        self.rpa_last = seqs[-1]
        rpa.update(zip(seqs, entries, strict=False))
        self.ack_in += len(seqs)

    def await_acks_on_disk(self, entries: list[Entry]) -> None:
        """Take entries without content as unacked."""
        if self.dpa is NOBODY:
            self.dpa = {}
        self.dpa.update(zip(map(seq_of, entries), entries, strict=False))
        self.ack_in += len(entries)

    def settle(self, seqs: list[int]) -> tuple[list[Entry], list[Entry]]:
        """Take messages out of the unacked; unknown seqs are passed over.

        Returns:
            Those with content and those without, each in the order of ``seqs``.
        """
        found = taken(self.rpa, seqs) if self.rpa else []
        on_disk: list[Entry] = []
        if self.dpa and len(found) < len(seqs):
            on_disk = taken(self.dpa, seqs)
            self.unacked_bytes -= bytes_of(on_disk)
        ram_bytes = bytes_of(found)
        self.ram_bytes -= ram_bytes
        self.unacked_bytes -= ram_bytes
        return found, on_disk

    # Gone for good.

    def forget(self, entries: list[Entry]) -> None:
        """Let what is on disk of these entries go; they are in no container any more."""
        if not self.has_stored:
            return
        stored = [entry for entry in entries if entry[CONTENT_ON_DISK]]
        if stored:
            self.index.ack(stored)
            if self.persistent_count:
                sizes = [entry[SIZE] for entry in stored if entry[PERSISTENT]]
                self.persistent_count -= len(sizes)
                self.persistent_bytes -= sum(sizes)
        if not self.count and not self.rpa and not self.dpa:
            self.has_stored = False

    def release(self, entries: deque[Entry] | dict[int, Entry], what: str) -> None:
        """Free a container, at once or in the next turns; ``what`` is ``Release``'s."""
        if not entries:
            return
        if self.releasing is None:
            self.releasing = Release(self.index)
        self.releasing.take(entries, what)

    # Figures.

    def head_seq(self) -> int | None:
        """Return the seq of the first ready message, None when there is none.

        With ``rows_awaited`` it is a lower bound.
        """
        if self.q4:
            return int(self.q4[0][SEQ])
        if self.columns.messages:
            return self.columns.end_seq - len(self.columns.messages)
        if self.q3:
            return int(self.q3[0][SEQ])
        return None if self.delta is BLANK else self.delta.start

    def update_rates(self) -> None:
        """Bring the averages up to date and start counting anew."""
        now_s = self.clock.monotonic_s()
        self.rates.update(now_s, self.incoming, self.outgoing, self.ack_in, self.ack_out)
        self.incoming = self.outgoing = self.ack_in = self.ack_out = 0

    def pass_watermark(self, seqs: list[int]) -> int:
        """Count those handed out before, and remember that now all of these were.

        Args:
            seqs: what is handed out now, ascending.
        """
        watermark = self.next_deliver
        if not seqs or seqs[-1] < watermark:
            return len(seqs)
        self.next_deliver = seqs[-1] + 1
        return 0 if seqs[0] >= watermark else sum([seq < watermark for seq in seqs])


def taken(unacked: dict[int, Entry], seqs: list[int]) -> list[Entry]:
    """Take out those of some seqs that are there."""
    before = len(unacked)
    found: list[Any] = list(map(unacked.pop, seqs, repeat(None)))
    if before - len(unacked) == len(seqs):
        return found
    return [entry for entry in found if entry is not None]
