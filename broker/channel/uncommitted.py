"""What the open transactions of a node keep in memory, and how much that may be.

When the messages of all open transactions take more than ``TRANSACTIONS_SHARE`` of the memory limit, transactions that
keep more than their even part of that are refused the next publish. Without this limit a client that never commits
could raise the memory alarm, and the alarm would keep the commit of the same connection from being read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from leveret.amqp.errors import PreconditionFailed
from leveret.core.limits import TRANSACTIONS_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leveret.amqp.producer_headers import Sent
    from leveret.broker.channel.confirms import Answer
    from leveret.broker.channel.records import Route
    from leveret.broker.registry.registry import QueueEntry
    from leveret.core.message import Message

MESSAGE_BYTES: Final = 200  # of a message, besides head and body
BATCH_BYTES: Final = 1_000
_BATCH_MESSAGES: Final = 1_000
_BATCH_COPIES: Final = 10_000  # messages times queues
_BATCH_SIZE_BYTES: Final = 256 * 1024


class Collector(Protocol):
    """A transaction, as the publisher uses it (``transaction.py``)."""

    def publish(
        self,
        route: Route | None,
        queues: Sequence[QueueEntry],
        messages: list[Message],
        persistent: bool,
        expiration_ms: int | None,
        head_bytes: int,
        reply_key: bytes | None = None,
        sent: Sequence[Sent | None] | None = None,
    ) -> None: ...

    def answered(self, answers: list[Answer]) -> None: ...

    def rollback(self) -> None: ...


class Keeper(Protocol):
    """A transaction.

    Attributes:
        size_bytes: of the messages that it keeps; ``OpenTransactions`` counts.
    """

    size_bytes: int


class Batch(Struct, eq=False, gc=False):
    """Messages that share their targets, in the order published.

    Attributes:
        sent: per message its producer; None when no message has one.
        reply_key: of the reply consumer that they are for; then the rest is void.
        size_bytes: that they take in memory, about.
    """

    route: Route | None
    queues: Sequence[QueueEntry]
    messages: list[Message]
    persistent: bool
    expiration_ms: int | None
    head_bytes: int
    reply_key: bytes | None
    size_bytes: int
    sent: Sequence[Sent | None] | None = None

    def takes(self, other: Batch) -> bool:
        """Take the messages of a later batch in; return whether it has the same targets and fits."""
        count = len(self.messages) + len(other.messages)
        if (
            other.route is not self.route
            or other.queues is not self.queues
            or other.persistent is not self.persistent
            or other.expiration_ms != self.expiration_ms
            or other.reply_key != self.reply_key
            or count > _BATCH_MESSAGES
            or count * len(self.queues) > _BATCH_COPIES
            or self.size_bytes + other.size_bytes > _BATCH_SIZE_BYTES
        ):
            return False
        if self.sent is not None or other.sent is not None:
            mine = self.sent or [None] * len(self.messages)
            self.sent = [*mine, *(other.sent or [None] * len(other.messages))]
        self.messages += other.messages
        self.head_bytes += other.head_bytes
        self.size_bytes += other.size_bytes - BATCH_BYTES
        return True


class OpenTransactions:
    """What the open transactions of a node keep.

    Args:
        memory_limit_bytes: returns the node's memory limit.

    Attributes:
        size_bytes: of all of them.
        count: of those that keep messages.
    """

    def __init__(self, memory_limit_bytes: Callable[[], int]) -> None:
        self._memory_limit_bytes = memory_limit_bytes
        self.size_bytes = 0
        self.count = 0

    def keep(self, transaction: Keeper, size_bytes: int) -> None:
        """Count what a transaction keeps; PreconditionFailed: it is too much."""
        if not transaction.size_bytes:
            self.count += 1
        transaction.size_bytes += size_bytes
        self.size_bytes += size_bytes
        limit_bytes = int(TRANSACTIONS_SHARE * self._memory_limit_bytes())
        if self.size_bytes > limit_bytes and transaction.size_bytes * self.count > limit_bytes:
            raise PreconditionFailed(
                f"transaction too large: open transactions keep {self.size_bytes} bytes, the limit"
                f" is {limit_bytes}"
            )

    def let_go(self, transaction: Keeper) -> None:
        """Forget what a transaction kept."""
        if transaction.size_bytes:
            self.count -= 1
            self.size_bytes -= transaction.size_bytes
            transaction.size_bytes = 0
