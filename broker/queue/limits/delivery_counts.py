"""How often messages came back to their queue: a consumer returned them, or its channel ended without settling them.

A queue counts if it is a quorum queue or has a delivery limit, and only what comes back costs anything. A message
that came back more often than the limit allows is given up. A quorum queue shows the count in the header
``x-delivery-count``, as ``rabbit_fifo_client`` does.

The counts of a durable queue belong to the store, which keeps them over restarts (``msg_store/delivery_counts.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from leveret.amqp.properties import examine, with_headers

if TYPE_CHECKING:
    from leveret.broker.registry.registry import QueueEntry
    from leveret.core.message import Message
    from leveret.queue_backing.api import Fetched
    from leveret.queue_backing.proxy import Counts

COUNT_HEADER: Final = "x-delivery-count"
KEPT_MAX: Final = 100_000  # counts that a purge looks through
DELIVERY_LIMIT: Final = b"delivery_limit"
"""The reason in ``x-death``."""


class KeptCounts(Protocol):
    """The counts of a queue that the store keeps."""

    def counts(self) -> dict[int, int]:
        """Return the counts by seq, to be changed in place."""

    def changed(self, seqs: Sequence[int]) -> None:
        """Note that the counts of these seqs are others now."""

    def forget(self) -> None:
        """Forget all; ``counts`` is another dict from now on."""


class DeliveryCounts:
    """The counts of one queue, by seq.

    Args:
        give_up: gets unacked messages beyond the limit.
        kept: the store's; None: the queue does not survive a restart, and neither do its counts.

    Attributes:
        limit: a message that has come back more often is given up; None: no message is.
        are_shown: deliveries have the count in their headers.
    """

    __slots__ = ("_counts", "_give_up", "_kept", "are_shown", "limit")

    def __init__(
        self, give_up: Callable[[list[int]], object], kept: KeptCounts | None = None
    ) -> None:
        self._give_up = give_up
        self._kept = kept
        self._counts = {} if kept is None else kept.counts()
        self.limit: int | None = None
        self.are_shown = False

    def __len__(self) -> int:
        return len(self._counts)

    def came_back(self, seqs: list[int]) -> list[int]:
        """Count unacked messages that come back; give up those beyond the limit, and return the others."""
        counts, limit = self._counts, self.limit
        on: list[int] = []
        beyond: list[int] = []
        for seq in seqs:
            count = counts.get(seq, 0) + 1
            if limit is not None and count > limit:
                counts.pop(seq, None)
                beyond.append(seq)
            else:
                counts[seq] = count
                on.append(seq)
        if self._kept is not None:
            self._kept.changed(seqs)
        if beyond:
            self._give_up(beyond)
        return on

    def forget(self, seqs: Iterable[int]) -> None:
        """Forget messages that are settled or dropped."""
        pop = self._counts.pop
        if self._counts and (gone := [seq for seq in seqs if pop(seq, 0)]) and self._kept:
            self._kept.changed(gone)

    def keep_only(self, unacked: Iterable[set[int]]) -> None:
        """Forget all messages but those: the queue is purged. With very many counts those are forgotten as well."""
        counts = self._counts
        kept: dict[int, int] = {}
        if len(counts) <= KEPT_MAX:
            for seqs in unacked:
                kept.update([(seq, counts[seq]) for seq in counts.keys() & seqs])
        self.forget_all()
        self._counts.update(kept)
        if self._kept is not None and kept:
            self._kept.changed(list(kept))

    def forget_all(self) -> None:
        """Forget all messages: the queue does not count any more."""
        if self._kept is None:
            self._counts = {}
        else:
            self._kept.forget()
            self._counts = self._kept.counts()

    def shown(self, fetched: Fetched) -> list[Message]:
        """Return messages for consumers; those that came back have their count in the headers."""
        messages, get = fetched.messages, self._counts.get
        if not self.are_shown or not fetched.redelivered or not self._counts:
            return messages
        again = [
            with_count(message, count) if (count := get(seq)) else message
            for message, seq in zip(messages[: fetched.redelivered], fetched.seqs, strict=False)
        ]
        return again + messages[fetched.redelivered :]

    def got(self, message: Message, seq: int, is_settled: bool) -> Message:
        """Return a message for basic.get, which shows a count of 0 as well."""
        count = self._counts.get(seq, 0)
        if is_settled:
            self.forget([seq])
        return with_count(message, count) if self.are_shown else message


def counts_of(
    entry: QueueEntry, before: Counts | None, give_up: Callable[[list[int]], object]
) -> DeliveryCounts | None:
    """Return the counts of a queue whose settings may have changed, None if it does not count."""
    settings = entry.settings
    if not settings.is_quorum and settings.delivery_limit is None:
        if isinstance(before, DeliveryCounts):
            before.forget_all()
        return None
    counts = before if isinstance(before, DeliveryCounts) else _counts(entry, give_up)
    counts.limit, counts.are_shown = settings.delivery_limit, settings.is_quorum
    return counts


def _counts(entry: QueueEntry, give_up: Callable[[list[int]], object]) -> DeliveryCounts:
    store = entry.vhost.store.msg_store if entry.vhost is not None else None
    if store is None or not entry.queue_no:
        return DeliveryCounts(give_up)
    return DeliveryCounts(give_up, store.counts.of(entry.queue_no))


def with_count(message: Message, count: int) -> Message:
    """Return a message with its count in the headers, which are sorted then, as RabbitMQ sorts them."""
    origin, head, body = message
    headers = {**(examine(head).headers or {}), COUNT_HEADER: ("l", count)}
    return origin, with_headers(head, headers), body
