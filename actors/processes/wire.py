"""Messages between processes: msgpack, and nothing that could run code when it is read.

Besides msgpack's own types (None, bool, int of 64 bits, float, str, bytes, list, dict): tuples,
addresses, calls and their replies, ``Crash``, and dataclasses marked with ``message``
(``sendable``).

A frame is ``size:u32`` (big-endian, without itself) and a msgpack array ``[op, ...]``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, Final, Protocol

import msgpack

from leveret.actors.processes.sendable import WireError, class_of, name_of
from leveret.actors.runtime.calls import From, Reply, Request
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import CallFailed, Crash

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024

_SIZE: Final = struct.Struct(">I")
_TUPLE, _REF, _REQUEST, _REPLY, _CRASH, _MESSAGE, _CALL_FAILED = range(1, 8)


class Peer(Protocol):
    """How the ends of a link name actors and calls to each other."""

    def name_of(self, ref: Ref) -> tuple[bool, int]:
        """Say whether the actor is ours, and its number on the link; 0 is for the dead."""

    def ref_of(self, is_theirs: bool, number: int) -> Ref:
        """Return the address that ``name_of`` has named on the other side."""

    def pack_from(self, frm: From) -> Any:
        """Return where a reply has to go, as plain data."""

    def unpack_from(self, frm: Any) -> From:
        """Return the caller that ``pack_from`` has packed on the other side."""


class Codec:
    """Values to bytes and back, for one link."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def frame(self, *parts: Any) -> bytes:
        """Return a frame; WireError: a part cannot go to another process, or it is too long."""
        try:
            packed = self._pack(list(parts))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise WireError(f"cannot go to another process: {error}") from None
        if len(packed) > FRAME_BYTES_MAX:
            raise WireError(f"message of {len(packed)} bytes, limit {FRAME_BYTES_MAX}")
        return _SIZE.pack(len(packed)) + packed

    def parts(self, packed: bytes) -> list[Any]:
        """Return the parts ``frame`` was given; WireError: they cannot be read here."""
        try:
            parts: list[Any] = self._unpack(packed)
        except (TypeError, ValueError, KeyError, msgpack.UnpackException) as error:
            raise WireError(f"message that cannot be read: {error!r}") from error
        return parts

    def _pack(self, value: Any) -> bytes:
        packed: bytes = msgpack.packb(value, default=self._extension, strict_types=True)
        return packed

    def _unpack(self, packed: bytes) -> Any:
        return msgpack.unpackb(packed, ext_hook=self._value, strict_map_key=False)

    def _extension(self, value: Any) -> msgpack.ExtType:
        code, plain = self._plain(value)
        return msgpack.ExtType(code, self._pack(plain))

    def _plain(self, value: Any) -> tuple[int, list[Any]]:
        """Return extension code and parts of a value that msgpack does not know."""
        kind = type(value)
        if kind is Ref:
            return _REF, list(self._peer.name_of(value))
        if kind is Request:
            return _REQUEST, [self._peer.pack_from(value.frm), value.payload]
        writer = _WRITERS.get(kind)
        if writer is not None:
            return writer(value)
        name = name_of(kind)
        if name is None:
            raise TypeError(
                f"{kind.__qualname__} is neither plain data nor a dataclass marked with"
                " leveret.supervisors.message"
            )
        return _MESSAGE, [name, *(getattr(value, field.name) for field in _shown(kind))]

    def _value(self, code: int, packed: bytes) -> Any:
        parts = self._unpack(packed)
        return _READERS[code](self._peer, parts)


def _shown(cls: type) -> list[Any]:
    return [field for field in fields(cls) if field.init]


def _message(_: Peer, parts: list[Any]) -> Any:
    cls = class_of(parts[0])
    names = [field.name for field in _shown(cls)]
    return cls(**dict(zip(names, parts[1:], strict=True)))


_WRITERS: Final[dict[type, Callable[[Any], tuple[int, list[Any]]]]] = {
    tuple: lambda value: (_TUPLE, list(value)),
    Reply: lambda value: (_REPLY, [value.tag, value.value]),
    CallFailed: lambda value: (_CALL_FAILED, [value.reason]),
    Crash: lambda value: (
        _CRASH,
        [value.kind.__module__, value.kind.__qualname__, value.text, value.traceback],
    ),
}

_READERS: Final[dict[int, Callable[[Peer, list[Any]], Any]]] = {
    _TUPLE: lambda _, parts: tuple(parts),
    _REF: lambda peer, parts: peer.ref_of(*parts),
    _REQUEST: lambda peer, parts: Request(peer.unpack_from(parts[0]), parts[1]),
    _REPLY: lambda _, parts: Reply(*parts),
    _CRASH: lambda _, parts: Crash.told(*parts),
    _CALL_FAILED: lambda _, parts: CallFailed(*parts),
    _MESSAGE: _message,
}


class Frames:
    """Bytes in, whole frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes of the socket, yield whole frames without the size; WireError: too long."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _SIZE.size:
                (size,) = _SIZE.unpack_from(buffer, start)
                if size > FRAME_BYTES_MAX:
                    raise WireError(f"frame of {size} bytes, limit {FRAME_BYTES_MAX}")
                first, last = start + _SIZE.size, start + _SIZE.size + size
                if len(buffer) < last:
                    return
                start = last
                yield bytes(buffer[first:last])
        finally:
            del buffer[:start]
