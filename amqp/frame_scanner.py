"""The simple scanner, frame by frame: the fallback of the fast paths.

``FrameScanner`` obeys the whole contract of ``leveret/amqp/kernel.py``; ``_kernel_py.Scanner`` adds
fast paths. This module handles everything else: errors, contents in several frames, channels with interleaved
contents, frames split between reads.

An unfinished frame is stored in one of two forms: body bytes are appended to their content and joined once; the
beginning of any other frame is copied and completed from the next read. The rest of that read is scanned in place.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from leveret.amqp import frame_errors
from leveret.amqp.content import Content, mode_of
from leveret.amqp.errors import HardError
from leveret.amqp.spec import (
    ACK,
    BASIC_ACK,
    BASIC_PUBLISH,
    ERROR,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    HEARTBEAT,
    METHOD,
    OVERSIZE,
    PUBLISH,
)
from leveret.core.limits import FRAME_OVERHEAD_BYTES
from leveret.core.message import Message

FRAME_HEAD_BYTES: Final = 7
NO_FRAME: Final = b"\xff"  # no valid frame starts with this
_HEAD_BYTES_MIN: Final = 14
_SNIPPET_BYTES: Final = 17  # one more than error texts show
_BASIC: Final = 60

_unpack_frame = Struct(">BHI").unpack_from
_unpack_u16 = Struct(">H").unpack_from
_unpack_u32 = Struct(">I").unpack_from
_unpack_u64 = Struct(">Q").unpack_from
_unpack_head = Struct(">HHQ").unpack_from


class FrameScanner:
    """Cuts the bytes of a socket into runs."""

    __slots__ = (
        "_ack_start",
        "_body_size",
        "_contents",
        "_failed",
        "_frame_max",
        "_head",
        "_held",
        "_method",
        "_method_frame",
        "_mode",
        "_origin",
        "_part",
        "_prefix",
        "_runs",
        "_stream",
        "_stream_channel",
        "_stream_left",
        "_stream_start",
        "frames",
        "message_max",
        "stepwise",
    )

    def __init__(self, frame_max: int, message_max: int) -> None:
        self._frame_max = frame_max
        self.message_max = message_max
        self.stepwise = False
        self.frames = 0
        self._failed = False
        self._runs: list[tuple[Any, ...]] = []
        self._contents: dict[int, Content] = {}
        # Method and origin of the last publish, shared with the next.
        self._method = b""
        self._method_frame = NO_FRAME
        self._origin = b""
        self._head = b""
        self._mode = 0
        # The prediction: from the start of a publish to the start of its body.
        self._prefix = NO_FRAME
        self._body_size = 0
        # The start of an ack's frame, up to its delivery tag.
        self._ack_start = NO_FRAME
        # Unfinished frames and contents.
        self._held = b""
        self._part = bytearray()
        self._stream: Content | None = None
        self._stream_channel = 0
        self._stream_left = 0
        self._stream_start = b""

    @property
    def frame_max(self) -> int:
        """Largest frame in bytes, 0 for no limit."""
        return self._frame_max

    @frame_max.setter
    def frame_max(self, frame_max: int) -> None:
        self._frame_max = frame_max
        # Unfinished frames were accepted under the old limit.
        self._prefix = self._method_frame = self._ack_start = NO_FRAME

    @property
    def pending(self) -> tuple[int, ...]:
        """Channels whose content is not yet complete."""
        return () if self._failed else tuple(self._contents)

    @property
    def buffered(self) -> int:
        contents = self._contents.values()
        bodies = sum(each.held if each.is_swallowed else each.filled for each in contents)
        head = 0 if self._stream is None else FRAME_HEAD_BYTES
        return len(self._held) + len(self._part) + head + bodies

    def swallow(self, bytes_max: int = 1 << 62) -> None:
        """Drop the bodies of contents that are not complete; see the contract."""
        dropped = 0
        for due in self._contents.values():
            if dropped >= bytes_max:
                break
            dropped += due.drop()

    def scan(self, data: bytes) -> list[tuple[Any, ...]]:
        if self._failed:
            return []
        if self._held:
            data = self._held + data
            self._held = b""
        runs: list[tuple[Any, ...]] = []
        self._runs = runs
        self.frames = 0
        pos = 0
        try:
            if self._part or self._stream is not None:
                pos = self._resume(data)
            pos = self._walk(data, pos)
            if pos < len(data):
                self._keep(data, pos)
        except HardError as refusal:
            self._fail()
            runs.append((ERROR, refusal.with_traceback(None)))
        self._runs = []
        return runs

    def _walk(self, data: bytes, pos: int) -> int:
        """Take all whole frames from ``pos`` on and return where the first unfinished one starts."""
        while len(data) - pos >= FRAME_OVERHEAD_BYTES and not (self.stepwise and self._runs):
            after = self._frame(data, pos)
            if after == pos:
                break
            pos = after
        return pos

    # -- runs, and the parts that messages share --------------------------------------------------

    def _know_method(self, method: bytes) -> bool:
        """Have ``_method`` and ``_origin`` stand for this publish; False when it is malformed."""
        if method != self._method:
            origin = _origin_of(method)
            if origin is None:
                return False
            self._method = method
            self._method_frame = self._prefix = NO_FRAME
            if origin != self._origin:
                self._origin = origin
        return True

    def _know_head(self, head: bytes, mode: int) -> None:
        if head is not self._head:
            self._head = head
            self._mode = mode
            self._prefix = NO_FRAME

    def _run(self, channel: int, method: bytes, mode: int) -> list[Message]:
        """Return the messages of the last run if it is of this kind, else those of a new one."""
        runs = self._runs
        if runs:
            last = runs[-1]
            if last[0] == PUBLISH and last[1] == channel and last[3] == mode and last[2] == method:
                messages: list[Message] = last[4]
                return messages
        messages = []
        runs.append((PUBLISH, channel, method, mode, messages))
        return messages

    def _run_of_acks(self, channel: int, tags: list[int]) -> None:
        runs = self._runs
        if runs and runs[-1][0] == ACK and runs[-1][1] == channel:
            runs[-1][2].extend(tags)
        else:
            runs.append((ACK, channel, tags))

    # -- frame by frame ---------------------------------------------------------------------------

    def _frame(self, data: bytes, pos: int) -> int:
        """Take one frame; return ``pos`` itself if it is incomplete."""
        self.frames += 1
        kind, channel, size = self._frame_head(data, pos)
        start = pos + FRAME_HEAD_BYTES
        end = start + size
        if end >= len(data):
            return pos
        if data[end] != FRAME_END:
            raise frame_errors.bad_end(kind, data[start : min(end, start + 17)], data[end])
        if kind == FRAME_METHOD and size >= 4:
            self._on_method(channel, data[start:end])
        elif kind == FRAME_BODY and channel:
            self._on_body(channel, data, start, end)
        elif kind == FRAME_HEADER and channel and size >= 12:
            self._on_header(channel, data[start:end])
        elif kind == FRAME_HEARTBEAT and not channel and not size:
            self._runs.append((HEARTBEAT,))
        else:
            raise _refusal(kind, data[start:end])
        return end + 1

    def _frame_head(self, data: bytes | bytearray, pos: int) -> tuple[int, int, int]:
        """Return kind, channel and size; the size is refused before the payload has come."""
        kind, channel, size = _unpack_frame(data, pos)
        if 0 < self._frame_max < size:
            raise frame_errors.frame_too_large(kind, size, self._frame_max)
        return kind, channel, size

    def _on_method(self, channel: int, payload: bytes) -> None:
        due = self._contents.get(channel)
        if due is not None:
            raise frame_errors.no_header() if due.head is None else frame_errors.no_body()
        ids = _unpack_u32(payload, 0)[0]
        if ids == BASIC_PUBLISH and channel:
            if not self._know_method(payload):
                raise frame_errors.cannot_decode(ids, payload[4:])
            self._contents[channel] = Content(self._method, self._origin)
        elif ids == BASIC_ACK and channel and len(payload) == 13 and not payload[12] & 1:
            self._run_of_acks(channel, [_unpack_u64(payload, 4)[0]])
        else:
            self._runs.append((METHOD, channel, ids, payload[4:]))

    def _on_header(self, channel: int, head: bytes) -> None:
        due = self._contents.get(channel)
        class_id, weight, size = _unpack_head(head, 0)
        if due is None:
            raise frame_errors.no_method()
        if due.head is not None:
            raise frame_errors.no_body()
        if weight:
            raise frame_errors.no_header()
        if class_id != _BASIC:
            raise frame_errors.other_header(class_id)
        if head != self._head:
            if len(head) < _HEAD_BYTES_MIN:
                raise frame_errors.malformed_properties()
            self._know_head(head, mode_of(head, _unpack_u16(head, 12)[0]))
        due.head, due.mode, due.size = self._head, self._mode, size
        if size > self.message_max:
            due.is_swallowed = True
        if not size:
            self._complete(channel, due)

    def _on_body(self, channel: int, data: bytes, start: int, end: int) -> None:
        due = self._contents.get(channel)
        if due is None:
            raise frame_errors.no_method()
        if due.head is None:
            raise frame_errors.no_header()
        due.expect(end - start)
        due.take(data, start, end)
        if due.is_whole:
            self._complete(channel, due)

    def _complete(self, channel: int, done: Content) -> None:
        del self._contents[channel]
        if done.is_swallowed:
            self._runs.append((OVERSIZE, channel, done.method, done.size))
        else:
            self._run(channel, done.method, done.mode).append(done.message())

    # -- unfinished frames -----------------------------------------------------------------------

    def _resume(self, data: bytes) -> int:
        """Continue the unfinished frame of earlier reads with this read."""
        if self._stream is not None:
            return self._pour(self._stream, data, 0)
        part = self._part
        pos = 0
        if len(part) < FRAME_HEAD_BYTES:
            pos = min(FRAME_HEAD_BYTES - len(part), len(data))
            part += data[:pos]
            if len(part) < FRAME_HEAD_BYTES:
                return pos
            due = self._begin(part, 0)
            if due is not None:
                part.clear()
                return self._pour(due, data, pos)
        missing = FRAME_OVERHEAD_BYTES + _unpack_u32(part, 3)[0] - len(part)
        if len(data) - pos < missing:
            part += memoryview(data)[pos:]
            return len(data)
        part += memoryview(data)[pos : pos + missing]
        self._part = bytearray()
        self._frame(bytes(part), 0)
        return int(pos + missing)

    def _keep(self, data: bytes, pos: int) -> None:
        """Store the rest of a read."""
        if self.stepwise and self._runs:
            self._held = data[pos:]
            return
        if len(data) - pos >= FRAME_HEAD_BYTES:
            due = self._begin(data, pos)
            if due is not None:
                self._pour(due, data, pos + FRAME_HEAD_BYTES)
                return
        self._part += memoryview(data)[pos:]

    def _begin(self, data: bytes | bytearray, pos: int) -> Content | None:
        """Read the first seven bytes of a frame; stream its bytes if it is a body that is due."""
        kind, channel, size = self._frame_head(data, pos)
        due = self._contents.get(channel) if kind == FRAME_BODY else None
        if due is None or due.head is None:
            return None
        due.expect(size)
        self._stream = due
        self._stream_channel = channel
        self._stream_left = size
        self._stream_start = b""
        return due

    def _pour(self, due: Content, data: bytes, pos: int) -> int:
        """Stream body bytes; the end octet follows them."""
        end = min(pos + self._stream_left, len(data))
        if len(self._stream_start) < _SNIPPET_BYTES:
            self._stream_start += data[pos : min(end, pos + _SNIPPET_BYTES)]
        due.take(data, pos, end)
        self._stream_left -= end - pos
        if end == len(data):
            return end
        if data[end] != FRAME_END:
            raise frame_errors.bad_end(FRAME_BODY, self._stream_start, data[end])
        self._stream = None
        if due.is_whole:
            self._complete(self._stream_channel, due)
        return end + 1

    def _fail(self) -> None:
        self._failed = True
        for each in self._contents.values():
            each.end()
        self._prefix = self._ack_start = NO_FRAME
        self._stream = None
        self._part = bytearray()
        self._held = b""


def _origin_of(method: bytes) -> bytes | None:
    """Return exchange and routing key of a raw basic.publish, None when they do not fill it."""
    if len(method) < 9:
        return None
    key_at = 7 + method[6]
    if key_at >= len(method) or key_at + 2 + method[key_at] != len(method):
        return None
    return method[6:-1]


def _refusal(kind: int, payload: bytes) -> HardError:
    """Return the error for a frame that is invalid in every state of its channel."""
    is_known = (
        kind == FRAME_BODY
        or (kind == FRAME_HEADER and len(payload) >= 12)
        or (kind == FRAME_HEARTBEAT and not payload)
    )
    if is_known:
        return frame_errors.unexpected_frame(kind, payload)
    return frame_errors.unknown_frame(kind, payload)
