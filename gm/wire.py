"""Frames between nodes: a header in msgpack, then the messages, untouched.

::

    header_bytes:u32 (big-endian)  header  message message ...

    header   [kind:int, epoch:int, version:int, ...]  and further:
      activity   [entry, ...]
      catch_up   is_first:bool, is_last:bool, [entry, ...]
      ask        member | nil
      check, join_request, welcome, not_ready   nothing
    entry    [member, first:int, acked:int, [message_bytes:int | nil, ...]]      nil: a mark, which has no bytes
    member   [node:str, number:int]

A frame is cut out of the stream by the link that carries it, which also knows its sender. Short messages are joined
here: as pieces of their own each would cost the link more than the copy does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any, Final, cast

import msgpack

from leveret.gm.records.group import GmError, MemberId, Stamp
from leveret.gm.ring.frames import (
    Activity,
    Ask,
    Body,
    CatchUp,
    Check,
    Entry,
    Frame,
    JoinRequest,
    NotReady,
    Welcome,
)
from leveret.gm.ring.limits import BODY_BYTES_MAX

HEADER_BYTES_MAX: Final = 16 * 1024 * 1024
FRAME_BYTES_MAX: Final = 4 + HEADER_BYTES_MAX + BODY_BYTES_MAX
NODE_CHARS_MAX: Final = 1024

_SIZE: Final = struct.Struct(">I")
_NUMBER_MAX: Final = 2**63 - 1
_SHORT_BYTES: Final = 16 * 1024  # messages of a frame that are shorter on average are joined
_ACTIVITY, _CATCH_UP, _ASK, _CHECK, _JOIN_REQUEST, _WELCOME, _NOT_READY = range(1, 8)
_PLAIN: Final[dict[int, Callable[[Stamp], Frame]]] = {
    _CHECK: Check,
    _JOIN_REQUEST: JoinRequest,
    _WELCOME: Welcome,
    _NOT_READY: NotReady,
}
_KINDS: Final = {kind: number for number, kind in _PLAIN.items()}


class GmWireError(GmError):
    """A frame is malformed or too large."""


def encode(frame: Frame) -> list[bytes]:
    """Return a frame as pieces to be written one after the other; long messages are among them as they are.

    Raises:
        GmWireError: the frame is too large, or a name too long.
    """
    bodies: list[bytes] = []
    header: list[Any] = [0, *frame.stamp]
    if isinstance(frame, Activity):
        header[0] = _ACTIVITY
        header.append(_plain(frame.entries, bodies))
    elif isinstance(frame, CatchUp):
        header[0] = _CATCH_UP
        header += [frame.is_first, frame.is_last, _plain(frame.entries, bodies)]
    elif isinstance(frame, Ask):
        header[0] = _ASK
        header.append(frame.waiting)
    else:
        header[0] = _KINDS[type(frame)]
    packed = msgpack.packb(header)
    bodies_bytes = sum(map(len, bodies))
    size = _SIZE.size + len(packed) + bodies_bytes
    if len(packed) > HEADER_BYTES_MAX or size > FRAME_BYTES_MAX:
        raise GmWireError(
            f"frame of {size} bytes with a header of {len(packed)},"
            f" limits {FRAME_BYTES_MAX} and {HEADER_BYTES_MAX}: lower frame_bytes"
        )
    if bodies_bytes < _SHORT_BYTES * len(bodies):
        return [b"".join((_SIZE.pack(len(packed)), packed, *bodies))]
    return [_SIZE.pack(len(packed)), packed, *bodies]


def decode(data: bytes | bytearray | memoryview) -> Frame:
    """Return the frame that ``encode`` has written.

    Raises:
        GmWireError: the bytes are no frame; they come from a defect or another version, and the link must be closed.
    """
    with memoryview(data) as view:
        if not _SIZE.size <= len(view) <= FRAME_BYTES_MAX:
            raise GmWireError(
                f"frame of {len(view)} bytes, allowed {_SIZE.size} to {FRAME_BYTES_MAX}"
            )
        (size,) = _SIZE.unpack_from(view)
        end = _SIZE.size + size
        if size > HEADER_BYTES_MAX or end > len(view):
            raise GmWireError(
                f"frame of {len(view)} bytes with a header of {size}, limit {HEADER_BYTES_MAX}"
            )
        try:
            return _Reader(bytes(view[end:])).frame(msgpack.unpackb(view[_SIZE.size : end]))
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise GmWireError(f"malformed frame of {len(view)} bytes: {error}") from error


def _plain(entries: list[Entry], bodies: list[bytes]) -> list[Any]:
    """Return entries without their messages, which are added to ``bodies``."""
    found = []
    for publisher, first, messages, acked in entries:
        if None in messages:
            sizes = [None if each is None else len(each) for each in messages]
            bodies += [each for each in messages if each is not None]
        else:
            whole = cast("list[bytes]", messages)
            sizes = [*map(len, whole)]
            bodies += whole
        found.append([publisher, first, acked, sizes])
    return found


class _Reader:
    """Checks a header, and cuts the messages behind it apart."""

    def __init__(self, bodies: bytes) -> None:
        self._bodies = bodies
        self._at = 0

    def frame(self, header: Any) -> Frame:
        if type(header) is not list or len(header) < 3:
            raise TypeError(f"the header is no list of kind, epoch and version: {header!r:.80}")
        kind, epoch, version, *rest = header
        frame = self._of_kind(kind, Stamp(_number(epoch, 0), _number(version, 0)), rest)
        if self._at != len(self._bodies):
            raise ValueError(f"{len(self._bodies) - self._at} bytes behind the last message")
        return frame

    def _of_kind(self, kind: Any, stamp: Stamp, rest: list[Any]) -> Frame:
        if kind == _ACTIVITY:
            (entries,) = rest
            return Activity(stamp, self._entries(entries))
        if kind == _CATCH_UP:
            is_first, is_last, entries = rest
            return CatchUp(stamp, self._entries(entries), _flag(is_first), _flag(is_last))
        if kind == _ASK:
            (waiting,) = rest
            return Ask(stamp, None if waiting is None else member_of(waiting))
        if kind not in _PLAIN or rest:
            raise ValueError(f"kind {kind!r:.80} with {len(rest)} further values is not known")
        return _PLAIN[kind](stamp)

    def _entries(self, entries: Any) -> list[Entry]:
        if type(entries) is not list:
            raise TypeError(f"{entries!r:.80} is no list of entries")
        return [self._entry(each) for each in entries]

    def _entry(self, entry: Any) -> Entry:
        publisher, first, acked, sizes = entry
        if type(sizes) is not list:
            raise TypeError(f"{sizes!r:.80} is no list of sizes")
        bodies: list[Body] = (
            [self._body(size) for size in sizes] if None in sizes else self._whole(sizes)
        )
        return Entry(member_of(publisher), _number(first, 0), bodies, _number(acked, -1))

    def _whole(self, sizes: list[Any]) -> list[Body]:
        """Cut messages apart, none of which is a mark."""
        if not sizes:
            return []
        if {*map(type, sizes)} != {int} or min(sizes) < 0:
            raise ValueError(f"{sizes!r:.80} are no sizes")
        begin, data = self._at, self._bodies
        self._at = end = begin + sum(sizes)
        if end > len(data):
            raise ValueError(f"messages of {end - begin} bytes where {len(data) - begin} are left")
        if len(sizes) == 1 and end - begin == len(data):
            return [data]
        return [data[at:to] for at, to in pairwise(accumulate(sizes, initial=begin))]

    def _body(self, size: Any) -> Body:
        if size is None:
            return None
        begin = self._at
        self._at = end = begin + _number(size, 0)
        if end > len(self._bodies):
            raise ValueError(
                f"a message of {size} bytes where {len(self._bodies) - begin} are left"
            )
        return self._bodies[begin:end]


def _number(value: Any, least: int) -> int:
    if type(value) is not int or not least <= value <= _NUMBER_MAX:
        raise ValueError(f"{value!r:.80} is no number from {least} to {_NUMBER_MAX}")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{value!r:.80} is neither true nor false")
    return value


def member_of(value: Any) -> MemberId:
    """Return the member that ``[node, number]`` names; TypeError or ValueError: the value does not have this form."""
    if type(value) is not list or len(value) != 2:
        raise TypeError(f"{value!r:.80} is no member [node, number]")
    node, number = value
    if type(node) is not str or len(node) > NODE_CHARS_MAX:
        raise ValueError(
            f"{node!r:.80} is no name of a node of at most {NODE_CHARS_MAX} characters"
        )
    return MemberId(node, _number(number, 0))
