"""The operator's commands on users and permissions."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from leveret.broker.connection.connections import user_of
from leveret.broker.vhost.auth.access import LoginRefused, check_patterns
from leveret.broker.vhost.auth.auth_backends import finished
from leveret.broker.vhost.patterns import PatternError
from leveret.core.slices import sliced
from leveret.management.audit_log import audit
from leveret.management.errors import EX_NO_USER, EX_SOFTWARE, EX_UNAVAILABLE, RefusedError
from leveret.management.json_text import Row
from leveret.management.lookups import (
    check_storable,
    parsed_json,
    subject_named,
    user_named,
    vhost_named,
)
from leveret.management.verbs.parameters import MAX_CONNECTIONS, as_json, limit_errors
from leveret.metadata.passwords import SALT_BYTES, hash_password
from leveret.metadata.tables import PermissionRow, TopicPermissionRow, UserRow

if TYPE_CHECKING:
    from leveret.broker.node.node import Node
    from leveret.metadata.tables import Row as StoredRow


MAX_CHANNELS: Final = "max-channels"
ALL_LIMITS: Final = "all"
REMOVED_AT_ONCE: Final = 5_000  # permissions


class UserAdmin:
    """Changes and lists the users and permissions of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def add_user(self, name: str, password: str) -> None:
        async with self._node.admin_turn:
            if name in self._node.access.users:
                raise RefusedError(f'User "{name}" already exists', EX_SOFTWARE)
            if not name:
                raise RefusedError("user name is empty")
            await self._put(UserRow(name, _hashed(password)))
        audit("user added user=%s by=%s", name)

    async def change_password(self, name: str, password: str) -> None:
        async with self._node.admin_turn:
            row = replace(user_named(self._node, name), password_hash=_hashed(password))
            await self._put(replace(row, hashing_algorithm=UserRow("").hashing_algorithm))
        audit("password changed user=%s by=%s", name)

    async def clear_password(self, name: str) -> None:
        """Let a user log in with no password any more."""
        async with self._node.admin_turn:
            await self._put(replace(user_named(self._node, name), password_hash=b""))
        audit("password cleared user=%s by=%s", name)

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
        octets = password.encode("utf-8", "surrogateescape")
        login = self._node.access.log_in(name, octets, "PLAIN", True, "127.0.0.1")
        try:
            await finished(login)
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
            _check_patterns(row)
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
        subject_named(self._node, user)
        rows = list(self._node.access.permissions.values())
        return [
            {"vhost": row.vhost, **_patterns(row)} async for row in sliced(rows) if row.user == user
        ]

    # -- topic permissions -----------------------------------------------------------------------

    async def set_topic_permissions(
        self, vhost: str, user: str, exchange: str, write: str, read: str
    ) -> None:
        """Limit the routing keys of a user at an exchange, which need not exist; open channels notice at once."""
        row = TopicPermissionRow(user, vhost, exchange, write, read)
        async with self._node.admin_turn:
            self._check_user_and_vhost(user, vhost)
            _check_patterns(row)
            await self._put(row)
        audit(
            "topic permissions set vhost=%s user=%s exchange=%s write=%s read=%s by=%s",
            vhost, user, exchange, write, read,
        )  # fmt: skip

    async def clear_topic_permissions(self, vhost: str, user: str, exchange: str | None) -> None:
        """Take a user's topic permissions at one exchange away, or in the whole vhost."""
        async with self._node.admin_turn:
            self._check_user_and_vhost(user, vhost)
            rows = self._node.access.topic_permissions.values()
            doomed: list[StoredRow] = [
                row
                for row in rows
                if (row.user, row.vhost) == (user, vhost) and exchange in {None, row.exchange}
            ]
            if doomed:
                await self._remove(doomed)
        audit(
            "topic permissions cleared vhost=%s user=%s exchange=%s by=%s",
            vhost, user, "all" if exchange is None else exchange,
        )  # fmt: skip

    async def list_topic_permissions(self, vhost: str) -> list[Row]:
        vhost_named(self._node, vhost)
        rows = list(self._node.access.topic_permissions.values())
        return [
            {"user": row.user, **_topics(row)} async for row in sliced(rows) if row.vhost == vhost
        ]

    async def list_user_topic_permissions(self, user: str) -> list[Row]:
        subject_named(self._node, user)
        rows = list(self._node.access.topic_permissions.values())
        return [
            {"vhost": row.vhost, **_topics(row)} async for row in sliced(rows) if row.user == user
        ]

    # -- limits ----------------------------------------------------------------------------------

    async def set_user_limits(self, user: str, definition: str) -> None:
        """Set some limits of a user, which hold for what it opens from now on; the definition is JSON."""
        limits = parsed_json(definition)
        if errors := limit_errors("user-limits", (MAX_CONNECTIONS, MAX_CHANNELS), limits):
            raise RefusedError(errors[0], EX_UNAVAILABLE)
        async with self._node.admin_turn:
            row = subject_named(self._node, user)
            row = replace(row, limits=row.limits | limits)
            check_storable(row)
            await self._put(row)
        audit("user limits set user=%s limits=%s by=%s", user, as_json(limits))

    async def clear_user_limits(self, user: str, limit_type: str) -> None:
        """Clear one limit of a user, or ``all``."""
        async with self._node.admin_turn:
            row = subject_named(self._node, user)
            kept = {} if limit_type == ALL_LIMITS else dict(row.limits)
            kept.pop(limit_type, None)
            await self._put(replace(row, limits=kept))
        audit("user limits cleared user=%s limit=%s by=%s", user, limit_type)

    async def list_user_limits(self, user: str | None) -> list[Row]:
        """Return user and limits (JSON): of one user, or of all that have some."""
        if user is not None:
            return [{"user": user, "limits": as_json(subject_named(self._node, user).limits)}]
        rows = [each.row for each in self._node.access.users.values() if each.row.limits]
        return [{"user": row.name, "limits": as_json(row.limits)} for row in rows]

    def _check_user_and_vhost(self, user: str, vhost: str) -> None:
        if user not in self._node.access.users:
            raise RefusedError(f"User {user} does not exist", EX_NO_USER)
        if vhost not in self._node.vhosts:
            raise RefusedError(f"Virtual host {vhost} does not exist", EX_UNAVAILABLE)

    async def _put(self, row: UserRow | PermissionRow | TopicPermissionRow) -> None:
        await self._node.metadata.write([row])
        self._node.access.put(row)
        self._node.connections.remote_counts.changed()  # a limit may be new

    async def _remove(self, rows: list[StoredRow]) -> None:
        await self._node.metadata.write([], rows)
        for start in range(0, len(rows), REMOVED_AT_ONCE):
            self._node.access.remove(rows[start : start + REMOVED_AT_ONCE])
            await asyncio.sleep(0)


def _hashed(password: str) -> bytes:
    if not password:
        return b""  # as in RabbitMQ: a user that cannot log in with a password
    return hash_password(password.encode("utf-8", "surrogateescape"), os.urandom(SALT_BYTES))


def _check_patterns(row: PermissionRow | TopicPermissionRow) -> None:
    try:
        check_patterns(row)
    except PatternError as error:
        raise RefusedError(str(error), EX_UNAVAILABLE) from error


def _topics(row: TopicPermissionRow) -> Row:
    return {"exchange": row.exchange, "write": row.write, "read": row.read}


def _patterns(row: PermissionRow) -> Row:
    return {"configure": row.configure, "write": row.write, "read": row.read}
