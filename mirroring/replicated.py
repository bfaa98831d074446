"""Messages of a queue as its replicas send them: a batch of a publish, and a single one that is copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from leveret.core.message import Message


class Replicated(NamedTuple):
    """A message.

    Attributes:
        expiry_ms: since 1970, 0 = never.
    """

    message: Message
    is_persistent: bool
    expiry_ms: int


class Batch:
    """Messages of one publish: the arguments of ``BackingQueue.publish``.

    Attributes:
        messages, is_persistent, expiries: as there.
        first_msg_no, size_bytes: as there, on the master's node only.
        is_straight: they go straight to consumers.
    """

    __slots__ = (
        "expiries",
        "first_msg_no",
        "is_persistent",
        "is_straight",
        "messages",
        "size_bytes",
    )

    def __init__(
        self,
        messages: list[Message],
        is_persistent: bool,
        expiries: list[int] | None = None,
        first_msg_no: int = 0,
        size_bytes: int | None = None,
        *,
        is_straight: bool = False,
    ) -> None:
        self.messages = messages
        self.is_persistent = is_persistent
        self.expiries = expiries
        self.first_msg_no = first_msg_no
        self.size_bytes = size_bytes
        self.is_straight = is_straight

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, at: int) -> Replicated:
        expiry_ms = self.expiries[at] if self.expiries else 0
        return Replicated(self.messages[at], self.is_persistent, expiry_ms)
