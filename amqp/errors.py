"""Reply codes as exceptions: soft errors close the channel, hard errors the connection.

::

    ProtocolError
    ├── SoftError   AccessRefused 403, NotFound 404, ResourceLocked 405, PreconditionFailed 406
    └── HardError   ConnectionForced 320, FrameError 501, SyntaxError_ 502, CommandInvalid 503,
                    ChannelError 504, UnexpectedFrame 505, ResourceError 506, NotAllowed 530,
                    NotImplemented_ 540, InternalError 541

``str(error)`` is RabbitMQ's reply text, ``NAME - explanation``, cut at 255 bytes as RabbitMQ cuts it.
"""

from __future__ import annotations

from typing import ClassVar

from leveret.core.errors import ProtocolError as _ProtocolError
from leveret.core.limits import SHORTSTR_BYTES_MAX


class ProtocolError(_ProtocolError):
    """A reply code, its text and the method it answers.

    Args:
        explanation: what follows ``NAME - ``; without it the text is the bare name.
        method: ``class_id << 16 | method_id`` of the offender, 0 when there is none. None means
            "the method being handled", which who handles it fills in.
    """

    code: ClassVar[int] = 541
    name: ClassVar[str] = "INTERNAL_ERROR"

    def __init__(self, explanation: str = "", method: int | None = None) -> None:
        super().__init__(explanation)
        self.explanation = explanation
        self.method = method

    @property
    def text(self) -> bytes:
        """The reply text, at most 255 bytes (longer: 252 bytes and three dots)."""
        full = f"{self.name} - {self.explanation}" if self.explanation else self.name
        wire = full.encode("utf-8", "surrogateescape")
        return wire if len(wire) <= SHORTSTR_BYTES_MAX else wire[:252] + b"..."

    def __str__(self) -> str:
        return self.text.decode("utf-8", "replace")


class SoftError(ProtocolError):
    """Closes the channel."""


class HardError(ProtocolError):
    """Closes the connection."""


class AccessRefused(SoftError):
    """403."""

    code, name = 403, "ACCESS_REFUSED"


class NotFound(SoftError):
    """404."""

    code, name = 404, "NOT_FOUND"


class ResourceLocked(SoftError):
    """405."""

    code, name = 405, "RESOURCE_LOCKED"


class PreconditionFailed(SoftError):
    """406."""

    code, name = 406, "PRECONDITION_FAILED"


class ConnectionForced(HardError):
    """320."""

    code, name = 320, "CONNECTION_FORCED"


class FrameError(HardError):
    """501."""

    code, name = 501, "FRAME_ERROR"


class SyntaxError_(HardError):
    """502; the underscore keeps Python's own name free."""

    code, name = 502, "SYNTAX_ERROR"


class CommandInvalid(HardError):
    """503."""

    code, name = 503, "COMMAND_INVALID"


class ChannelError(HardError):
    """504."""

    code, name = 504, "CHANNEL_ERROR"


class UnexpectedFrame(HardError):
    """505."""

    code, name = 505, "UNEXPECTED_FRAME"


class ResourceError(HardError):
    """506."""

    code, name = 506, "RESOURCE_ERROR"


class NotAllowed(HardError):
    """530."""

    code, name = 530, "NOT_ALLOWED"


class NotImplemented_(HardError):
    """540; the underscore keeps Python's own name free."""

    code, name = 540, "NOT_IMPLEMENTED"


class InternalError(HardError):
    """541."""

    code, name = 541, "INTERNAL_ERROR"
