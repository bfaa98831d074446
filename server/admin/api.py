"""What an operator can ask of a running broker: the methods behind ``status``, ``tree`` and ``ctl``.

``control.py`` serves any object with these methods through the unix socket. Rows are dicts with
rabbitmqctl's column names; a table value (arguments, client properties) is a list of
``[name, type, value]`` with RabbitMQ's type names, ``longstr`` for a string.
"""

from __future__ import annotations

from typing import Protocol

from leveret.server.output.json_text import Row


class Admin(Protocol):
    """A running broker, seen by its operator. Every method may raise ``RefusedError``."""

    async def status(self) -> Row:
        """Return version, kernel, event_loop, uptime_s, listeners, counts (see ``docs/cli.md``)."""

    async def tree(self) -> list[Row]:
        """Return the supervision tree, parents first: name, type, state, restarts and the last one."""

    async def add_user(self, name: str, password: str) -> None:
        """Make a user without permissions."""

    async def change_password(self, name: str, password: str) -> None:
        """Set a user's password."""

    async def delete_user(self, name: str) -> None:
        """Delete a user, its permissions, and close its connections."""

    async def set_user_tags(self, name: str, tags: list[str]) -> None:
        """Replace a user's tags."""

    async def authenticate_user(self, name: str, password: str) -> None:
        """Check a password."""

    async def list_users(self) -> list[Row]:
        """Return user and tags."""

    async def set_permissions(
        self, vhost: str, user: str, configure: str, write: str, read: str
    ) -> None:
        """Give a user its three patterns on a vhost."""

    async def clear_permissions(self, vhost: str, user: str) -> None:
        """Take a user's permissions on a vhost away."""

    async def list_permissions(self, vhost: str) -> list[Row]:
        """Return user, configure, write, read."""

    async def list_user_permissions(self, user: str) -> list[Row]:
        """Return vhost, configure, write, read."""

    async def add_vhost(self, name: str) -> None:
        """Make a vhost; one that exists stays as it is."""

    async def delete_vhost(self, name: str) -> None:
        """Delete a vhost with all that is in it, and close its connections."""

    async def list_vhosts(self) -> list[Row]:
        """Return name, description, tags, tracing, default_queue_type, cluster_state."""

    async def list_queues(self, vhost: str) -> list[Row]:
        """Return all columns of every queue."""

    async def list_exchanges(self, vhost: str) -> list[Row]:
        """Return all columns of every exchange."""

    async def list_bindings(self, vhost: str) -> list[Row]:
        """Return all columns of every binding."""

    async def list_connections(self) -> list[Row]:
        """Return all columns of every connection."""

    async def close_connection(self, pid: str, reason: str) -> None:
        """Close one connection with 320 and the reason."""

    async def close_all_connections(self, vhost: str | None, reason: str) -> int:
        """Close the connections of a vhost, or all; return how many."""

    async def set_vm_memory_high_watermark(self, size_bytes: int, share: float | None) -> None:
        """Limit the memory, to a share of the RAM or else to a size, until the node ends."""

    async def set_disk_free_limit(self, size_bytes: int, share: float | None) -> None:
        """Limit the free disk space, to a multiple of the RAM or else to a size, until the node ends."""

    async def set_policy(
        self, vhost: str, name: str, pattern: str, definition: str, priority: int, apply_to: str
    ) -> None:
        """Make or replace a policy; the definition is JSON."""

    async def clear_policy(self, vhost: str, name: str) -> None:
        """Take a policy away."""

    async def list_policies(self, vhost: str) -> list[Row]:
        """Return vhost, name, pattern, apply-to, definition (JSON), priority; the strongest last."""

    async def set_operator_policy(
        self, vhost: str, name: str, pattern: str, definition: str, priority: int, apply_to: str
    ) -> None:
        """Make or replace an operator policy."""

    async def clear_operator_policy(self, vhost: str, name: str) -> None:
        """Take an operator policy away."""

    async def list_operator_policies(self, vhost: str) -> list[Row]:
        """Return the same of operator policies."""

    async def export_definitions(self) -> Row:
        """Return RabbitMQ's definitions document."""

    async def import_definitions(self, document: Row) -> list[str]:
        """Take RabbitMQ's definitions document in; return what was left out, a line each."""

    async def take_snapshot(self, name: str, vhosts: list[str]) -> None:
        """Make the draft of a snapshot (``leveret snapshot create``); no vhosts are all."""


_POLICY = ("vhost", "name", "pattern", "definition", "priority", "apply_to")
VERBS: dict[str, tuple[str, ...]] = {
    "status": (),
    "tree": (),
    "add_user": ("name", "password"),
    "change_password": ("name", "password"),
    "delete_user": ("name",),
    "set_user_tags": ("name", "tags"),
    "authenticate_user": ("name", "password"),
    "list_users": (),
    "set_permissions": ("vhost", "user", "configure", "write", "read"),
    "clear_permissions": ("vhost", "user"),
    "list_permissions": ("vhost",),
    "list_user_permissions": ("user",),
    "add_vhost": ("name",),
    "delete_vhost": ("name",),
    "list_vhosts": (),
    "list_queues": ("vhost",),
    "list_exchanges": ("vhost",),
    "list_bindings": ("vhost",),
    "list_connections": (),
    "close_connection": ("pid", "reason"),
    "close_all_connections": ("vhost", "reason"),
    "set_vm_memory_high_watermark": ("size_bytes", "share"),
    "set_disk_free_limit": ("size_bytes", "share"),
    "set_policy": _POLICY,
    "clear_policy": ("vhost", "name"),
    "list_policies": ("vhost",),
    "set_operator_policy": _POLICY,
    "clear_operator_policy": ("vhost", "name"),
    "list_operator_policies": ("vhost",),
    "export_definitions": (),
    "import_definitions": ("document",),
    "take_snapshot": ("name", "vhosts"),
}
"""The methods that can be called through the socket, with the names of their arguments."""
