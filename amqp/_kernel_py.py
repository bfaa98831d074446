"""The codec kernel in pure Python over ``struct``; the contract is in ``leveret/amqp/kernel.py``.

In Python the number of operations costs time, so the scanner examines as few bytes as possible. Three fast paths
handle frames that are complete in one read, while no channel waits for content (``scan`` itself has a shorter form of
two of them, for a read that is one message or one ack):

* *Prediction.* The bytes from the start of a publish frame to the start of its body are kept when
  two messages in a row had the same. Where the next bytes start with them, the next message has the
  same channel, method, head and body size, and only its body is cut out. Stretches of such messages
  are unpacked at one go, prefixes and bodies together.
* *Triples.* Method, header and the one body frame of a message, with the method's frame compared to
  the one before and the head's properties walked only when the head differs.
* *Acks.* Frames of 21 bytes that differ in their tag alone. A stretch of them is checked column by
  column (the bytes 21 apart must be equal) and its tags unpacked together.

A fast path stops at any other frame, and ``FrameScanner`` continues frame by frame. Only ``FrameScanner`` handles
errors (except malformed properties), contents in several frames or reads, and interleaved channels.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from struct import Struct, error
from typing import Any, Final

from leveret.amqp.confirm_frames import confirm_frames
from leveret.amqp.content import UNLIMITED, content, deliveries, mode_of
from leveret.amqp.frame_scanner import FRAME_HEAD_BYTES, NO_FRAME, FrameScanner
from leveret.amqp.runs import body_bytes, head_bytes, pack_run, unpack_run
from leveret.amqp.sending import send
from leveret.amqp.spec import ACK, FRAME_END, FRAME_METHOD, PUBLISH
from leveret.amqp.table_fields import read_fields, write_fields
from leveret.core.limits import FRAME_OVERHEAD_BYTES
from leveret.core.message import Message

__all__ = [
    "Scanner", "body_bytes", "confirm_frames", "content", "deliveries", "head_bytes", "pack_run", "read_fields",
    "send", "unpack_run", "write_fields",
]  # fmt: skip

_HEAD_BYTES_MIN: Final = 14
_BASIC_WITHOUT_WEIGHT: Final = 60 << 16
_PUBLISH_IDS: Final = b"\x00\x3c\x00\x28"
_ACK_IDS: Final = b"\x00\x3c\x00\x50"
_ACK_SIZE: Final = b"\x00\x00\x00\x0d"
_ACK_BYTES: Final = 21
_ACK_CONSTANT: Final = (*range(11), 19, 20)

# Messages and acks: fewer are faster one by one, and a stretch grows while it holds.
_STRETCH_MIN: Final = 4
_STRETCH_MAX: Final = 1024
_ACK_STRETCH_MIN: Final = 16

_unpack_frame = Struct(">BHI").unpack_from
# Kind and channel, size, class and weight, body size, flags.
_unpack_header_frame = Struct(">3sIIQH").unpack_from
# End of the header frame, kind and channel of the body frame; its size.
_unpack_body_frame = Struct(">4sI").unpack_from
# Delivery tag; bits and end octet.
_unpack_ack = Struct(">QH").unpack_from
_iter_acks = Struct(">11xQ2x").iter_unpack


class Scanner(FrameScanner):
    """Cuts the bytes of a socket into runs."""

    __slots__ = ()

    awaited = 0  # bodies come by ``scan`` only

    def read_body(self, descriptor: int, bytes_max: int) -> list[tuple[Any, ...]]:
        """Read nothing."""
        return []

    def scan(self, data: bytes | memoryview) -> list[tuple[Any, ...]]:
        """Take the bytes of a read and return the completed runs.

        A client that waits for each answer sends one predicted message, or one ack, at a time.
        """
        if isinstance(data, memoryview):
            data = bytes(data)
        if not (
            self._contents or self._part or self._held or self.stepwise or data[:1] == NO_FRAME
        ):
            if data.startswith(self._prefix):
                start = len(self._prefix)
                if len(data) == start + self._body_size + 1 and data[-1] == FRAME_END:
                    message = (self._origin, self._head, data[start:-1])
                    return [(PUBLISH, _channel_of(data), self._method, self._mode, [message])]
            elif len(data) == _ACK_BYTES and data.startswith(self._ack_start):
                tag, end = _unpack_ack(data, 11)
                if end == FRAME_END:
                    return [(ACK, _channel_of(data), [tag])]
        return super().scan(data)

    def _walk(self, data: bytes, pos: int) -> int:
        """Take all whole frames from ``pos`` on and return where the first unfinished one starts."""
        size = len(data)
        while size - pos >= FRAME_OVERHEAD_BYTES:
            if self.stepwise:
                if self._runs:
                    break
            elif not self._contents:
                after = self._fast(data, pos)
                if after != pos:
                    pos = after
                    continue
            after = self._frame(data, pos)
            if after == pos:
                break
            pos = after
        return pos

    # -- fast paths -------------------------------------------------------------------------------

    def _fast(self, data: bytes, pos: int) -> int:
        """Take common, complete frames; return ``pos`` itself if there are none."""
        if data.startswith(self._prefix, pos) and self._prefix is not NO_FRAME:
            after = self._predicted(data, pos)
            if after != pos:
                return after
        ids = data[pos + 7 : pos + 11]
        if ids == _PUBLISH_IDS:
            return self._triples(data, pos)
        if ids == _ACK_IDS:
            return self._acks(data, pos)
        return pos

    def _predicted(self, data: bytes, pos: int) -> int:
        """Take messages that start with the prediction, as the first at ``pos`` does."""
        prefix = self._prefix
        stride = len(prefix) + self._body_size + 1
        count = (len(data) - pos) // stride
        if not count or data[pos + stride - 1] != FRAME_END:
            return pos
        messages = self._run(_channel_of(prefix), self._method, self._mode)
        if count == 1:
            body = data[pos + len(prefix) : pos + stride - 1]
            messages.append((self._origin, self._head, body))
            return pos + stride
        if count <= _STRETCH_MIN:
            return self._one_by_one(data, pos, count, messages)
        pos = self._one_by_one(data, pos, _STRETCH_MIN, messages)
        # Stretches start at the end octet of the message before.
        framed = b"\xce" + prefix
        origin, head, unpack = self._origin, self._head, _stretch(len(framed), self._body_size)
        limit = 2 * _STRETCH_MIN
        while True:
            count = min(limit, (len(data) - pos) // stride)
            end = pos + count * stride
            if count < _STRETCH_MIN or data[end - 1] != FRAME_END:
                return self._one_by_one(data, pos, count, messages)
            stretch = [
                (origin, head, body)
                for start, body in unpack(memoryview(data)[pos - 1 : end - 1])
                if start == framed
            ]
            if len(stretch) != count:
                return self._one_by_one(data, pos, count, messages)
            messages += stretch
            pos = end
            limit = min(4 * limit, _STRETCH_MAX)

    def _one_by_one(self, data: bytes, pos: int, count: int, messages: list[Message]) -> int:
        """Take up to ``count`` messages that start with the prediction; so many have room."""
        prefix, origin, head = self._prefix, self._origin, self._head
        start = len(prefix)
        last = start + self._body_size
        for _ in range(count):
            end = pos + last
            if data[end] != FRAME_END or not data.startswith(prefix, pos):
                break
            messages.append((origin, head, data[pos + start : end]))
            pos = end + 1
        return pos

    def _triples(self, data: bytes, pos: int) -> int:
        """Take publishes whose three frames are whole, until the next can be predicted."""
        size_max = self._frame_max or UNLIMITED
        body_max = min(size_max, self.message_max)
        method_frame, last_head, mode = self._method_frame, self._head, self._mode
        header_start, body_start = _starts(method_frame)
        run_mode = -1
        messages: list[Message] = []
        try:
            while True:
                is_same = data.startswith(method_frame, pos)
                if not is_same:
                    method_frame = self._learn(data, pos)
                    header_start, body_start = _starts(method_frame)
                    run_mode = -1
                at = pos + len(method_frame)
                start, size, class_and_weight, body_size, flags = _unpack_header_frame(data, at)
                end = at + FRAME_HEAD_BYTES + size
                if (
                    start != header_start
                    or class_and_weight != _BASIC_WITHOUT_WEIGHT
                    or not _HEAD_BYTES_MIN <= size <= size_max
                    or body_size > body_max
                    or data[end] != FRAME_END
                ):
                    return pos
                head = data[at + FRAME_HEAD_BYTES : end]
                if head != last_head:
                    mode = mode_of(head, flags)
                    last_head = head
                    is_same = False
                if body_size:
                    start, size = _unpack_body_frame(data, end)
                    end += FRAME_OVERHEAD_BYTES + body_size
                    if start != body_start or size != body_size or data[end] != FRAME_END:
                        return pos
                if mode != run_mode:
                    messages = self._run(_channel_of(method_frame), self._method, mode)
                    run_mode = mode
                messages.append((self._origin, last_head, data[end - body_size : end]))
                if is_same:
                    self._know_head(last_head, mode)
                    self._prefix = data[pos : end - body_size]
                    self._body_size = body_size
                    return int(end + 1)
                pos = end + 1
        except (IndexError, error):
            return pos
        finally:
            self._know_head(last_head, mode)

    def _learn(self, data: bytes, pos: int) -> bytes:
        """Keep the basic.publish at ``pos`` as the last one and return its frame.

        Raises:
            IndexError: it is something else, or not whole.
        """
        kind, channel, size = _unpack_frame(data, pos)
        end = pos + FRAME_HEAD_BYTES + size
        if (
            kind != FRAME_METHOD
            or not channel
            or size > (self._frame_max or UNLIMITED)
            or data[end] != FRAME_END
            or data[pos + 7 : pos + 11] != _PUBLISH_IDS
            or not self._know_method(data[pos + FRAME_HEAD_BYTES : end])
        ):
            raise IndexError(pos)
        self._method_frame = data[pos : end + 1]
        return self._method_frame

    def _acks(self, data: bytes, pos: int) -> int:
        """Take a row of acks of one channel, multiple not set."""
        start = data[pos : pos + 11]
        if start[0] != FRAME_METHOD or start[3:7] != _ACK_SIZE or not _channel_of(start):
            return pos
        if 0 < self._frame_max < _ACK_BYTES - FRAME_OVERHEAD_BYTES:
            return pos
        count = (len(data) - pos) // _ACK_BYTES
        tags: list[int] = []
        while count:
            if count >= _ACK_STRETCH_MIN and len(tags) >= _STRETCH_MIN:
                limit = min(count, 4 * len(tags), _STRETCH_MAX)
                taken = _ack_stretch(data, pos, start, limit, tags)
            else:
                tag, end = _unpack_ack(data, pos + 11)
                taken = int(end == FRAME_END and data.startswith(start, pos))
                if taken:
                    tags.append(tag)
            if not taken:
                break
            pos += taken * _ACK_BYTES
            count -= taken
        if tags:
            self._ack_start = start
            self._run_of_acks(_channel_of(start), tags)
        return pos


_stretch: Final = lru_cache(256)(lambda start, body: Struct(f"{start}s{body}s").iter_unpack)


def _channel_of(frame: bytes) -> int:
    return frame[1] << 8 | frame[2]


def _starts(method_frame: bytes) -> tuple[bytes, bytes]:
    """Return how the header frame starts, and how the body frame does, an end octet before it."""
    channel = method_frame[1:3]
    return b"\x02" + channel, b"\xce\x03" + channel


def _ack_stretch(data: bytes, pos: int, start: bytes, count: int, tags: list[int]) -> int:
    """Append the tags of up to ``count`` acks that start with ``start``; return how many there were."""
    stretch = data[pos : pos + count * _ACK_BYTES]
    for place, octet in zip(_ACK_CONSTANT, (*start, 0, FRAME_END), strict=True):
        column = stretch[place : count * _ACK_BYTES : _ACK_BYTES]
        if column.count(octet) != count:
            count -= len(column.lstrip(b"%c" % octet))
    tags += chain.from_iterable(_iter_acks(stretch[: count * _ACK_BYTES]))
    return count
