"""Deletion notices: the channels of a queue hear that it is deleted, a turn's worth of them at once.

Channels with consumers get ``ConsumersGone``, those with unconfirmed messages ``QueueDeleted``.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.broker.mail import ConsumersGone, QueueDeleted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.signals import MonitorRef
    from leveret.broker.queue.consumers.consumers import Consumers
    from leveret.broker.queue.publishers.publishers import Publishers

NOTICES_AT_ONCE: Final = 2_000

_Notice: TypeAlias = "tuple[Ref, ConsumersGone | QueueDeleted]"


class DeletionNotices:
    """The notices of one queue, which knows its consumers and publishers no more.

    Args:
        queue: that is deleted.
        consumers: are forgotten one channel after the other.
        publishers: of the queue.
        post: sends a mail.
        demonitor: ends the monitor of a channel with consumers.
    """

    __slots__ = ("_notices", "_post")

    def __init__(
        self,
        queue: Ref,
        consumers: Consumers | None,
        publishers: Publishers | None,
        post: Callable[[Ref, object], object],
        demonitor: Callable[[MonitorRef], object],
    ) -> None:
        self._post = post
        self._notices = _notices(queue, consumers, publishers, demonitor)

    def post_some(self) -> bool:
        """Post a turn's worth; return whether there may be more."""
        count = 0
        for channel, notice in islice(self._notices, NOTICES_AT_ONCE):
            self._post(channel, notice)
            count += 1
        return count == NOTICES_AT_ONCE


def _notices(
    queue: Ref,
    consumers: Consumers | None,
    publishers: Publishers | None,
    demonitor: Callable[[MonitorRef], object],
) -> Iterator[_Notice]:
    while consumers is not None and consumers.channels:
        channel, record = consumers.channels.popitem()
        if record.monitor is not None:
            demonitor(record.monitor)
        for tags in record.tags():
            yield channel, ConsumersGone(queue, tags)
    for channel in publishers.waiting_channels() if publishers is not None else ():
        yield channel, QueueDeleted(queue)
