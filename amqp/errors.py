"""Reply codes as exceptions: soft errors close the channel, hard errors the connection.

::

    ProtocolError
    ├── SoftError   AccessRefused 403, NotFound 404, ResourceLocked 405, PreconditionFailed 406
    └── HardError   ConnectionForced 320, FrameError 501, SyntaxError_ 502, CommandInvalid 503,
                    ChannelError 504, UnexpectedFrame 505, NotAllowed 530,
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
        explanation: the text behind ``NAME - ``; without it the text is the bare name.
        method: ``class_id << 16 | method_id`` of the offender, 0 when there is none. None means
            the method being handled; its handler fills it in.
    """

    code: ClassVar[int] = 541
    name: ClassVar[str] = "INTERNAL_ERROR"

    def __init_subclass__(cls, code: int | None = None, name: str = "") -> None:
        if code is not None:
            cls.code, cls.name = code, name

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

    @property
    def log_text(self) -> str:
        """The text for the log, which may say more than the client's text."""
        return self.text.decode("utf-8", "surrogateescape")

    def __str__(self) -> str:
        return self.text.decode("utf-8", "replace")


class SoftError(ProtocolError):
    """Closes the channel."""


class HardError(ProtocolError):
    """Closes the connection."""


class AccessRefused(SoftError, code=403, name="ACCESS_REFUSED"):
    """Reply code 403."""


class NotFound(SoftError, code=404, name="NOT_FOUND"):
    """Reply code 404."""


class ResourceLocked(SoftError, code=405, name="RESOURCE_LOCKED"):
    """Reply code 405."""


class PreconditionFailed(SoftError, code=406, name="PRECONDITION_FAILED"):
    """Reply code 406."""


class ConnectionForced(HardError, code=320, name="CONNECTION_FORCED"):
    """Reply code 320."""


class FrameError(HardError, code=501, name="FRAME_ERROR"):
    """Reply code 501."""


class SyntaxError_(HardError, code=502, name="SYNTAX_ERROR"):
    """The underscore keeps Python's own name free."""


class CommandInvalid(HardError, code=503, name="COMMAND_INVALID"):
    """Reply code 503."""


class ChannelError(HardError, code=504, name="CHANNEL_ERROR"):
    """Reply code 504."""


class UnexpectedFrame(HardError, code=505, name="UNEXPECTED_FRAME"):
    """Reply code 505."""


class ResourceError(HardError, code=506, name="RESOURCE_ERROR"):
    """Reply code 506."""


class NotAllowed(HardError, code=530, name="NOT_ALLOWED"):
    """Reply code 530."""


class NotImplemented_(HardError, code=540, name="NOT_IMPLEMENTED"):
    """The underscore keeps Python's own name free."""


class InternalError(HardError, code=541, name="INTERNAL_ERROR"):
    """Reply code 541."""
