"""The frames of a flood, made once: all are of one size, and only digits differ.

A message's body names its queue and its number, which counts the messages of its publisher. Numbers and names
have fixed widths, so a delivery is a record of constant size, and a buffer full of them is read in one go.
"""

from __future__ import annotations

import struct

from conformance import wire
from soak.board import QUEUES

BODY_BYTES = 256
CHANNEL = 1
ASKING_CHANNEL = 2  # of a consumer: requests there delay no delivery
ACK, NACK, DELIVER, FLOW_OK = (60, 80), (60, 120), (60, 60), (20, 21)
OPEN_OK, DECLARE_OK = (20, 11), (50, 11)
ENDS = {(10, 50), (20, 40), (60, 30)}  # of the connection, the channel, a consumer
HEARTBEAT = (0, 0)
NOTICES = {(10, 60), (10, 61), HEARTBEAT}  # connection.blocked and unblocked

FRAME = struct.Struct(">BHI")
IDS = struct.Struct(">HH")
TAG = struct.Struct(">QB")


def queue_name(queue_no: int) -> str:
    return f"q{queue_no:02d}"


def consumer_tag(queue_no: int) -> str:
    return f"{queue_no:02d}"


def _body(queue_no: int, number: int) -> bytes:
    return (b"%02d %010d " % (queue_no, number)).ljust(BODY_BYTES, b"x")


def _content(queue_no: int, number: int) -> bytes:
    head = wire.head(BODY_BYTES, {"delivery_mode": 2})
    return wire.frame(wire.HEADER, CHANNEL, head) + wire.frame(
        wire.BODY, CHANNEL, _body(queue_no, number)
    )


_CONTENT = _content(0, 0)
_DIGITS_AT = len(_CONTENT) - 1 - BODY_BYTES + len("00 ")
_DIGITS = len("0000000000")
BODY_END = _CONTENT[_DIGITS_AT + _DIGITS :]


def publish_start(queue_no: int) -> bytes:
    """Return all of a publish that comes before its number; ``BODY_END`` follows it."""
    method = wire.method("basic.publish", routing_key=queue_name(queue_no))
    content = _content(queue_no, 0)
    return wire.frame(wire.METHOD, CHANNEL, method) + content[:_DIGITS_AT]


def delivery(queue_no: int) -> bytes:
    method = wire.method(
        "basic.deliver",
        consumer_tag=consumer_tag(queue_no),
        delivery_tag=0,
        redelivered=False,
        exchange="",
        routing_key=queue_name(queue_no),
    )
    return wire.frame(wire.METHOD, CHANNEL, method) + _content(queue_no, 0)


# A delivery: the constant start, the delivery tag and the redelivered flag, the octets between these and the
# number, the number, the end of the body. Start and middle are those of one queue.
START_BYTES = FRAME.size + IDS.size + 1 + len(consumer_tag(0))
_MIDDLE_BYTES = len(delivery(0)) - START_BYTES - TAG.size - _DIGITS - len(BODY_END)
RECORD = struct.Struct(f">{START_BYTES}sQB{_MIDDLE_BYTES}s{_DIGITS}s{len(BODY_END)}s")
DELIVERY_START = delivery(0)[: FRAME.size + IDS.size]
QUEUE_OF_START = {delivery(each)[:START_BYTES]: each for each in range(QUEUES)}
_MIDDLE_AT = START_BYTES + TAG.size
MIDDLES = [delivery(each)[_MIDDLE_AT : _MIDDLE_AT + _MIDDLE_BYTES] for each in range(QUEUES)]


def ack(delivery_tag: int) -> bytes:
    """Return an ack of all deliveries up to this one."""
    method = wire.method("basic.ack", delivery_tag=delivery_tag, multiple=True)
    return wire.frame(wire.METHOD, CHANNEL, method)


# A confirm of one message: the start, the delivery tag, the end. The same frame as an ack, but for its bit.
ANSWER = struct.Struct(f">{FRAME.size + IDS.size}sQ2s")
ACK_START, _, _ = ANSWER.unpack(ack(0))
ACK_END = b"\0" + wire.FRAME_END

SYNC = wire.frame(wire.METHOD, CHANNEL, wire.method("channel.flow", active=True))
OPEN = wire.frame(wire.METHOD, ASKING_CHANNEL, wire.method("channel.open"))
QUESTIONS = [
    wire.frame(
        wire.METHOD,
        ASKING_CHANNEL,
        wire.method("queue.declare", queue=queue_name(each), passive=True),
    )
    for each in range(QUEUES)
]


def frame_at(data: bytearray, at: int) -> tuple[tuple[int, int], int, int] | None:
    """Return a frame's ids, where its method's arguments begin and where it ends, if it is there."""
    if len(data) < at + FRAME.size + 1:
        return None
    kind, _, size = FRAME.unpack_from(data, at)
    begin = at + FRAME.size
    end = begin + size + 1
    if len(data) < end:
        return None
    if kind == wire.HEARTBEAT:
        return HEARTBEAT, begin, end
    assert kind == wire.METHOD, bytes(data[at:end])
    return IDS.unpack_from(data, begin), begin + IDS.size, end
