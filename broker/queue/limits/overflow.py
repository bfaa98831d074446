"""Overflow: what a queue with length limits does with messages above them, by ``x-overflow``.

Drop-head drops or dead-letters messages from the head; those that are dead-lettered become unacked, as many as
``DeadLetters`` has room for. Reject-publish refuses new ones. While dead letters are slower than publishers, the queue
grows above its limits, or refused messages wait in memory; then the publishers get no credit, so that both are bounded
by what they have under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.mail import PublishParts
from leveret.broker.queue.dead_letters.death_headers import MAXLEN
from leveret.broker.queue.limits.length_limits import Excess, LengthLimits
from leveret.core.limits import DEAD_LETTER_BYTES_IN_FLIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leveret.broker.mail import Publish
    from leveret.broker.queue.dead_letters.dead_letters import DeadLetters
    from leveret.broker.queue.publishers.publishers import Publishers
    from leveret.broker.registry.queue_settings import QueueSettings
    from leveret.queue_backing.proxy import BackingProxy


class Overflow:
    """The overflow of one queue.

    Args:
        limits: of the queue.
        backing: its backing queue.
        durable: whether it is.
        has_priorities: whether it has ``x-max-priority``.

    Attributes:
        refuses: messages that would pass a limit are refused.
        takes_parts: runs are taken in by ``admitted`` parts. Also if nothing is refused, but the bytes of a queue
            with priorities are limited: a message that is dropped at once must not count against those behind it.
    """

    __slots__ = ("_backing", "_durable", "_limits", "refuses", "takes_parts")

    def __init__(
        self, limits: LengthLimits, backing: BackingProxy, durable: bool, has_priorities: bool
    ) -> None:
        self._limits = limits
        self._backing = backing
        self._durable = durable
        self.refuses = limits.refuses
        self.takes_parts = limits.refuses or (has_priorities and limits.has_bytes)

    def admitted(
        self, publish: Publish, publishers: Publishers, dead_letters: DeadLetters | None
    ) -> Iterator[Publish]:
        """Refuse the messages of a run that would pass a limit.

        Yields:
            The others, in parts; each must be taken in before the next is asked for.
        """
        messages = publish.messages
        parts = PublishParts(publish)
        while parts.at < len(messages):
            fits, count = True, 1
            if self.refuses:
                ready, ready_bytes = self._backing.len(), self._backing.len_bytes()
                fits, count = self._limits.leading(messages, ready, ready_bytes, parts.at)
            part = parts.take(count)
            if fits:
                yield part
            else:
                self._refuse(part, publishers, dead_letters)

    def _refuse(
        self, publish: Publish, publishers: Publishers, dead_letters: DeadLetters | None
    ) -> None:
        persistent = publish.persistent and self._durable
        self._backing.discard(publish.messages, persistent, publish.first_msg_no)
        if self._limits.dead_letters_refused and dead_letters is not None:
            dead_letters.take_refused(publish.messages, MAXLEN)
            self.control_credit(publishers, dead_letters, is_above=True)
        publishers.refuse(publish)

    def drop(self, ready: int, dead_letters: DeadLetters | None) -> bool:
        """Drop or dead-letter a turn's worth of messages; return whether any are left above the limits."""
        limits, backing = self._limits, self._backing
        excess = limits.excess(ready, backing)
        if limits.refuses or max(excess) <= 0:
            return False
        if dead_letters is None:
            limits.drop(excess, backing)
        elif room := dead_letters.room():
            fetched, _ = backing.fetchwhile(Excess(*excess), room, DEAD_LETTER_BYTES_IN_FLIGHT)
            dead_letters.take(fetched, MAXLEN)
        return max(limits.excess(backing.len(), backing)) > 0

    def control_credit(
        self, publishers: Publishers, dead_letters: DeadLetters | None, is_above: bool
    ) -> None:
        """Withhold credit from the publishers while dead letters cannot keep up; else grant it."""
        is_above = is_above or self._limits.dead_letters_refused
        if is_above and dead_letters is not None and not dead_letters.room():
            publishers.withhold_credit()
        else:
            publishers.release_credit()


def overflow_of(settings: QueueSettings, backing: BackingProxy, durable: bool) -> Overflow | None:
    """Return the overflow of a queue with these settings, None if it has no length limit."""
    length, size_bytes = settings.max_length, settings.max_length_bytes
    if length is None and size_bytes is None:
        return None
    limits = LengthLimits(length, size_bytes, settings.overflow)
    return Overflow(limits, backing, durable, settings.highest_priority > 0)
