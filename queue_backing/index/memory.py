"""MemoryIndex: the ``QueueIndex`` of a queue that has no store.

Its queue keeps everything in RAM, so nothing is ever read, and what a durable queue calls persistent is
safe at once: it lives as long as the node does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.queue_backing.index.api import Bounds, Terms
from leveret.queue_backing.status import SEQ

if TYPE_CHECKING:
    from leveret.core.message import Message
    from leveret.queue_backing.index.stored import IndexOwner
    from leveret.queue_backing.status import Entry


class MemoryIndex:
    """See ``QueueIndex`` for the methods.

    Args:
        owner: hears that messages are safe.
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: IndexOwner) -> None:
        self._owner = owner

    def publish(self, entries: list[Entry]) -> None:
        """Call them safe."""
        self._owner.confirmed([(entries[0][SEQ], len(entries))])

    def discard(self, first_msg_no: int, count: int) -> None:
        """Nothing was kept."""

    def page_out(self, entries: list[Entry], must: bool = False) -> int:
        """Take nothing."""
        return 0

    def add(self, entries: list[Entry]) -> None:
        """Never called: nothing is paged out."""

    def ack(self, entries: list[Entry]) -> None:
        """Nothing was kept."""

    def ack_ranges(self, ranges: list[tuple[int, int]], messages: int, size_bytes: int) -> None:
        """Nothing was kept."""

    def read(self, low: int, high: int, limit: int) -> list[Entry] | None:
        """Return that there is nothing."""
        return []

    def ahead(self, low: int, high: int, limit: int) -> list[Entry]:
        """Return that there is nothing."""
        return []

    def fetch_contents(self, entries: list[Entry]) -> list[Message | None]:
        """Never called: all contents are in RAM."""
        return [None] * len(entries)

    def prefetch(self, entries: list[Entry]) -> None:
        """Never called: all contents are in RAM."""

    def bounds(self) -> Bounds:
        """Return that there is nothing."""
        return Bounds(0, 0, 0, 0)

    def terms(self) -> Terms | None:
        """Return that nothing was left."""
        return None

    def terminate(self, terms: Terms) -> None:
        """Nothing is left."""

    def forget(self) -> None:
        """Nothing is left."""

    def delete(self) -> None:
        """Nothing is left."""
