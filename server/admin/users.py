"""The operator's commands on users and permissions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from leveret.broker.connection.connections import user_of
from leveret.broker.vhost.access import LoginRefused, check_patterns
from leveret.broker.vhost.patterns import PatternError
from leveret.core.slices import sliced
from leveret.metadata.passwords import SALT_BYTES, hash_password
from leveret.metadata.tables import PermissionRow, UserRow
from leveret.server.admin.lookups import user_named, vhost_named
from leveret.server.audit_log import audit
from leveret.server.errors import RefusedError
from leveret.server.output.json_text import Row

if TYPE_CHECKING:
    from leveret.broker.node.node import Node
    from leveret.metadata.tables import Row as StoredRow


class UserAdmin:
    """Changes and lists the users and permissions of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def add_user(self, name: str, password: str) -> None:
        async with self._node.admin_turn:
            if name in self._node.access.users:
                raise RefusedError(f'User "{name}" already exists')
            if not name:
                raise RefusedError("user name is empty")
            await self._put(UserRow(name, _hashed(password)))
        audit("user added user=%s by=%s", name)

    async def change_password(self, name: str, password: str) -> None:
        async with self._node.admin_turn:
            row = replace(user_named(self._node, name), password_hash=_hashed(password))
            await self._put(replace(row, hashing_algorithm=UserRow("").hashing_algorithm))
        audit("password changed user=%s by=%s", name)

    async def delete_user(self, name: str) -> None:
        """Delete a user and its permissions, and close its connections."""
        async with self._node.admin_turn:
            user_named(self._node, name)
            await self._remove(self._node.access.rows_of_user(name))
            self._node.connections.close_where(
                lambda each: user_of(each) == name, f"user '{name}' is deleted"
            )
        audit("user deleted user=%s by=%s", name)

    async def set_user_tags(self, name: str, tags: list[str]) -> None:
        async with self._node.admin_turn:
            await self._put(replace(user_named(self._node, name), tags=tags))
        audit("user tags set user=%s tags=%s by=%s", name, ",".join(tags))

    async def authenticate_user(self, name: str, password: str) -> None:
        try:
            self._node.access.authenticate(name, password, "PLAIN", from_loopback=True)
        except LoginRefused as error:
            text = f'Error: failed to authenticate user "{name}"\n{error.reason}'
            raise RefusedError(text) from error

    async def list_users(self) -> list[Row]:
        users = list(self._node.access.users.values())
        return [{"user": user.name, "tags": list(user.row.tags)} async for user in sliced(users)]

    async def set_permissions(
        self, vhost: str, user: str, configure: str, write: str, read: str
    ) -> None:
        row = PermissionRow(user, vhost, configure, write, read)
        async with self._node.admin_turn:
            self._check_user_and_vhost(user, vhost)
            try:
                check_patterns(row)
            except PatternError as error:
                raise RefusedError(str(error)) from error
            await self._put(row)
        audit(
            "permissions set vhost=%s user=%s configure=%s write=%s read=%s by=%s",
            vhost, user, configure, write, read,
        )  # fmt: skip

    async def clear_permissions(self, vhost: str, user: str) -> None:
        async with self._node.admin_turn:
            self._check_user_and_vhost(user, vhost)
            row = self._node.access.permissions.get((user, vhost))
            if row is not None:
                await self._remove([row])
        audit("permissions cleared vhost=%s user=%s by=%s", vhost, user)

    async def list_permissions(self, vhost: str) -> list[Row]:
        vhost_named(self._node, vhost)
        rows = list(self._node.access.permissions.values())
        return [
            {"user": row.user, **_patterns(row)} async for row in sliced(rows) if row.vhost == vhost
        ]

    async def list_user_permissions(self, user: str) -> list[Row]:
        user_named(self._node, user)
        rows = list(self._node.access.permissions.values())
        return [
            {"vhost": row.vhost, **_patterns(row)} async for row in sliced(rows) if row.user == user
        ]

    def _check_user_and_vhost(self, user: str, vhost: str) -> None:
        if user not in self._node.access.users:
            raise RefusedError(f"User {user} does not exist")
        if vhost not in self._node.vhosts:
            raise RefusedError(f"Virtual host {vhost} does not exist")

    async def _put(self, row: UserRow | PermissionRow) -> None:
        await self._node.metadata.write([row])
        self._node.access.put(row)

    async def _remove(self, rows: list[StoredRow]) -> None:
        await self._node.metadata.write([], rows)
        self._node.access.remove(rows)


def _hashed(password: str) -> bytes:
    if not password:
        return b""  # as in RabbitMQ: a user that cannot log in with a password
    return hash_password(password.encode("utf-8", "surrogateescape"), os.urandom(SALT_BYTES))


def _patterns(row: PermissionRow) -> Row:
    return {"configure": row.configure, "write": row.write, "read": row.read}
