"""The operator's commands on policies.

A policy is checked, written to the metadata store, and then applied to its vhost: new queues and exchanges have
it from their declaration, existing queues are told in slices. ``broker/vhost/policies/policies.py`` decides which
policy applies; ``amqqueue.py`` carries it out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from leveret.broker.queue.arguments import without_effect
from leveret.broker.queue.storage.retention import RETENTION_KEYS, why_without_effect
from leveret.broker.vhost.policies import policy_validation
from leveret.broker.vhost.policies.policies import apply_to_all
from leveret.core.log.loggers import logger
from leveret.management.audit_log import audit
from leveret.management.errors import EX_UNAVAILABLE, RefusedError
from leveret.management.json_text import Row
from leveret.management.lookups import check_storable, invalid, parsed_json, vhost_named
from leveret.metadata.tables import PolicyRow

if TYPE_CHECKING:
    from leveret.broker.node.node import Node
    from leveret.broker.vhost.vhost import VHost

log = logger(__name__)


class PolicyAdmin:
    """Sets, clears and lists the policies of one node, or its operator policies."""

    def __init__(self, node: Node, *, is_operator: bool = False) -> None:
        self._node = node
        self._is_operator = is_operator
        self._words = "operator policy" if is_operator else "policy"

    async def set_policy(
        self, vhost: str, name: str, pattern: str, definition: str, priority: int, apply_to: str
    ) -> list[str]:
        """Add a policy, or replace the policy of that name; the definition is JSON.

        Returns:
            A line for each kind of keys without effect.
        """
        parsed = parsed_json(definition)
        row = PolicyRow(vhost, name, pattern, parsed, priority, apply_to, self._is_operator)
        node = self._node
        async with node.admin_turn:
            found = vhost_named(node, vhost)
            _check(row)
            await node.metadata.write([row])
            node.settings_rows.put(row)
            found.policies.put(row)
            await apply_to_all(node.runtime, found.policies, found.topology)
        audit(
            "%s set vhost=%s name=%s pattern=%s apply-to=%s priority=%s definition=%s by=%s",
            self._words, vhost, name, pattern, apply_to, priority, json.dumps(parsed),
        )  # fmt: skip
        lines = _not_archived(found, row)
        if idle := without_effect(parsed, node.cluster_nodes is not None):
            log.warning(
                "%s without effect so far vhost=%s name=%s keys=%s", self._words, vhost, name, idle
            )
            lines.append(f"{idle} without effect so far")
        return [f"{self._words} '{name}' in vhost '{vhost}': {line}" for line in lines]

    async def clear_policy(self, vhost: str, name: str) -> None:
        node = self._node
        async with node.admin_turn:
            rows = node.settings_rows.policies(vhost, self._is_operator)
            row = next((each for each in rows if each.name == name), None)
            if row is None:
                raise RefusedError("Parameter does not exist", EX_UNAVAILABLE)
            found = vhost_named(node, vhost)
            await node.metadata.write([], [row])
            node.settings_rows.remove([row])
            found.policies.remove(row)
            await apply_to_all(node.runtime, found.policies, found.topology)
        audit("%s cleared vhost=%s name=%s by=%s", self._words, vhost, name)

    async def list_policies(self, vhost: str) -> list[Row]:
        """Return vhost, name, pattern, apply-to, definition (JSON), priority; the strongest last."""
        vhost_named(self._node, vhost)
        rows = self._node.settings_rows.policies(vhost, self._is_operator)
        return [_row(row) for row in sorted(rows, key=lambda row: (row.priority, row.name))]


def _not_archived(vhost: VHost, row: PolicyRow) -> list[str]:
    """Return a line about the queues that a policy would archive, and cannot; nothing if there are none."""
    if RETENTION_KEYS.isdisjoint(row.definition):
        return []
    has_store = vhost.store.msg_store is not None
    applied = [
        entry for entry in vhost.topology.queues.values()
        if row in (entry.applied.policy, entry.applied.operator)
        and why_without_effect(entry, has_store)
    ]  # fmt: skip
    if not applied:
        return []
    first = applied[0]
    return [
        f"replay-retention has no effect on {len(applied)} of its queues, as '{first.name}':"
        f" {why_without_effect(first, has_store)}"
    ]


def _check(row: PolicyRow) -> None:
    """Refuse a row that is not a valid policy, or cannot be stored."""
    try:
        policy_validation.check(row)
    except policy_validation.PolicyError as error:
        raise invalid([str(error)]) from error
    check_storable(row)


def _row(row: PolicyRow) -> Row:
    return {
        "vhost": row.vhost,
        "name": row.name,
        "pattern": row.pattern,
        "apply-to": row.apply_to,
        "definition": json.dumps(
            row.definition, separators=(",", ":"), sort_keys=True, ensure_ascii=False
        ),
        "priority": row.priority,
    }
