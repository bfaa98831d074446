"""The verbs of ``leveret ctl`` that print pages about the node: status, settings, memory, the report for support."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, Final

from leveret.server.cli.actions import Action, Answer, Ask, Options, UsageError
from leveret.server.cli.commands import COMMANDS, Command
from leveret.server.output import node_pages
from leveret.server.output.node_pages import UNITS
from leveret.server.output.terminal import show

_OF_NODE: Final = (
    "status",
    "cluster_status",
    "environment",
    "list_connections",
    "list_channels",
    "os_env",
)
_OF_VHOST: Final = (
    "list_queues", "list_exchanges", "list_bindings", "list_permissions", "list_policies",
    "list_global_parameters", "list_parameters",
)  # fmt: skip


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


def _report(_command: Command, options: Options, ask: Ask) -> None:
    """Print the pages and lists of a node one after the other, with all columns."""
    from leveret.server.cli.ctl import run  # noqa: PLC0415 - it imports this module

    if options.formatter != "table":
        raise UsageError("Only report formatter is supported")
    for command, vhost in _parts(ask("about", {})["vhosts"]):
        show("")
        words: dict[str, Any] = {option.field: option.default for option in command.options}
        words |= {"command": command, "verb": command.verb, "vhost": vhost}
        words["columns"] = list(command.columns)
        run(argparse.Namespace(**vars(options) | words), ask)


def _parts(vhosts: list[str]) -> Iterator[tuple[Command, str]]:
    by_verb = {command.verb: command for command in COMMANDS}
    for verb in _OF_NODE:
        yield by_verb[verb], "/"
    for vhost in vhosts:
        for verb in _OF_VHOST:
            yield by_verb[verb], vhost


REPORTS: Final[dict[str, Action]] = {
    "status": _status,
    "environment": _environment,
    "os_env": _os_env,
    "memory_breakdown": _memory_breakdown,
    "report": _report,
}
