"""Bounds of a member, and its times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leveret.core.errors import ConfigError
from leveret.core.limits import MESSAGE_BYTES_MAX

BODY_BYTES_MAX: Final = (
    MESSAGE_BYTES_MAX + 1024 * 1024
)  # a message of AMQP, and what is said about it


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a member, and its times.

    Attributes:
        flush_s: a publication waits no longer for others that could go with it.
        pending_bytes: of own publications that have not been round. A member above it takes more, but asks its
            publishers to stop, until half of that is left.
        frame_bytes: of messages in one frame to the right neighbour; a larger message goes alone.
            In both figures a message counts for its bytes and 64 more.
        retry_s: before a newcomer asks again, doubled up to 32 times that, and before a stale record is read again.
    """

    flush_s: float = 0.025
    pending_bytes: int = 16 * 1024 * 1024
    frame_bytes: int = 1024 * 1024
    retry_s: float = 0.01

    def __post_init__(self) -> None:
        for name in ("flush_s", "pending_bytes", "frame_bytes", "retry_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, it must be above 0")
