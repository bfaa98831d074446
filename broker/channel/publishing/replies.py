"""The replies (direct reply-to) that one channel publishes, and its waits for those who read them slowly.

A reply is handed to the channel of its consumer, which writes it to its connection. When more than
``UNSENT_BYTES_MAX`` wait there to be read, the connection that publishes replies is not read until the consumer's
client takes more. But a client that reads nothing must not hold up a server that answers others too: after
``STALLED_S`` the wait is over, and replies are dropped that such a client has no room for. So the replies that one
client does not read take ``UNSENT_BYTES_MAX``, and one read of each of their publishers. A publisher on another node
stops when ``RepliesHeld`` arrives there; the replies that it has sent before are taken as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.channel.session import Block

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.timers import Timer
    from leveret.broker.channel.reply_consumers import ReplyConsumer
    from leveret.broker.channel.session import ChannelActor
    from leveret.broker.remote.mail_between_nodes import RepliesHeld
    from leveret.core.message import Message

STALLED_S: Final = 5.0


class WaitedEnough:
    """Timer: the reply consumers that a channel waits for have had their time."""


class Replies:
    """What one channel publishes to reply consumers."""

    __slots__ = ("_awaited", "_channel", "_session", "_timer")

    def __init__(self, channel: ChannelActor) -> None:
        self._channel = channel
        self._session = channel.session
        # The consumers that are waited for, by their channels; of those on other nodes the keys.
        self._awaited: dict[Ref, ReplyConsumer | bytes] = {}
        self._timer: Timer | None = None

    def send(self, key: bytes, messages: list[Message]) -> None:
        """Send messages to the reply consumer with this key, if there is one."""
        consumer = self._session.reply_consumers.find(key)
        if consumer is None:
            self._session.reply_consumers.send_to_node(key, messages, self._channel.ref)
            return
        is_full = consumer.is_full
        if is_full and consumer.is_stalled:
            return
        consumer.is_stalled = False
        self._session.reply_consumers.send(consumer, messages)
        if is_full and consumer.channel not in self._awaited:
            self._wait_for(consumer.channel, consumer)
            consumer.gate.wait(self._channel.ref)

    def held(self, mail: RepliesHeld) -> None:
        """A consumer on another node has no room for more; its channel says when it has."""
        if mail.channel not in self._awaited:
            self._wait_for(mail.channel, mail.key)

    def _wait_for(self, channel: Ref, consumer: ReplyConsumer | bytes) -> None:
        if not self._awaited:
            self._session.read_control.block(Block.REPLIES)
            self._timer = self._channel.start_timer(STALLED_S, WaitedEnough())
        self._awaited[channel] = consumer
        if channel is not self._channel.ref:
            self._channel.watch(channel)

    @property
    def is_waiting(self) -> bool:
        return bool(self._awaited)

    def goes_on(self, channel: Ref) -> None:
        """The channel of a consumer takes more, or has ended."""
        if self._awaited.pop(channel, None) is not None:
            self._channel.unwatch(channel)
            if not self._awaited:
                self._wait_no_longer()

    def waited_enough(self) -> None:
        """Give up the consumers that have not taken more until now."""
        consumers, name = self._session.reply_consumers, self._session.name
        for consumer in self._awaited.values():
            if isinstance(consumer, bytes):
                consumers.stalls_elsewhere(consumer, name)
            else:
                consumers.stalls(consumer, name)
        self.close()

    def close(self) -> None:
        """Wait for nobody any more."""
        if not self._awaited:
            return
        for channel in self._awaited:
            self._channel.unwatch(channel)
        self._awaited.clear()
        self._wait_no_longer()

    def _wait_no_longer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._session.read_control.unblock(Block.REPLIES)
