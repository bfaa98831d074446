"""The memory that can be counted truly, by RabbitMQ's names of the parts.

Only bytes that clients make the broker keep; the interpreter, code and free memory of the allocator are in none of
the parts. Queues count themselves (``queue_procs``, see ``queue_stats``).

* ``connection_readers``: messages of which only a part has come, or that an alarm holds back.
* ``connection_writers``: bytes that clients have not read yet.
* ``connection_channels``: cached routes, messages of open transactions.
* ``metadata``: arguments of queues, exchanges and bindings; per vhost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leveret.core.slices import sliced

if TYPE_CHECKING:
    from leveret.broker.connection.reader import Reader
    from leveret.broker.node.node import Node
    from leveret.broker.vhost.vhost import VHost
    from leveret.management.json_text import Row


async def memory_parts(node: Node) -> Row:
    """Return the bytes of each part but ``queue_procs``."""
    readers = writers = 0
    channels = node.connections.open_transactions.size_bytes
    async for reader in sliced(list(node.connections.readers.values())):
        readers += reader.contents_bytes
        writers += reader.writer.unsent_bytes
        channels += _routes_bytes(reader)
    return {
        "connection_readers": readers,
        "connection_writers": writers,
        "connection_channels": channels,
        "metadata": {
            vhost.name: await _arguments_bytes(vhost) for vhost in list(node.vhosts.values())
        },
    }


def _routes_bytes(reader: Reader) -> int:
    return reader.session.routes.size_bytes if reader.session is not None else 0


async def _arguments_bytes(vhost: VHost) -> int:
    topology = vhost.topology
    places: list[Any] = [
        *topology.queues.values(),
        *topology.exchanges.values(),
        *topology.bindings(),
    ]
    total = 0
    async for each in sliced(places):
        total += each.arguments_bytes
    return total
