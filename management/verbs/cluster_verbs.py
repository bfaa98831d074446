"""The verbs of a node of a cluster that concern other nodes, too: their lists, and commands on what they have.

Each verb that is about one node alone stands below (``NodeAdmin``); the other nodes are asked for theirs.

==================  ============================================================================================
lists               have the rows of all nodes, this one's first; a node that does not answer gets a warning
commands on queues  go to the node of the queue
close_connection    goes to the node that the connection's pid names
close_all_...       close on all nodes, and count them
==================  ============================================================================================
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.registry.cluster_nodes import RemoteEntry
from leveret.core.slices import sliced
from leveret.management import rows
from leveret.management.errors import EX_UNAVAILABLE, RefusedError
from leveret.management.other_nodes import ANSWER_S, OtherNodes
from leveret.management.verb_table import Verb, WithWarnings
from leveret.routing.delayed import queue_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from leveret.broker.node.node import Node
    from leveret.management.json_text import Row

LISTS: Final = (
    "list_queues",
    "list_unresponsive_queues",
    "list_connections",
    "list_channels",
    "list_consumers",
)
OF_QUEUES: Final = ("purge_queue", "delete_queue", "list_producers", "forget_producer")
OF_DELAYS: Final = ("list_delayed_messages", "cancel_delayed_messages")
CLOSE_ALL: Final = ("close_all_connections", "close_all_user_connections")
CLOSE_ONE: Final = "close_connection"
ASKED: Final = (*LISTS, *OF_QUEUES, *OF_DELAYS, *CLOSE_ALL, CLOSE_ONE, "about")
"""Verbs that nodes ask each other for."""

COMMAND_S: Final = 60.0  # for a command on another node


class ClusterVerbs:
    """Makes verbs about a cluster of those about one of its nodes.

    Args:
        node: this node.
        others: the other ones.
        local: the verbs about this node, lists as iterators.
    """

    def __init__(self, node: Node, others: OtherNodes, local: Mapping[str, Verb]) -> None:
        self._node = node
        self._others = others
        self._local = local

    def verbs(self) -> dict[str, Verb]:
        """Return the verbs, which take the place of those of their names."""
        verbs = {name: self._listed(name) for name in LISTS}
        verbs |= {name: self._on_node_of_queue(name, "name", str) for name in OF_QUEUES}
        verbs |= {name: self._on_node_of_queue(name, "exchange", queue_of) for name in OF_DELAYS}
        verbs |= {name: self._everywhere(name) for name in CLOSE_ALL}
        return verbs | {CLOSE_ONE: self._close_one()}

    # Lists.

    def _listed(self, verb: str) -> Verb:
        local = self._local[verb]

        @wraps(local)
        async def listed(**arguments: Any) -> Any:
            own = await local(**arguments)
            if arguments.get("local"):
                return own
            warnings: list[str] = []
            return WithWarnings(self._all_rows(verb, arguments, own, warnings), warnings)

        return listed

    async def _all_rows(
        self, verb: str, arguments: dict[str, Any], own: AsyncIterator[Row], warnings: list[str]
    ) -> AsyncIterator[Row]:
        timeout_s = max(ANSWER_S, 2 * arguments.get("queue_timeout_s", 0.0))
        others = self._others.rows(self._others.linked, verb, arguments, warnings, timeout_s)
        async for row in own:
            yield row
        async for row in others:
            yield row
        if verb == "list_queues":
            async for row in self._down_queues(arguments["vhost"]):
                yield row

    async def _down_queues(self, vhost: str) -> AsyncIterator[Row]:
        """Yield the durable queues whose nodes are down; they have no statistics."""
        found = self._node.vhosts.get(vhost)
        entries = list(found.topology.queues.values()) if found is not None else []
        async for entry in sliced(entries):
            if isinstance(entry, RemoteEntry) and entry.state == "down":
                yield rows.queue(entry, {}) | {"vhost": vhost, "node": entry.home.name}

    # Commands on queues.

    def _on_node_of_queue(self, verb: str, named: str, queue_name: Callable[[str], str]) -> Verb:
        """Have a verb carried out by the node of a queue.

        Args:
            verb: its name.
            named: the argument that names the queue, or what has it.
            queue_name: returns the queue's name for that argument.
        """
        local = self._local[verb]

        @wraps(local)
        async def sent(**arguments: Any) -> Any:
            vhost = self._node.vhosts.get(arguments["vhost"])
            name = queue_name(arguments[named])
            entry = vhost.topology.queues.get(name) if vhost is not None else None
            if not isinstance(entry, RemoteEntry):
                return await local(**arguments)
            home = entry.home.name
            if entry.state == "down":
                raise RefusedError(
                    f"home node '{home}' of durable {entry} is down or inaccessible: start it, or have the cluster "
                    f"forget it and its queues with forget_cluster_node {home}",
                    EX_UNAVAILABLE,
                )
            if verb == "list_delayed_messages":
                warnings: list[str] = []
                found = self._others.rows([home], verb, arguments, warnings)
                return WithWarnings(found, warnings)
            return await self._others.ask(home, verb, arguments, COMMAND_S)

        return sent

    # Connections.

    def _close_one(self) -> Verb:
        local = self._local[CLOSE_ONE]

        @wraps(local)
        async def closed(pid: str, reason: str) -> None:
            name = pid.strip("(").partition("/")[0]
            if name != self._others.own and name in self._others.linked:
                await self._others.ask(name, CLOSE_ONE, {"pid": pid, "reason": reason})
            else:
                await local(pid=pid, reason=reason)

        return closed

    def _everywhere(self, verb: str) -> Verb:
        local = self._local[verb]

        @wraps(local)
        async def everywhere(**arguments: Any) -> WithWarnings:
            warnings: list[str] = []
            count = await local(**arguments)
            found = await self._others.ask_all(verb, arguments, warnings)
            return WithWarnings(count + sum(found.values()), warnings)

        return everywhere
