"""The operator's commands on connections, channels and consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.channel.stats import consumer_stats, stats_of
from leveret.broker.connection.connections import user_of, vhost_of
from leveret.core.slices import sliced
from leveret.management import rows
from leveret.management.audit_log import audit
from leveret.management.errors import RefusedError
from leveret.management.queue_stats import active_consumers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from leveret.broker.channel.methods import Channel
    from leveret.broker.channel.records import Subscription
    from leveret.broker.connection.reader import Reader
    from leveret.broker.node.node import Node
    from leveret.management.json_text import Row

LISTED_AT_ONCE: Final = 50


class ConnectionAdmin:
    """Lists what clients have opened, and closes connections."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def list_connections(self) -> list[Row]:
        return [row async for row in await self.connection_rows()]

    async def list_channels(self) -> list[Row]:
        return [row async for row in await self.channel_rows()]

    async def list_consumers(self, vhost: str) -> list[Row]:
        """Return all columns of every consumer; no rows where the vhost does not exist."""
        return [row async for row in await self.consumer_rows(vhost)]

    # The same row by row, for the control socket.

    async def connection_rows(self) -> AsyncIterator[Row]:
        return (rows.connection(reader) async for reader in sliced(self._readers(), LISTED_AT_ONCE))

    async def channel_rows(self) -> AsyncIterator[Row]:
        return (
            rows.channel(reader, channel.ref, stats_of(channel))
            async for reader, channel in sliced(_channels(self._readers()))
        )

    async def consumer_rows(self, vhost: str) -> AsyncIterator[Row]:
        readers = [reader for reader in self._readers() if _vhost_name(reader) == vhost]
        found = self._node.vhosts.get(vhost)
        active = {} if found is None else await active_consumers(self._node.runtime, found)
        return (
            rows.consumer(consumer_stats(channel.ref, each, _is_active(active, channel, each)))
            async for channel, each in sliced(_consumers(readers))
        )

    def _readers(self) -> list[Reader]:
        return list(self._node.connections.readers.values())

    # Closing.

    async def close_connection(self, pid: str, reason: str) -> None:
        close_where = self._node.connections.close_where
        if not close_where(lambda reader: str(reader.ref) == pid, reason):
            raise RefusedError(f"there is no connection {pid}")
        audit("connection closed pid=%s reason=%s by=%s", pid, reason)

    async def close_all_connections(self, vhost: str | None, reason: str) -> int:
        """Close the connections of a vhost, or all; return how many."""
        count = self._node.connections.close_where(
            lambda reader: vhost is None or _vhost_name(reader) == vhost, reason
        )
        audit(
            "connections closed vhost=%s count=%s reason=%s by=%s",
            "all" if vhost is None else vhost, count, reason,
        )  # fmt: skip
        return count

    async def close_all_user_connections(self, user: str, reason: str) -> int:
        """Close the connections of a user; return how many."""
        count = self._node.connections.close_where(lambda each: user_of(each) == user, reason)
        audit("connections closed user=%s count=%s reason=%s by=%s", user, count, reason)
        return count


def _channels(readers: list[Reader]) -> Iterator[tuple[Reader, Channel]]:
    for reader in readers:
        for channel in reader.channels.running():
            yield reader, channel


def _consumers(readers: list[Reader]) -> Iterator[tuple[Channel, Subscription]]:
    for _, channel in _channels(readers):
        for subscription in list(channel.deliveries.subscriptions.values()):
            yield channel, subscription


def _is_active(
    active: dict[str, tuple[str, str]], channel: Channel, subscription: Subscription
) -> bool | None:
    """Whether a consumer is the active one of its queue; None: all are."""
    one = active.get(subscription.entry.name)
    if one is None:
        return None
    return one == (str(channel.ref), subscription.tag.decode("utf-8", "backslashreplace"))


def _vhost_name(reader: Reader) -> str | None:
    vhost = vhost_of(reader)
    return vhost.name if vhost is not None else None
