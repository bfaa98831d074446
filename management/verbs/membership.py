"""The operator's commands on the nodes of a cluster: which there are, and to forget one that is lost for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from leveret.amqp.errors import ProtocolError
from leveret.broker.registry.cluster_nodes import RemoteEntry
from leveret.broker.script import run_in_task
from leveret.broker.vhost.exchange_declare import have_delay_queue
from leveret.core.slices import sliced
from leveret.management.audit_log import audit
from leveret.management.errors import EX_UNAVAILABLE, SINGLE_NODE, RefusedError
from leveret.management.verb_table import WithWarnings
from leveret.metadata.tables import MemberRow, QueueRow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from leveret.broker.node.node import Node
    from leveret.management.json_text import Row
    from leveret.management.other_nodes import OtherNodes

FORGOTTEN_AT_ONCE: Final = 500  # queues, whose rows are one write


class Serving(Protocol):
    """What the metadata of a cluster tells of nodes."""

    @property
    def addresses(self) -> Mapping[str, str]:
        """Where the other nodes that serve clients are dialled, by name."""

    @property
    def is_live(self) -> bool:
        """Whether this node may serve clients now."""

    @property
    def trouble(self) -> str:
        """What keeps it from that; "": nothing."""


class MembershipAdmin:
    """Shows the nodes of the cluster, and removes one that is down.

    Args:
        node: this node.
        about: returns its versions, listeners and alarms.
        serving: the metadata of the cluster; None: it is a single node.
        others: the other nodes; None likewise.
    """

    def __init__(
        self,
        node: Node,
        about: Callable[[], Awaitable[Row]],
        serving: Serving | None,
        others: OtherNodes | None,
    ) -> None:
        self._node = node
        self._about = about
        self._serving = serving
        self._others = others

    def cluster(self) -> Row | None:
        """Return the names of this node, of all members, and of the running ones; None: it is a single node."""
        if self._serving is None or self._others is None:
            return None
        own = self._others.own
        members = {row.node for row in self._node.settings_rows.members()}
        running = {own, *self._serving.addresses}
        return {
            "node": own,
            "nodes": sorted(members | running),
            "running_nodes": sorted(running),
            "linked_nodes": self._others.linked,
            "is_serving": self._serving.is_live,
            "trouble": self._serving.trouble,
        }

    async def running_nodes(self) -> list[str]:
        """Return the names of the nodes that run, none while this one serves no clients; a single node has no name."""
        cluster = self.cluster()
        if cluster is None:
            return [""]
        running: list[str] = cluster["running_nodes"] if cluster["is_serving"] else []
        return running

    async def cluster_status(self) -> WithWarnings:
        """Return ``cluster``, and of each node that runs what ``about`` says; a single node alone has the name ""."""
        warnings: list[str] = []
        found, about = self.cluster(), {}
        if found is not None and self._others is not None:
            about = await self._others.ask_all("about", {}, warnings)
        own = "" if found is None else found["node"]
        about[own] = await self._about()
        return WithWarnings(
            {
                "cluster": found,
                "cluster_name": self._node.cluster_name,
                "nodes": dict(sorted(about.items())),
            },
            warnings,
        )

    async def forget_cluster_node(self, node: str, dry_run: bool = False) -> WithWarnings:
        """Remove a node that is down for good, with its queues and their bindings.

        The node is marked first, so that it cannot come back while its queues are deleted. If that is cut short, the
        command may be repeated.

        Args:
            node: its name.
            dry_run: only say what would go.

        Returns:
            Its durable queues; the others end with its lease.

        Raises:
            RefusedError: it runs, or is not in the cluster.
            StoreError: the metadata cannot be written; some queues may be deleted.
        """
        async with self._node.admin_turn:
            members = self._found(node)
            entries = [
                entry
                for vhost in self._node.vhosts.values()
                async for entry in sliced(list(vhost.topology.queues.values()))
                if isinstance(entry, RemoteEntry) and entry.home.name == node and entry.durable
            ]
            queues = [{"vhost": each.vhost_name, "name": each.name} for each in entries]
            warnings: list[str] = []
            if not dry_run:
                await self._mark(members, True)
                try:
                    self._refuse_running(node)
                except RefusedError:  # it has come back meanwhile
                    await self._mark(members, False)
                    raise
                for start in range(0, len(entries), FORGOTTEN_AT_ONCE):
                    await self._delete(entries[start : start + FORGOTTEN_AT_ONCE], warnings)
                audit("node forgotten node=%s queues=%s by=%s", node, len(entries))
            return WithWarnings({"queues": queues}, warnings)

    def _found(self, name: str) -> list[MemberRow]:
        """Return the rows of a node that is down, none if they are marked already."""
        if self._serving is None or self._others is None or self._node.cluster_nodes is None:
            raise RefusedError(SINGLE_NODE, EX_UNAVAILABLE)
        self._refuse_running(name)
        members = [row for row in self._node.settings_rows.members() if row.node == name]
        if not members and not self._node.cluster_nodes.queues_of(name):
            raise RefusedError(
                "{:not_a_cluster_node, 'The node selected is not in the cluster.'}", EX_UNAVAILABLE
            )
        return members

    def _refuse_running(self, name: str) -> None:
        assert self._serving is not None
        assert self._others is not None
        if name == self._others.own or name in self._serving.addresses:
            raise RefusedError(
                f"node {name} is running: it must be stopped with 'leveret ctl shutdown' before the cluster forgets it",
                EX_UNAVAILABLE,
            )

    async def _mark(self, members: list[MemberRow], is_forgotten: bool) -> None:
        for row in members:
            marked = MemberRow(row.uuid, row.node, is_forgotten)
            await self._node.metadata.write([marked])
            self._node.settings_rows.put(marked)

    async def _delete(self, entries: list[RemoteEntry], warnings: list[str]) -> None:
        """Delete some queues: first their rows, for all nodes, then what this node has of them."""
        rows: list[Any] = [
            QueueRow(each.vhost_name, each.name, node=each.home.name) for each in entries
        ]
        await self._node.metadata.write([], rows)
        for entry in entries:
            vhost = self._node.vhosts.get(entry.vhost_name)
            if vhost is None:
                continue
            await run_in_task(self._node.runtime, vhost.forget_queue(entry))
            exchange = entry.delayed_exchange
            if exchange is None or exchange not in vhost.topology.exchanges:
                continue
            try:
                await run_in_task(self._node.runtime, have_delay_queue(vhost, exchange))
            except ProtocolError:
                warnings.append(
                    f"exchange '{exchange}' in vhost '{vhost.name}' delays no messages until it is deleted "
                    "and declared again: its queue was on that node, and no other could be made"
                )
