"""The clients of a flood notice what may never happen: they are given it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from soak import flood_records as records
from soak.board import (
    ACKED,
    CONFIRMED,
    CONSUMER_NOS,
    COUNT,
    IS_READY,
    OUTSTANDING,
    PUBLISHERS,
    SEEN,
    SENT,
    SETTLED,
    Board,
    queues_of,
)
from soak.flood_consumer import ON_DISK_S, Consumer
from soak.flood_publisher import Publisher

CAPACITY = 1_000
FLOW_OK = b"\1\0\1\0\0\0\5" + bytes([0, 20, 0, 21, 1]) + b"\xce"
OPEN_OK = b"\1\0\2\0\0\0\x08" + bytes([0, 20, 0, 11, 0, 0, 0, 0]) + b"\xce"
DECLARE_OK = b"\1\0\2\0\0\0\x10" + bytes([0, 50, 0, 11, 3]) + b"q00" + bytes(8) + b"\xce"


class FakeSocket:
    """The broker's end: its scripted frames, and the frames it received."""

    def __init__(self) -> None:
        self.incoming = b""
        self.sent = b""

    def recv(self, _: int) -> bytes:
        if not self.incoming:
            raise BlockingIOError
        data, self.incoming = self.incoming, b""
        return data

    def send(self, data: bytes) -> int:
        self.sent += data
        return len(data)

    def send_bytes(self, data: bytes) -> None:
        """The frames of the handshake and the set-up."""


class FakeChannel:
    number = records.CHANNEL
    connection = FakeSocket()

    def ok(self, *_: object, **__: object) -> None:
        """The broker agrees."""


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "board", CAPACITY)


@pytest.fixture
def publisher(board: Board) -> Publisher:
    publisher = Publisher(board, 0, rate=1e9)
    publisher.begin(FakeSocket(), FakeChannel())
    publisher.turn()
    assert board.of(0)[SENT] == 0  # it waits for the consumers
    for each in CONSUMER_NOS:
        board.of(each)[IS_READY] = 1
    publisher.turn()
    assert board.of(0)[SENT] == 500
    return publisher


@pytest.fixture
def consumer(board: Board) -> Consumer:
    consumer = Consumer(board, CONSUMER_NOS[0])
    consumer.begin(FakeSocket(), FakeChannel())
    return consumer


def hear(client: Publisher | Consumer, *frames: bytes) -> None:
    client.socket.incoming += b"".join(frames)
    client.turn()


def delivery(
    number: int, tag: int = 1, *, redelivered: bool = False, consumed: int | None = None
) -> bytes:
    """Return what the first publisher's message is delivered with; ``consumed`` is another queue."""
    queues = queues_of(0)
    queue_no = queues[number % len(queues)]
    return records.RECORD.pack(
        records.delivery(queue_no if consumed is None else consumed)[: records.START_BYTES],
        tag,
        redelivered,
        records.MIDDLES[queue_no],
        b"%010d" % number,
        records.BODY_END,
    )


def answer(tag: int, *, multiple: bool = False, is_ack: bool = True) -> bytes:
    frame = bytearray(records.ack(tag))
    frame[-2] = multiple
    frame[10] = 80 if is_ack else 120
    return bytes(frame)


def test_confirms_count_once_each_and_nacks_do_not(publisher: Publisher, board: Board) -> None:
    hear(
        publisher,
        answer(2),
        answer(1),
        answer(4, is_ack=False),
        answer(6, multiple=True),
        answer(9),
    )

    assert bytes(board.confirmed[:10]) == bytes(
        [CONFIRMED, CONFIRMED, CONFIRMED, 0, CONFIRMED, CONFIRMED, 0, 0, CONFIRMED, 0]
    )
    assert board.of(0)[COUNT] == 6
    assert board.of(0)[OUTSTANDING] == board.of(0)[SENT] - 7


def test_a_confirm_that_comes_twice_is_noticed(publisher: Publisher) -> None:
    hear(publisher, answer(2, multiple=True))
    with pytest.raises(AssertionError, match="twice"):
        hear(publisher, answer(2))


def test_a_nack_after_a_confirm_is_noticed(publisher: Publisher) -> None:
    with pytest.raises(AssertionError, match="twice"):
        hear(publisher, answer(2), answer(2, is_ack=False))


def test_deliveries_are_acked_together(consumer: Consumer, board: Board) -> None:
    frames = b"".join(delivery(number, number + 1) for number in range(60))

    hear(consumer, frames[:-7])
    hear(consumer, frames[-7:])

    assert bytes(board.seen[:61]) == bytes([SEEN]) * 60 + b"\0"
    assert board.of(CONSUMER_NOS[0])[COUNT] == 60
    assert records.ack(59) in consumer.socket.sent
    assert consumer.socket.sent.endswith(records.ack(60))


def test_a_message_that_was_seen_comes_again_only_with_the_flag(consumer: Consumer) -> None:
    hear(consumer, delivery(0), delivery(0, redelivered=True))
    with pytest.raises(AssertionError, match="without saying so"):
        hear(consumer, delivery(0))


def test_another_order_is_noticed(consumer: Consumer) -> None:
    later = len(queues_of(0))
    with pytest.raises(AssertionError, match="out of order"):
        hear(consumer, delivery(later), delivery(0))


def test_a_message_in_another_queue_is_noticed(consumer: Consumer) -> None:
    with pytest.raises(AssertionError, match="not this queue's"):
        hear(consumer, delivery(0, consumed=queues_of(0)[1]))


def test_a_damaged_body_is_noticed(consumer: Consumer) -> None:
    with pytest.raises(AssertionError, match="not this message's body"):
        hear(consumer, delivery(0)[:-2] + b"y\xce")


@pytest.fixture
def pass_time(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let acks that messages have overtaken come to the disk, and the broker be alive then."""
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)

    def passes() -> None:
        nonlocal now_s
        now_s += ON_DISK_S
        consumer.turn()
        hear(consumer, FLOW_OK)

    return passes


def settle_all(board: Board) -> None:
    """Have messages to all queues confirmed."""
    for each in range(PUBLISHERS):
        board.of(each)[SETTLED] = len(queues_of(each))


def test_an_ack_that_is_on_the_disk_is_not_taken_back(
    consumer: Consumer, board: Board, pass_time: Callable[[], None]
) -> None:
    hear(consumer, delivery(0))
    hear(consumer, OPEN_OK, FLOW_OK)  # its ack has been read
    assert consumer.socket.sent.endswith(records.QUESTIONS[0])
    hear(consumer, DECLARE_OK)  # and its queue has it
    settle_all(board)
    for _ in range(2):  # messages have overtaken it; and some time later the broker is alive
        hear(consumer, delivery(0, redelivered=True))
        assert board.seen[0] == SEEN
        pass_time()

    assert board.seen[0] == ACKED
    with pytest.raises(AssertionError, match="back after its ack"):
        hear(consumer, delivery(0, redelivered=True))


def test_an_ack_that_its_queue_may_not_have_is_not_on_the_disk(
    consumer: Consumer, board: Board, pass_time: Callable[[], None]
) -> None:
    hear(consumer, delivery(0))
    hear(consumer, OPEN_OK, FLOW_OK)
    settle_all(board)
    for _ in range(5):
        pass_time()

    assert board.seen[0] == SEEN


def test_the_publishers_share_the_queues() -> None:
    assert sorted(queue for each in range(PUBLISHERS) for queue in queues_of(each)) == list(
        range(50)
    )
