"""The operator's commands on runtime parameters, of which the limits of vhosts are some.

Components are those of RabbitMQ without plug-ins: ``vhost-limits``, and ``operator_policy``, which is kept as policies
are. Source: ``rabbit_runtime_parameters``, ``rabbit_vhost_limit`` and ``rabbit_parameter_validation``, 3.10.8.

Differs from RabbitMQ: a limit may not be named other than ``limits`` (RabbitMQ stores it, and crashes).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.vhost.settings_rows import CLUSTER_NAME
from leveret.management.audit_log import audit
from leveret.management.errors import EX_UNAVAILABLE, RefusedError
from leveret.management.json_text import Row
from leveret.management.lookups import check_storable, invalid, parsed_json, vhost_named
from leveret.metadata.definitions import OPERATOR_POLICY, VHOST_LIMITS
from leveret.metadata.tables import GlobalParameterRow, ParameterRow
from leveret.routing.json_terms import pairs, term

if TYPE_CHECKING:
    from leveret.broker.node.node import Node
    from leveret.management.verbs.policies import PolicyAdmin

LIMITS: Final = "limits"
MAX_CONNECTIONS: Final = "max-connections"
MAX_QUEUES: Final = "max-queues"
_POLICY: Final = "policy"


class ParameterAdmin:
    """Sets, clears and lists the parameters of one node."""

    def __init__(self, node: Node, operator_policies: PolicyAdmin) -> None:
        self._node = node
        self._operator_policies = operator_policies

    # -- parameters of a vhost -------------------------------------------------------------------

    async def set_parameter(self, vhost: str, component: str, name: str, value: str) -> None:
        """Set a parameter; the value is JSON."""
        if component == _POLICY:
            raise _refused("policies may not be set using this method")
        parsed = parsed_json(value)
        if component == VHOST_LIMITS:
            await self._set_limits(vhost, name, parsed)
        elif component == OPERATOR_POLICY:
            await self._set_operator_policy(vhost, name, parsed)
        else:
            raise invalid([f"component {component} not found"])

    async def _set_operator_policy(self, vhost: str, name: str, value: Any) -> None:
        value = value if isinstance(value, dict) else {}
        unknown = {key: each for key, each in value.items() if key not in _POLICY_FIELDS}
        if unknown:
            raise invalid([f"Unrecognised terms {pairs(unknown)} in {name}"])
        if missing := [key for key in ("pattern", "definition") if key not in value]:
            raise invalid([f'Key "{key}" not found in {name}' for key in missing])
        await self._operator_policies.set_policy(
            vhost,
            name,
            value["pattern"],
            json.dumps(value["definition"]),
            value.get("priority", 0),
            value.get("apply-to", "all"),
        )

    async def clear_parameter(self, vhost: str, component: str, name: str) -> None:
        if component == _POLICY:
            raise _refused("policies may not be cleared using this method")
        if component == OPERATOR_POLICY:
            await self._operator_policies.clear_policy(vhost, name)
            return
        node = self._node
        async with node.admin_turn:
            row = node.settings_rows.parameter(vhost, component, name)
            if row is None:
                raise _refused("Parameter does not exist")
            await node.metadata.write([], [row])
            node.settings_rows.remove([row])
            if component == VHOST_LIMITS and vhost in node.vhosts:
                node.vhosts[vhost].limits = {}
        audit("parameter cleared vhost=%s component=%s name=%s by=%s", vhost, component, name)

    async def list_parameters(self, vhost: str) -> list[Row]:
        """Return component, name and value (JSON), operator policies among them."""
        vhost_named(self._node, vhost)
        settings = self._node.settings_rows
        found = [_shown(row.component, row.name, row.value) for row in settings.parameters(vhost)]
        found += [
            _shown(
                OPERATOR_POLICY,
                row.name,
                {
                    "apply-to": row.apply_to,
                    "definition": row.definition,
                    "pattern": row.pattern,
                    "priority": row.priority,
                },
            )
            for row in settings.policies(vhost, is_operator=True)
        ]
        return sorted(found, key=lambda row: (row["component"], row["name"]))

    # -- limits of a vhost -----------------------------------------------------------------------

    async def set_vhost_limits(self, vhost: str, definition: str) -> None:
        """Replace the limits of a vhost, which hold for what is opened from now on; the definition is JSON."""
        await self._set_limits(vhost, LIMITS, parsed_json(definition))

    async def _set_limits(self, vhost: str, name: str, limits: Any) -> None:
        if name != LIMITS:
            raise invalid([f"{VHOST_LIMITS} is named {LIMITS}, not {name}"])
        if errors := limit_errors(name, (MAX_CONNECTIONS, MAX_QUEUES), limits):
            raise invalid(errors)
        row = ParameterRow(vhost, VHOST_LIMITS, name, limits)
        check_storable(row)
        node = self._node
        async with node.admin_turn:
            found = vhost_named(node, vhost)
            await node.metadata.write([row])
            node.settings_rows.put(row)
            found.limits = dict(limits)
            node.connections.remote_counts.changed()
        audit("vhost limits set vhost=%s limits=%s by=%s", vhost, json.dumps(limits))

    async def clear_vhost_limits(self, vhost: str) -> None:
        await self.clear_parameter(vhost, VHOST_LIMITS, LIMITS)

    async def list_vhost_limits(self, vhost: str | None) -> list[Row]:
        """Return the limits (JSON) of vhosts that have some: of one vhost, or of all."""
        return [
            {"vhost": row.vhost, "limits": as_json(row.value)}
            for name in ([vhost] if vhost is not None else list(self._node.vhosts))
            for row in self._node.settings_rows.parameters(name)
            if row.component == VHOST_LIMITS
        ]

    # -- global parameters -----------------------------------------------------------------------

    async def set_global_parameter(self, name: str, value: str) -> list[str]:
        """Set a parameter of the whole broker; the value is JSON.

        Returns:
            A line that the parameter has no effect, unless it is ``cluster_name``.
        """
        row = GlobalParameterRow(name, parsed_json(value))
        check_storable(row)
        if name == CLUSTER_NAME and not (isinstance(row.value, str) and row.value):
            raise invalid([f"{name} should be a name, actually was {term(row.value)}"])
        node = self._node
        async with node.admin_turn:
            await node.metadata.write([row])
            node.settings_rows.put(row)
        audit("global parameter set name=%s by=%s", name)
        return (
            [] if name == CLUSTER_NAME else [f"global parameter '{name}' is kept and has no effect"]
        )

    async def set_cluster_name(self, name: str) -> None:
        """Set the name of the cluster that clients see from now on."""
        await self.set_global_parameter(CLUSTER_NAME, as_json(name))

    async def clear_global_parameter(self, name: str) -> None:
        node = self._node
        async with node.admin_turn:
            row = next((each for each in self._global_parameters() if each.name == name), None)
            if row is None:
                raise _refused("Parameter does not exist")
            await node.metadata.write([], [row])
            node.settings_rows.remove([row])
        audit("global parameter cleared name=%s by=%s", name)

    async def list_global_parameters(self) -> list[Row]:
        """Return name and value (JSON)."""
        return [
            {"name": row.name, "value": as_json(row.value)} for row in self._global_parameters()
        ]

    def _global_parameters(self) -> list[GlobalParameterRow]:
        return self._node.settings_rows.global_parameters()


_POLICY_FIELDS: Final = frozenset({"pattern", "definition", "priority", "apply-to"})


def limit_errors(name: str, allowed: tuple[str, ...], limits: Any) -> list[str]:
    """Return RabbitMQ's lines about a definition of limits; none: it is valid."""
    if not isinstance(limits, dict):
        return [f"{name} not a list {term(limits)}"]
    others = {key: limits[key] for key in sorted(limits) if key not in allowed}
    errors = [f"Unrecognised terms {pairs(others)} in {name}"] if others else []
    errors += [
        f"{key} should be a number, actually was {term(limits[key])}"
        for key in reversed(allowed)
        if key in limits and (isinstance(limits[key], bool) or not isinstance(limits[key], int))
    ]
    return errors


def as_json(value: Any) -> str:
    """Return a value as JSON, the keys of objects sorted as RabbitMQ sorts them."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def _shown(component: str, name: str, value: Any) -> Row:
    return {"component": component, "name": name, "value": as_json(value)}


def _refused(text: str) -> RefusedError:
    return RefusedError(text, EX_UNAVAILABLE)
