"""MemoryQueue: a backing queue that keeps everything in RAM.

What was published stands in the ``Columns``, without entries. Those made for what is next, and those put
back, stand before it in one deque, sorted by ``seq``; unacked ones in a dict by ``seq``. A requeue
merges back into the deque, for all of the tail is younger: the deque is turned (C, a nanosecond per
entry) until its place is in front, so that only ready entries between the oldest and the youngest
requeued one are touched one by one. Those are few, for deliveries are made in order; where they are
many, each requeued entry is inserted by itself.

Freeing a million messages takes a good part of a second, so ``purge`` and ``delete_and_terminate``
only put the containers aside: ``needs_timeout`` says ``timed`` and each ``timeout`` frees a slice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise, repeat
from typing import TYPE_CHECKING, Any, Final

from leveret.core.message import BODY
from leveret.queue_backing.api import FOREVER_S, Accumulator, Dropped, Fetched, Predicate
from leveret.queue_backing.figures import head_timestamp, memory_bytes
from leveret.queue_backing.status import MESSAGE, SEQ, Entry, body_of, message_of, seq_of
from leveret.queue_backing.variable.merge import merge
from leveret.queue_backing.variable.columns import Columns

if TYPE_CHECKING:
    from leveret.core.message import Message
    from leveret.queue_backing.api import QueueMode, Urgency

RELEASE_SLICE: Final = 20_000  # entries freed in one go, some milliseconds
PAGED_BYTES_MIN: Final = 64 * 1024  # less is not worth a queue that can page
_CHUNK: Final = 1_024
_AHEAD: Final = 256  # entries made at once, so that small fetches cost no more


def _size_bytes(messages: Iterable[Message]) -> int:
    return sum(map(len, map(body_of, messages)))


class MemoryQueue:
    """See ``BackingQueue`` for the methods. Confirms are due at once.

    Args:
        must_page: called when this should be a queue that can page; see ``MovingQueue``.

    Attributes:
        ready_bytes: bytes of the bodies of all ready messages.
        unacked_bytes: bytes of the bodies of all unacked messages.
        next_seq: of the next message that is published.
        next_deliver: every message below it has been handed out.
        mode: what ``set_queue_mode`` said; here it changes nothing.
    """

    __slots__ = ("_aside", "_must_page", "_ready", "_tail", "_unacked", "mode", "next_deliver",
        "next_seq", "ready_bytes", "unacked_bytes")  # fmt: skip

    def __init__(self, must_page: Callable[[], None] = lambda: None) -> None:
        self._must_page = must_page
        self._ready: deque[Entry] | None = None
        self._tail: Columns | None = None
        self._unacked: dict[int, Entry] | None = None
        self._aside: list[deque[Any] | dict[int, Entry]] | None = None
        self.next_seq = 0
        self.next_deliver = 0
        self.ready_bytes = 0
        self.unacked_bytes = 0
        self.mode: QueueMode = "default"

    # Lifecycle.

    def init(self, recover: bool) -> None:
        """Start empty; there is nothing to recover from."""

    def terminate(self) -> None:
        """End; memory keeps nothing."""
        self.delete_and_terminate()

    def abandon(self) -> None:
        """End."""
        self.delete_and_terminate()

    def delete_and_terminate(self) -> None:
        """End; large containers are freed by the timeouts that follow."""
        self.purge()
        self.purge_acks()

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
        if messages:
            if self._tail is None:
                self._tail = Columns()
            self._tail.append(messages, persistent, expiries)
            self.next_seq = first + len(messages)
        self.ready_bytes += _size_bytes(messages) if size_bytes is None else size_bytes
        if delivered and first == self.next_deliver:
            self.next_deliver = self.next_seq
        return first, True

    def publish_delivered(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        """Take a batch as unacked."""
        assert not self._ready, "publish_delivered on a queue that is not empty"
        assert self._tail is None or not self._tail.messages
        first = self.next_seq
        if len(messages) == 1 and self._unacked is not None and size_bytes is not None:
            self.next_seq = self.next_deliver = first + 1
            entry = (first, messages[0], expiries[0] if expiries else 0, persistent)
            self._unacked[first] = entry
            self.unacked_bytes += size_bytes
            return first, True
        self.next_seq = first + len(messages)
        seqs = range(first, self.next_seq)
        entries = zip(seqs, messages, expiries or repeat(0), repeat(persistent))
        self._await_acks(
            zip(seqs, entries, strict=False),
            _size_bytes(messages) if size_bytes is None else size_bytes,
        )
        self.next_deliver = self.next_seq
        return first, True

    def discard(self, messages: list[Message], persistent: bool, first_msg_no: int = 0) -> None:
        """Nothing to note."""

    def is_duplicate(self, message: Message) -> bool:
        """Never: there is no mirror."""
        return False

    def _await_acks(self, items: Iterable[tuple[int, Entry]], size_bytes: int) -> None:
        if self._unacked is None:
            self._unacked = {}
        self._unacked.update(items)
        self.unacked_bytes += size_bytes

    # Out.

    def fetch(self, limit: int, bytes_max: int, ack_required: bool) -> Fetched:
        """Take messages from the head."""
        ready = self._ready
        if not ready or len(ready) < limit:
            if self.is_empty():
                return Fetched([], [])
            ready = self._have_ready(limit)
        if limit <= 0:
            return Fetched([], [])
        entries, size_bytes = self._take(ready, min(limit, len(ready)), bytes_max)
        return self._hand_out(entries, size_bytes, ack_required)

    def _have_ready(self, wanted: int) -> deque[Entry]:
        """Make entries of the tail's head until so many are ready and some more, or all."""
        ready = self._ready
        if ready is None:
            ready = self._ready = deque()
        tail = self._tail
        if tail is not None and wanted > len(ready) and tail.messages:
            count = min(max(wanted - len(ready), _AHEAD), len(tail.messages))
            ready.extend(tail.take(count, self.next_seq))
        return ready

    def _hand_out(self, entries: list[Entry], size_bytes: int, ack_required: bool) -> Fetched:
        self.ready_bytes -= size_bytes
        seqs = list(map(seq_of, entries))
        if ack_required:
            self._await_acks(zip(seqs, entries, strict=True), size_bytes)
        redelivered = self._pass_watermark(seqs)
        return Fetched(list(map(message_of, entries)), seqs, redelivered)

    def _pass_watermark(self, seqs: list[int]) -> int:
        """Count those handed out before, and remember that now all of these were."""
        watermark = self.next_deliver
        if seqs and seqs[-1] >= watermark:
            self.next_deliver = seqs[-1] + 1
            return 0 if seqs[0] >= watermark else bisect_left(seqs, watermark)
        return len(seqs)

    def _take(self, ready: deque[Entry], count: int, bytes_max: int) -> tuple[list[Entry], int]:
        if count == 1:
            entry = ready.popleft()
            return [entry], len(entry[MESSAGE][BODY])
        if count == self.len() and self.ready_bytes <= bytes_max:
            entries = list(ready)
            ready.clear()
            return entries, self.ready_bytes
        return self._take_some(ready, count, bytes_max)

    def _take_some(
        self, ready: deque[Entry], count: int, bytes_max: int
    ) -> tuple[list[Entry], int]:
        """Take in chunks that are guessed from the mean size, and put back what is too much."""
        pop = ready.popleft
        mean_bytes = max(0, self.ready_bytes) // self.len() + 1
        taken: list[Entry] = []
        size_bytes = 0
        while len(taken) < count:
            guess = max(1, min(_CHUNK, (bytes_max - size_bytes) // mean_bytes + 1))
            chunk = [pop() for _ in range(min(guess, count - len(taken)))]
            sizes = [len(entry[MESSAGE][BODY]) for entry in chunk]
            chunk_bytes = sum(sizes)
            if size_bytes + chunk_bytes > bytes_max:
                reached = list(accumulate(sizes, initial=size_bytes))
                keep = max(bisect_right(reached, bytes_max) - 1, 0 if taken else 1)
                ready.extendleft(reversed(chunk[keep:]))
                taken += chunk[:keep]
                return taken, reached[keep]
            taken += chunk
            size_bytes += chunk_bytes
        return taken, size_bytes

    def drop(self, limit: int, ack_required: bool) -> list[int]:
        """Take messages from the head; their content is in RAM anyway."""
        return self.fetch(limit, self.ready_bytes, ack_required).seqs

    def dropwhile(self, predicate: Predicate, limit: int) -> Dropped:
        """Remove messages from the head while the predicate holds."""
        entries, head, size_bytes = self._take_while(predicate, limit, self.ready_bytes)
        if entries:
            self._hand_out(entries, size_bytes, ack_required=False)
        return Dropped(len(entries), head)

    def fetchwhile(
        self, predicate: Predicate, limit: int, bytes_max: int
    ) -> tuple[Fetched, Entry | None]:
        """Hand out messages from the head while the predicate holds."""
        entries, head, size_bytes = self._take_while(predicate, limit, bytes_max)
        return self._hand_out(entries, size_bytes, ack_required=True), head

    def _take_while(
        self, predicate: Predicate, limit: int, bytes_max: int
    ) -> tuple[list[Entry], Entry | None, int]:
        entries: list[Entry] = []
        size_bytes = 0
        if self.is_empty():
            return entries, None, size_bytes
        ready = self._have_ready(1)
        while ready or self._have_ready(_CHUNK):
            head = ready[0]
            reached = size_bytes + len(head[MESSAGE][BODY])
            is_full = len(entries) == limit or (entries and reached > bytes_max)
            if is_full or not predicate(head):
                return entries, head, size_bytes
            entries.append(ready.popleft())
            size_bytes = reached
        return entries, None, size_bytes

    # Back.

    def ack(self, seqs: list[int]) -> int:
        """Forget unacked messages for good."""
        if len(seqs) != 1 or not self._unacked:
            return len(self.settle(seqs))
        entry = self._unacked.pop(seqs[0], None)
        if entry is None:
            return 0
        self.unacked_bytes -= len(entry[MESSAGE][BODY])
        return 1

    def requeue(self, seqs: list[int]) -> int:
        """Put unacked messages back to their places."""
        before = self.unacked_bytes
        back = self.settle(seqs)
        if not back:
            return 0
        self.ready_bytes += before - self.unacked_bytes
        back.sort()
        if self._ready is None:
            self._ready = deque()
        ready = self._ready
        if ready and ready[0][SEQ] < back[-1][SEQ]:
            merge(ready, back)
        else:
            ready.extendleft(reversed(back))
        return len(back)

    def settle(self, seqs: list[int]) -> list[Entry]:
        """Take messages out of the unacked and return them; unknown seqs are passed over."""
        unacked = self._unacked
        if not unacked:
            return []
        before = len(unacked)
        found: list[Any] = list(map(unacked.pop, seqs, repeat(None)))
        if before - len(unacked) < len(seqs):
            found = [entry for entry in found if entry is not None]
        self.unacked_bytes -= sum([len(entry[MESSAGE][BODY]) for entry in found])
        return found

    # Given away.

    def take_ready(self, count: int) -> list[Entry]:
        """Give up to so many ready messages away, the oldest first."""
        ready = self._have_ready(count)
        entries = [ready.popleft() for _ in range(min(count, len(ready)))]
        self.ready_bytes -= _size_bytes(map(message_of, entries))
        return entries

    def take_unacked(self, count: int) -> list[Entry]:
        """Give up to so many unacked messages away."""
        unacked = self._unacked or {}
        return self.settle([seq for seq, _ in zip(unacked, range(count), strict=False)])

    def is_unacked(self, seq: int) -> bool:
        """Whether a message is."""
        return self._unacked is not None and seq in self._unacked

    # All.

    def ackfold(
        self,
        step: Callable[[Entry, Accumulator], Accumulator],
        start: Accumulator,
        seqs: list[int],
    ) -> Accumulator:
        """Fold over the given unacked messages."""
        unacked = self._unacked or {}
        for seq in seqs:
            if seq in unacked:
                start = step(unacked[seq], start)
        return start

    def fold(
        self,
        step: Callable[[Entry, bool, Accumulator], tuple[bool, Accumulator]],
        start: Accumulator,
        from_seq: int = 0,
    ) -> Accumulator:
        """Fold over everything by ``seq``; nothing ever has to be read."""
        unacked = self._unacked or {}
        for entry in sorted((*self._have_ready(self.len()), *unacked.values())):
            if entry[SEQ] < from_seq:
                continue
            go_on, start = step(entry, entry[SEQ] in unacked, start)
            if not go_on:
                break
        return start

    def purge(self) -> int:
        """Remove all ready messages."""
        ready, self._ready = self._ready, None
        tail, self._tail = self._tail, None
        self.ready_bytes = 0
        self.next_deliver = self.next_seq
        in_tail = self._put_aside(tail.messages) if tail is not None else 0
        return self._put_aside(ready) + in_tail

    def purge_acks(self) -> int:
        """Forget all unacked messages."""
        unacked, self._unacked = self._unacked, None
        self.unacked_bytes = 0
        return self._put_aside(unacked)

    def _put_aside(self, entries: deque[Any] | dict[int, Entry] | None) -> int:
        if not entries:
            return 0
        if len(entries) > RELEASE_SLICE:
            if self._aside is None:
                self._aside = []
            self._aside.append(entries)
        return len(entries)

    # Figures and housekeeping.

    def take_resident(self) -> bool:
        """Never: everything is there."""
        return False

    def len(self) -> int:
        """Return the number of ready messages."""
        ready, tail = self._ready, self._tail
        return (len(ready) if ready else 0) + (len(tail.messages) if tail is not None else 0)

    def is_empty(self) -> bool:
        """Whether no message is ready."""
        return not self._ready and (self._tail is None or not self._tail.messages)

    def depth(self) -> int:
        """Return the number of ready and unacked messages."""
        return self.len() + len(self._unacked or ())

    def ram_duration(self) -> float:
        """Infinite: nothing here can leave RAM."""
        return FOREVER_S

    def set_ram_duration_target(self, duration_s: float) -> None:
        """Ask to be replaced if there is a target, and enough for it to matter."""
        if duration_s != FOREVER_S and self.ready_bytes + self.unacked_bytes >= PAGED_BYTES_MIN:
            self._must_page()

    def set_queue_mode(self, mode: QueueMode) -> None:
        """Remember the mode; ask to be replaced if it is lazy."""
        self.mode = mode
        if mode == "lazy":
            self._must_page()

    def needs_timeout(self) -> Urgency | None:
        """``timed`` while there is something to free."""
        return "timed" if self._aside else None

    def timeout(self) -> None:
        """Free a slice of what was put aside."""
        if not self._aside:
            return
        entries = self._aside[-1]
        remove: Callable[[], object] = entries.popitem if isinstance(entries, dict) else entries.pop
        for _ in range(min(RELEASE_SLICE, len(entries))):
            remove()
        if not entries:
            self._aside.pop()

    def handle_pre_hibernate(self) -> None:
        """Let go of empty containers."""
        self._ready = self._ready or None
        if self._tail is not None and not self._tail.messages:
            self._tail = None
        self._unacked = self._unacked or None

    def resume(self) -> None:
        """Nothing is ever held up."""

    def info(self) -> dict[str, Any]:
        """Return figures by RabbitMQ's names."""
        ready, unacked = self.len(), len(self._unacked or ())
        return {
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
            "messages": ready + unacked,
            "messages_ready_ram": ready,
            "messages_unacknowledged_ram": unacked,
            "messages_ram": ready + unacked,
            "messages_persistent": 0,
            "messages_paged_out": 0,
            "message_bytes_ready": self.ready_bytes,
            "message_bytes_unacknowledged": self.unacked_bytes,
            "message_bytes": self.ready_bytes + self.unacked_bytes,
            "message_bytes_ram": self.ready_bytes + self.unacked_bytes,
            "message_bytes_persistent": 0,
            "disk_reads": 0,
            "disk_writes": 0,
            "memory": memory_bytes(
                self.ready_bytes + self.unacked_bytes,
                ready + unacked,
                len(self._ready or ()) + unacked,
            ),
            "head_message_timestamp": self._head_timestamp(),
            "next_seq_id": self.next_seq,
            "next_deliver_seq_id": self.next_deliver,
            "mode": self.mode,
        }

    def _head_timestamp(self) -> int | None:
        heads = [next(iter(self._unacked.values()), None)] if self._unacked else []
        if self._ready:
            heads.append(self._ready[0])
        elif self._tail is not None and self._tail.messages:
            heads.append((self.next_seq, self._tail.messages[0]))
        return head_timestamp(heads)

    def check(self) -> None:
        """Assert the invariants; for tests, costs a walk over everything."""
        seqs = [entry[SEQ] for entry in self._ready or ()]
        unacked = self._unacked or {}
        assert all(a < b for a, b in pairwise(seqs)), "ready is not sorted"
        assert unacked.keys().isdisjoint(seqs), "a message is ready and unacked"
        assert all(seq < self.next_deliver for seq in unacked), "unacked but never handed out"
        in_tail: Iterable[Message] = ()
        if self._tail is not None:
            self._tail.check()
            in_tail = self._tail.messages
        tail_seq = self.next_seq - len(list(in_tail))
        assert all(seq < tail_seq for seq in (*seqs, *unacked)), "younger than the tail"
        ready_messages = [*(entry[MESSAGE] for entry in self._ready or ()), *in_tail]
        assert self.ready_bytes == _size_bytes(ready_messages)
        assert self.unacked_bytes == _size_bytes(entry[MESSAGE] for entry in unacked.values())
