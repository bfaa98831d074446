"""The errors of a client's connection."""

from __future__ import annotations

from leveret.core.errors import LeveretError


class BrokerError(LeveretError):
    """The broker cannot be reached, refuses, does not answer, breaks the protocol, or has ended the connection."""


class ChannelClosed(BrokerError):  # noqa: N818 - what happened
    """The broker closed a channel, for a reason such as ``404`` and ``NOT_FOUND - no queue 'q' in vhost '/'``."""

    def __init__(self, reply_code: int, reply_text: str) -> None:
        super().__init__(f"the broker closed the channel: {reply_code} {reply_text}")
        self.reply_code = reply_code
        self.reply_text = reply_text
