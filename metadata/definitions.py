"""Export of definitions: rows to RabbitMQ's JSON document.

The shapes are those of ``rabbitmqctl export_definitions`` and of the HTTP API.

JSON has fewer types than a field table. Where arguments would come back with other types, the entry also has
``leveret_arguments``: the table as AMQP writes it, in base64. RabbitMQ ignores that key, and so does an import
of an entry whose ``arguments`` were changed.

Differs from RabbitMQ: internal exchanges are exported too, because bindings from them are; a void
argument is ``null`` instead of the text ``undefined``; and no object is written as a list of pairs.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from leveret.amqp.tables import Table, encode_table, plain, typed_table
from leveret.metadata.tables import (
    BindingRow,
    Contents,
    ExchangeRow,
    PermissionRow,
    PolicyRow,
    QueueRow,
    Row,
    TopicPermissionRow,
    UserRow,
    VhostRow,
)

Definitions: TypeAlias = dict[str, Any]

RABBITMQ_VERSION: Final = "3.10.8"
OPERATOR_POLICY: Final = "operator_policy"
VHOST_LIMITS: Final = "vhost-limits"
EXACT_ARGUMENTS: Final = "leveret_arguments"

REFUSE: Final = "refuse"
MAP: Final = "map"
LEAVE_OUT: Final = "leave-out"
UNSUPPORTED_QUEUES: Final = (REFUSE, MAP, LEAVE_OUT)
"""What becomes of queues whose type does not exist here: the whole file is refused, or each of them is made a classic
queue, or left out with its bindings."""


def export_settings(contents: Contents) -> Definitions:
    """Return the definitions document of vhosts, parameters and policies, ready for ``json.dumps``.

    The caller adds users, permissions, queues, exchanges and bindings, without those that exist everywhere
    (``is_default``) and without exclusive queues, which end with their connection.
    """
    operator = [each for each in contents.policies if each.is_operator]
    limits = {each.vhost: each.value for each in contents.parameters
              if each.component == VHOST_LIMITS}  # fmt: skip
    return {
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "users": [],
        "vhosts": [_vhost(each, limits.get(each.name, {})) for each in contents.vhosts],
        "permissions": [],
        "topic_permissions": [],
        "parameters": [_pick(each, "vhost component name value") for each in contents.parameters]
        + [_operator_policy(each) for each in operator],
        "global_parameters": [_pick(each, "name value") for each in contents.global_parameters],
        "policies": [_pick(each, "vhost name pattern definition priority") | {"apply-to": each.apply_to}
                     for each in contents.policies if not each.is_operator],
        "queues": [],
        "exchanges": [],
        "bindings": [],
    }  # fmt: skip


def _pick(row: Row, names: str) -> Definitions:
    return {name: getattr(row, name) for name in names.split()}


def exported_user(row: UserRow) -> Definitions:
    """Return the entry of a user."""
    return _pick(row, "name hashing_algorithm tags limits") | {
        "password_hash": b64encode(row.password_hash).decode()
    }


def exported_permission(row: PermissionRow | TopicPermissionRow) -> Definitions:
    """Return the entry of a permission or a topic permission."""
    return _pick(row, " ".join(row.__struct_fields__))


def _vhost(row: VhostRow, limits: Mapping[str, int]) -> Definitions:
    return {
        "name": row.name,
        "limits": dict(limits),
        "metadata": {"description": row.description, "tags": row.tags}
        | ({"default_queue_type": row.default_queue_type} if row.default_queue_type else {}),
    }


def _operator_policy(row: PolicyRow) -> Definitions:
    value = _pick(row, "pattern definition priority") | {"apply-to": row.apply_to}
    return {"vhost": row.vhost, "component": OPERATOR_POLICY, "name": row.name, "value": value}


def exported_queue(row: QueueRow) -> Definitions:
    """Return the entry of a queue."""
    kind = row.arguments.get("x-queue-type")
    return _pick(row, "vhost name durable auto_delete") | {
        **_arguments(row.arguments),
        "type": kind[1].decode() if kind is not None else "classic",
    }


def exported_exchange(row: ExchangeRow) -> Definitions:
    """Return the entry of an exchange."""
    entry = _pick(row, "vhost name type durable auto_delete") | _arguments(row.arguments)
    return entry | {"internal": True} if row.internal else entry


def is_default(exchange: str) -> bool:
    """Return whether an exchange exists in every vhost, and so is in no definitions."""
    return not exchange or exchange.startswith("amq.")


def exported_binding(row: BindingRow) -> Definitions:
    """Return the entry of a binding."""
    return {
        "vhost": row.vhost,
        "source": row.source,
        "destination": row.destination,
        "destination_type": row.kind,
        "routing_key": row.routing_key.decode("utf-8", "surrogateescape"),
        **_arguments(row.arguments),
    }


def _arguments(table: Table) -> Definitions:
    if not table:
        return {"arguments": {}}
    shown = plain(table)
    if typed_table(shown) == table:
        return {"arguments": shown}
    return {"arguments": shown, EXACT_ARGUMENTS: b64encode(encode_table(table)).decode()}
