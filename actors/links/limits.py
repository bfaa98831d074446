"""Settings of the links of a node: their bounds and times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leveret.core.errors import ConfigError

CHUNK_BYTES_MAX: Final = 1024 * 1024
SECRET_BYTES_MIN: Final = 16
LARGE_MAILS_MAX: Final = 16  # that are under way in parts at once, in each direction
STREAMS_MAX: Final = 1_000_000  # pairs of actors with mail under way, in each direction
SIGNAL_BYTES_MAX: Final = 256 * 1024
REASON_CHARS_MAX: Final = 10_000  # of a reason that is sent as text
NODE_BYTES_MAX: Final = 255  # of a node's name with its creation

_TIMES: Final = ("heartbeat_s", "suspect_s", "handshake_s", "redial_s", "redial_max_s")
_SIZES: Final = (
    "chunk_bytes", "credit_messages", "credit_bytes", "mail_bytes_max", "unsent_bytes_max",
    "handshakes_max",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Bounds and times of a node's links.

    Attributes:
        heartbeat_s: a node that has nothing to send sends a heartbeat after so long.
        suspect_s: a link that has been silent for so long is broken; at least twice ``heartbeat_s``.
        chunk_bytes: a large mail is written in chunks of this size, and other mail has its turn between them; at most
            1 MiB.
        credit_messages: how many messages of one sender one receiver may have unhandled; further messages wait at
            the sender's node.
        credit_bytes: the same in bytes.
        mail_bytes_max: the largest mail.
        unsent_bytes_max: how many bytes may wait here for a node; above, its link is cut.
        handshake_s: from the connection of a socket to the end of the handshake.
        handshakes_max: how many sockets may be in the handshake; above, the oldest is closed.
        redial_s: the pause after the first failure to reach a node; each further one is twice as long.
        redial_max_s: the longest of these pauses.
    """

    heartbeat_s: float = 0.25
    suspect_s: float = 1.0
    chunk_bytes: int = 256 * 1024
    credit_messages: int = 10_000
    credit_bytes: int = 8 * 1024 * 1024
    mail_bytes_max: int = 192 * 1024 * 1024
    unsent_bytes_max: int = 256 * 1024 * 1024
    handshake_s: float = 2.0
    handshakes_max: int = 64
    redial_s: float = 0.1
    redial_max_s: float = 1.0

    def __post_init__(self) -> None:
        for name in (*_TIMES, *_SIZES):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, it must be above 0")
        if self.suspect_s < 2 * self.heartbeat_s:
            raise ConfigError(
                f"suspect_s is {self.suspect_s}, it must be at least twice heartbeat_s ({self.heartbeat_s})"
            )
        if self.chunk_bytes > CHUNK_BYTES_MAX:
            raise ConfigError(
                f"chunk_bytes is {self.chunk_bytes}, it must be at most {CHUNK_BYTES_MAX}"
            )
        if self.credit_bytes + self.mail_bytes_max >= 2**32:
            raise ConfigError(
                f"credit_bytes ({self.credit_bytes}) and mail_bytes_max ({self.mail_bytes_max})"
                " must be below 4 GiB together"
            )
        if self.unsent_bytes_max < self.mail_bytes_max:
            raise ConfigError(
                f"unsent_bytes_max is {self.unsent_bytes_max}, it must be at least mail_bytes_max"
                f" ({self.mail_bytes_max})"
            )
