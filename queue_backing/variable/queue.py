"""VariableQueue: a backing queue that keeps what will be wanted soon in RAM and the rest on disk.

A message is in one of four states: *alpha*, content and position in RAM; *beta* and *gamma*, content
on disk, position in RAM (beta) or in RAM and on disk (gamma); *delta*, both on disk, nothing in RAM.
They stand in five parts::

    head   Q4 -> Q3 -> delta -> Q2 -> Q1   tail
           alphas  betas,    betas,  alphas
                   gammas    gammas

A queue that fits into RAM is Q4 alone, and costs what a queue in memory costs. When the RAM target is
passed, the middle goes to disk first: that is as far from being delivered as from having been
published. Delta is never the head, so after every operation (``invariants.py`` has all of it)::

    Q1 not empty => Q3 not empty       Q2 not empty => delta not empty => Q3 not empty

A new message enters Q4 if nothing lies behind Q4, else Q1. Where messages move:
``paging.py`` towards disk, ``loading.py`` delta to Q3, ``taking.py`` out, ``requeue.py`` back in.

In *lazy* mode there are Q3 and delta only, and a new message goes to delta at once.

The queue is sans-IO: the disk is a ``QueueIndex`` that never waits, time is an injected clock, and
what takes long is done in steps by ``timeout`` as long as ``needs_timeout`` asks for it. Entries are
exact tuples (``status.py``), batches are lists of them. Source: ``rabbit_variable_queue``, 3.10.8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from leveret.core.message import BODY
from leveret.msg_store.format.kernel import bytes_of
from leveret.queue_backing.api import Accumulator, Dropped, Fetched, Predicate
from leveret.queue_backing.rates import UPDATE_AFTER
from leveret.queue_backing.status import SIZE, body_of, message_of, seq_of, trimmed
from leveret.queue_backing.variable import fetch as taking
from leveret.queue_backing.variable import fold as folding
from leveret.queue_backing.variable import lifecycle, requeue
from leveret.queue_backing.variable.columns import NEVER, NO, NO_COLUMNS, YES, Columns
from leveret.queue_backing.variable.delta import BLANK
from leveret.queue_backing.variable.housekeeping import Housekeeping
from leveret.queue_backing.variable.paging import page_out, reduce_memory_use, to_delta
from leveret.queue_backing.variable.state import AHEAD, NOBODY, NOTHING, taken

if TYPE_CHECKING:
    from leveret.core.message import Message
    from leveret.queue_backing.status import Entry

_UPDATE_RATES_AFTER: Final = UPDATE_AFTER // 2  # of those that come in and go out at once
_DIRECT: Final = 8  # messages at once for which no entries are put into Q4
_FAST: Final = 1_024  # messages a fetch may take from Q4 in one go


class VariableQueue(Housekeeping):
    """See ``BackingQueue`` for the methods, ``QueueState`` for the parts.

    Args:
        index: this queue's.
        clock: for rates.
        limits: the constants.
    """

    __slots__ = ()

    # Lifecycle.

    def init(self, recover: bool) -> None:
        """Start empty, or with what the index has."""
        if recover:
            lifecycle.recover(self)

    def terminate(self) -> None:
        """End and keep what is persistent."""
        lifecycle.terminate(self)

    def abandon(self) -> None:
        """End and leave the disk as it is."""
        lifecycle.abandon(self)

    def delete_and_terminate(self) -> None:
        """End and keep nothing."""
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
        """Append a batch at the tail."""
        first, count = self.next_seq, len(messages)
        if (
            self.uses_columns
            and (count > 1 or self.columns.messages or len(self.q4) > AHEAD)
            and not self.q3
            and self.delta is BLANK
        ):
            return self._publish_columns(messages, persistent, expiries, size_bytes, delivered)
        entries, size_bytes = self._entries(
            messages, persistent, expiries, size_bytes, first_msg_no
        )
        self.count += count
        self.ready_bytes += size_bytes
        if delivered and first == self.next_deliver:
            self.next_deliver = self.next_seq
        if not self.can_page:
            if self.q4 is NOTHING:
                self.q4 = deque()
            self.q4.extend(entries)
            return first, True
        self.incoming += count
        if persistent:
            entries = self._issue(entries, size_bytes)
        if self.mode == "lazy":
            self._publish_lazy(entries)
        else:
            self.ram_count += count
            self.ram_bytes += size_bytes
            if self.q3 or self.delta is not BLANK:
                if self.q1 is NOTHING:
                    self.q1 = deque()
                self.q1.extend(entries)
            else:
                if self.q4 is NOTHING:
                    self.q4 = deque()
                self.q4.extend(entries)
        self._maybe_reduce()
        return first, not persistent

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
            self.incoming += count
            self.ram_count += count
            self.ram_bytes += size_bytes
            self._maybe_reduce()
        return first, True

    def _entries(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None,
        size_bytes: int | None,
        first_msg_no: int,
    ) -> tuple[Any, int]:
        """Number a batch; return its entries, to be gone through once, and the size of all bodies."""
        first, count = self.next_seq, len(messages)
        self.next_seq = first + count
        has_row = persistent and self.can_page
        if count == 1:
            if size_bytes is None:
                size_bytes = len(messages[0][BODY])
            expiry = expiries[0] if expiries else 0
            entry = (first, messages[0], expiry, persistent, first_msg_no, size_bytes)
            return ((*entry, has_row, has_row),), size_bytes
        sizes: Iterable[int] = map(len, map(body_of, messages))
        if size_bytes is None:
            sizes = list(sizes)
            size_bytes = sum(sizes)
        is_on_disk = YES if has_row else NO
        entries = zip(
            range(first, first + count),
            messages,
            expiries or NEVER,
            YES if persistent else NO,
            range(first_msg_no, first_msg_no + count),
            sizes,
            is_on_disk,
            is_on_disk,
            strict=False,
        )
        return entries, size_bytes

    def _issue(self, entries: Any, size_bytes: int) -> list[Entry]:
        """Give persistent messages their rows; their contents are in the store already."""
        entries = list(entries)
        self.has_stored = True
        self.persistent_count += len(entries)
        self.persistent_bytes += size_bytes
        self.index.publish(entries)
        return entries  # type: ignore[no-any-return]

    def _publish_lazy(self, entries: Any) -> None:
        entries = list(entries)
        page_out(self, entries, must=True)
        to_delta(self, trimmed(entries))

    def _maybe_reduce(self) -> None:
        if self.incoming + self.outgoing > UPDATE_AFTER:
            self.update_rates()
        if self.ram_count + len(self.rpa) > self.reduce_above:
            reduce_memory_use(self)

    def publish_delivered(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        """Take a batch as unacked."""
        assert not self.count, "publish_delivered on a queue that is not empty"
        first = self.next_seq
        if not self.can_page:
            if len(messages) == 1 and size_bytes is not None and self.rpa is not NOBODY:
                self.next_seq = self.next_deliver = first + 1
                expiry = expiries[0] if expiries else 0
                message = messages[0]
                entry = (first, message, expiry, persistent, first_msg_no, size_bytes, False, False)
                self.rpa[first] = entry
                self.unacked_bytes += size_bytes
                return first, True
            entries, size_bytes = self._entries(
                messages, persistent, expiries, size_bytes, first_msg_no
            )
            if self.rpa is NOBODY:
                self.rpa = {}
            self.rpa.update(zip(range(first, self.next_seq), entries, strict=False))
            self.next_deliver = self.next_seq
            self.unacked_bytes += size_bytes
            return first, True
        if len(messages) == 1 and not persistent and self.mode == "default":
            self._one_delivered(messages[0], expiries, size_bytes, first_msg_no)
            return first, True
        entries, size_bytes = self._entries(
            messages, persistent, expiries, size_bytes, first_msg_no
        )
        self.next_deliver = self.next_seq
        if persistent:
            entries = self._issue(entries, size_bytes)
        elif self.mode == "lazy":
            entries = lifecycle.to_disk(self, list(entries))
        self.incoming += len(messages)
        self.outgoing += len(messages)
        self.unacked_bytes += size_bytes
        self.ram_bytes += size_bytes
        self.await_acks(range(first, self.next_seq), entries)
        self._maybe_reduce()
        return first, not persistent

    def _one_delivered(
        self,
        message: Message,
        expiries: list[int] | None,
        size_bytes: int | None,
        first_msg_no: int,
    ) -> None:
        """Take one transient, which is what a queue with a waiting consumer mostly does."""
        seq = self.next_seq
        self.next_seq = self.next_deliver = seq + 1
        if size_bytes is None:
            size_bytes = len(message[BODY])
        rpa = self.rpa
        if not rpa:
            if rpa is NOBODY:
                rpa = self.rpa = {}
            self.rpa_sorted = True
        self.rpa_last = seq
        expiry = expiries[0] if expiries else 0
        rpa[seq] = (seq, message, expiry, False, first_msg_no, size_bytes, False, False)
        self.unacked_bytes += size_bytes
        self.ram_bytes += size_bytes
        self.ack_in += 1
        self.outgoing += 1
        self.incoming = incoming = self.incoming + 1
        if incoming > _UPDATE_RATES_AFTER or len(rpa) > self.reduce_above:
            self._maybe_reduce()

    def discard(self, messages: list[Message], persistent: bool, first_msg_no: int = 0) -> None:
        """Give up the contents of persistent messages, which the store has had since routing."""
        if persistent and self.can_page:
            self.index.discard(first_msg_no, len(messages))

    def is_duplicate(self, message: Message) -> bool:
        """Never: there is no mirror."""
        return False

    # Out.

    def fetch(self, limit: int, bytes_max: int, ack_required: bool) -> Fetched:
        """Take messages from the head."""
        q4 = self.q4
        wanted = min(limit, self.count)
        if len(q4) < wanted <= _FAST and self.columns.messages:
            if not q4 and _DIRECT <= wanted <= len(self.columns.messages):
                return self._fetch_columns(wanted, bytes_max, ack_required)
            q4 = self.make_entries(wanted - len(q4))
        if not 0 < wanted <= len(q4) or wanted > _FAST or self.absent:
            return taking.fetch(self, limit, bytes_max, ack_required)
        if wanted == 1:
            return self._fetch_one(ack_required)
        if wanted == len(q4):
            entries = list(q4)
            q4.clear()
        else:
            take = q4.popleft
            entries = [take() for _ in range(wanted)]
        size_bytes = bytes_of(entries)
        if size_bytes > bytes_max:
            q4.extendleft(reversed(entries))
            return taking.fetch(self, limit, bytes_max, ack_required)
        seqs = list(map(seq_of, entries))
        self._took_alphas(wanted, size_bytes)
        if ack_required:
            self.unacked_bytes += size_bytes
            self.await_acks(seqs, entries)
        else:
            self.ram_bytes -= size_bytes
            self.forget(entries)
        return Fetched(list(map(message_of, entries)), seqs, self.pass_watermark(seqs))

    def _fetch_columns(self, wanted: int, bytes_max: int, ack_required: bool) -> Fetched:
        """Take a batch from the columns, without a way through Q4, which is empty."""
        columns = self.columns
        if ack_required:
            entries = list(columns.take(wanted))
            size_bytes = bytes_of(entries)
            if size_bytes > bytes_max:
                self.q4 = deque(entries)
                return taking.fetch(self, wanted, bytes_max, ack_required)
            seqs = list(map(seq_of, entries))
            messages = list(map(message_of, entries))
            self.unacked_bytes += size_bytes
            self.await_acks(seqs, entries)
        else:
            size_bytes = sum(map(len, map(body_of, islice(columns.messages, wanted))))
            if size_bytes > bytes_max:
                return taking.fetch(self, wanted, bytes_max, ack_required)
            first_seq = columns.end_seq - len(columns.messages)
            seqs = list(range(first_seq, first_seq + wanted))
            messages = columns.drop(wanted)
            self.ram_bytes -= size_bytes
        self._took_alphas(wanted, size_bytes)
        return Fetched(messages, seqs, self.pass_watermark(seqs))

    def _took_alphas(self, count: int, size_bytes: int) -> None:
        self.count -= count
        self.ready_bytes -= size_bytes
        if self.can_page:
            self.ram_count -= count
            self.outgoing += count

    def _fetch_one(self, ack_required: bool) -> Fetched:
        entry = self.q4.popleft()
        seq, size_bytes = entry[0], entry[SIZE]
        self._took_alphas(1, size_bytes)
        if ack_required:
            self.unacked_bytes += size_bytes
            self.await_acks([seq], (entry,))
        else:
            self.ram_bytes -= size_bytes
            self.forget([entry])
        seqs = [seq]
        return Fetched([message_of(entry)], seqs, self.pass_watermark(seqs))

    def drop(self, limit: int, ack_required: bool) -> list[int]:
        """Take messages from the head without reading them."""
        return taking.drop(self, limit, ack_required)

    def dropwhile(self, predicate: Predicate, limit: int) -> Dropped:
        """Remove messages from the head while the predicate holds."""
        return taking.dropwhile(self, predicate, limit)

    def fetchwhile(
        self, predicate: Predicate, limit: int, bytes_max: int
    ) -> tuple[Fetched, Entry | None]:
        """Hand out messages from the head while the predicate holds."""
        return taking.fetchwhile(self, predicate, limit, bytes_max)

    # Back.

    def ack(self, seqs: list[int]) -> int:
        """Forget unacked messages for good."""
        if len(seqs) == 1 and (entry := self.rpa.pop(seqs[0], None)) is not None:
            self.unacked_bytes -= entry[SIZE]
            if self.can_page:
                self.ram_bytes -= entry[SIZE]
                self.ack_out += 1
                if self.has_stored:
                    self.forget([entry])
            return 1
        if not self.can_page:
            found = taken(self.rpa, seqs) if self.rpa else []
            self.unacked_bytes -= bytes_of(found)
            return len(found)
        entries, on_disk = self.settle(seqs)
        if on_disk:
            entries += on_disk
        self.ack_out += len(entries)
        self.forget(entries)
        return len(entries)

    def requeue(self, seqs: list[int]) -> int:
        """Put unacked messages back to their places."""
        count = requeue.requeue(self, seqs)
        if count and self.can_page:
            self._maybe_reduce()
        return count

    # All.

    def ackfold(
        self,
        step: Callable[[Entry, Accumulator], Accumulator],
        start: Accumulator,
        seqs: list[int],
    ) -> Accumulator:
        """Fold over the given unacked messages."""
        return folding.ackfold(self, step, start, seqs)

    def fold(
        self,
        step: Callable[[Entry | None, bool, Accumulator], tuple[bool, Accumulator]],
        start: Accumulator,
        from_seq: int = 0,
    ) -> Accumulator:
        """Fold over everything by ``seq``."""
        return folding.fold([self], step, start, from_seq)

    def purge(self) -> int:
        """Remove all ready messages."""
        return lifecycle.purge(self)

    def purge_acks(self) -> int:
        """Forget all unacked messages."""
        return lifecycle.purge_acks(self)

    # Figures.

    def len(self) -> int:
        """Return the number of ready messages."""
        return self.count

    def is_empty(self) -> bool:
        """Whether no message is ready."""
        return not self.count

    def depth(self) -> int:
        """Return the number of ready and unacked messages."""
        return self.count + len(self.rpa) + len(self.dpa)

    def info(self) -> dict[str, Any]:
        """Return figures by RabbitMQ's names."""
        return lifecycle.info(self)
