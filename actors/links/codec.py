"""Messages to bytes and back: msgpack, and nothing that could run code when it is read.

Besides msgpack's own types (None, bool, int of 64 bits, float, str, bytes, list, dict): tuples, addresses, calls and
their replies, ``Crash``, ``Pieces``, and the classes of ``sendable``.

Long bytes are *bodies*: they are sent and received beside the message, untouched, and the message has their length in
their place. That holds for a message that is bytes itself, for bytes in a tuple or in a sendable class, and for
``Pieces``; bytes in a list or dict are a part of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgpack

from leveret.actors.links.sendable import Pieces, WireError, form_named, form_of, register
from leveret.actors.runtime.actor_ref import ActorRef
from leveret.actors.runtime.calls import From, Reply, Request
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.remote import RemoteRef
from leveret.actors.runtime.signals import CallFailed, Crash

Buffer: TypeAlias = bytes | bytearray | memoryview

BODY_BYTES_MIN: Final = 16 * 1024  # shorter bytes are cheaper as a part of the message

_TUPLE, _REF, _REQUEST, _REPLY, _CRASH, _MESSAGE, _CALL_FAILED = range(1, 8)
_BODY, _PIECES, _SHORT_PIECES = range(8, 11)
_LENGTH: Final = struct.Struct(">Q")
_BYTES: Final = frozenset({bytes, bytearray, memoryview})


class Unreadable(NamedTuple):
    """Takes the place of a message that cannot be read here, for example because its class is not imported.

    An actor that has no case for it fails, as it does at any other unknown message.
    """

    error: str


register(
    Unreadable, list, lambda parts: Unreadable(*parts)
)  # it may be on its way to a third process


class _Body:
    """Long bytes in their place among the parts of a value.

    They become a body when msgpack comes to them: bodies are in the order in which they are read.
    """

    __slots__ = ("content",)

    def __init__(self, content: Buffer) -> None:
        self.content = content


class Peer(Protocol):
    """How the ends of a link name actors and calls to each other."""

    def name_of(self, ref: Ref) -> tuple[Any, int]:
        """Return what names an actor on the other side, as plain data."""

    def ref_of(self, node: Any, number: int) -> Ref:
        """Return the address that ``name_of`` has named on the other side."""

    def pack_from(self, frm: From) -> Any:
        """Return where a reply has to go, as plain data."""

    def unpack_from(self, frm: Any) -> From:
        """Return the caller that ``pack_from`` has packed on the other side."""


class Codec:
    """Messages to bytes and back, for one link.

    Args:
        peer: names actors and calls.
        has_bodies: long bytes travel beside the message.
        run_bytes_max: of the messages that ``unpack_run`` takes at once.
    """

    def __init__(self, peer: Peer, has_bodies: bool = False, run_bytes_max: int = 0) -> None:
        self._peer = peer
        self._body_bytes_min = BODY_BYTES_MIN if has_bodies else 2**63
        self._bodies: list[Buffer] = []
        self._body: Buffer = b""  # the rest of the bodies of the message that is being read
        self._error = ""  # the first in the messages that are being read
        self._packers: list[msgpack.Packer] = []  # that are not in use
        self._run_bytes_max = run_bytes_max
        self._unpacker = self._new_unpacker()
        self._fed = 0

    # To bytes.

    def pack(self, message: Any) -> tuple[bytes, list[Buffer]]:
        """Return a message and its bodies; WireError: it cannot go to another process."""
        try:
            if type(message) in _BYTES and len(message) >= self._body_bytes_min:
                message = self._as_body(message)
            packed = self._pack(message)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            self._bodies = []
            raise WireError(f"cannot go to another process: {error}") from None
        except Exception:  # of a class's own form
            self._bodies = []
            raise
        if not self._bodies:
            return packed, _NONE
        bodies, self._bodies = self._bodies, []
        return packed, bodies

    def _pack(self, value: Any) -> bytes:
        """Pack a message or, from within ``_extension``, a value in it; a new packer allocates a large buffer."""
        packers = self._packers
        packer = packers.pop() if packers else self._new_packer()
        packed: bytes = packer.pack(value)
        packers.append(packer)
        return packed

    def _new_packer(self) -> msgpack.Packer:
        return msgpack.Packer(default=self._extension, strict_types=True)

    def _extension(self, value: Any) -> msgpack.ExtType:
        kind = type(value)
        if kind is Pieces:
            return self._pieces(value)
        if kind is _Body:
            return self._as_body(value.content)
        code, parts = self._parts(kind, value)
        if kind is not ActorRef and kind is not RemoteRef:
            least = self._body_bytes_min
            for at, part in enumerate(parts):
                if type(part) in _BYTES and len(part) >= least:
                    parts[at] = _Body(part)
        return msgpack.ExtType(code, self._pack(parts))

    def _parts(self, kind: type, value: Any) -> tuple[int, list[Any]]:
        """Return extension code and parts of a value that msgpack does not know."""
        if kind is ActorRef or kind is RemoteRef:
            return _REF, list(self._peer.name_of(value))
        if kind is Request:
            return _REQUEST, [self._peer.pack_from(value.frm), value.payload]
        writer = _WRITERS.get(kind)
        if writer is not None:
            return writer(value)
        form = form_of(kind)
        if form is None:
            raise TypeError(
                f"{kind.__qualname__} is neither plain data nor a dataclass marked with"
                " leveret.supervisors.message"
            )
        return _MESSAGE, [form.name, *form.to_parts(value)]

    def _as_body(self, body: Buffer) -> msgpack.ExtType:
        if type(body) is memoryview:
            body = body.cast("B")
        self._bodies.append(body)
        return msgpack.ExtType(_BODY, _LENGTH.pack(len(body)))

    def _pieces(self, value: Pieces) -> msgpack.ExtType:
        size = sum(map(len, value.pieces))
        if size < self._body_bytes_min:
            return msgpack.ExtType(_SHORT_PIECES, b"".join(value.pieces))
        self._bodies += value.pieces
        return msgpack.ExtType(_PIECES, _LENGTH.pack(size))

    # From bytes.

    def unpack(self, packed: Buffer, bodies: Buffer = b"") -> Any:
        """Return the message; ``Unreadable`` in its place if a value in it cannot be read here.

        Raises:
            WireError: the bytes are no message.
        """
        self._body, self._error = bodies, ""
        try:
            message = msgpack.unpackb(packed, ext_hook=self._value_or_note, strict_map_key=False)
        except _MALFORMED as error:
            raise WireError(f"message that cannot be read: {error!r}") from error
        if self._error:
            return Unreadable(self._error)
        left, self._body = len(self._body), b""
        if left:
            raise WireError(f"{left} bytes behind the last body of a message")
        return message

    def unpack_run(self, packed: Buffer) -> list[Any]:
        """Return messages without bodies that were packed one after the other.

        Raises:
            WireError: as for ``unpack``.
        """
        self._body, self._error = b"", ""
        unpacker = self._unpacker
        try:
            unpacker.feed(packed)
            messages = list(unpacker)
        except _MALFORMED as error:
            raise WireError(f"messages that cannot be read: {error!r}") from error
        self._fed += len(packed)
        if unpacker.tell() != self._fed:
            raise WireError("messages that are cut off")
        return self._one_by_one(packed) if self._error else messages

    def _one_by_one(self, packed: Buffer) -> list[Any]:
        """Unpack a run of which a message cannot be read."""
        unpacker, messages = self._new_unpacker(), []
        unpacker.feed(packed)
        self._error = ""
        for message in unpacker:
            messages.append(Unreadable(self._error) if self._error else message)
            self._error = ""
        return messages

    def _new_unpacker(self) -> msgpack.Unpacker:
        return msgpack.Unpacker(
            ext_hook=self._value_or_note, strict_map_key=False, max_buffer_size=self._run_bytes_max
        )

    def _value_or_note(self, code: int, packed: bytes) -> Any:
        """Read an extension; an error must not stop msgpack within a run."""
        try:
            return self._value(code, packed)
        except Exception as error:  # noqa: BLE001  # a class may raise anything
            self._error = self._error or f"message that cannot be read: {error!r}"
            return None

    def _value(self, code: int, packed: bytes) -> Any:
        if code == _BODY:
            return bytes(self._next_body(packed))
        if code == _PIECES:
            return memoryview(self._next_body(packed)).toreadonly()
        if code == _SHORT_PIECES:
            return memoryview(packed)
        parts = msgpack.unpackb(packed, ext_hook=self._value, strict_map_key=False)
        return _READERS[code](self._peer, parts)

    def _next_body(self, packed: bytes) -> Buffer:
        (size,) = _LENGTH.unpack(packed)
        bodies = self._body
        if size > len(bodies):
            raise WireError(f"a body of {size} bytes where {len(bodies)} are left")
        body, self._body = bodies[:size], bodies[size:]
        return body


def _message(_: Peer, parts: list[Any]) -> Any:
    return form_named(parts[0]).from_parts(parts[1:])


_NONE: Final[list[Buffer]] = []  # the bodies of most messages; nobody changes it
_MALFORMED: Final = (ValueError, TypeError, RecursionError, msgpack.UnpackException)
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
    _CRASH: lambda _, parts: Crash.from_texts(*parts),
    _CALL_FAILED: lambda _, parts: CallFailed(*parts),
    _MESSAGE: _message,
}
