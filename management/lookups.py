"""Lookups by name and readings of JSON that refuse what does not exist or is not valid.

Every part of the admin changes a node in the same order, under ``Node.admin_turn``: check, write to the
metadata store, change memory once the write is on disk. So a change is made wholly or not at all,
whatever the disk says, and two operators cannot both succeed in adding the same user.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgpack

from leveret.management import json_text
from leveret.management.errors import EX_NO_USER, EX_UNAVAILABLE, RefusedError

if TYPE_CHECKING:
    from leveret.broker.node.node import Node
    from leveret.broker.registry.registry import QueueEntry
    from leveret.broker.vhost.vhost import VHost
    from leveret.metadata.tables import Row, UserRow


def vhost_named(node: Node, name: str) -> VHost:
    """Return a vhost, or refuse."""
    vhost = node.vhosts.get(name)
    if vhost is None:
        raise RefusedError(f"Virtual host '{name}' does not exist", is_bare=True)
    return vhost


def user_named(node: Node, name: str) -> UserRow:
    """Return a user, or refuse."""
    user = node.access.users.get(name)
    if user is None:
        raise RefusedError(f'User "{name}" does not exist', EX_NO_USER)
    return user.row


def subject_named(node: Node, name: str) -> UserRow:
    """Return a user, or refuse with the text of verbs about what a user has."""
    user = node.access.users.get(name)
    if user is None:
        inspected = json.dumps(name, ensure_ascii=False)
        raise RefusedError(f"{{:no_such_user, {inspected}}}", EX_UNAVAILABLE)
    return user.row


def queue_named(node: Node, vhost: str, name: str, refusal: RefusedError) -> QueueEntry:
    """Return a queue, or refuse with the text of the verb."""
    found = node.vhosts.get(vhost)
    entry = found.topology.queues.get(name) if found is not None else None
    if entry is None:
        raise refusal
    return entry


def parsed_json(text: str) -> Any:
    """Return the value of a JSON text, or refuse with RabbitMQ's text."""
    try:
        return json_text.decode(text)
    except (ValueError, RecursionError) as error:
        raise RefusedError("JSON decoding error. Reason: badarg", EX_UNAVAILABLE) from error


def check_storable(row: Row) -> None:
    """Refuse a row whose values the metadata store cannot hold: integers of more than 64 bits, deep nesting."""
    try:
        msgpack.packb(row.to_fields(), unicode_errors="surrogateescape")
    except (ValueError, OverflowError) as error:
        raise invalid([f"it cannot be stored: {error}"]) from error


def invalid(lines: list[str]) -> RefusedError:
    """Return RabbitMQ's refusal of a parameter or policy, with a line for each reason."""
    text = "Validation failed\n\n" + "".join(f"{line}\n" for line in lines)
    return RefusedError(text, EX_UNAVAILABLE)
