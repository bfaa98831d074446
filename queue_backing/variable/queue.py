"""VariableQueue: a backing queue that keeps the next messages in RAM and the rest on disk.

**States and parts.** A message is in one of four states: *alpha*, content and position in RAM; *beta* and *gamma*,
content on disk, position in RAM (beta) or in RAM and on disk (gamma); *delta*, both on disk, nothing in RAM.
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
``PendingAcks``, and ``RamTarget`` says how much may be in RAM. The disk is a ``QueueIndex`` that never waits, time is
an injected clock, and long work is done in steps by ``timeout`` as long as ``needs_timeout`` asks for it. Entries are
exact tuples (``core.entry``), batches are lists of them.

**Start, end and purge.** A start takes all rows of the index as one delta, of which the first window is loaded:
recovery costs the same for a hundred messages as for a hundred million. After a clean end the terms tell up to which
seq messages had been handed out; after any other end all count as handed out, hence redelivered. A purge acks the
range of seqs from the head on, but for the unacked ones: the store looks its rows up. Only contents without a row,
which no range reaches, are given up one by one (``release.py``).

**Fetching.** Most messages are alphas, taken from Q4 or its columns. A ``Batch`` takes the others. The head is Q4, and
Q3 when Q4 is empty. A part is taken from in *chunks*, sized so that a batch keeps to its bytes; the rest of a chunk
goes back. Contents of Q3 come from the store's read cache; the first message whose content is not there ends the
batch, which then says ``pending`` while the content is read. A message with damaged content is passed over and
forgotten: read again it would be damaged again. A message leaves Q3 for the consumer, never for Q4. RabbitMQ takes the
head and puts it back when a predicate refuses it (``in_r``); here the predicate sees it in its place, so nothing is
put back.

**Paging.** Four transitions bring the queue below its RAM target, each bounded by a *quota*:

* ``_limit_ram_acks``: unacked messages give up their contents, the youngest first.
* ``_alphas_to_betas``: Q1's head becomes Q3's tail (Q2's, when there is a delta), then Q4's tail
  becomes Q3's head. Contents of transients go to the store, as far as it gives credit; persistent
  ones are there already. A persistent message is at once a gamma, its row is in the index.
* ``PagedParts.push_to_delta``: Q3's tail, but nothing of its head's segment, then Q2's head get their rows
  and leave RAM. So delta grows downwards from Q3 and upwards from Q2.

Messages far from being delivered go first and furthest. A content comes back only when it is fetched.
``permitted_betas`` makes the betas fewer as the queue outgrows its target: of B messages behind the
alphas, B * B / (B + target) belong into delta. One call makes one bounded step; ``pages_next_turn`` asks for another,
except when the store has no credit: then its ``resume`` is the next turn.

**Folding.** A fold goes over the ready and the unacked messages and changes nothing, merged by seq; the ready ones part
by part, delta read in windows. Contents are fetched in chunks. A message that is not in RAM ends the walk with a
marker, which the step gets as None; the caller goes on there when the message has been read. Damaged messages are left
out.

**Replicas.** The queue of a mirror is told of messages in any order (``insert``). Each goes to its place by the way of
a message that is put back; but it may be younger than messages of Q2 and Q1 are.

Source: ``rabbit_variable_queue``, 3.10.8.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leveret.core.entry import (
    CONTENT_ON_DISK,
    EXPIRY_MS,
    MESSAGE,
    MSG_NO,
    PERSISTENT,
    SEQ,
    SIZE,
    body_of,
    message_of,
    seq_of,
    size_of,
    with_messages,
)
from leveret.core.message import LOST
from leveret.core.segmented_dict import SEGMENT_KEYS, grown
from leveret.msg_store.format.kernel import bytes_of
from leveret.msg_store.format.seq_range import SeqRange
from leveret.queue_backing.api import (
    Accumulator,
    AckStep,
    Dropped,
    Fetched,
    FoldStep,
    Predicate,
    ReplicaQueue,
)
from leveret.queue_backing.variable.columns import NO_COLUMNS, Columns, entries_of
from leveret.queue_backing.variable.delta import BLANK, Delta, window_end
from leveret.queue_backing.variable.info import head_timestamp, memory_bytes
from leveret.queue_backing.variable.limits import DEFAULT_LIMITS
from leveret.queue_backing.variable.paged import NOTHING, NOTHING_PAGED, PagedParts, merge
from leveret.queue_backing.variable.pending_acks import NOBODY, PendingAcks
from leveret.queue_backing.variable.ram_target import INFINITE, NO_TARGET, UPDATE_AFTER, RamTarget
from leveret.queue_backing.variable.release import (
    CONTENTS,
    FREED_BYTES_PER_TURN,
    NOTHING_ON_DISK,
    Release,
)

if TYPE_CHECKING:
    from leveret.core.clock import Clock
    from leveret.core.entry import Entry
    from leveret.core.message import Message
    from leveret.queue_backing.api import QueueMode
    from leveret.queue_backing.index.api import QueueIndex
    from leveret.queue_backing.variable.limits import Limits
    from leveret.queue_backing.variable.release import Container

_Step: TypeAlias = "tuple[int, Entry, bool, VariableQueue]"  # seq, entry, unacked, of which queue

UNBOUNDED: Final = 1 << 62
# Paging out fewer is not worth an index. A small message costs 120 bytes in RAM, as much as its position alone.
PAGED_BYTES_MIN: Final = 64 * 1024  # of bodies
PAGED_MESSAGES_MIN: Final = 16 * 1024
_CHUNK: Final = 1_024  # messages a batch takes from a part in one go
_FOLD_CHUNK: Final = 256
_NO_ROW: Final = -1  # the msg_no of the marker: from this seq on rows must be read
AHEAD: Final = 256  # entries made of columns at once, so that small fetches cost no more
FEW: Final = 32  # messages that come one by one get entries up to so many; columns cost as much
_DIRECT: Final = 8  # from so many messages on a fetch takes them from the columns, not through Q4
_FAST: Final = 1_024  # messages a fetch may take from Q4 in one go
_UPDATE_RATES_AFTER: Final = UPDATE_AFTER // 2  # messages that came in and went out at once


class VariableQueue(ReplicaQueue):
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

    # Start and end.

    def init(self, recover: bool) -> None:
        if recover and self.can_page:
            self._recover()

    def _recover(self) -> None:
        """Start with the rows of the index."""
        (low, next_seq), terms = self.index.bounds(), self.index.terms()
        self.next_seq = self.next_deliver = next_seq
        if terms is not None:
            self.next_seq = max(next_seq, terms.next_seq)
            self.next_deliver = terms.next_deliver
        self.count, self.ready_bytes = self.persistent()
        if self.count:
            self.has_stored = True
            paged = self.use_paged()
            paged.transient_threshold = self.next_seq
            paged.delta = Delta(low, self.count, 0, self.next_seq)
            paged.paged_bytes = self.ready_bytes
            paged.load()

    def terminate(self) -> None:
        """End and keep the persistent messages; the unacked ones come back as ready."""
        if self._open_index is not None:
            self.delete_and_terminate()
            return
        if self.can_page:
            self.index.terminate(self.next_seq, self.next_deliver)
        self._leave()

    def abandon(self) -> None:
        """End after a crash, of the queue or of its store: its statistics are not to be trusted."""
        if self.can_page:
            self.index.forget()
        self._leave()

    def delete_and_terminate(self) -> None:
        """End and keep nothing."""
        if self.can_page:
            self.index.delete()
        self._leave()

    def _leave(self) -> None:
        """Free the RAM; the disk has been seen to."""
        if self.releasing:
            self.releasing.abandon()
        self._release_ready(NOTHING_ON_DISK)
        self._release_unacked()
        self.ram.clear()
        self.has_stored = self.to_lazy = self.pages_next_turn = self.paged.fetch_is_pending = False

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
            if persistent:  # their contents are in the store already
                entries = list(entries)
                self.has_stored = True
                self.index.publish(entries)
            if self.mode == "lazy":
                entries = list(entries)
                self._page_out(entries, must=True)
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

    def _maybe_reduce(self) -> None:
        ram = self.ram
        if ram.incoming + ram.outgoing > UPDATE_AFTER:
            ram.update_rates()
        above = ram.reduce_above
        if above != INFINITE and self.ram_count + len(self.pending.in_ram) > above:
            self._reduce_memory_use()

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
            entries = list(entries)
            self.has_stored = True
            self.index.publish(entries)
            if len(entries) == 1:
                pending.add_one(first, entries[0], size_bytes)
                self._went_straight(1)
                return first, False
        elif self.mode == "lazy":
            entries = self._write_through(list(entries))
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

    def expect_gaps(self) -> None:
        """Let seqs have gaps between them: each message gets an entry, none a place in the columns."""
        self.uses_columns = False

    def skip_to(self, seq: int) -> None:
        if self.next_deliver == self.next_seq:
            self.next_deliver = seq
        self.next_seq = seq
        delta = self.paged.delta
        if seq < delta.end:  # of a start, which knows no better
            self.paged.delta = delta._replace(end=seq)
        self._add_from(seq)

    def _add_from(self, seq: int) -> None:
        """Expect new messages from a seq on, which may be below that of the start."""
        if self.paged is not NOTHING_PAGED and seq < self.paged.transient_threshold:
            self.paged.transient_threshold = seq  # the store has dropped the transients from before

    def insert(
        self,
        first_seq: int,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        first_msg_no: int = 0,
    ) -> bool:
        made, _ = entries_of(
            first_seq, messages, persistent, expiries, None, first_msg_no, self.can_page
        )
        entries = list(made)
        self.next_seq = max(self.next_seq, first_seq + len(messages))
        if persistent and self.can_page:
            self.has_stored = True
            self.index.publish(entries)
        self._add_from(first_seq)
        self._add_at_places(entries)
        return not (persistent and self.can_page)

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

    def take_below(self, seq: int, limit: int) -> Fetched:
        batch = Batch(self, ack_required=True, with_contents=False)
        batch.take_while(lambda entry: entry[SEQ] < seq, limit)
        return batch.fetched()

    def ready_seqs(self, from_seq: int, limit: int) -> Fetched:
        return ready_seqs_of([self], from_seq, limit)

    def set_next_deliver(self, seq: int) -> None:
        self.next_deliver = seq

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
            self.release(entries, NOTHING_ON_DISK)
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

        Paging out goes beyond the store's credit: a requeue cannot stop half-way.
        """
        back = self.pending.take(seqs)
        if not back:
            return 0
        back.sort()
        self._add_at_places(back)
        return len(back)

    def _add_at_places(self, back: list[Entry]) -> None:
        """Add ascending entries, each to the part where its place is.

        By their seqs they fall into three groups: messages before Q3's head belong into Q4, messages before
        delta into Q3, all others into delta, but for those behind the heads of Q2 and Q1. Each message is brought into
        the state of its place: with content in Q4 and Q1, without in Q3 and Q2, with a row in delta.
        """
        paged = self.paged
        self.count += len(back)
        self.ready_bytes += bytes_of(back)
        if self.can_page:
            self.ram.incoming += len(back)
        if (self.q1 or paged.q2) and not (back := self._add_to_tail(back)):
            self._maybe_reduce()
            return
        before_delta = len(back)
        if paged.delta is not BLANK:
            before_delta = bisect_left(back, paged.delta.start, key=seq_of)
        before_q3 = 0
        if self.mode != "lazy":
            before_q3 = before_delta
            if paged.q3:
                before_q3 = bisect_left(back, paged.q3[0][SEQ], 0, before_delta, key=seq_of)
        if before_q3:
            self._requeue_to_q4(back[:before_q3])
        if before_q3 < before_delta:
            self._page_out(back[before_q3:before_delta], must=True)
            paged.insert(back[before_q3:before_delta])
        if before_delta < len(back):
            self._page_out(back[before_delta:], must=True)
            paged.insert_into_delta(back[before_delta:])
        if self.can_page:
            self._maybe_reduce()

    def _add_to_tail(self, back: list[Entry]) -> list[Entry]:
        """Add the entries behind the heads of Q2 and Q1 there, as inserted ones may be; return the others."""
        paged = self.paged
        if self.q1 and (at := bisect_left(back, self.q1[0][SEQ], key=seq_of)) < len(back):
            back, behind = back[:at], back[at:]
            merge(self.q1, behind)
        if paged.q2 and (at := bisect_left(back, paged.q2[0][SEQ], key=seq_of)) < len(back):
            back, behind = back[:at], back[at:]
            self._page_out(behind, must=True)
            merge(paged.q2, paged.trim(behind))
        return back

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

    # Purge, and what frees the memory.

    def purge(self) -> int:
        """Remove all ready messages."""
        count, head = self.count, self._head_seq()
        if self.has_stored and head is not None:
            ready = SeqRange(head, self.next_seq, self.pending.seqs_from(head))
            self.index.ack_range(ready, *self._persistent_ready())
        self._release_ready(CONTENTS if self.has_stored else NOTHING_ON_DISK)
        self.next_deliver = self.next_seq
        self.has_stored = self.has_stored and self.pending.count() > 0
        return count

    def _persistent_ready(self) -> tuple[int, int]:
        """Return how many ready messages are persistent, and their bytes.

        The unacked ones are looked at in a queue with transient messages only.
        """
        messages, size_bytes = self.persistent()
        pending = self.pending
        all_bytes = self.ready_bytes + pending.size_bytes
        if (messages, size_bytes) == (self.count + pending.count(), all_bytes):
            return self.count, self.ready_bytes
        unacked = pending.persistent_sizes() if messages else []
        return messages - len(unacked), size_bytes - sum(unacked)

    def _head_seq(self) -> int | None:
        """Return the seq of the first ready message, or one below; None when there is none."""
        if self.q4:
            return int(self.q4[0][SEQ])
        if self.columns.messages:
            return self.columns.end_seq - len(self.columns.messages)
        if self.paged.q3:
            return int(self.paged.q3[0][SEQ])
        return None if self.paged.delta is BLANK else self.paged.delta.start

    def purge_acks(self) -> int:
        """Forget all unacked messages; their rows at once, or a window of delta would bring them back."""
        count = self.pending.count()
        if self.has_stored:
            stored = [entry for entry in self.pending.entries() if entry[CONTENT_ON_DISK]]
            if stored:
                self.index.ack(stored)
        self._release_unacked()
        if self.can_page:
            self.ram.ack_out += count
        self.has_stored = self.has_stored and self.count > 0
        return count

    def _release_ready(self, what: str) -> None:
        for part in (self.q4, self.paged.q3, self.paged.q2, self.q1):
            self.release(part, what)
        self.release(self.columns.messages, NOTHING_ON_DISK)
        self.columns = NO_COLUMNS
        self.q1 = self.q4 = NOTHING
        if self.paged is not NOTHING_PAGED:
            self.paged.clear()
        self.count = self.ready_bytes = self.absent = 0

    def _release_unacked(self) -> None:
        pending = self.pending
        if pending.on_disk:
            self.paged.paged_bytes -= pending.size_on_disk()
        self.release(pending.in_ram, NOTHING_ON_DISK)
        self.release(pending.on_disk, NOTHING_ON_DISK)
        pending.clear()

    def release(self, entries: Container, what: str) -> None:
        """Free a container, at once or in the next turns; ``what`` is to be acked, see ``release.py``."""
        if not entries:
            return
        if self.releasing is None:
            self.releasing = Release(self.index if self.can_page else None)
        self.releasing.take(entries, what)

    # Paging.

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
            self.ram.reduce_always()
        if self.releasing is not None:
            self.releasing.index = index

    def ram_duration(self) -> float:
        """Return how many seconds of traffic are in RAM; infinite if it is idle or cannot page."""
        if not self.can_page:
            return INFINITE
        return self.ram.duration_s(self.ram_count + len(self.pending.in_ram))

    def set_ram_duration_target(self, duration_s: float) -> None:
        """Keep no more than so many seconds of traffic in RAM; a lower target pages at once."""
        if self._set_target(duration_s):
            self._reduce_memory_use()

    def aim_at(self, duration_s: float) -> bool:
        """As ``set_ram_duration_target``, but all paging is left to ``timeout``; return whether there is some to do."""
        is_lower = self._set_target(duration_s)
        self.pages_next_turn = self.pages_next_turn or is_lower
        return is_lower

    def _set_target(self, duration_s: float) -> bool:
        """Set the target, and page nothing yet; return whether messages may have to be paged out.

        A queue without an index gets one when there is a target and its messages are large or many enough to matter.
        """
        if not self.can_page:
            is_large = (
                self.ready_bytes + self.pending.size_bytes >= PAGED_BYTES_MIN
                or self.count + len(self.pending.in_ram) >= PAGED_MESSAGES_MIN
            )
            if duration_s == INFINITE or not is_large or not self.begin_paging():
                return False
        is_lower = self.ram.aim_at(duration_s)
        if self.to_lazy:
            return False
        self.ram.reduce_above_target()
        return is_lower and bool(self.count or self.pending.in_ram)

    def set_queue_mode(self, mode: QueueMode) -> None:
        """Change between ``default`` and ``lazy``.

        Messages are paged out in steps, the first in the next turn: in this turn all levels of a priority queue
        may have to change their mode. A queue that gets no index stays in RAM.
        """
        if mode == ("lazy" if self.to_lazy else self.mode) and self.can_page:
            return
        was_on_the_way, self.to_lazy = self.to_lazy, mode == "lazy"
        if mode == "lazy":
            if self.begin_paging():
                self.ram.reduce_always()
                self.pages_next_turn = bool(self.count or self.pending.in_ram)
                if not self.pages_next_turn:
                    self._reduce_memory_use()
        elif self.can_page:
            self.ram.reduce_above_target()
            if not was_on_the_way:
                self.mode = "default"
                self.paged.load()

    def needs_timeout(self) -> bool:
        return self.pages_next_turn or self.paged.loads_next_turn or bool(self.releasing)

    def timeout(self) -> None:
        if self.releasing:
            self.releasing.do_some()
        if self.pages_next_turn or self.paged.loads_next_turn:
            self._step()

    def resume(self) -> None:
        self.paged.note_fetch_ready()
        if self.can_page:
            self._step()

    def resume_later(self) -> None:
        """As ``resume``, but all work is left to ``timeout``."""
        self.paged.note_fetch_ready()
        if self.paged.rows_awaited:
            self.paged.loads_next_turn = True
        is_unlimited = self.ram.target == INFINITE and not self.to_lazy
        if not is_unlimited and (self.count or self.pending.in_ram):
            self.pages_next_turn = True

    def take_fetch_ready(self) -> bool:
        return self.paged.take_fetch_ready()

    def _step(self) -> None:
        """Do the next step of loading and paging."""
        paged = self.paged
        if paged.loads_next_turn:
            paged.loads_next_turn = False
        if paged.rows_awaited:
            paged.rows_awaited = False
            if not paged.q3 and paged.load():
                paged.note_fetch_ready()
        self._reduce_memory_use()

    def _reduce_memory_use(self) -> None:
        """Make one step towards the target; ``pages_next_turn`` says afterwards if the next may follow."""
        self.pages_next_turn = False
        target = 0.0 if self.to_lazy else self.ram.target
        if target == INFINITE or not self.can_page:
            return
        paged, unacked = self.use_paged(), self.pending
        if self.mode == "lazy":
            self._reduce_lazy(target)
            return
        io_batch = 0 if self.to_lazy else paged.limits.io_batch
        step = paged.limits.step
        too_many = excess(self.ram_count + len(unacked.in_ram), target)
        left, blocked = self._page_contents(min(too_many, step), target)
        # Part of the quota may have gone to messages of Q4 whose contents are on disk only.
        is_more = left == 0 and self.ram_count + len(unacked.in_ram) > target
        too_many = excess(len(paged.q2) + len(paged.q3), self.permitted_betas(target))
        if too_many and too_many >= io_batch:
            paged.push_to_delta(min(too_many, step), is_lazy=False)
            is_more = is_more or too_many > step
        self.pages_next_turn = is_more and not blocked
        if self.to_lazy:
            self._finish_to_lazy(blocked)

    def permitted_betas(self, target: float) -> float:
        """Return how many entries Q2 and Q3 may hold."""
        if not self.count:
            return INFINITE
        if self.mode == "lazy":
            return target
        segment = self.paged.limits.segment
        if target == 0:
            return min(len(self.paged.q3), segment)
        behind = self.count - len(self.q1) - self.len_q4()
        return max(segment, behind - behind * behind // (behind + int(target)))

    def _page_contents(self, quota: int, target: float) -> tuple[int, bool]:
        """Return the quota left, and whether the store has no credit."""
        if not quota:
            return 0, False
        transitions = (self._limit_ram_acks, self._alphas_to_betas)
        if not self.ram.rates.acks_grow_faster():
            transitions = (self._alphas_to_betas, self._limit_ram_acks)
        for transition in transitions:
            quota, blocked = transition(quota, target)
            if blocked:
                return quota, True
        return quota, False

    def _reduce_lazy(self, target: float) -> None:
        paged = self.paged
        step = paged.limits.step
        unacked = excess(self.ram_count + len(self.pending.in_ram), target)
        blocked = False
        if unacked:
            _, blocked = self._limit_ram_acks(min(unacked, step), target)
        betas = excess(len(paged.q3), self.permitted_betas(target))
        if paged.keeps_q3_head:
            betas = (
                0  # or contents being read would be forgotten before they arrive, again and again
            )
        if betas:
            paged.push_to_delta(min(betas, step), is_lazy=True)
        self.pages_next_turn = betas > step or (unacked > step and not blocked)

    def _finish_to_lazy(self, blocked: bool) -> None:
        if self.q4 and not self.ram_count:
            self._push_absent()
        if self.q1 or self.paged.q2 or self.q4 or self.columns.messages:
            self.pages_next_turn = not blocked
            return
        self.mode, self.to_lazy = "lazy", False
        self.uses_columns = False
        # Unacked messages and betas may be more than a lazy queue keeps.
        self.pages_next_turn = not blocked
        self.ram.reduce_above_target()

    def _limit_ram_acks(self, quota: int, target: float) -> tuple[int, bool]:
        """Trim the youngest unacked messages; return the quota left and whether credit ran out."""
        pending = self.pending
        if not pending.in_ram:
            return quota, False
        batch = pending.take_youngest(quota)
        rest = self._page_out(batch)
        pending.put_back(rest)
        pending.add_on_disk(self.paged.trim(batch), 0)
        return quota - len(batch), bool(rest)

    def _alphas_to_betas(self, quota: int, target: float) -> tuple[int, bool]:
        """Trim Q1's head, then Q4's tail; return the quota left and whether credit ran out."""
        paged, columns = self.paged, self.columns
        put_back: Callable[[Iterable[Entry]], None]
        while quota and self.ram_count > target:
            count = min(quota, excess(self.ram_count, target))
            if self.q1:
                batch = [self.q1.popleft() for _ in range(min(count, len(self.q1)))]
                put_back, push = self.q1.extendleft, paged.append
            elif columns.messages:
                batch = columns.take_youngest(min(count, len(columns.messages)))
                put_back, push = columns.put_back, paged.prepend
            else:
                batch = [self.q4.pop() for _ in range(min(count, len(self.q4)))]
                put_back, push = self.q4.extend, paged.prepend
            rest = self._page_out(batch)
            if rest:
                put_back(reversed(rest))
            if self.absent:
                self.absent -= sum(entry[MESSAGE] is None for entry in batch)
            push(batch)
            quota -= len(batch)
            if rest:
                return quota, True
        return quota, False

    def _push_absent(self) -> None:
        """Push Q4's tail to Q3, when all of Q4 is without content."""
        take = self.q4.pop
        batch = [take() for _ in range(min(self.paged.limits.step, len(self.q4)))]
        self.absent -= len(batch)
        self.paged.prepend(batch)

    def _page_out(self, entries: list[Entry], must: bool = False) -> list[Entry]:
        """Page out contents that are not on disk; remove the entries beyond the credit and return them."""
        missing = [entry for entry in entries if not entry[CONTENT_ON_DISK]]
        taken = self.index.page_out(missing, must) if missing else 0
        if taken:
            self.has_stored = True
            self.use_paged().writes += taken
        if taken == len(missing):
            return []
        done = entries.index(missing[taken])
        rest = entries[done:]
        del entries[done:]
        return rest

    def _write_through(self, entries: list[Entry]) -> list[Entry]:
        """Write contents and rows of transients that stay in RAM all the same; return them so marked."""
        self._page_out(entries, must=True)
        self.index.add([(*entry[:-1], True) for entry in entries])
        return [(*entry[: SIZE + 1], True, True) for entry in entries]

    # Fold.

    def ackfold(
        self, step: AckStep[Accumulator], start: Accumulator, seqs: list[int]
    ) -> Accumulator:
        """Fold over unacked messages in the order of ``seqs``; unknown seqs are passed over."""
        rpa, dpa = self.pending.in_ram, self.pending.on_disk
        entries = [rpa.get(seq) or dpa[seq] for seq in seqs if seq in rpa or seq in dpa]
        entries = self._with_found(entries)
        absent = [entry for entry in entries if entry[MESSAGE] is None]
        if absent:
            self.paged.fetch_is_pending = True
            self.paged.prefetch(absent)
        for entry in entries:
            start = step(entry, start)
        return start

    def expiries(self, seqs: list[int]) -> dict[int, int]:
        in_ram, on_disk = self.pending.in_ram, self.pending.on_disk
        found = [in_ram.get(seq) or on_disk.get(seq) for seq in seqs]
        return {entry[SEQ]: entry[EXPIRY_MS] for entry in found if entry is not None}

    def fold(
        self, step: FoldStep[Accumulator], start: Accumulator, from_seq: int = 0
    ) -> Accumulator:
        return fold_queues([self], step, start, from_seq)

    def walks(self, from_seq: int) -> list[Iterator[_Step]]:
        """Return walks over the ready and over the unacked messages, each in the order of seqs."""
        of_unacked = sorted(entry for entry in self.pending.entries() if entry[SEQ] >= from_seq)
        return [
            self._walk(self.entries_from(from_seq), False),
            self._walk(iter(of_unacked), True),
        ]

    def _walk(self, entries: Iterator[Entry], is_unacked: bool) -> Iterator[_Step]:
        for entry in self._with_contents(entries):
            yield entry[SEQ], entry, is_unacked, self

    def _with_contents(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """Yield the entries with their contents; one without is the last, and has been asked for."""
        while chunk := list(islice(entries, _FOLD_CHUNK)):
            end = chunk.pop() if chunk[-1][MSG_NO] == _NO_ROW else None
            full = self._with_found(chunk)
            absent = [entry for entry in full if entry[MESSAGE] is None]
            if absent:
                self.paged.prefetch(absent)  # before the first of them ends the walk
            yield from full
            if absent:
                return
            if end is not None:
                yield end

    def _with_found(self, entries: list[Entry]) -> list[Entry]:
        found = with_messages(entries, self.paged.fetch_contents(entries))
        return [entry for entry in found if entry[MESSAGE] is not LOST]

    def entries_from(self, from_seq: int) -> Iterator[Entry]:
        """Yield the ready messages, part by part; the last is a marker where rows must be read first."""
        yield from _from_seq(self.q4, from_seq)
        if self.columns.messages:
            yield from self.columns.from_seq(from_seq)
        yield from _from_seq(self.paged.q3, from_seq)
        for entry in self._rows_from(from_seq):
            yield entry
            if entry[MSG_NO] == _NO_ROW:
                return
        for part in (self.paged.q2, self.q1):
            yield from _from_seq(part, from_seq)

    def _rows_from(self, from_seq: int) -> Iterator[Entry]:
        delta, limits = self.paged.delta, self.paged.limits
        if delta is BLANK:
            return
        low, high = max(delta.start, from_seq), delta.end
        while low < high:
            end = window_end(delta._replace(start=low), limits.segment, limits.read_max)
            rows = self.index.read(low, end, limits.read_max)
            if rows is None:
                yield _awaited(low)
                return
            for row in rows:
                if self._is_ready(row):
                    yield row
            low = end
            if not rows:  # a hole, which may be long
                following = self.index.read(end, high, 1)
                if following is None:
                    yield _awaited(end)
                    return
                low = following[0][SEQ] if following else high

    def _is_ready(self, row: Entry) -> bool:
        seq = row[SEQ]
        is_left = seq < self.paged.transient_threshold and not row[PERSISTENT]
        return not is_left and seq not in self.pending.in_ram and seq not in self.pending.on_disk

    # Statistics.

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
        """Return statistics by RabbitMQ's names; a queue that cannot page has none of its parts."""
        pending, paged = self.pending, self.paged
        unacked = pending.count()
        ram_count, ram_bytes = self.ram_count, self.ram_bytes
        persistent_count, persistent_bytes = self.persistent()
        in_ram = ram_count + len(pending.in_ram)
        heads: Iterable[Entry] = self.q4 or (
            self.columns.entries() if self.columns.messages else paged.q3
        )
        entries = in_ram - self.len_q4() + len(self.q4)
        stats = {
            "messages_ready": self.count,
            "messages_unacknowledged": unacked,
            "messages": self.count + unacked,
            "messages_ready_ram": ram_count,
            "messages_unacknowledged_ram": len(pending.in_ram),
            "messages_ram": in_ram,
            "messages_persistent": persistent_count,
            "messages_paged_out": self.count - ram_count,
            "message_bytes_ready": self.ready_bytes,
            "message_bytes_unacknowledged": pending.size_bytes,
            "message_bytes": self.ready_bytes + pending.size_bytes,
            "message_bytes_ram": ram_bytes,
            "message_bytes_persistent": persistent_bytes,
            "disk_reads": paged.reads,
            "disk_writes": paged.writes,
            "memory": memory_bytes(
                ram_bytes,
                in_ram,
                entries + len(pending.on_disk) + len(paged.q2) + len(paged.q3),
            ),
            "head_message_timestamp": head_timestamp(
                [next(iter(part), None) for part in (heads, pending.in_ram.values())]
            ),
            "next_seq_id": self.next_seq,
            "next_deliver_seq_id": self.next_deliver,
            "mode": "lazy" if self.to_lazy else self.mode,
        }
        has_parts = self.can_page or not self.uses_columns  # or it is a priority of a queue in RAM
        return stats | self._stats_of_parts() if has_parts else stats

    def _stats_of_parts(self) -> dict[str, Any]:
        paged, ram = self.paged, self.ram
        delta, rates = paged.delta, ram.rates
        return {
            "q1": len(self.q1),
            "q2": len(paged.q2),
            "delta": (delta.start, delta.length, delta.transient, delta.end),
            "delta_messages": delta.length,
            "q3": len(paged.q3),
            "q4": self.len_q4(),
            "target_ram_count": "infinity" if ram.target == INFINITE else int(ram.target),
            "avg_ingress_rate": rates.incoming,
            "avg_egress_rate": rates.outgoing,
            "avg_ack_ingress_rate": rates.ack_in,
            "avg_ack_egress_rate": rates.ack_out,
        }


class Batch:
    """Messages that are taken from the head of a queue in one operation.

    Args:
        queue: the queue.
        ack_required: the messages become unacked; else they are forgotten.
        bytes_max: of all bodies; the first message may have more.
        with_contents: contents are read; else messages are taken without.
    """

    __slots__ = ("_ack_required", "_bytes_left", "_queue", "_with_contents", "messages", "pending",
        "seqs")  # fmt: skip

    def __init__(
        self,
        queue: VariableQueue,
        ack_required: bool,
        bytes_max: int = UNBOUNDED,
        with_contents: bool = True,
    ) -> None:
        self._queue = queue
        self._ack_required = ack_required
        self._bytes_left = bytes_max
        self._with_contents = with_contents
        self.messages: list[Message] = []
        self.seqs: list[int] = []
        self.pending = False

    def fetched(self) -> Fetched:
        queue = self._queue
        if self.pending:
            queue.paged.fetch_is_pending = queue.paged.keeps_q3_head = True
        redelivered = queue.pass_watermark(self.seqs)
        return Fetched(self.messages, self.seqs, redelivered, self.pending)

    def take(self, limit: int) -> bool:
        """Take up to ``limit`` messages; return whether there may be more within the batch's bounds."""
        queue = self._queue
        left = min(limit, queue.count)
        while left > 0:
            if self._bytes_left < 0:
                return False
            if not self._find_head():
                self.pending = True
                return False
            is_q4 = bool(queue.q4)
            part = queue.q4 if is_q4 else queue.paged.q3
            chunk = self._cut(part, left)
            if not chunk:
                return False
            left -= len(chunk)
            if self._with_contents:
                self._resolve(part, chunk, is_q4)
            if chunk:
                self._hand_out(chunk, is_q4)
            if self.pending:
                return False
        return True

    def take_all(self, limit: int) -> None:
        """Take up to ``limit`` messages; instead of damaged messages take the next."""
        while self.take(limit - len(self.seqs)):
            if not self._queue.count or len(self.seqs) == limit:
                return

    def take_while(self, predicate: Predicate, limit: int) -> Entry | None:
        """Take while the predicate holds, part by part; return the first entry that stays."""
        queue = self._queue
        while queue.count:
            if not self._find_head():
                self.pending = True
                return None
            part = queue.q4 or queue.paged.q3
            matching = _count_matching(part, predicate, limit - len(self.seqs))
            if not matching or not self.take(matching):
                return part[0]
        return None

    def _find_head(self) -> bool:
        """Bring the head into RAM, if there is one; return False when its row must be read first."""
        queue = self._queue
        if queue.q4:
            return True
        if queue.columns.messages:
            queue.make_entries(_CHUNK)
            return True
        if queue.paged.q3 or queue.paged.delta is BLANK:
            return True
        return queue.paged.load()

    def _cut(self, part: deque[Entry], limit: int) -> list[Entry]:
        """Take a chunk that keeps to the bytes of the batch, whose first message always does."""
        bytes_left = self._bytes_left
        mean_bytes = self._queue.ready_bytes // self._queue.count + 1
        guess = max(1, min(_CHUNK, bytes_left // mean_bytes + 1))
        take = part.popleft
        chunk = [take() for _ in range(min(guess, limit, len(part)))]
        if bytes_of(chunk) > bytes_left:
            keep = bisect_right(list(accumulate(map(size_of, chunk))), bytes_left)
            keep = max(keep, 0 if self.seqs else 1)
            part.extendleft(reversed(chunk[keep:]))
            del chunk[keep:]
        return chunk

    def _resolve(self, part: deque[Entry], chunk: list[Entry], is_q4: bool) -> None:
        """Get the contents of a chunk; put back its end, from the first message that is not in RAM on."""
        queue, paged = self._queue, self._queue.paged
        if is_q4 and not queue.absent:
            self.messages += map(message_of, chunk)
            return
        messages: list[Any] = paged.fetch_contents(chunk) if is_q4 else paged.read_back(chunk)
        if None in messages:
            first = messages.index(None)
            rest = chunk[first:]
            paged.index.prefetch([entry for entry in rest if entry[MESSAGE] is None])
            self.pending = True
            part.extendleft(reversed(rest))
            del chunk[first:], messages[first:]
        if LOST in messages:
            messages = self._without_lost(chunk, messages, is_q4)
        self.messages += messages

    def _without_lost(self, chunk: list[Entry], messages: list[Any], is_q4: bool) -> list[Any]:
        """Forget the entries of a chunk whose contents are damaged; return the other contents."""
        queue = self._queue
        gone = [entry for entry, each in zip(chunk, messages, strict=True) if each is LOST]
        chunk[:] = [entry for entry, each in zip(chunk, messages, strict=True) if each is not LOST]
        queue.count -= len(gone)
        queue.ready_bytes -= bytes_of(gone)
        if is_q4:
            queue.absent -= len(gone)
        queue.forget(gone)
        if not is_q4 and not chunk:
            queue.q3_was_taken_from()
        return [each for each in messages if each is not LOST]

    def _hand_out(self, chunk: list[Entry], is_q4: bool) -> None:
        queue = self._queue
        seqs = list(map(seq_of, chunk))
        size_bytes = bytes_of(chunk)
        queue.count -= len(chunk)
        queue.ready_bytes -= size_bytes
        queue.paged.keeps_q3_head = False
        self._bytes_left -= size_bytes
        self.seqs += seqs
        in_ram, on_disk = (chunk, []) if is_q4 else ([], chunk)
        if is_q4 and queue.absent:
            in_ram = [entry for entry in chunk if entry[MESSAGE] is not None]
            on_disk = [entry for entry in chunk if entry[MESSAGE] is None]
            queue.absent -= len(on_disk)
        if self._ack_required:
            if in_ram:
                queue.pending.add(list(map(seq_of, in_ram)), in_ram, bytes_of(in_ram))
            if on_disk:
                queue.pending.add_on_disk(on_disk, bytes_of(on_disk))
        if queue.can_page:
            queue.ram.outgoing += len(chunk)
            if self._ack_required:
                queue.ram.ack_in += len(chunk)
            else:
                queue.forget(chunk)
        if not is_q4:
            queue.q3_was_taken_from()
        if not self._with_contents and size_bytes > FREED_BYTES_PER_TURN:
            queue.release(chunk, NOTHING_ON_DISK)


def _count_matching(part: deque[Entry], predicate: Predicate, limit: int) -> int:
    count = 0
    for entry in part:
        if count == limit or not predicate(entry):
            break
        count += 1
    return count


def fold_queues(
    queues: Sequence[VariableQueue], step: FoldStep[Accumulator], start: Accumulator, from_seq: int
) -> Accumulator:
    """Fold over the messages with ``seq >= from_seq`` of queues that have no seq in common."""
    walks = [walk for queue in queues for walk in queue.walks(from_seq)]
    for _, entry, is_unacked, queue in heapq.merge(*walks, key=itemgetter(0)):
        if entry[MESSAGE] is None:
            queue.paged.fetch_is_pending = True
            return step(None, False, start)[1]
        is_more, start = step(entry, is_unacked, start)
        if not is_more:
            break
    return start


def _awaited(seq: int) -> Entry:
    """Return the marker that rows from this seq on must be read."""
    return (seq, None, 0, True, _NO_ROW, 0, True, True)


def _from_seq(entries: Iterable[Entry], seq: int) -> Iterator[Entry]:
    for entry in entries:
        if entry[SEQ] >= seq:
            yield entry


def excess(current: int, permitted: float) -> int:
    """Return by how much ``current`` is more than permitted."""
    return 0 if permitted >= current else int(current - permitted)


def ready_seqs_of(queues: Sequence[VariableQueue], from_seq: int, limit: int) -> Fetched:
    """Return the first seqs of ready messages of queues that have no seq in common, see ``BackingQueue.ready_seqs``."""
    seqs: list[int] = []
    of_all = [queue.entries_from(from_seq) for queue in queues]
    for entry in heapq.merge(*of_all, key=seq_of):
        if len(seqs) == limit:
            break
        if entry[MSG_NO] == _NO_ROW:
            for queue in queues:
                queue.paged.fetch_is_pending = queue.paged is not NOTHING_PAGED
            return Fetched([], seqs, pending=True)
        seqs.append(entry[SEQ])
    return Fetched([], seqs)
