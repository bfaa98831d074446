"""The verbs of ``leveret ctl`` that print pages about the node: status, settings, memory."""

from __future__ import annotations

from typing import Final

from leveret.server.cli.actions import Action, Answer, Ask, Options, UsageError
from leveret.server.cli.commands import Command
from leveret.server.output import node_pages
from leveret.server.output.node_pages import UNITS


def _status(_command: Command, options: Options, ask: Ask) -> Answer:
    unit = _unit(options)
    parts = ask("memory_breakdown", {})
    found = node_pages.status_value(ask("status", {}), ask("about", {}), parts, options.own_node)
    return Answer(node_pages.status_page(found, parts, options.own_node, unit), found)


def _environment(_command: Command, _options: Options, ask: Ask) -> Answer:
    from leveret.routing.json_terms import term  # noqa: PLC0415 - not needed by other verbs

    found = ask("environment", {})
    return Answer(node_pages.environment_page(found, term), {"leveret": found})


def _os_env(_command: Command, options: Options, ask: Ask) -> Answer:
    found = ask("os_env", {})
    value = {"node": options.own_node, "result": "ok", "variables": found}
    if not found:
        return Answer(f"Node {options.own_node} reported no relevant environment variables.", value)
    return Answer("\n".join(f"{name}={text}" for name, text in found.items()), value)


def _memory_breakdown(_command: Command, options: Options, ask: Ask) -> Answer:
    unit = _unit(options)
    parts = ask("memory_breakdown", {})
    text = "".join(f"{line}\n" for line in node_pages.memory_lines(parts, unit))
    return Answer(text, node_pages.shares(parts))


def _unit(options: Options) -> str:
    unit: str = options.unit.lower()
    if unit not in UNITS:
        raise UsageError(
            f"unit '{options.unit}' is not supported. Please use one of: bytes, mb, gb"
        )
    return unit


REPORTS: Final[dict[str, Action]] = {
    "status": _status,
    "environment": _environment,
    "os_env": _os_env,
    "memory_breakdown": _memory_breakdown,
}
