"""What the open transactions of a node keep in memory, and how much that may be.

When the messages of all open transactions take more than ``TRANSACTIONS_SHARE`` of the memory limit, transactions that
keep more than their even part of that are refused the next publish. Without this limit a client that never commits
could raise the memory alarm, and the alarm would keep the commit of the same connection from being read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from leveret.amqp.errors import PreconditionFailed
from leveret.core.limits import TRANSACTIONS_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable


class OpenTransaction(Protocol):
    """A transaction.

    Attributes:
        size_bytes: of the messages that it keeps; ``OpenTransactions`` counts.
    """

    size_bytes: int


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

    def keep(self, transaction: OpenTransaction, size_bytes: int) -> None:
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

    def let_go(self, transaction: OpenTransaction) -> None:
        """Forget what a transaction kept."""
        if transaction.size_bytes:
            self.count -= 1
            self.size_bytes -= transaction.size_bytes
            transaction.size_bytes = 0
