"""The nodes of imported queues: each is made where its locator says, as if a client had declared it on this node.

Those that go to other nodes are declared there, many at a time. One whose node fails meanwhile is made on this node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import TYPE_CHECKING, Final

from leveret.amqp.errors import InternalError, SoftError
from leveret.amqp.tables import pack
from leveret.broker.script import run_in_task
from leveret.broker.vhost.queue_declare import (
    CLIENT_LOCAL,
    DelegatedDeclare,
    declare_remote,
    located,
    locator_of,
)
from leveret.core.log.loggers import logger
from leveret.core.slices import sliced
from leveret.routing.delayed import exchange_of

if TYPE_CHECKING:
    from leveret.broker.node.node import Node
    from leveret.broker.registry.cluster_nodes import ClusterNodes
    from leveret.management.definitions.plan import Plan
    from leveret.metadata.tables import QueueRow

log = logger(__name__)

DECLARED_AT_ONCE: Final = 100
STARTED_WITHIN_S: Final = 10.0  # new vhosts, on the other nodes
_POLL_S: Final = 0.02


async def place_queues(node: Node, cluster_nodes: ClusterNodes, plan: Plan) -> None:
    """Declare the queues of a plan that belong to other nodes there, and take them out of the plan.

    Args:
        node: this one; it has the vhosts, policies and exchanges of the plan already.
        cluster_nodes: the other nodes.
        plan: of an import.
    """
    queues = sliced(plan.queues.items())
    locators = {place: _locator(node, row) async for place, row in queues}
    spread = [place for place, locator in locators.items() if locator != CLIENT_LOCAL]
    own = len(plan.queues) - len(spread)
    cluster_nodes.expect(cluster_nodes.own, own)

    async def is_declared_remotely(place: tuple[str, str]) -> bool:
        nonlocal own
        vhost = node.vhosts[place[0]]
        home = located(vhost, locators[place])
        if home is not None:
            row = plan.queues[place]
            arguments = pack(row.arguments)
            asked = DelegatedDeclare(row.name, row.durable, row.auto_delete, arguments, row.user)
            try:
                await run_in_task(node.runtime, declare_remote(vhost, home, asked))
            except (InternalError, SoftError) as error:
                log.warning(
                    "queue made here, its node could not queue=%s vhost=%s node=%s reason=%s",
                    row.name, vhost.name, home.name, error,
                )  # fmt: skip
            if row.name in vhost.topology.queues:
                return True
        own += 1
        cluster_nodes.expect(cluster_nodes.own, 1)
        return False

    try:
        await _await_new_vhosts(
            cluster_nodes, {vhost for vhost, _ in spread} & plan.new_vhosts.keys()
        )
        for start in range(0, len(spread), DECLARED_AT_ONCE):
            some = spread[start : start + DECLARED_AT_ONCE]
            made = await asyncio.gather(*map(is_declared_remotely, some))
            for place, is_made in zip(some, made, strict=True):
                if is_made:
                    del plan.queues[place]
    finally:
        cluster_nodes.expect(cluster_nodes.own, -own)


def _locator(node: Node, row: QueueRow) -> str:
    if exchange_of(row.name) is not None:
        return CLIENT_LOCAL  # a delay queue is where its exchange is declared
    return locator_of(node.vhosts[row.vhost], row.name, row.arguments)


async def _await_new_vhosts(cluster_nodes: ClusterNodes, vhosts: Set[str]) -> None:
    """Wait until the other nodes run new vhosts, at most ``STARTED_WITHIN_S``."""
    now_s = asyncio.get_running_loop().time
    deadline_s = now_s() + STARTED_WITHIN_S
    while any(
        home.is_up and not vhosts <= home.delegates.keys()
        for home in cluster_nodes.by_name.values()
    ):
        if now_s() >= deadline_s:
            return
        await asyncio.sleep(_POLL_S)
