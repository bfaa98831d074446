"""Fetch: how messages leave a variable queue at its head, if some of them are not alphas in Q4.

The head is Q4, and Q3 when Q4 is empty. A part is taken from in *chunks*, sized so that a batch keeps
to its bytes; the rest of a chunk goes back. Contents of Q3 come from the store's read cache; the first
message whose content is not there ends the batch, which then says ``pending`` while the content is read. A
message with damaged content is passed over and forgotten: read again it would be damaged again.

A message leaves Q3 for the consumer, never for Q4. RabbitMQ takes the head and puts it back when a
predicate refuses it (``in_r``); here the predicate sees it in its place, so nothing is put back.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from leveret.core.entry import MESSAGE, message_of, seq_of, size_of
from leveret.core.message import LOST
from leveret.msg_store.format.kernel import bytes_of
from leveret.queue_backing.api import Fetched
from leveret.queue_backing.variable import lifecycle
from leveret.queue_backing.variable.delta import BLANK
from leveret.queue_backing.variable.release import FREED_BYTES_PER_TURN, NOTHING_ON_DISK

if TYPE_CHECKING:
    from collections import deque

    from leveret.core.entry import Entry
    from leveret.core.message import Message
    from leveret.queue_backing.api import Predicate
    from leveret.queue_backing.variable.queue import VariableQueue

UNBOUNDED: Final = 1 << 62
_CHUNK: Final = 1_024


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
            there = messages.index(None)
            rest = chunk[there:]
            paged.index.prefetch([entry for entry in rest if entry[MESSAGE] is None])
            self.pending = True
            part.extendleft(reversed(rest))
            del chunk[there:], messages[there:]
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
            lifecycle.release(queue, chunk, NOTHING_ON_DISK)


def _count_matching(part: deque[Entry], predicate: Predicate, limit: int) -> int:
    count = 0
    for entry in part:
        if count == limit or not predicate(entry):
            break
        count += 1
    return count
