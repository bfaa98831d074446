"""How many connections and channels are open, as the limits of users and vhosts count them.

In a cluster a limit is of the whole cluster. Each node sends the others its counts for users and vhosts with limits
(``cluster/queue_directory.py``), once per drain of the run queue, and adds theirs to its own. ``open-ok`` and
``close-ok`` of such a connection, and ``open-ok`` of a channel, wait until the others have acknowledged the count. Two
connections that are opened on two nodes at the same moment may both be taken, as in RabbitMQ.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def connections_to(vhost: str) -> str:
    """Return the key of the connections to a vhost."""
    return f"vhost {vhost}"


def connections_of(user: str) -> str:
    """Return the key of the connections of a user."""
    return f"user {user}"


def channels_of(user: str) -> str:
    """Return the key of the channels of a user."""
    return f"channels {user}"


class RemoteCounts:
    """The counts of the other nodes of a cluster.

    Attributes:
        on_change: called when the counts of this node may have changed; None: there is no cluster.
        when_acknowledged: calls back when the other nodes know the counts of this one; None: no cluster.
    """

    def __init__(self) -> None:
        self.on_change: Callable[[], None] | None = None
        self.when_acknowledged: Callable[[Callable[[None], object]], None] | None = None
        self._by_node: dict[str, Counter[str]] = {}

    def changed(self) -> None:
        """The counts of this node may have changed."""
        if self.on_change is not None:
            self.on_change()

    def put(self, node: str, counts: Mapping[str, int]) -> None:
        """Note all counts of another node."""
        self._by_node[node] = Counter(counts)

    def lost(self, node: str) -> None:
        """A node is lost, and its connections with it."""
        self._by_node.pop(node, None)

    def of(self, key: str) -> int:
        """Return how many the other nodes have."""
        return sum(counts[key] for counts in self._by_node.values())
