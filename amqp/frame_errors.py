"""RabbitMQ's errors for malformed frames and tables, shared by both kernels.

Frame errors name no method; an error in the order method, header, body names the method whose
content is due. Texts follow ``rabbit_reader`` and ``rabbit_command_assembler`` of 3.10.8.

Differs from RabbitMQ: errors and the log do not show octets of methods that carry a password.
"""

from __future__ import annotations

from typing import Final

from leveret.amqp import erlang_text
from leveret.amqp.errors import FrameError, SyntaxError_, UnexpectedFrame
from leveret.amqp.spec import (
    BASIC_PUBLISH,
    CONNECTION_SECURE_OK,
    CONNECTION_START_OK,
    CONNECTION_UPDATE_SECRET,
)
from leveret.core.limits import FRAME_OVERHEAD_BYTES

_SNIPPET_BYTES: Final = 16
_IDS_BYTES: Final = 4
_WITH_SECRETS: Final = frozenset(
    {CONNECTION_START_OK, CONNECTION_SECURE_OK, CONNECTION_UPDATE_SECRET}
)


def unknown_frame(kind: int, payload: bytes) -> FrameError:
    """A frame of no known type, or one too short for its type."""
    return FrameError(_snippet(kind, payload) + ": unknown_frame", 0)


def frame_too_large(kind: int, size: int, frame_max: int) -> FrameError:
    """A payload of more than ``frame_max`` bytes; refused from its frame header."""
    allowed = frame_max - FRAME_OVERHEAD_BYTES
    return FrameError(f"{_snippet(kind, b'')}: {{frame_too_large,{size},{allowed}}}", 0)


def bad_end(kind: int, payload: bytes, end: int) -> FrameError:
    """An end octet other than 0xCE."""
    text = _snippet(kind, payload) + ": "
    column = erlang_text.column_after(text)
    return FrameError(text + erlang_text.tagged("invalid_frame_end_marker", end, column), 0)


def unexpected_frame(kind: int, payload: bytes) -> UnexpectedFrame:
    """A heartbeat on a channel other than 0, or a header or body on channel 0."""
    return UnexpectedFrame(_snippet(kind, payload), 0)


def no_method() -> UnexpectedFrame:
    """A header or body on a channel that awaits no content."""
    return UnexpectedFrame("expected method frame, got non method frame instead", 0)


def no_header() -> UnexpectedFrame:
    """Another frame where the content header is due, or a header with a weight other than 0."""
    return UnexpectedFrame(
        "expected content header for class 60, got non content header frame instead", BASIC_PUBLISH
    )


def other_header(class_id: int) -> UnexpectedFrame:
    """A content header of another class."""
    return UnexpectedFrame(
        f"expected content header for class 60, got one for class {class_id} instead", BASIC_PUBLISH
    )


def no_body() -> UnexpectedFrame:
    """Another frame where a body is due."""
    return UnexpectedFrame(
        "expected content body, got non content body frame instead", BASIC_PUBLISH
    )


def cannot_decode(ids: int, arguments: bytes) -> FrameError:
    """Arguments that are not those of their method."""
    # 255 bytes of text never show more octets than these.
    shown = b"" if ids in _WITH_SECRETS else arguments[:256]
    return FrameError(f"cannot decode {erlang_text.octets(shown)}", ids)


def malformed_utf8() -> FrameError:
    """A short string of a method that is not UTF-8."""
    return FrameError("Malformed UTF-8 in shortstr", 0)


def malformed_table() -> SyntaxError_:
    """Fields that are cut, of an unknown type, too many, or too deep."""
    return SyntaxError_("malformed table")


def malformed_properties() -> SyntaxError_:
    """Properties that end too early or too late, or whose flags go on (RabbitMQ fails with 541)."""
    return SyntaxError_("malformed content header", BASIC_PUBLISH)


def _snippet(kind: int, payload: bytes) -> str:
    has_secret = int.from_bytes(payload[:_IDS_BYTES]) in _WITH_SECRETS
    shown = payload[: _IDS_BYTES if has_secret else _SNIPPET_BYTES]
    quantity = "all" if len(shown) == len(payload) else f"first {len(shown)}"
    text = f"type {kind}, {quantity} octets = "
    return text + erlang_text.binary(shown, len(text))
