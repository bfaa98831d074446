"""Export and import of a node's definitions.

An import is planned and checked as a whole (``management/definitions/plan.py``), written in one transaction, and
then carried out in RabbitMQ's order: vhosts, users, permissions, limits, policies, exchanges, queues,
bindings. Users, permissions, policies and limits replace existing ones; existing exchanges and queues stay
as they are, as in RabbitMQ. An import before the start of the supervision tree starts no actors: the tree
does.

In a cluster queues and bindings are written when vhosts, policies and exchanges are there, and a large import in more
transactions. Each queue is made on the node that its locator chooses (``management/definitions/placing.py``); the other
nodes hear of all rows by the metadata.

Clients work meanwhile. A client may create or delete an object of the file between the write and its
execution; then the client's change holds, and the row of the import is deleted again.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.runtime.signals import CallExit
from leveret.amqp.errors import InternalError, NotFound
from leveret.broker.node import bootstrap
from leveret.broker.node.node import VHOSTS
from leveret.broker.registry.registry import QueueEntry
from leveret.broker.script import Steps, Until, run_in_task
from leveret.broker.vhost.policies.policies import apply_to_all
from leveret.broker.vhost.states import ENDED, UP
from leveret.core.errors import ConfigError
from leveret.core.log.loggers import logger
from leveret.core.slices import sliced
from leveret.management.audit_log import audit
from leveret.management.definitions.placing import place_queues
from leveret.management.definitions.plan import ORDER, Plan, described
from leveret.management.errors import RefusedError
from leveret.metadata.definitions import (
    REFUSE,
    UNSUPPORTED_QUEUES,
    export_settings,
    exported_binding,
    exported_exchange,
    exported_permission,
    exported_queue,
    exported_user,
    is_default,
)
from leveret.metadata.definitions_reader import parsed_rows
from leveret.metadata.tables import BindingRow, Contents, ExchangeRow, QueueRow, Row, VhostRow
from leveret.routing.bindings import EXCHANGE, QUEUE

if TYPE_CHECKING:
    from leveret.broker.node.node import Node
    from leveret.broker.registry.cluster_nodes import ClusterNodes
    from leveret.broker.vhost.auth.access import Access
    from leveret.broker.vhost.vhost import VHost
    from leveret.routing.exchange import Exchange

log = logger(__name__)

NOTICES_MAX: Final = 50
QUEUES_AT_ONCE: Final = 50
START_WAIT_S: Final = 10.0  # for new vhosts, while other operators wait


class NodeDefinitions:
    """Exports and imports the definitions of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def export_definitions(self) -> dict[str, Any]:
        """Return RabbitMQ's definitions document; exclusive queues are left out."""
        document = export_settings(self._node.settings_rows.contents())
        await _add_access(document, self._node.access)
        for vhost in list(self._node.vhosts.values()):
            await _add_topology(document, vhost)
        return document

    async def import_definitions(
        self, document: dict[str, Any], unsupported_queues: str = REFUSE
    ) -> list[str]:
        """Import RabbitMQ's definitions document.

        Args:
            document: the parsed JSON.
            unsupported_queues: what becomes of queues whose type does not exist here, one of ``UNSUPPORTED_QUEUES``.

        Returns:
            A line for each entry that was left out, became another, or has no effect.

        Raises:
            RefusedError: the document is malformed, or an entry cannot be created; nothing is changed.
            StoreError: the rows cannot be written; nothing is changed, but in a cluster a part may be.
        """
        if unsupported_queues not in UNSUPPORTED_QUEUES:
            allowed = ", ".join(UNSUPPORTED_QUEUES)
            raise RefusedError(f"unsupported queues: {unsupported_queues!r} is none of {allowed}")
        async with self._node.admin_turn:
            plan = await self._planned(document, unsupported_queues)
            queues = len(plan.queues)
            rows = plan.first_rows()
            if self._node.cluster_nodes is None:
                rows += await plan.last_rows()
            for vhost in self._node.vhosts.values():
                # They would delete rows of this import.
                await run_in_task(self._node.runtime, vhost.deletions.all_ended())
            await self._node.metadata.write(rows)
            await self._make(plan)
        audit(
            "definitions imported access=%s settings=%s exchanges=%s queues=%s bindings=%s by=%s",
            len(plan.access), len(plan.settings), len(plan.exchanges), queues, len(plan.bindings),
        )  # fmt: skip
        notices = plan.notices
        if len(notices) > NOTICES_MAX:
            notices[NOTICES_MAX:] = [f"and {len(notices) - NOTICES_MAX} more like these"]
        notices = plan.replaced + notices
        for notice in notices:
            log.warning("definitions: %s", notice)
        return notices

    async def _planned(self, document: dict[str, Any], unsupported_queues: str) -> Plan:
        contents, plan = Contents(), Plan(self._node, unsupported_queues)
        try:
            async for row in sliced(parsed_rows(document, lambda: os.urandom(4))):
                contents.add(row)
        except ConfigError as error:
            raise RefusedError(str(error)) from error
        for table in ORDER:
            async for row in sliced(contents.table(table)):
                plan.add(row)
        plan.finish()
        return plan

    # Carrying out the plan.

    async def _make(self, plan: Plan) -> None:
        await self._make_settings(plan)
        for name in {policy.vhost for policy in plan.policies}:
            vhost = self._node.vhosts[name]
            await apply_to_all(self._node.runtime, vhost.policies, vhost.topology)
        starts = self._node.runtime.whereis(VHOSTS) is not None
        if starts:
            await self._start_vhosts(plan)
        lost: list[Row] = [
            row
            async for row, exchange in sliced(plan.exchanges.values())
            if not self._add_exchange(row, exchange)
        ]
        cluster_nodes = self._node.cluster_nodes
        if cluster_nodes is not None:
            await place_queues(self._node, cluster_nodes, plan)
            await self._node.metadata.write(await plan.last_rows())
        lost += [
            row
            async for row in sliced(plan.queues.values(), QUEUES_AT_ONCE)
            if not await self._add_queue(row, starts, plan)
        ]
        lost += [row async for row in sliced(plan.bindings) if not self._bind(row)]
        self._take_back(lost)
        if cluster_nodes is not None:
            await run_in_task(self._node.runtime, _until_acknowledged(cluster_nodes))

    async def _make_settings(self, plan: Plan) -> None:
        node = self._node
        async for row in sliced(plan.access):
            node.access.put(row)
        async for setting in sliced(plan.settings):
            node.settings_rows.put(setting)
        for name, vhost in plan.new_vhosts.items():
            node.vhosts.setdefault(name, vhost)  # in a cluster it is made when its row is there
        for setting in plan.settings:
            if isinstance(setting, VhostRow):
                node.vhosts[setting.name].default_queue_type = setting.default_queue_type
        for name, limits in plan.limits.items():
            node.vhosts[name].limits = limits
        node.connections.remote_counts.changed()
        async for policy in sliced(plan.policies):
            node.vhosts[policy.vhost].policies.put(policy)

    def _add_exchange(self, row: ExchangeRow, exchange: Exchange) -> bool:
        vhost = self._node.vhosts[row.vhost]
        topology = vhost.topology
        if row.name in topology.exchanges or topology.is_leaving(EXCHANGE, row.name):
            return False
        vhost.add_exchange(exchange)
        return True

    async def _start_vhosts(self, plan: Plan) -> None:
        """Start new vhosts; where a start takes long, its queues are started when the store is open."""
        try:
            begun = [await bootstrap.start_vhost(self._node, name) for name in plan.new_vhosts]
        except CallExit as error:
            plan.notices.append(f"the vhosts did not start: {error.reason}")
            return
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + START_WAIT_S
        for vhost in begun:
            try:
                if not await bootstrap.vhost_started(vhost, max(0.0, deadline_s - now_s())):
                    plan.notices.append(f"vhost '{vhost.name}' is still being started")
            except bootstrap.StartFailedError as error:
                plan.notices.append(str(error))

    async def _add_queue(self, row: QueueRow, starts: bool, plan: Plan) -> bool:
        vhost = self._node.vhosts[row.vhost]
        topology = vhost.topology
        if row.name in topology.queues or topology.is_leaving(QUEUE, row.name):
            return False
        entry = QueueEntry(
            row.vhost,
            row.name,
            durable=row.durable,
            auto_delete=row.auto_delete,
            arguments=row.arguments,
            on_deleted=vhost.queue_deleted,
            queue_no=row.queue_no,
        )
        vhost.register(entry)
        if starts and vhost.state.now in UP | ENDED:  # else it is started with the vhost
            try:
                await run_in_task(self._node.runtime, vhost.start_queue(entry))
            except InternalError:
                plan.notices.append(f"{described(row)} did not start")
        return True

    def _bind(self, row: BindingRow) -> bool:
        topology = self._node.vhosts[row.vhost].topology
        try:
            topology.bind(row.source, row.kind, row.destination, row.routing_key, row.arguments)
        except NotFound:
            return False
        return True

    def _take_back(self, lost: list[Row]) -> None:
        """Delete the rows of objects that a client has declared differently, or whose ends it has deleted, meanwhile.

        The row of a durable object that a client has declared belongs to the client and stays.
        """
        doomed: list[Row] = []
        for row in lost:
            if isinstance(row, BindingRow):
                doomed.append(row)
            elif isinstance(row, ExchangeRow | QueueRow):
                topology = self._node.vhosts[row.vhost].topology
                objects = topology.exchanges if isinstance(row, ExchangeRow) else topology.queues
                if not getattr(objects.get(row.name), "durable", False):
                    doomed.append(row)
        if doomed:
            self._node.metadata.delete_later(doomed)


def _until_acknowledged(cluster_nodes: ClusterNodes) -> Steps:
    """Wait until the other nodes know the queues: clients may use them on any node."""
    yield Until(cluster_nodes.when_acknowledged)


async def _add_access(document: dict[str, Any], access: Access) -> None:
    """Add users and permissions to a document, in slices."""
    async for user in sliced(list(access.users.values())):
        document["users"].append(exported_user(user.row))
    async for row in sliced(list(access.permissions.values())):
        document["permissions"].append(exported_permission(row))
    async for topic in sliced(list(access.topic_permissions.values())):
        document["topic_permissions"].append(exported_permission(topic))


async def _add_topology(document: dict[str, Any], vhost: VHost) -> None:
    """Add exchanges, queues and bindings to a document, in slices."""
    bindings, exclusive = vhost.topology.bindings(), set[str]()
    async for exchange in sliced(list(vhost.topology.exchanges.values())):
        if not is_default(exchange.name):
            flags = exchange.durable, exchange.auto_delete, exchange.internal
            declared = exchange.name, exchange.type, *flags, exchange.arguments
            document["exchanges"].append(exported_exchange(ExchangeRow(vhost.name, *declared)))
    async for entry in sliced(list(vhost.topology.queues.values())):
        if entry.delayed_exchange is not None:
            continue  # comes with its exchange
        if entry.exclusive is not None:
            exclusive.add(entry.name)
            continue
        row = QueueRow(vhost.name, entry.name, entry.durable, entry.auto_delete, entry.arguments)
        document["queues"].append(exported_queue(row))
    async for each in sliced(bindings):
        if each.kind == QUEUE and each.destination in exclusive:
            continue
        bound = BindingRow(
            vhost.name, each.source, each.kind, each.destination, each.key, each.arguments
        )
        document["bindings"].append(exported_binding(bound))
