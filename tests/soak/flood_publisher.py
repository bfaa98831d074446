"""A publisher of a flood: messages to many queues in turn, and their confirms."""

from __future__ import annotations

import time
from contextlib import suppress

from conformance.raw import Channel
from soak import flood_records as records
from soak.board import (
    CONFIRMED,
    CONSUMER_NOS,
    CONSUMERS,
    COUNT,
    IS_ENOUGH,
    IS_READY,
    OUTSTANDING,
    PUBLISHER_NOS,
    PUBLISHERS,
    SENT,
    SETTLED,
    Board,
    queues_of,
)
from soak.flood_client import Client

UNCONFIRMED_MAX = 20_000 // PUBLISHERS
BACKLOG_MAX = 100_000  # confirmed and not delivered yet
BATCH = 500


class Publisher(Client):
    """Publishes to its queues in turn; message ``n`` of it goes to the queue ``n`` modulo their number.

    Args:
        rate: messages per second that are wanted.
    """

    def __init__(self, board: Board, process: int, rate: float) -> None:
        super().__init__(board, process)
        self._rate = rate
        self._starts = [records.publish_start(each) for each in queues_of(process)]
        first = process * board.capacity
        self._known = board.confirmed[first : first + board.capacity]
        self._sent = 0

    def _prepare(self, channel: Channel) -> None:
        channel.ok("confirm.select")
        self._out = bytearray()
        self._first = self._sent  # of this life
        self._settled = bytearray()  # which of this life are
        self._low = self._outstanding = 0  # below this all are; how many are not
        self._began_s = 0.0

    def turn(self) -> bool:
        is_there = self._read()
        buffer, at = self.buffer, 0
        while True:
            count = (len(buffer) - at) // records.ANSWER.size
            at += records.ANSWER.size * self._answers(
                memoryview(buffer)[at : at + count * records.ANSWER.size]
            )
            found = records.frame_at(buffer, at)
            if found is None:
                break
            ids, begin, at = found
            if self.broker_stays and ids in records.ENDS:
                return False
            if ids in records.NOTICES:
                continue
            assert ids in {records.ACK, records.NACK}, ids
            self._settle(*records.TAG.unpack_from(buffer, begin), ids == records.ACK)
        del buffer[:at]
        self._find_low()
        if not self._began_s and self.board.total(IS_READY, CONSUMER_NOS) == CONSUMERS:
            self._began_s = time.monotonic()
        if self._began_s and not self._out:
            self._publish()
        self._write()
        self.own[OUTSTANDING] = self._outstanding
        return is_there

    def _answers(self, data: memoryview) -> int:
        """Take acks of one message each up to the first frame that is none; return their number."""
        settled, known, before = self._settled, self._known, self._first - 1
        taken = 0
        for start, tag, end in records.ANSWER.iter_unpack(data):
            if start != records.ACK_START or end != records.ACK_END:
                break
            assert not settled[tag - 1], "settled twice"
            settled[tag - 1] = 1
            known[before + tag] = CONFIRMED
            taken += 1
        data.release()
        self._outstanding -= taken
        self.own[COUNT] += taken
        return taken

    def _find_low(self) -> None:
        low = self._settled.find(0, self._low)
        self._low = low if low >= 0 else len(self._settled)
        self.own[SETTLED] = self._first + self._low

    def _settle(self, tag: int, bits: int, is_ack: bool) -> None:
        settled, count = self._settled, 0
        for each in range(self._low if bits & 1 else tag - 1, tag):
            if settled[each]:
                assert bits & 1, "settled twice"
                continue
            settled[each] = 1
            count += 1
            if is_ack:
                self._known[self._first + each] = CONFIRMED
        self._outstanding -= count
        if is_ack:
            self.own[COUNT] += count

    def _publish(self) -> None:
        board, numbers = self.board, self._sent
        backlog = board.total(COUNT, PUBLISHER_NOS) - board.total(COUNT, CONSUMER_NOS)
        room = min(
            UNCONFIRMED_MAX - self._outstanding,
            BACKLOG_MAX - backlog,
            int((time.monotonic() - self._began_s) * self._rate) - (numbers - self._first),
            board.capacity - numbers,
            BATCH,
        )
        if board.numbers[IS_ENOUGH] or room <= 0:
            return
        starts, queues = self._starts, len(self._starts)
        self._sent += room
        self._outstanding += room
        self._settled += bytes(room)
        self.own[SENT] = self._sent
        self._out += b"".join(
            [
                b"%b%010d%b" % (starts[number % queues], number, records.BODY_END)
                for number in range(numbers, self._sent)
            ]
        )

    def _write(self) -> None:
        if self._out:
            with suppress(BlockingIOError):  # it is full; the next turn goes on
                del self._out[: self.socket.send(self._out)]
