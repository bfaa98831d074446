"""A consumer of a flood: one of a group, for all queues, which checks each delivery against the board.

AMQP does not answer acks. So the consumer asks for something on the same channel from time to time (channel.flow):
when that is answered, the broker has read the acks before, and its queues have them in their mail. Then it asks the
queues, one after the other (a passive declare): the answer was sent after those acks were handled, so the store has
them. They are written with the flush after the current one, or within 0.2 s if nothing else is written. So an ack
counts as on the disk when messages have been confirmed to all queues that were published after its queue's answer, and
``ON_DISK_S`` later, provided that the broker was alive then. (The time is for messages that are confirmed without
having been written, because they were acked at once.) Where the store may fail and the broker stays, no ack counts as
on the disk.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from operator import ge
from typing import ClassVar

from conformance import wire
from conformance.raw import Channel
from soak import flood_records as records
from soak.board import (
    ACKED,
    COUNT,
    IS_READY,
    PUBLISHER_NOS,
    PUBLISHERS,
    QUEUES,
    SEEN,
    SENT,
    SETTLED,
    Board,
    queues_of,
)
from soak.flood_client import Client

PREFETCH = 200
SYNC_S = 0.5  # between two questions whether the broker has read the acks
ON_DISK_S = 1.0
_ROUND = len(queues_of(0))  # messages of one publisher, so that each of its queues has one


class Consumer(Client):
    """Consumes every queue, as one of a group, and acks."""

    def __init__(self, board: Board, process: int) -> None:
        super().__init__(board, process)
        # Where the first message of each queue's publisher is.
        self._firsts = [queue_no % PUBLISHERS * board.capacity for queue_no in range(QUEUES)]

    def _prepare(self, channel: Channel) -> None:
        channel.ok("basic.qos", prefetch_count=PREFETCH)
        for queue_no in range(QUEUES):
            payload = wire.method(
                "basic.consume",
                queue=records.queue_name(queue_no),
                consumer_tag=records.consumer_tag(queue_no),
                nowait=True,
            )
            channel.connection.send_bytes(wire.frame(wire.METHOD, channel.number, payload))
        channel.connection.send_bytes(records.OPEN)
        self._last = [-1] * QUEUES
        self._acked = _by_queue()  # since the last question
        self._asked_s = 0.0  # when last
        self._asked: deque[tuple[float, list[list[int]]]] = deque()
        self._read_acks = _by_queue()
        self._is_asking = True  # a queue, or not open yet
        self._asked_queue = 0
        self._with_queue: list[int] = []  # acks that its answer will be about
        self._with_store: deque[tuple[list[int], list[int]]] = deque()
        self._overtaken: deque[tuple[float, list[int]]] = deque()

    def turn(self) -> bool:
        is_there = self._read()
        buffer, last_tag, at = self.buffer, 0, 0
        while True:
            count = (len(buffer) - at) // records.RECORD.size
            tag, taken = self._deliveries(
                memoryview(buffer)[at : at + count * records.RECORD.size].toreadonly()
            )
            last_tag, at = tag or last_tag, at + taken * records.RECORD.size
            if self._starts_delivery(at):
                assert len(buffer) - at < records.RECORD.size, "a delivery of no message"
                break
            found = records.frame_at(buffer, at)
            if found is None:
                break
            ids, _, at = found
            if self.broker_stays and ids in records.ENDS:
                return False
            if ids in records.NOTICES:
                continue
            self._answers[ids](self)
        del buffer[:at]
        if last_tag:
            self._send(records.ack(last_tag))
        self._ask()
        return is_there

    def _starts_delivery(self, at: int) -> bool:
        start = bytes(self.buffer[at : at + records.FRAME.size + records.IDS.size])
        return start == records.DELIVERY_START

    def _deliveries(self, data: memoryview) -> tuple[int, int]:
        """Take deliveries up to the first frame that is none; return the last tag and their number."""
        seen, firsts, last, acked = self.board.seen, self._firsts, self._last, self._acked
        tag = taken = fresh = 0
        for start, record_tag, redelivered, middle, digits, end in records.RECORD.iter_unpack(data):
            queue_no = records.QUEUE_OF_START.get(start)
            if queue_no is None:
                break
            number = int(digits)
            assert end == records.BODY_END, "not this message's body"
            assert middle == records.MIDDLES[queue_no], "not this queue's message"
            at = firsts[queue_no] + number
            known = seen[at]
            if redelivered:
                assert known != ACKED, "back after its ack"
            else:
                assert not known, "delivered again without saying so"
                assert last[queue_no] < number, "out of order"
                last[queue_no] = number
            if not known:
                seen[at] = SEEN
                fresh += 1
            acked[queue_no].append(at)
            tag = record_tag
            taken += 1
        data.release()
        self.own[COUNT] += fresh
        return tag, taken

    # Acks: which of them are on the disk.

    def _ask(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._asked_s + SYNC_S:
            self._asked_s = now_s
            self._send(records.SYNC)
            self._asked.append((now_s, self._acked))
            self._acked = _by_queue()
        if not self._is_asking:
            self._ask_next_queue()

    def _ask_next_queue(self) -> None:
        """Ask the next queue that has acks of ours in its mail, or has had them."""
        for step in range(1, QUEUES + 1):
            queue_no = (self._asked_queue + step) % QUEUES
            if self._read_acks[queue_no]:
                self._is_asking, self._asked_queue = True, queue_no
                self._with_queue, self._read_acks[queue_no] = self._read_acks[queue_no], []
                self._send(records.QUESTIONS[queue_no])
                return

    def _has_opened(self) -> None:
        self._is_asking = False

    def _has_read(self) -> None:
        """The broker has read the acks before a question, and was alive when this was asked."""
        self.own[IS_READY] = 1  # earlier requests are answered
        asked_s, acked = self._asked.popleft()
        if self.broker_stays:
            return
        for waiting, some in zip(self._read_acks, acked, strict=True):
            waiting.extend(some)
        settled = [each[SETTLED] for each in self._publishers()]
        while self._with_store and all(map(ge, settled, self._with_store[0][0])):
            self._overtaken.append((time.monotonic(), self._with_store.popleft()[1]))
        while self._overtaken and self._overtaken[0][0] + ON_DISK_S <= asked_s:
            for each in self._overtaken.popleft()[1]:
                self.board.seen[each] = ACKED

    def _has_taken(self) -> None:
        """A queue has given its acks to the store."""
        sent = [each[SENT] + _ROUND for each in self._publishers()]
        self._with_store.append((sent, self._with_queue))
        self._is_asking, self._with_queue = False, []

    def _publishers(self) -> list[memoryview]:
        return [self.board.of(each) for each in PUBLISHER_NOS]

    _answers: ClassVar[dict[tuple[int, int], Callable[[Consumer], None]]] = {
        records.OPEN_OK: _has_opened,
        records.FLOW_OK: _has_read,
        records.DECLARE_OK: _has_taken,
    }

    def _send(self, data: bytes) -> None:
        # A full socket buffer cannot be: the broker reads acks at once.
        assert self.socket.send(data) == len(data)


def _by_queue() -> list[list[int]]:
    return [[] for _ in range(QUEUES)]
