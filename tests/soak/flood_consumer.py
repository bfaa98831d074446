"""A consumer of a flood: one of a group, for all queues, which holds each delivery against what is known.

AMQP does not answer acks. So the consumer asks for something (channel.flow) from time to time: when that is
answered, the broker has read the acks before. They are written with what is published after them, or
within 0.2 s, as long as the disk keeps up. So an ack counts as on the disk ``ON_DISK_S`` after messages have been
confirmed to all queues that were published when it had been read, provided that the broker was alive then.
"""

from __future__ import annotations

import time
from collections import deque
from operator import ge

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
ON_DISK_S = 3.0
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
        self._last = [-1] * QUEUES
        self._acked: list[int] = []  # since the last question
        self._asked_s = 0.0  # when last
        self._asked: deque[tuple[float, list[int]]] = deque()
        self._read_acks: deque[tuple[list[int], list[int]]] = deque()
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
            assert ids == records.FLOW_OK, ids
            self._has_answered()
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
            acked.append(at)
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
            self._acked = []

    def _has_answered(self) -> None:
        """The broker has read the acks before a question, and was alive when this was asked."""
        self.own[IS_READY] = 1  # what it had asked for before is done
        board, publishers = self.board, [self.board.of(each) for each in PUBLISHER_NOS]
        asked_s, acked = self._asked.popleft()
        self._read_acks.append(([each[SENT] + _ROUND for each in publishers], acked))
        settled = [each[SETTLED] for each in publishers]
        while self._read_acks and all(map(ge, settled, self._read_acks[0][0])):
            self._overtaken.append((time.monotonic(), self._read_acks.popleft()[1]))
        while self._overtaken and self._overtaken[0][0] + ON_DISK_S <= asked_s:
            for each in self._overtaken.popleft()[1]:
                board.seen[each] = ACKED

    def _send(self, data: bytes) -> None:
        # A full socket buffer cannot be: the broker reads acks at once.
        assert self.socket.send(data) == len(data)
