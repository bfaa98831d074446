"""What the letters of a queue say and where they go, apart from how they get there (``dead_letters.py``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from leveret.broker.queue.dead_letters.death_headers import DeadLetter, Deaths
from leveret.core.limits import SHORTSTR_BYTES_MAX
from leveret.core.message import blind_keys_of, origin_of

if TYPE_CHECKING:
    from leveret.broker.registry.registry import QueueEntry
    from leveret.core.message import Message


class DeadLetterHeads(Protocol):
    """Writes the letters of messages that are sent together."""

    def dead_letter(self, origin: bytes, head: bytes) -> DeadLetter:
        """Return the letter of a message with this origin and content header."""


class DeadLetterRules(Protocol):
    """The rules of a queue's letters.

    Attributes:
        finds_cycles: letters are dropped that come round to a queue in which they have died.
    """

    finds_cycles: bool

    @property
    def exchange(self) -> str | None:
        """The exchange to which letters are published now; None: to none."""

    def heads(self, reason: bytes, time_s: int) -> DeadLetterHeads:
        """Return what writes the letters of messages that became letters for this reason."""

    def origin(self, origin: bytes, key: bytes) -> bytes:
        """Return the origin of the letter of a message with that origin, which is routed by this key first."""

    def taken(self, messages: list[Message], reason: bytes) -> None:
        """Note messages that become letters."""


class DeathRules:
    """Dead-lettering, as arguments and policies of the queue say now."""

    __slots__ = ("_entry",)

    finds_cycles = True

    def __init__(self, entry: QueueEntry) -> None:
        self._entry = entry

    @property
    def exchange(self) -> str | None:
        return self._entry.settings.dead_letter_exchange

    def heads(self, reason: bytes, time_s: int) -> Deaths:
        own_key = self._entry.settings.dead_letter_routing_key
        key = None if own_key is None else _encoded(own_key)
        return Deaths(_encoded(self._entry.name), reason, time_s, key)

    def origin(self, origin: bytes, key: bytes) -> bytes:
        keeps_keys = self._entry.settings.dead_letter_routing_key is None
        blind_keys = blind_keys_of(origin) if keeps_keys else ()
        return origin_of(_encoded(self.exchange or ""), key[:SHORTSTR_BYTES_MAX], *blind_keys)

    def taken(self, messages: list[Message], reason: bytes) -> None:
        """Tell the firehose of messages that died."""
        vhost = self._entry.vhost
        if vhost is not None and (firehose := vhost.firehose) is not None:
            firehose.died(self._entry.name, reason, messages)


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
