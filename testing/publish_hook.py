"""A hook for published messages: it sees messages when the broker has routed them.

While a hook is set, each run of messages that is published in the process costs a little more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from leveret.broker.channel.publishing.publish import publish_hooks

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.core.message import Message


class PublishHook:
    """Sees the messages published to one vhost of one broker, while it is entered.

    ``sees`` is called in the broker's thread with messages in the order of publishing. A run that the
    broker refuses (no such exchange, no permission) is not seen.
    """

    def __init__(
        self, is_meant: Callable[[Any], bool], sees: Callable[[list[Message]], None]
    ) -> None:
        self._is_meant = is_meant
        self._sees = sees

    def __enter__(self) -> Self:
        publish_hooks.append(self._published)
        return self

    def __exit__(self, *exc_info: object) -> None:
        publish_hooks.remove(self._published)

    def _published(self, vhost: Any, messages: list[Message]) -> None:
        if self._is_meant(vhost):
            self._sees(messages)
