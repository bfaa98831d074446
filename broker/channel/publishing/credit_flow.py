"""Credit flow: how far a channel's publishes may be ahead of the queues, the message store and the links.

Credit is counted per channel and queue: a channel may be ahead of a queue by ``CREDIT_MESSAGES`` and ``CREDIT_BYTES``;
beyond that the connection stops reading until the queue grants more, or is gone. The connection also stops reading
while a message store has more to write than its disk takes, and while the link with another node has more to send than
that node takes. A commit waits for the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.actors.credit import CreditSender
from leveret.broker.channel.session import Block

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.broker.channel.session import ChannelActor
    from leveret.broker.registry.cluster_nodes import LinkBackpressure
    from leveret.msg_store.wal.backpressure import Backpressure


class CreditFlow:
    """The credit of one channel.

    Attributes:
        accounts: with the queues that it has published to of late.
    """

    __slots__ = ("_backpressure", "_channel", "_lagging", "accounts")

    def __init__(self, channel: ChannelActor) -> None:
        self._channel = channel
        self._lagging = 0  # queues that this channel is ahead of as far as it may
        # Of a store, or of the link with another node, that is waited for.
        self._backpressure: Backpressure | LinkBackpressure | None = None
        self.accounts: dict[Ref, CreditSender] = {}

    @property
    def is_blocked(self) -> bool:
        """Whether more should be published only when some queue, a store or a link has caught up."""
        return bool(self._lagging) or self._backpressure is not None

    def open_account(self, queue: Ref) -> CreditSender:
        """Open an account with a queue, whose end the channel hears of from now on."""
        self._channel.watch(queue)
        account = self.accounts[queue] = CreditSender()
        return account

    def spend(self, queue: Ref, count: int, size_bytes: int) -> None:
        """Spend credit with a queue."""
        account = self.accounts.get(queue)
        if account is None:
            account = self.open_account(queue)
        if account.spend(count, size_bytes):
            self.block()

    def block(self) -> None:
        """A queue has not taken in as much as this channel may be ahead of it."""
        self._lagging += 1
        self._channel.session.read_control.block(Block.CREDIT)

    def _unblock(self) -> None:
        self._lagging -= 1
        self._channel.session.read_control.unblock(Block.CREDIT)
        self._channel.resume_commit()

    def granted(self, queue: Ref, messages: int, size_bytes: int) -> None:
        """A queue has granted credit."""
        account = self.accounts.get(queue)
        if account is not None and account.grant(messages, size_bytes):
            self._unblock()

    def is_idle(self, queue: Ref) -> bool:
        """Whether a queue has an account, and owes nothing on it."""
        account = self.accounts.get(queue)
        return account is not None and account.is_whole

    def forget(self, queue: Ref) -> None:
        """Close the account with an idle queue."""
        del self.accounts[queue]
        if not self.accounts:
            self.accounts = {}  # a dict keeps the room of keys that were deleted

    def gone(self, queue: Ref) -> None:
        """Close the account with a queue that has ended."""
        account = self.accounts.pop(queue, None)
        if account is not None and account.is_blocked:
            self._unblock()

    def wait_for(self, backpressure: Backpressure | LinkBackpressure) -> None:
        """Read no more until the store, or the link, has caught up; one of them at a time."""
        if self._backpressure is None:
            self._backpressure = backpressure
            self._channel.session.read_control.block(Block.BACK_PRESSURE)
            backpressure.wait(self._caught_up)

    def _caught_up(self) -> None:
        self._backpressure = None
        self._channel.session.read_control.unblock(Block.BACK_PRESSURE)
        self._channel.resume_commit()

    def close(self) -> None:
        """The channel ends: take back what blocks the connection."""
        for account in self.accounts.values():
            if account.is_blocked:
                self._channel.session.read_control.unblock(Block.CREDIT)
        self.accounts.clear()
        self._lagging = 0
        if self._backpressure is not None:
            self._backpressure.forget(self._caught_up)
            self._caught_up()
