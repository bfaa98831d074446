"""The operator's view of a running ``Broker``: the ``Admin`` behind the control socket.

Changes are made in memory at once, so that two operators cannot both succeed in making one user, and
are answered when they are on disk.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import leveret
from leveret.actors.ref import Ref
from leveret.actors.signals import CallExit
from leveret.amqp.kernel import KERNEL_NAME
from leveret.broker import bootstrap
from leveret.broker.access import LoginRefused
from leveret.broker.mail import Info
from leveret.broker.node import VHOSTS, CloseConnection
from leveret.broker.patterns import PatternError
from leveret.metadata.passwords import SALT_BYTES, hash_password
from leveret.metadata.tables import (
    BindingRow,
    ExchangeRow,
    PermissionRow,
    QueueRow,
    UserRow,
    VhostRow,
)
from leveret.server import admin_rows
from leveret.server.admin import RefusedError, Row
from leveret.server.admin_definitions import Definitions
from leveret.server.kept import Kept
from leveret.supervisors.driver import label_of
from leveret.supervisors.requests import TerminateChild, WhichChildren
from leveret.supervisors.tree import walk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.broker.queue_registry import QueueEntry
    from leveret.broker.reader import Reader
    from leveret.broker.vhosts import VHost
    from leveret.metadata.tables import Row as StoredRow
    from leveret.server.broker import Broker

ASKED_AT_ONCE: Final = 500
LARGEST: Final = 20
ASK_S: Final = 5.0
_COUNTS: Final = ("messages_ready", "messages_unacknowledged", "consumers")


class NodeAdmin:
    """``Admin`` of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._node = broker.node
        self._kept = Kept(broker.node.store)
        self._definitions = Definitions(broker.node, self._kept)

    # What runs.

    async def status(self) -> Row:
        """Return version, kernel, counts, and the queues with most messages."""
        broker, folder = self._broker, self._broker.config.data_dir
        queues = await self._queues(self._node.vhosts.values(), _COUNTS)
        found = self._node.stat() | {
            "version": leveret.__version__,
            "kernel": KERNEL_NAME,
            "pid": os.getpid(),
            "node_id": str(broker.node_id),
            "data_dir": str(folder.absolute()) if folder is not None else None,
            "listeners": [str(address) for address in broker.addresses],
            "consumers": _sum(queues, "consumers"),
        }
        queues.sort(key=lambda row: -_messages(row))
        found["queues"] = {
            "count": len(queues),
            "messages_ready": _sum(queues, "messages_ready"),
            "messages_unacknowledged": _sum(queues, "messages_unacknowledged"),
            "largest": [
                {"vhost": row["vhost"], "name": row["name"]}
                | {count: row.get(count, 0) for count in _COUNTS}
                for row in queues[:LARGEST]
            ],
        }
        return found

    async def tree(self) -> list[Row]:
        """Return the supervision tree."""
        root = self._node.runtime.whereis(VHOSTS)
        while root is not None and root.cell.parent is not None:
            root = root.cell.parent
        return (
            []
            if root is None
            else [admin_rows.actor(each) for each in walk(self._node.runtime, root)]
        )

    async def list_queues(self, vhost: str) -> list[Row]:
        """Return the queues of a vhost."""
        found = self._node.vhosts.get(vhost)
        return await self._queues([found] if found is not None else [], ())

    async def list_exchanges(self, vhost: str) -> list[Row]:
        """Return the exchanges of a vhost."""
        found = self._vhost(vhost)
        return [admin_rows.exchange(each) for each in found.topology.exchanges.values()]

    async def list_bindings(self, vhost: str) -> list[Row]:
        """Return the bindings of a vhost, the default exchange's first."""
        topology = self._vhost(vhost).topology
        rows = [admin_rows.implicit_binding(name) for name in topology.queues]
        return rows + [admin_rows.binding(each) for each in topology.bindings()]

    async def list_connections(self) -> list[Row]:
        """Return the open connections."""
        return [admin_rows.connection(reader) for reader in self._node.readers.values()]

    async def close_connection(self, pid: str, reason: str) -> None:
        """Close one connection."""
        for reader in self._node.readers.values():
            if str(reader.ref) == pid:
                self._close([reader], reason)
                return
        raise RefusedError(f"there is no connection {pid}")

    async def close_all_connections(self, vhost: str | None, reason: str) -> int:
        """Close the connections of a vhost, or all."""
        doomed = [
            reader for reader in self._node.readers.values() if vhost in {None, _vhost_of(reader)}
        ]
        self._close(doomed, reason)
        return len(doomed)

    # Users.

    async def add_user(self, name: str, password: str) -> None:
        """Make a user."""
        if name in self._node.access.users:
            raise RefusedError(f'User "{name}" already exists')
        if not name:
            raise RefusedError("user name is empty")
        await self._put(UserRow(name, _hashed(password)))

    async def change_password(self, name: str, password: str) -> None:
        """Set a password."""
        row = replace(self._user(name), password_hash=_hashed(password))
        await self._put(replace(row, hashing_algorithm=UserRow("").hashing_algorithm))

    async def delete_user(self, name: str) -> None:
        """Delete a user and close its connections."""
        self._user(name)
        rows = self._node.access.delete_user(name)
        await bootstrap.write(self._node, [], rows)
        readers = self._node.readers.values()
        self._close(
            [each for each in readers if _user_of(each) == name], f"user '{name}' is deleted"
        )

    async def set_user_tags(self, name: str, tags: list[str]) -> None:
        """Replace tags."""
        await self._put(replace(self._user(name), tags=tags))

    async def authenticate_user(self, name: str, password: str) -> None:
        """Check a password."""
        try:
            self._node.access.authenticate(name, password, "PLAIN", from_loopback=True)
        except LoginRefused as error:
            text = f'Error: failed to authenticate user "{name}"\n{error.reason}'
            raise RefusedError(text) from error

    async def list_users(self) -> list[Row]:
        """Return users and tags."""
        users = self._node.access.users.values()
        return [{"user": user.name, "tags": list(user.row.tags)} for user in users]

    # Permissions.

    async def set_permissions(
        self, vhost: str, user: str, configure: str, write: str, read: str
    ) -> None:
        """Give permissions."""
        self._check_user_and_vhost(user, vhost)
        try:
            await self._put(PermissionRow(user, vhost, configure, write, read))
        except PatternError as error:
            raise RefusedError(str(error)) from error

    async def clear_permissions(self, vhost: str, user: str) -> None:
        """Take permissions away."""
        self._check_user_and_vhost(user, vhost)
        rows = self._node.access.clear_permission(user, vhost)
        await bootstrap.write(self._node, [], rows)

    async def list_permissions(self, vhost: str) -> list[Row]:
        """Return the permissions on a vhost."""
        self._vhost(vhost)
        rows = self._node.access.permissions.values()
        return [{"user": row.user, **_patterns(row)} for row in rows if row.vhost == vhost]

    async def list_user_permissions(self, user: str) -> list[Row]:
        """Return the permissions of a user."""
        self._user(user)
        rows = self._node.access.permissions.values()
        return [{"vhost": row.vhost, **_patterns(row)} for row in rows if row.user == user]

    # Vhosts.

    async def add_vhost(self, name: str) -> None:
        """Make a vhost."""
        if not name:
            raise RefusedError("vhost name is empty")
        if name not in self._node.vhosts:
            await self._definitions.add_vhost(VhostRow(name))

    async def delete_vhost(self, name: str) -> None:
        """Delete a vhost: no new connections, then the open ones, its actors, its rows."""
        vhost = self._vhost(name)
        del self._node.vhosts[name]
        readers = self._node.readers.values()
        self._close(
            [each for each in readers if _vhost_of(each) == name], f"vhost '{name}' is deleted"
        )
        await self._stop_vhost(name)
        rows = _rows_of(vhost) + self._kept.delete_vhost(name)
        rows += self._node.access.delete_vhost(name)
        await bootstrap.write(self._node, [], rows)

    async def list_vhosts(self) -> list[Row]:
        """Return the vhosts."""
        return [
            {
                "name": vhost.name,
                "description": (row := self._kept.vhost(vhost.name)).description,
                "tags": row.tags,
                "tracing": False,
                "default_queue_type": "",
                "cluster_state": "running" if vhost.is_up else "stopped",
            }
            for vhost in self._node.vhosts.values()
        ]

    # Definitions.

    async def export_definitions(self) -> Row:
        """Return the definitions."""
        return self._definitions.export()

    async def import_definitions(self, document: Row) -> None:
        """Take definitions in."""
        await self._definitions.take(document)

    # The parts.

    def _vhost(self, name: str) -> VHost:
        vhost = self._node.vhosts.get(name)
        if vhost is None:
            raise RefusedError(f"Virtual host '{name}' does not exist")
        return vhost

    def _user(self, name: str) -> UserRow:
        user = self._node.access.users.get(name)
        if user is None:
            raise RefusedError(f'User "{name}" does not exist')
        return user.row

    def _check_user_and_vhost(self, user: str, vhost: str) -> None:
        if user not in self._node.access.users:
            raise RefusedError(f"User {user} does not exist")
        if vhost not in self._node.vhosts:
            raise RefusedError(f"Virtual host {vhost} does not exist")

    async def _put(self, row: UserRow | PermissionRow) -> None:
        self._node.access.put(row)
        await bootstrap.write(self._node, [row])

    def _close(self, readers: list[Reader], reason: str) -> None:
        for reader in readers:
            self._node.runtime.send(reader.ref, CloseConnection(reason))

    async def _stop_vhost(self, name: str) -> None:
        runtime = self._node.runtime
        supervisor = runtime.whereis(VHOSTS)
        assert supervisor is not None
        try:
            for _, ref, _ in await runtime.call(supervisor, WhichChildren()):
                if isinstance(ref, Ref) and label_of(ref.cell.actor) == f"vhost:{name}":
                    await runtime.call(supervisor, TerminateChild(ref), None)
        except CallExit as error:
            raise RefusedError(f"vhost '{name}' did not stop: {error.reason}") from error

    async def _queues(self, vhosts: Iterable[VHost], items: tuple[str, ...]) -> list[Row]:
        entries = [entry for vhost in vhosts for entry in vhost.topology.queues.values()]
        rows: list[Row] = []
        for start in range(0, len(entries), ASKED_AT_ONCE):
            some = entries[start : start + ASKED_AT_ONCE]
            rows += await asyncio.gather(*(self._queue(entry, items) for entry in some))
        return rows

    async def _queue(self, entry: QueueEntry, items: tuple[str, ...]) -> Row:
        figures: dict[str, Any] = {}
        if entry.is_running and entry.ref is not None:
            try:
                figures = await self._node.runtime.call(entry.ref, Info(items), ASK_S)
            except CallExit:
                figures = {}  # it ended while it was asked; its state says so
        return admin_rows.queue(entry, figures) | {"vhost": entry.vhost_name}


def _hashed(password: str) -> bytes:
    if not password:
        return b""  # as in RabbitMQ: a user that never logs in with a password
    return hash_password(password.encode("utf-8", "surrogateescape"), os.urandom(SALT_BYTES))


def _patterns(row: PermissionRow) -> Row:
    return {"configure": row.configure, "write": row.write, "read": row.read}


def _vhost_of(reader: Reader) -> str | None:
    return reader.opened.vhost.name if reader.opened is not None else None


def _user_of(reader: Reader) -> str | None:
    return reader.opened.user.name if reader.opened is not None else None


def _rows_of(vhost: VHost) -> list[StoredRow]:
    topology, name = vhost.topology, vhost.name
    rows: list[StoredRow] = [ExchangeRow(name, each, "") for each in topology.exchanges]
    rows += [QueueRow(name, each) for each in topology.queues]
    rows += [
        BindingRow(name, each.source, each.kind, each.destination, each.key, each.arguments)
        for each in topology.bindings()
    ]
    return rows


def _messages(row: Row) -> int:
    return int(row.get("messages_ready", 0)) + int(row.get("messages_unacknowledged", 0))


def _sum(rows: list[Row], name: str) -> int:
    return sum(int(row.get(name, 0)) for row in rows)
