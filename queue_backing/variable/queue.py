"""VariableQueue: a backing queue that keeps the next messages in RAM and the rest on disk.

A message is in one of four states: *alpha*, content and position in RAM; *beta* and *gamma*, content
on disk, position in RAM (beta) or in RAM and on disk (gamma); *delta*, both on disk, nothing in RAM.
They stand in five parts::

    head   Q4 -> Q3 -> delta -> Q2 -> Q1   tail
           alphas  betas,    betas,  alphas
                   gammas    gammas

A queue that fits into RAM is Q4 alone. A queue that is not durable has no index until it must page
(``begin_paging``); till then it counts its messages only. When the RAM target is passed, the middle goes to
disk first: it is as far from being delivered as from having been published. Delta is never the head, so
after every operation (``invariants.py`` has all invariants)::

    Q1 not empty => Q3 not empty       Q2 not empty => delta not empty => Q3 not empty

The one exception is ``PagedParts.rows_awaited``: delta's first rows have been asked for and are not in RAM
yet. For the same reason Q4 may hold entries without content (``absent`` of them): a message that was put
back while its content was not in RAM is read when it is handed out.

A new message enters Q4 if nothing lies behind Q4, else Q1. In *lazy* mode there are Q3 and delta only,
and a new message goes to delta at once.

This module has Q4 with its ``Columns``, and Q1. Q3, delta and Q2 are the ``PagedParts``, unacked messages the
``PendingAcks``. ``RamTarget`` says how much may be in RAM, ``paging.py`` moves messages towards the disk,
``fetch.py`` hands out messages that may have to be read.

The disk is a ``QueueIndex`` that never waits, time is an injected clock, and long work is done in steps by
``timeout`` as long as ``needs_timeout`` asks for it. Entries are exact tuples (``core.entry``), batches are lists
of them. Source: ``rabbit_variable_queue``, 3.10.8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from leveret.core.entry import (
    CONTENT_ON_DISK,
    EXPIRY_MS,
    MESSAGE,
    SEQ,
    SIZE,
    body_of,
    message_of,
    seq_of,
    with_messages,
)
from leveret.core.message import LOST
from leveret.core.segmented_dict import SEGMENT_KEYS, grown
from leveret.msg_store.format.kernel import bytes_of
from leveret.queue_backing.api import (
    Accumulator,
    AckStep,
    BackingQueue,
    Dropped,
    Fetched,
    FoldStep,
    Predicate,
)
from leveret.queue_backing.variable import fold as folds
from leveret.queue_backing.variable import lifecycle, paging
from leveret.queue_backing.variable.columns import NO_COLUMNS, Columns, entries_of
from leveret.queue_backing.variable.delta import BLANK
from leveret.queue_backing.variable.fetch import Batch
from leveret.queue_backing.variable.info import info
from leveret.queue_backing.variable.limits import DEFAULT_LIMITS
from leveret.queue_backing.variable.paged import NOTHING, NOTHING_PAGED, PagedParts, merge
from leveret.queue_backing.variable.paging import page_out
from leveret.queue_backing.variable.pending_acks import NOBODY, PendingAcks
from leveret.queue_backing.variable.ram_target import INFINITE, NO_TARGET, UPDATE_AFTER, RamTarget
from leveret.queue_backing.variable.release import FREED_BYTES_PER_TURN, NOTHING_ON_DISK

if TYPE_CHECKING:
    from leveret.core.clock import Clock
    from leveret.core.entry import Entry
    from leveret.core.message import Message
    from leveret.queue_backing.api import QueueMode
    from leveret.queue_backing.index.api import QueueIndex
    from leveret.queue_backing.variable.limits import Limits
    from leveret.queue_backing.variable.release import Release

AHEAD: Final = 256  # entries made of columns at once, so that small fetches cost no more
FEW: Final = 32  # messages that come one by one get entries up to so many; columns cost as much
_DIRECT: Final = 8  # from so many messages on a fetch takes them from the columns, not through Q4
_FAST: Final = 1_024  # messages a fetch may take from Q4 in one go
_UPDATE_RATES_AFTER: Final = UPDATE_AFTER // 2  # messages that came in and went out at once


class VariableQueue(BackingQueue):
    """See ``BackingQueue`` for the methods.

    Args:
        index: of a durable queue; another has none at first.
        clock: for rates; None only for a queue that never pages.
        limits: the constants.
        open_index: makes the index of a queue that is not durable when it first has to page; returns None
            when that cannot be now. None: the queue is durable, or the node has no stores.

    Attributes:
        q4, columns: the head: entries, and behind them messages that came in batches or are many.
        q1: the tail.
        paged: the parts between them; shared by queues of which nothing was paged out.
        pending: unacked messages.
        ram: the target; shared by queues that do not page, and then infinite.
        count, ready_bytes: ready messages, and their bodies.
        next_deliver: every message below this seq has been handed out.
        uses_columns: new messages have no rows, and no gaps in their seqs.
        to_lazy: the change to lazy mode is under way, or is wanted and there is no index.
        releasing: containers that are freed in the next turns.
        can_page: there is an ``index``. The following attributes are kept only then.
        has_stored: something may be on disk; when False, certainly nothing is.
        absent: entries of Q4 without content.
        pages_next_turn: paging goes on in the next turn.
    """

    __slots__ = ("_clock", "_limits", "_open_index", "absent", "can_page", "columns", "count",
        "has_stored", "index", "mode", "next_deliver", "next_seq", "paged", "pages_next_turn", "pending",
        "q1", "q4", "ram", "ready_bytes", "releasing", "to_lazy", "uses_columns")  # fmt: skip

    def __init__(
        self,
        index: QueueIndex | None = None,
        clock: Clock | None = None,
        limits: Limits = DEFAULT_LIMITS,
        open_index: Callable[[], QueueIndex | None] | None = None,
    ) -> None:
        # First what each message needs: compiled, fields lie in memory in this order.
        self.paged = NOTHING_PAGED
        self.releasing: Release | None = None
        self.pages_next_turn = self.can_page = self.has_stored = self.to_lazy = False
        self.uses_columns = index is None
        self.pending = PendingAcks()
        self.count = self.next_seq = self.next_deliver = self.ready_bytes = self.absent = 0
        self.mode: QueueMode = "default"
        self.ram = NO_TARGET
        self.q1 = self.q4 = NOTHING
        self.columns = NO_COLUMNS
        self.index: QueueIndex
        self._clock = clock
        self._limits = limits
        self._open_index = open_index
        if index is not None:
            self._use(index)

    # Lifecycle.

    def init(self, recover: bool) -> None:
        if recover and self.can_page:
            lifecycle.recover(self)

    def begin_paging(self) -> bool:
        """Open the index of a queue that is not durable, if need be; return whether there is one."""
        if not self.can_page and self._open_index is not None:
            index = self._open_index()
            if index is not None:
                self._use(index)
        return self.can_page

    def use_paged(self) -> PagedParts:
        """Return the paged parts, made now if nothing was paged out before."""
        if self.paged is NOTHING_PAGED:
            self.paged = PagedParts(self.index, self.pending, self._limits)
        return self.paged

    def _use(self, index: QueueIndex) -> None:
        assert self._clock is not None
        self.index, self.can_page = index, True
        self.ram = RamTarget(self._clock, self._limits.slack)
        self.pending.is_sorted = False
        self.pages_next_turn = bool(self.count or self.pending.in_ram)
        if self.to_lazy:
            self.ram.look_always()
        if self.releasing is not None:
            self.releasing.index = index

    def terminate(self) -> None:
        """End and keep the persistent messages; the unacked ones come back as ready."""
        if self._open_index is None:
            lifecycle.terminate(self)
        else:
            lifecycle.delete(self)

    def abandon(self) -> None:
        lifecycle.abandon(self)

    def delete_and_terminate(self) -> None:
        lifecycle.delete(self)

    # In.

    def publish(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        delivered: bool = False,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        first, count = self.next_seq, len(messages)
        paged = self.paged
        is_alone = not paged.q3 and paged.delta is BLANK
        is_long = count > 1 or self.columns.messages or len(self.q4) > FEW
        if is_alone and is_long and self.uses_columns:
            return self._publish_columns(messages, persistent, expiries, size_bytes, delivered)
        entries, size_bytes = entries_of(
            first, messages, persistent, expiries, size_bytes, first_msg_no, self.can_page
        )
        self.next_seq = first + count
        self.count += count
        self.ready_bytes += size_bytes
        if delivered and first == self.next_deliver:
            self.next_deliver = self.next_seq
        if self.can_page:
            self.ram.incoming += count
            if persistent:
                entries = self._issue(entries)
            if self.mode == "lazy":
                entries = list(entries)
                page_out(self, entries, must=True)
                paged.add_to_delta(paged.trim(entries))
                self._maybe_reduce()
                return first, not persistent
        if is_alone:
            if self.q4 is NOTHING:
                self.q4 = deque()
            self.q4.extend(entries)
        else:
            if self.q1 is NOTHING:
                self.q1 = deque()
            self.q1.extend(entries)
        if self.can_page:
            self._maybe_reduce()
        return first, not (persistent and self.can_page)

    def _publish_columns(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None,
        size_bytes: int | None,
        delivered: bool,
    ) -> tuple[int, bool]:
        """Append a batch that needs no entries yet."""
        first, count = self.next_seq, len(messages)
        if self.columns is NO_COLUMNS:
            self.columns = Columns()
        self.columns.append(first, messages, persistent, expiries)
        if size_bytes is None:
            size_bytes = sum(map(len, map(body_of, messages)))
        self.next_seq = first + count
        self.count += count
        self.ready_bytes += size_bytes
        if delivered and first == self.next_deliver:
            self.next_deliver = self.next_seq
        if self.can_page:
            self.ram.incoming += count
            self._maybe_reduce()
        return first, True

    def _issue(self, entries: Any) -> list[Entry]:
        """Give persistent messages their rows; their contents are in the store already."""
        entries = list(entries)
        self.has_stored = True
        self.index.publish(entries)
        return entries  # type: ignore[no-any-return]

    def _maybe_reduce(self) -> None:
        ram = self.ram
        if ram.incoming + ram.outgoing > UPDATE_AFTER:
            ram.update_rates()
        above = ram.reduce_above
        if above != INFINITE and self.ram_count + len(self.pending.in_ram) > above:
            paging.reduce_memory_use(self)

    def publish_delivered(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        assert not self.count, "publish_delivered on a queue that is not empty"
        first, pending = self.next_seq, self.pending
        is_simple = not self.can_page or (not persistent and self.mode == "default")
        if len(messages) == 1 and is_simple and size_bytes is not None:
            # What a queue with a waiting consumer mostly does.
            self.next_seq = self.next_deliver = first + 1
            in_ram = pending.in_ram
            if in_ram is NOBODY:
                in_ram = pending.in_ram = {}
            elif type(in_ram) is not dict or len(in_ram) > SEGMENT_KEYS:
                in_ram = pending.in_ram = grown(in_ram)
            expiry = expiries[0] if expiries else 0
            entry = (first, messages[0], expiry, persistent, first_msg_no, size_bytes, False, False)
            in_ram[first] = entry
            pending.size_bytes += size_bytes
            if self.can_page:
                pending.last_seq = first
                self._went_straight(1)
            return first, True
        entries, size_bytes = entries_of(
            first, messages, persistent, expiries, size_bytes, first_msg_no, self.can_page
        )
        self.next_seq = self.next_deliver = first + len(messages)
        if not self.can_page:
            pending.add(range(first, self.next_seq), entries, size_bytes)
            return first, True
        if persistent:
            entries = self._issue(entries)
            if len(entries) == 1:
                pending.add_one(first, entries[0], size_bytes)
                self._went_straight(1)
                return first, False
        elif self.mode == "lazy":
            entries = paging.write_through(self, list(entries))
        pending.add(range(first, self.next_seq), entries, size_bytes)
        self._went_straight(len(messages))
        return first, not persistent

    def _went_straight(self, count: int) -> None:
        """Count messages that came in and went out at once."""
        ram = self.ram
        ram.incoming += count
        ram.outgoing += count
        ram.ack_in += count
        if ram.incoming > _UPDATE_RATES_AFTER or len(self.pending.in_ram) > ram.reduce_above:
            self._maybe_reduce()

    def discard(self, messages: list[Message], persistent: bool, first_msg_no: int = 0) -> None:
        """Give up the contents of persistent messages, which the store has had since routing."""
        if persistent and self.can_page:
            self.index.discard(first_msg_no, len(messages))

    def skip_to(self, seq: int) -> None:
        """Let the next message have this seq, which is not below that it would have."""
        if self.next_deliver == self.next_seq:
            self.next_deliver = seq
        self.next_seq = seq

    # Out.

    def fetch(self, limit: int, bytes_max: int, ack_required: bool) -> Fetched:
        q4 = self.q4
        wanted = min(limit, self.count)
        if len(q4) < wanted <= _FAST and self.columns.messages:
            if not q4 and _DIRECT <= wanted <= len(self.columns.messages):
                return self._fetch_columns(wanted, bytes_max, ack_required)
            q4 = self.make_entries(wanted - len(q4))
        if not 0 < wanted <= len(q4) or wanted > _FAST or self.absent:
            return self._fetch_parts(limit, bytes_max, ack_required)
        if wanted == 1:
            return self._fetch_one(q4.popleft(), ack_required)
        if wanted == len(q4):
            entries = list(q4)
            q4.clear()
        else:
            take = q4.popleft
            entries = [take() for _ in range(wanted)]
        size_bytes = bytes_of(entries)
        if size_bytes > bytes_max:
            q4.extendleft(reversed(entries))
            return self._fetch_parts(limit, bytes_max, ack_required)
        seqs = list(map(seq_of, entries))
        self._took_alphas(wanted, size_bytes, ack_required)
        if ack_required:
            self.pending.add(seqs, entries, size_bytes)
        elif self.has_stored:
            self.forget(entries)
        return Fetched(list(map(message_of, entries)), seqs, self.pass_watermark(seqs))

    def _fetch_one(self, entry: Entry, ack_required: bool) -> Fetched:
        seq, size_bytes = entry[SEQ], entry[SIZE]
        self._took_alphas(1, size_bytes, ack_required)
        if ack_required:
            self.pending.add_one(seq, entry, size_bytes)
        elif self.has_stored:
            self.forget([entry])
        if seq < self.next_deliver:
            return Fetched([message_of(entry)], [seq], 1)
        self.next_deliver = seq + 1
        return Fetched([message_of(entry)], [seq])

    def _fetch_columns(self, wanted: int, bytes_max: int, ack_required: bool) -> Fetched:
        """Take a batch from the columns, without a way through Q4, which is empty."""
        columns = self.columns
        if ack_required:
            entries = list(columns.take(wanted))
            size_bytes = bytes_of(entries)
            if size_bytes > bytes_max:
                self.q4 = deque(entries)
                return self._fetch_parts(wanted, bytes_max, ack_required)
            seqs = list(map(seq_of, entries))
            messages = list(map(message_of, entries))
            self.pending.add(seqs, entries, size_bytes)
        else:
            size_bytes = sum(map(len, map(body_of, islice(columns.messages, wanted))))
            if size_bytes > bytes_max:
                return self._fetch_parts(wanted, bytes_max, ack_required)
            first_seq = columns.end_seq - len(columns.messages)
            seqs = list(range(first_seq, first_seq + wanted))
            messages = columns.drop(wanted)
        self._took_alphas(wanted, size_bytes, ack_required)
        return Fetched(messages, seqs, self.pass_watermark(seqs))

    def _took_alphas(self, count: int, size_bytes: int, ack_required: bool) -> None:
        self.count -= count
        self.ready_bytes -= size_bytes
        if self.can_page:
            self.ram.outgoing += count
            if ack_required:
                self.ram.ack_in += count

    def _fetch_parts(self, limit: int, bytes_max: int, ack_required: bool) -> Fetched:
        """Take messages from the head, part by part."""
        batch = Batch(self, ack_required, bytes_max)
        batch.take_all(limit)
        return batch.fetched()

    def make_entries(self, count: int) -> deque[Entry]:
        """Make entries of the oldest messages in the columns, at least some, and return Q4."""
        if self.q4 is NOTHING:
            self.q4 = deque()
        self.q4.extend(self.columns.take(min(max(count, AHEAD), len(self.columns.messages))))
        return self.q4

    def q3_was_taken_from(self) -> None:
        """After a fetch from Q3: read ahead, or bring the part behind an empty Q3 to the head."""
        paged = self.paged
        if paged.q3:
            paged.read_ahead()
        elif self.mode == "lazy":
            return
        elif paged.delta is BLANK:
            assert not paged.q2, "Q2 is not empty, but delta is"
            assert not self.q4, "Q3 was taken from while Q4 was the head"
            self.q4, self.q1 = self.q1, NOTHING
        else:
            paged.load()

    def pass_watermark(self, seqs: list[int]) -> int:
        """Count which of these ascending seqs were handed out before; now all of them were."""
        watermark = self.next_deliver
        if not seqs or seqs[-1] < watermark:
            return len(seqs)
        self.next_deliver = seqs[-1] + 1
        return 0 if seqs[0] >= watermark else bisect_left(seqs, watermark)

    def drop(self, limit: int, ack_required: bool) -> list[int]:
        batch = Batch(self, ack_required, with_contents=False)
        batch.take(limit)
        return batch.fetched().seqs

    def dropwhile(self, predicate: Predicate, limit: int) -> Dropped:
        batch = Batch(self, ack_required=False, with_contents=False)
        head = batch.take_while(predicate, limit)
        fetched = batch.fetched()
        return Dropped(len(fetched.seqs), head, fetched.pending)

    def fetchwhile(
        self, predicate: Predicate, limit: int, bytes_max: int
    ) -> tuple[Fetched, Entry | None]:
        batch = Batch(self, True, bytes_max)
        head = batch.take_while(predicate, limit)
        return batch.fetched(), head

    # Back.

    def ack(self, seqs: list[int]) -> int:
        pending = self.pending
        if len(seqs) == 1 and (entry := pending.in_ram.pop(seqs[0], None)) is not None:
            pending.size_bytes -= entry[SIZE]
            if self.can_page:
                self.ram.ack_out += 1
                if self.has_stored:
                    self.forget([entry])
            return 1
        before_bytes = pending.size_bytes
        entries = pending.take(seqs)
        count = len(entries)
        if self.can_page:
            self.ram.ack_out += count
            self.forget(entries)
        if before_bytes - pending.size_bytes > FREED_BYTES_PER_TURN:
            lifecycle.release(self, entries, NOTHING_ON_DISK)
        return count

    def forget(self, entries: list[Entry]) -> None:
        """Ack rows and contents of these entries; they are in no container any more."""
        if not self.has_stored:
            return
        stored = [entry for entry in entries if entry[CONTENT_ON_DISK]]
        if stored:
            self.index.ack(stored)
            self.paged.forget(stored)
        if not self.count and not self.pending.in_ram and not self.pending.on_disk:
            self.has_stored = False

    def requeue(self, seqs: list[int]) -> int:
        """Put unacked messages back to their places.

        By their seqs they fall into three groups: messages before Q3's head belong into Q4, messages before
        delta into Q3, all others into delta; Q2 and Q1 hold only messages that were never handed out, which
        are younger. Each message is brought into the state of its place: with content in Q4, without in Q3,
        with a row in delta. Paging out goes beyond the store's credit: a requeue cannot stop half-way.
        """
        back = self.pending.take(seqs)
        if not back:
            return 0
        back.sort()
        paged = self.paged
        before_delta = len(back)
        if paged.delta is not BLANK:
            before_delta = bisect_left(back, paged.delta.start, key=seq_of)
        before_q3 = 0
        if self.mode != "lazy":
            before_q3 = before_delta
            if paged.q3:
                before_q3 = bisect_left(back, paged.q3[0][SEQ], 0, before_delta, key=seq_of)
        self.count += len(back)
        self.ready_bytes += bytes_of(back)
        if before_q3:
            self._requeue_to_q4(back[:before_q3])
        if before_q3 < before_delta:
            page_out(self, back[before_q3:before_delta], must=True)
            paged.insert(back[before_q3:before_delta])
        if before_delta < len(back):
            page_out(self, back[before_delta:], must=True)
            paged.insert_into_delta(back[before_delta:])
        if self.can_page:
            self.ram.incoming += len(back)
            self._maybe_reduce()
        return len(back)

    def _requeue_to_q4(self, back: list[Entry]) -> None:
        """Put entries into Q4, with their contents where these are in RAM.

        RabbitMQ reads missing contents. Here they are asked for, and the entries go into Q4 without
        (``absent``): a fetch finds the contents in the read cache, or says ``pending``.
        """
        paged = self.paged
        if any(entry[MESSAGE] is None for entry in back):
            found = paged.fetch_contents(back)
            if LOST in found:  # a fetch sees again that it is damaged, and forgets it
                found = [None if each is LOST else each for each in found]
            paged.forget(back)
            back = with_messages(back, found)
            absent = [entry for entry in back if entry[MESSAGE] is None]
            if absent:
                self.absent += len(absent)
                paged.paged_bytes += bytes_of(absent)
                paged.prefetch(absent)
        if self.q4 is NOTHING:
            self.q4 = deque()
        merge(self.q4, back)

    # All.

    def ackfold(
        self, step: AckStep[Accumulator], start: Accumulator, seqs: list[int]
    ) -> Accumulator:
        return folds.ackfold(self, step, start, seqs)

    def expiries(self, seqs: list[int]) -> dict[int, int]:
        in_ram, on_disk = self.pending.in_ram, self.pending.on_disk
        found = [in_ram.get(seq) or on_disk.get(seq) for seq in seqs]
        return {entry[SEQ]: entry[EXPIRY_MS] for entry in found if entry is not None}

    def fold(
        self, step: FoldStep[Accumulator], start: Accumulator, from_seq: int = 0
    ) -> Accumulator:
        return folds.fold([self], step, start, from_seq)

    def purge(self) -> int:
        return lifecycle.purge(self)

    def purge_acks(self) -> int:
        return lifecycle.purge_acks(self)

    # Paging.

    def ram_duration(self) -> float:
        """Return how many seconds of traffic are in RAM; infinite if it is idle or cannot page."""
        if not self.can_page:
            return INFINITE
        return self.ram.duration_s(self.ram_count + len(self.pending.in_ram))

    def set_ram_duration_target(self, duration_s: float) -> None:
        """Keep no more than so many seconds of traffic in RAM; a lower target pages at once."""
        if paging.aim_at(self, duration_s):
            paging.reduce_memory_use(self)

    def set_queue_mode(self, mode: QueueMode) -> None:
        paging.set_mode(self, mode)

    def needs_timeout(self) -> bool:
        return self.pages_next_turn or self.paged.loading_goes_on or bool(self.releasing)

    def timeout(self) -> None:
        if self.releasing:
            self.releasing.do_some()
        if self.pages_next_turn or self.paged.loading_goes_on:
            paging.go_on(self)

    def resume(self) -> None:
        self.paged.note_fetch_ready()
        if self.can_page:
            paging.go_on(self)

    def resume_later(self) -> None:
        """As ``resume``, but all work is left to ``timeout``."""
        self.paged.note_fetch_ready()
        if self.paged.rows_awaited:
            self.paged.loading_goes_on = True
        is_unlimited = self.ram.target == INFINITE and not self.to_lazy
        if not is_unlimited and (self.count or self.pending.in_ram):
            self.pages_next_turn = True

    def take_fetch_ready(self) -> bool:
        return self.paged.take_fetch_ready()

    # Figures.

    @property
    def ram_count(self) -> int:
        """The ready messages with content in RAM."""
        return len(self.q1) + len(self.q4) + len(self.columns.messages) - self.absent

    @property
    def ram_bytes(self) -> int:
        """The bodies in RAM, ready and unacked."""
        return self.ready_bytes + self.pending.size_bytes - self.paged.paged_bytes

    def persistent(self) -> tuple[int, int]:
        """Return the persistent messages, ready and unacked, and the size of their bodies."""
        return self.index.persistent() if self.can_page else (0, 0)

    def len_q4(self) -> int:
        return len(self.q4) + len(self.columns.messages)

    def len(self) -> int:
        return self.count

    def len_bytes(self) -> int:
        return self.ready_bytes

    def is_empty(self) -> bool:
        return not self.count

    def depth(self) -> int:
        return self.count + self.pending.count()

    def info(self) -> dict[str, Any]:
        return info(self)
