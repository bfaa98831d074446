"""Contents for the pure-Python kernel: incomplete contents, the mode of a header, and encoding.

``Content`` gathers a body that comes in several frames or reads. ``mode_of`` walks the properties of a
content header. ``deliveries`` and ``content`` write contents; ``leveret/amqp/kernel.py`` says how.
"""

from __future__ import annotations

from io import BytesIO
from struct import Struct, error
from typing import Any, Final

from leveret.amqp import frame_errors
from leveret.amqp.spec import EXAMINE, FRAME_BODY, FRAME_HEADER, FRAME_METHOD, PERSISTENT
from leveret.core.limits import FRAME_OVERHEAD_BYTES, LARGE_BODY_BYTES
from leveret.core.message import Message

UNLIMITED: Final = 1 << 62
_PIECE_BYTES_MIN: Final = 4096  # a smaller part of a body is copied

_pack_frame = Struct(">BHI").pack
_pack_u64 = Struct(">Q").pack
_unpack_u32 = Struct(">I").unpack_from

# Basic properties, flag bits; widths in bytes.
_PROPERTIES_AT: Final = 14
_HEADERS: Final = 1 << 13
_DELIVERY_MODE: Final = 1 << 12
_PRIORITY: Final = 1 << 11
_TIMESTAMP: Final = 1 << 6
_CONTINUATION: Final = 1
_EXAMINED: Final = _HEADERS | _PRIORITY | 1 << 9 | 1 << 8 | 1 << 4  # reply-to, expiration, user-id
_SHORTSTR: Final = 0
_TABLE: Final = -1
_WIDTHS: Final = {_HEADERS: _TABLE, _DELIVERY_MODE: 1, _PRIORITY: 1, _TIMESTAMP: 8}

_Plan = tuple[tuple[int, ...], tuple[int, ...], int]
_plans: Final[dict[int, _Plan]] = {}  # 2 ** 14 at most


def mode_of(head: bytes, flags: int) -> int:
    """Return the mode of a header (14 bytes or more); SyntaxError_: malformed properties."""
    before, after, mode = _plans.get(flags) or _plan(flags)
    at = _PROPERTIES_AT
    try:
        for width in before:
            at += head[at] + 1 if width == _SHORTSTR else 4 + _unpack_u32(head, at)[0]
        if flags & _DELIVERY_MODE and head[at] != 1:
            mode |= PERSISTENT if head[at] == 2 else EXAMINE
        for width in after:
            at += width or head[at] + 1
    except (IndexError, error):
        at = -1
    if at != len(head):
        raise frame_errors.malformed_properties()
    return mode


def _plan(flags: int) -> _Plan:
    """Return widths before delivery-mode, widths from it on, and the mode without it."""
    if flags & _CONTINUATION:
        raise frame_errors.malformed_properties()
    bits = [1 << place for place in range(15, 1, -1) if flags & 1 << place]
    before = tuple(_WIDTHS.get(bit, _SHORTSTR) for bit in bits if bit > _DELIVERY_MODE)
    after = tuple(_WIDTHS.get(bit, _SHORTSTR) for bit in bits if bit <= _DELIVERY_MODE)
    plan = before, after, EXAMINE if flags & _EXAMINED else 0
    _plans[flags] = plan
    return plan


class Content:
    """An incomplete content: the publish, then its header, then the body bytes so far.

    Those of a large body go into one buffer as they come, which becomes the body without a copy: to join 128 MiB at
    the end would take 60 ms.
    """

    __slots__ = (
        "buffer",
        "filled",
        "head",
        "held",
        "is_overrun",
        "is_swallowed",
        "method",
        "mode",
        "origin",
        "parts",
        "size",
    )

    def __init__(self, method: bytes, origin: bytes) -> None:
        self.method = method
        self.origin = origin
        self.head: bytes | None = None
        self.mode = 0
        self.size = 0
        self.filled = 0
        self.held = 0  # bytes of the body that are still to be freed
        self.is_swallowed = False
        self.is_overrun = False
        self.parts: list[Any] = []
        self.buffer: BytesIO | None = None

    def expect(self, size: int) -> None:
        """Prepare for a frame of that many body bytes; a body longer than announced is never complete."""
        if size > self.size - self.filled:
            # RabbitMQ continues too, and refuses the next frame that is not a body.
            self.is_overrun = True
            self.end()

    def end(self) -> None:
        """Take no more of the body; what there is of it stays until it is dropped."""
        if not self.is_swallowed:
            self.is_swallowed = True
            self.held = self.filled

    def drop(self) -> int:
        """Free the body, and take no more of it; return how many bytes were freed."""
        self.end()
        held, self.held = self.held, 0
        self.parts.clear()
        self.buffer = None
        return held

    def take(self, data: bytes, start: int, end: int) -> None:
        """Append body bytes; large parts as a view of the read, small parts as a copy."""
        size = end - start
        self.filled += size
        if self.is_swallowed or not size:
            return
        if self.size > LARGE_BODY_BYTES:
            if self.buffer is None:
                self.buffer = BytesIO()
            self.buffer.write(memoryview(data)[start:end])
            return
        parts = self.parts
        if size == self.size:
            parts.append(data[start:end])
        elif size >= _PIECE_BYTES_MIN and size * 4 >= len(data):
            parts.append(memoryview(data)[start:end])
        elif parts and type(parts[-1]) is bytearray:
            parts[-1] += memoryview(data)[start:end]
        else:
            parts.append(bytearray(memoryview(data)[start:end]))

    @property
    def is_whole(self) -> bool:
        return self.filled == self.size and not self.is_overrun

    def message(self) -> Message:
        assert self.head is not None
        if self.buffer is not None:
            return self.origin, self.head, self.buffer.getvalue()
        parts = self.parts
        body = parts[0] if len(parts) == 1 and type(parts[0]) is bytes else b"".join(parts)
        return self.origin, self.head, body


def deliveries(
    channel: int,
    consumer_tag: bytes,
    first_tag: int,
    redelivered: int,
    frame_max: int,
    messages: list[Message],
) -> bytes:
    """Return basic.deliver, header and body frames of all messages."""
    part_max = _part_max_of(frame_max)
    ids_and_tag = b"\x00\x3c\x00\x3c%c%b" % (len(consumer_tag), consumer_tag)
    if len(messages) == 1 and 0 < len(messages[0][2]) <= part_max:
        return _delivery(channel, ids_and_tag, first_tag, redelivered > 0, messages[0])
    parts: list[bytes] = []
    split = min(redelivered, len(messages))
    if split > 0:
        batch = messages[:split]
        _deliver(parts, (channel, ids_and_tag, first_tag, b"\x01"), part_max, batch)
        messages = messages[split:]
        first_tag += split
    _deliver(parts, (channel, ids_and_tag, first_tag, b"\x00"), part_max, messages)
    return b"".join(parts)


def _delivery(
    channel: int, ids_and_tag: bytes, tag: int, redelivered: bool, message: Message
) -> bytes:
    """Return the three frames of one message."""
    origin, head, body = message
    return b"".join(
        (
            _pack_frame(FRAME_METHOD, channel, len(ids_and_tag) + 9 + len(origin)),
            ids_and_tag,
            _pack_u64(tag),
            b"\x01" if redelivered else b"\x00",
            origin,
            b"\xce",
            _pack_frame(FRAME_HEADER, channel, len(head)),
            head,
            b"\xce",
            _pack_frame(FRAME_BODY, channel, len(body)),
            body,
            b"\xce",
        )
    )


def _deliver(
    parts: list[bytes], edge: tuple[int, bytes, int, bytes], part_max: int, messages: list[Message]
) -> None:
    """Append messages; the bytes around the delivery tag are kept while they are the same."""
    channel, ids_and_tag, tag, redelivered = edge
    last_origin = last_head = None
    size = -1
    before = after = end = b""
    add = parts.append
    for origin, head, body in messages:
        if head is not last_head or origin is not last_origin or len(body) != size:
            if origin is not last_origin:
                before = _pack_frame(FRAME_METHOD, channel, len(ids_and_tag) + 9 + len(origin))
                before += ids_and_tag
                last_origin = origin
            last_head = head
            size = len(body)
            after = b"%b%b\xce%b%b\xce" % (
                redelivered,
                origin,
                _pack_frame(FRAME_HEADER, channel, len(head)),
                head,
            )
            if 0 < size <= part_max:
                after += _pack_frame(FRAME_BODY, channel, size)
        add(end + before)
        add(_pack_u64(tag))
        add(after)
        tag += 1
        if size <= part_max:
            add(body)
            end = b"\xce" if size else b""
        else:
            _split(parts, channel, body, part_max)
            end = b""
    add(end)


def content(channel: int, method: bytes, frame_max: int, head: bytes, body: bytes) -> bytes:
    """Return the frames of one content-carrying method."""
    parts = [
        _pack_frame(FRAME_METHOD, channel, len(method)),
        method,
        b"\xce",
        _pack_frame(FRAME_HEADER, channel, len(head)),
        head,
        b"\xce",
    ]
    _split(parts, channel, body, _part_max_of(frame_max))
    return b"".join(parts)


def _part_max_of(frame_max: int) -> int:
    """Return how many body bytes a frame holds."""
    if 0 < frame_max <= FRAME_OVERHEAD_BYTES:
        raise ValueError(f"frame_max of {frame_max} bytes leaves no room for a body")
    return frame_max - FRAME_OVERHEAD_BYTES if frame_max else UNLIMITED


def _split(parts: list[Any], channel: int, body: bytes, part_max: int) -> None:
    """Append the body in frames of at most ``part_max``."""
    view = memoryview(body)
    for start in range(0, len(body), part_max):
        part = view[start : start + part_max]
        parts += (_pack_frame(FRAME_BODY, channel, len(part)), part, b"\xce")
