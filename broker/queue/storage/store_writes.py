"""Messages that are given to the store before they are sent to queues: by channels, and by queues that dead-letter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.msg_store.format.errors import StoreFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.broker.registry.registry import QueueEntry
    from leveret.core.message import Message
    from leveret.msg_store.store import MsgStore


def write_for(
    store: MsgStore | None,
    queues: Sequence[QueueEntry],
    messages: list[Message],
    is_awaited: bool,
    size_bytes: int,
) -> int:
    """Give messages to the store for those durable queues that run; return the first's number.

    0 is returned when there is none, without a store, and when the store has failed: then the vhost's queues are about
    to go down, and the messages are refused with all others that they have not confirmed.

    Args:
        store: the vhost's; None: it has none.
        queues: that the messages are sent to next, in the same turn.
        messages: one run.
        is_awaited: a confirm is waited for; otherwise the flush may be put off.
        size_bytes: of the bodies.
    """
    if store is None:
        return 0
    route_nos = [each.route_no for each in queues if each.route_no and each.is_running]
    if not route_nos:
        return 0
    try:
        return store.write(messages, tuple(route_nos), is_awaited, size_bytes)
    except StoreFailed:
        return 0
