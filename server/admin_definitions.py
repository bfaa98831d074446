"""Definitions of a running broker: everything it was told to keep, out and in.

An import makes what is missing, in the order vhosts, users, permissions, limits, policies, exchanges,
queues, bindings. Users, permissions, policies and limits replace what is there; exchanges and queues
that are there stay as they are, as in RabbitMQ.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from leveret.actors.signals import CallExit, CallFailed
from leveret.amqp.errors import ProtocolError
from leveret.broker import bootstrap, queue_arguments
from leveret.broker.patterns import compile_pattern
from leveret.broker.queue_registry import QueueEntry
from leveret.broker.script import Ask, Steps
from leveret.broker.vhosts import VHost
from leveret.core.errors import ConfigError
from leveret.metadata.definitions import VHOST_LIMITS, export_definitions, parse_definitions
from leveret.metadata.tables import (
    BindingRow,
    Contents,
    ExchangeRow,
    ParameterRow,
    QueueRow,
    Row,
    VhostRow,
)
from leveret.routing.exchange import Exchange, is_type
from leveret.server.admin import RefusedError

if TYPE_CHECKING:
    from leveret.broker.node import Node
    from leveret.server.kept import Kept


class Definitions:
    """Export and import for one node."""

    def __init__(self, node: Node, kept: Kept) -> None:
        self._node = node
        self._kept = kept

    def export(self) -> dict[str, Any]:
        """Return RabbitMQ's document; exclusive queues are left out."""
        node, contents = self._node, self._kept.contents()
        contents.users = [user.row for user in node.access.users.values()]
        contents.permissions = list(node.access.permissions.values())
        contents.topic_permissions = list(node.access.topic_permissions.values())
        for vhost in node.vhosts.values():
            _add_topology(contents, vhost)
        return export_definitions(contents)

    async def take(self, document: dict[str, Any]) -> None:
        """Import a document.

        Raises:
            RefusedError: it cannot be read, or names what cannot be made.
        """
        try:
            contents = parse_definitions(document, lambda: os.urandom(4))
        except ConfigError as error:
            raise RefusedError(str(error)) from error
        self._check(contents)
        for vhost in contents.vhosts:
            await self.add_vhost(vhost)
        await self._take_settings(contents)
        for exchange in contents.exchanges:
            await self._add_exchange(exchange)
        for queue in contents.queues:
            await self._add_queue(queue)
        for binding in contents.bindings:
            await self._bind(binding)

    async def add_vhost(self, row: VhostRow) -> None:
        """Make a vhost and start it; one that exists only gets the new description."""
        node = self._node
        self._kept.put(row)
        is_new = row.name not in node.vhosts
        if is_new:
            node.vhosts[row.name] = VHost(node, row.name)
        await bootstrap.write(node, [row])
        if is_new:
            await self._start_vhost(row.name)

    async def _start_vhost(self, name: str) -> None:
        try:
            await bootstrap.start_vhost(self._node, name)
        except CallExit as error:
            raise RefusedError(f"vhost '{name}' did not start: {error.reason}") from error

    def _check(self, contents: Contents) -> None:
        """Refuse what names a missing vhost or an unknown type before anything is changed."""
        vhosts = self._node.vhosts.keys() | {row.name for row in contents.vhosts}
        lists: list[list[Any]] = [contents.permissions, contents.topic_permissions]
        lists += [contents.exchanges, contents.queues, contents.bindings, contents.policies]
        for row in (row for rows in lists for row in rows):
            if row.vhost not in vhosts:
                raise RefusedError(f"Virtual host {row.vhost} does not exist")
        for exchange in contents.exchanges:
            if not is_type(exchange.type):
                raise RefusedError(f"unknown exchange type '{exchange.type}'")
        try:
            for queue in contents.queues:
                queue_arguments.check(
                    queue.arguments, queue.vhost, queue.name, durable=queue.durable
                )
            _check_patterns(contents)
        except (ProtocolError, ConfigError) as error:
            raise RefusedError(str(error)) from error

    async def _take_settings(self, contents: Contents) -> None:
        self._node.access.load(contents)
        rows: list[Row] = [*contents.users, *contents.permissions, *contents.topic_permissions]
        kept: list[Row] = [*contents.policies, *contents.parameters, *contents.global_parameters]
        for row in kept:
            self._kept.put(row)
            self._take_limits(row)
        await bootstrap.write(self._node, rows + kept)

    def _take_limits(self, row: Row) -> None:
        if isinstance(row, ParameterRow) and row.component == VHOST_LIMITS:
            vhost = self._node.vhosts.get(row.vhost)
            if vhost is not None:
                vhost.limits = dict(row.value)

    async def _add_exchange(self, row: ExchangeRow) -> None:
        topology = self._node.vhosts[row.vhost].topology
        if row.name in topology.exchanges:
            return
        topology.add_exchange(
            Exchange(
                row.name,
                row.type,
                durable=row.durable,
                auto_delete=row.auto_delete,
                internal=row.internal,
                arguments=row.arguments,
            )
        )
        if row.durable:
            await bootstrap.write(self._node, [row])

    async def _add_queue(self, row: QueueRow) -> None:
        vhost = self._node.vhosts[row.vhost]
        if row.name in vhost.topology.queues:
            return
        entry = QueueEntry(
            row.vhost,
            row.name,
            durable=row.durable,
            auto_delete=row.auto_delete,
            arguments=row.arguments,
            on_deleted=vhost.queue_deleted,
        )
        await self._run(vhost.add_queue(entry, row.user))

    async def _bind(self, row: BindingRow) -> None:
        vhost = self._node.vhosts[row.vhost]
        if not row.source:
            return  # the default exchange's are implicit
        try:
            made = vhost.topology.bind(
                row.source, row.kind, row.destination, row.routing_key, row.arguments
            )
        except ProtocolError as error:
            raise RefusedError(str(error)) from error
        if made is not None and made.is_durable:
            await bootstrap.write(self._node, [row])

    async def _run(self, steps: Steps) -> Any:
        """Run a script of the broker from outside the actors."""
        try:
            return await self._steps(steps)
        finally:
            steps.close()  # when this task is cancelled

    async def _steps(self, steps: Steps) -> Any:
        value: Any = None
        while True:
            try:
                effect = steps.send(value)
            except StopIteration as end:
                return end.value
            except ProtocolError as error:
                raise RefusedError(str(error)) from error
            if isinstance(effect, Ask):
                value = await self._ask(effect)
            else:
                future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                effect.register(future.set_result)
                value = await future

    async def _ask(self, ask: Ask) -> Any:
        try:
            return await self._node.runtime.call(ask.to, ask.request, ask.timeout_s)
        except CallExit as error:
            return CallFailed(error.reason)


def _check_patterns(contents: Contents) -> None:
    for permission in contents.permissions:
        for pattern in (permission.configure, permission.write, permission.read):
            compile_pattern(pattern)
    for topic in contents.topic_permissions:
        for pattern in (topic.write, topic.read):
            compile_pattern(pattern)


def _add_topology(contents: Contents, vhost: VHost) -> None:
    for exchange in vhost.topology.exchanges.values():
        contents.add(
            ExchangeRow(
                vhost.name,
                exchange.name,
                exchange.type,
                exchange.durable,
                exchange.auto_delete,
                exchange.internal,
                exchange.arguments,
            )
        )
    exclusive: set[str] = set()
    for entry in vhost.topology.queues.values():
        if entry.exclusive is not None:
            exclusive.add(entry.name)
            continue
        contents.add(
            QueueRow(vhost.name, entry.name, entry.durable, entry.auto_delete, entry.arguments)
        )
    for each in vhost.topology.bindings():
        if each.kind == "queue" and each.destination in exclusive:
            continue
        contents.add(
            BindingRow(
                vhost.name, each.source, each.kind, each.destination, each.key, each.arguments
            )
        )
