"""The verbs of the control socket on a running broker, one part per subject."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import leveret
from leveret.amqp.kernel import KERNEL_NAME
from leveret.broker.node.background import in_thread
from leveret.broker.node.node import VHOSTS
from leveret.core.compiled_path import form_of_path
from leveret.core.event_loop import name_of
from leveret.core.sizes import SizeLimit
from leveret.core.slices import sliced
from leveret.management import rows
from leveret.management.audit_log import audit
from leveret.management.definitions.node_definitions import NodeDefinitions
from leveret.management.memory_parts import memory_parts
from leveret.management.other_nodes import OtherNodes
from leveret.management.queue_stats import totals
from leveret.management.verb_table import WithWarnings
from leveret.management.verbs.cluster_verbs import ASKED, ClusterVerbs
from leveret.management.verbs.connections import ConnectionAdmin
from leveret.management.verbs.delayed_messages import DelayedMessageAdmin
from leveret.management.verbs.health import HealthAdmin
from leveret.management.verbs.membership import MembershipAdmin
from leveret.management.verbs.parameters import ParameterAdmin
from leveret.management.verbs.policies import PolicyAdmin
from leveret.management.verbs.queues import QueueAdmin
from leveret.management.verbs.snapshots import SnapshotAdmin
from leveret.management.verbs.tracing import TracingAdmin
from leveret.management.verbs.users import UserAdmin
from leveret.management.verbs.vhosts import VhostAdmin
from leveret.supervisors.tree_view import walk

if TYPE_CHECKING:
    from leveret.management.json_text import Row
    from leveret.management.running_broker import RunningBroker
    from leveret.management.verb_table import Verb


class NodeAdmin:
    """What an operator can ask of a running broker.

    A request that cannot be fulfilled raises ``RefusedError``. Rows are dicts with rabbitmqctl's column
    names; a table value (arguments, client properties) is a list of ``[name, type, value]`` with
    RabbitMQ's type names, ``longstr`` for a string.
    """

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._node = node = broker.node
        self.users = UserAdmin(node)
        self.vhosts = VhostAdmin(node)
        self.policies = PolicyAdmin(node)
        self.operator_policies = PolicyAdmin(node, is_operator=True)
        self.parameters = ParameterAdmin(node, self.operator_policies)
        self.connections = ConnectionAdmin(node)
        self.queues = QueueAdmin(node)
        self.delayed_messages = DelayedMessageAdmin(node)
        self.health = HealthAdmin(broker)
        self.definitions = NodeDefinitions(node)
        self.snapshots = SnapshotAdmin(node)
        self.tracing = TracingAdmin(node)
        cluster = broker.cluster
        self._others: OtherNodes | None = None
        if node.links is not None and cluster is not None:
            self._others = OtherNodes(node.links, lambda: cluster.metadata.addresses)
        serving = None if cluster is None else cluster.metadata
        self.membership = MembershipAdmin(node, self.health.about, serving, self._others)

    def control_verbs(self) -> dict[str, Verb]:
        """Return the verbs of the control socket: lists row by row, and in a cluster over all nodes."""
        local = self.verbs() | self.streams()
        if self._others is None:
            return local
        return local | ClusterVerbs(self._node, self._others, local).verbs()

    def node_verbs(self) -> dict[str, Verb]:
        """Return the verbs about this node that other nodes of its cluster ask for."""
        local = self.verbs() | self.streams()
        return {name: local[name] for name in ASKED}

    def verbs(self) -> dict[str, Verb]:
        """Return the verbs about this node; a verb takes the arguments of its method."""
        users, vhosts, policies = self.users, self.vhosts, self.policies
        operator_policies, parameters = self.operator_policies, self.parameters
        connections, queues, health = self.connections, self.queues, self.health
        return {
            "status": self.status,
            "tree": self.tree,
            "add_user": users.add_user,
            "change_password": users.change_password,
            "clear_password": users.clear_password,
            "delete_user": users.delete_user,
            "set_user_tags": users.set_user_tags,
            "authenticate_user": users.authenticate_user,
            "list_users": users.list_users,
            "set_permissions": users.set_permissions,
            "clear_permissions": users.clear_permissions,
            "list_permissions": users.list_permissions,
            "list_user_permissions": users.list_user_permissions,
            "set_topic_permissions": users.set_topic_permissions,
            "clear_topic_permissions": users.clear_topic_permissions,
            "list_topic_permissions": users.list_topic_permissions,
            "list_user_topic_permissions": users.list_user_topic_permissions,
            "set_user_limits": users.set_user_limits,
            "clear_user_limits": users.clear_user_limits,
            "list_user_limits": users.list_user_limits,
            "add_vhost": vhosts.add_vhost,
            "delete_vhost": vhosts.delete_vhost,
            "set_vhost_tags": vhosts.set_vhost_tags,
            "list_vhosts": vhosts.list_vhosts,
            "check_virtual_hosts": vhosts.check_virtual_hosts,
            "restart_vhost": vhosts.restart_vhost,
            "list_queues": vhosts.list_queues,
            "list_exchanges": vhosts.list_exchanges,
            "list_bindings": vhosts.list_bindings,
            "purge_queue": queues.purge_queue,
            "delete_queue": queues.delete_queue,
            "list_producers": queues.list_producers,
            "forget_producer": queues.forget_producer,
            "list_unresponsive_queues": queues.list_unresponsive_queues,
            "list_delayed_messages": self.delayed_messages.list_delayed_messages,
            "cancel_delayed_messages": self.delayed_messages.cancel_delayed_messages,
            "list_connections": connections.list_connections,
            "list_channels": connections.list_channels,
            "list_consumers": connections.list_consumers,
            "close_connection": connections.close_connection,
            "close_all_connections": connections.close_all_connections,
            "close_all_user_connections": connections.close_all_user_connections,
            "set_vm_memory_high_watermark": self.set_vm_memory_high_watermark,
            "set_disk_free_limit": self.set_disk_free_limit,
            "set_policy": policies.set_policy,
            "clear_policy": policies.clear_policy,
            "list_policies": policies.list_policies,
            "set_operator_policy": operator_policies.set_policy,
            "clear_operator_policy": operator_policies.clear_policy,
            "list_operator_policies": operator_policies.list_policies,
            "set_parameter": parameters.set_parameter,
            "clear_parameter": parameters.clear_parameter,
            "list_parameters": parameters.list_parameters,
            "set_vhost_limits": parameters.set_vhost_limits,
            "clear_vhost_limits": parameters.clear_vhost_limits,
            "list_vhost_limits": parameters.list_vhost_limits,
            "set_global_parameter": parameters.set_global_parameter,
            "clear_global_parameter": parameters.clear_global_parameter,
            "list_global_parameters": parameters.list_global_parameters,
            "set_cluster_name": parameters.set_cluster_name,
            "ping": health.ping,
            "stop": health.stop,
            "set_log_level": health.set_log_level,
            "about": health.about,
            "running_nodes": self.membership.running_nodes,
            "cluster_status": self.membership.cluster_status,
            "forget_cluster_node": self.membership.forget_cluster_node,
            "certificates": health.certificates,
            "environment": health.environment,
            "os_env": health.os_env,
            "memory_breakdown": health.memory_breakdown,
            "export_definitions": self.definitions.export_definitions,
            "import_definitions": self.definitions.import_definitions,
            "take_snapshot": self.snapshots.take_snapshot,
            "trace_on": self.tracing.trace_on,
            "trace_off": self.tracing.trace_off,
        }

    def streams(self) -> dict[str, Verb]:
        """Return the verbs that can answer row by row."""
        return {
            "list_queues": self.vhosts.queue_rows,
            "list_exchanges": self.vhosts.exchange_rows,
            "list_bindings": self.vhosts.binding_rows,
            "list_connections": self.connections.connection_rows,
            "list_channels": self.connections.channel_rows,
            "list_consumers": self.connections.consumer_rows,
            "list_unresponsive_queues": self.queues.unresponsive_rows,
            "list_delayed_messages": self.delayed_messages.delayed_message_rows,
        }

    async def status(self) -> Row:
        """Return version, kernel, form of the path, counts, and the queues with most messages (see ``docs/cli.md``)."""
        node, vhosts = self._node, self._node.vhosts.values()
        sums, largest = await totals(node.runtime, list(vhosts))
        stats = node.resources.stats()
        parts = await memory_parts(node)
        stats["memory"]["parts"] = parts | {"queue_procs": sums.pop("memory")}
        cluster = self.membership.cluster()
        return node.stat() | {
            "version": leveret.__version__,
            "kernel": KERNEL_NAME,
            "event_loop": name_of(asyncio.get_running_loop()),
            "path": form_of_path(),
            "latency": node.settings.latency,
            "pid": os.getpid(),
            "node_id": str(self._broker.node_id),
            "data_dir": str(node.data_dir) if node.data_dir is not None else None,
            "listeners": [str(address) for address in self._broker.addresses],
            "consumers": sums.pop("consumers"),
            "queues": {**sums, "largest": largest},
            "file_descriptors": await self._file_descriptors(),
            **stats,
            "stores": rows.stores(vhosts),
            "vhosts_down": rows.outages(node),
            **({} if cluster is None else {"cluster": cluster}),
        }

    async def _file_descriptors(self) -> Row:
        """Count the open descriptors in a thread: there may be many."""
        node = self._node
        found: Row = {}
        await in_thread(
            node.gil_yielding,
            "leveret-status",
            lambda: found.update(node.file_descriptors()),
        )
        return found

    async def tree(self) -> list[Row]:
        """Return the supervision tree, parents first: name, type, state, restarts and the last one."""
        runtime = self._node.runtime
        root = runtime.whereis(VHOSTS)
        while root is not None and root.cell.parent is not None:
            root = root.cell.parent
        if root is None:
            return []
        now_s = runtime.clock.monotonic_s()
        found = [rows.actor(node, now_s) async for node in sliced(walk(runtime, root))]
        outages = self._node.outages.by_vhost
        down = {row["name"]: row for row in map(rows.down, outages.items())}
        for row in found:
            if row["name"] in down:  # it is being started
                row["state"] = down.pop(row["name"])["state"]
        at = next(number for number, row in enumerate(found, 1) if row["name"] == VHOSTS)
        found[at:at] = down.values()
        return found

    async def set_vm_memory_high_watermark(
        self, size_bytes: int, share: float | None
    ) -> WithWarnings:
        """Limit the memory, to a share of the RAM or else to a size, until the node ends; warn of a raised alarm."""
        limit = SizeLimit(size_bytes, share)
        self._node.resources.set_limits(memory=limit)
        audit("memory limit set limit=%s by=%s", limit)
        memory = self._node.resources.stats()["memory"]
        used, most = memory["used_bytes"], memory["limit_bytes"]
        text = f"{used} bytes of memory are in use, the limit is {most}: all publishers are blocked"
        return WithWarnings(None, [text] if used is not None and used > most else [])

    async def set_disk_free_limit(self, size_bytes: int, share: float | None) -> WithWarnings:
        """Limit the free disk space, to a multiple of the RAM or a size, until the node ends; warn of an alarm."""
        limit = SizeLimit(size_bytes, share)
        self._node.resources.set_limits(disk=limit)
        audit("disk limit set limit=%s by=%s", limit)
        disk = self._node.resources.stats()["disk"]
        free, least = disk["free_bytes"], disk["limit_bytes"]
        text = (
            f"{free} bytes of the disk are free, the limit is {least}: all publishers are blocked"
        )
        return WithWarnings(None, [text] if free is not None and free < least else [])
