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
from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from leveret.core.message import BODY
from leveret.msg_store.format.kernel import bytes_of
from leveret.queue_backing.api import Accumulator, Dropped, Fetched, Predicate
from leveret.queue_backing.rates import UPDATE_AFTER
from leveret.queue_backing.status import SIZE, message_of, seq_of, trimmed
from leveret.queue_backing.variable import fetch as taking
from leveret.queue_backing.variable import fold as folding
from leveret.queue_backing.variable import lifecycle, requeue
from leveret.queue_backing.variable.delta import BLANK
from leveret.queue_backing.variable.housekeeping import Housekeeping
from leveret.queue_backing.variable.paging import page_out, reduce_memory_use, to_delta
from leveret.queue_backing.variable.state import NOBODY, NOTHING

if TYPE_CHECKING:
    from leveret.core.message import Message
    from leveret.queue_backing.status import Entry

_UPDATE_RATES_AFTER: Final = UPDATE_AFTER // 2  # of those that come in and go out at once
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
        first = self.next_seq
        entries, size_bytes = self._entries(
            messages, persistent, expiries, size_bytes, first_msg_no
        )
        self.count += len(messages)
        self.ready_bytes += size_bytes
        self.incoming += len(messages)
        if delivered and first == self.next_deliver:
            self.next_deliver = self.next_seq
        if persistent:
            entries = self._issue(entries, size_bytes)
        if self.mode == "lazy":
            self._publish_lazy(entries)
        else:
            self.ram_count += len(messages)
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
        if count == 1:
            if size_bytes is None:
                size_bytes = len(messages[0][BODY])
            expiry = expiries[0] if expiries else 0
            row = (first, messages[0], expiry, persistent, first_msg_no, size_bytes)
            return ((*row, persistent, persistent),), size_bytes
        sizes = [len(message[BODY]) for message in messages]
        entries = zip(
            range(first, first + count),
            messages,
            expiries or repeat(0),
            repeat(persistent),
            range(first_msg_no, first_msg_no + count),
            sizes,
            repeat(persistent),
            repeat(persistent),
        )
        return entries, sum(sizes) if size_bytes is None else size_bytes

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
        if persistent:
            self.index.discard(first_msg_no, len(messages))

    def is_duplicate(self, message: Message) -> bool:
        """Never: there is no mirror."""
        return False

    # Out.

    def fetch(self, limit: int, bytes_max: int, ack_required: bool) -> Fetched:
        """Take messages from the head."""
        q4 = self.q4
        here = len(q4)
        wanted = min(limit, self.count)
        if not 0 < wanted <= here or wanted > _FAST or self.absent:
            return taking.fetch(self, limit, bytes_max, ack_required)
        if wanted == here:
            if wanted == 1:
                return self._fetch_one(ack_required)
            entries = list(q4)
            size_bytes = bytes_of(entries)
            if size_bytes > bytes_max:
                return taking.fetch(self, limit, bytes_max, ack_required)
            q4.clear()
        elif wanted == 1:
            return self._fetch_one(ack_required)
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

    def _took_alphas(self, count: int, size_bytes: int) -> None:
        self.count -= count
        self.ram_count -= count
        self.outgoing += count
        self.ready_bytes -= size_bytes

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
            self.ram_bytes -= entry[SIZE]
            self.ack_out += 1
            if self.has_stored:
                self.forget([entry])
            return 1
        entries, on_disk = self.settle(seqs)
        if on_disk:
            entries += on_disk
        self.ack_out += len(entries)
        self.forget(entries)
        return len(entries)

    def requeue(self, seqs: list[int]) -> int:
        """Put unacked messages back to their places."""
        count = requeue.requeue(self, seqs)
        if count:
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
