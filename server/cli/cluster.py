"""The verbs of ``leveret ctl`` about the nodes of a cluster."""

from __future__ import annotations

from typing import Final, NoReturn

from leveret.core.printable import printable
from leveret.management.errors import EX_SOFTWARE, EX_UNAVAILABLE, SINGLE_NODE, RefusedError
from leveret.server.cli.actions import Action, Answer, Ask, Options, UsageError, ok
from leveret.server.cli.commands import Command
from leveret.server.cli.life import wait_until
from leveret.server.control_client import NoBrokerError
from leveret.server.output import node_pages

INSTEAD: Final = {
    "join_cluster": "A node joins its cluster when it is started: on an empty data directory, with "
    "'leveret serve --cluster NAME --etcd URLS --node NODE --cluster-listen HOST:PORT'",
    "stop_app": "A node is stopped as a whole, with 'leveret ctl shutdown'; what is not durable ends with it",
    "start_app": "A node is started with 'leveret serve', and the settings it had before",
    "reset": "A node leaves its cluster when it is stopped ('leveret ctl shutdown'), its data directory is removed, "
    "and 'leveret ctl forget_cluster_node NODE' is run on another node",
}
"""What is to be done in the place of a verb of RabbitMQ's."""


def _cluster_status(_command: Command, options: Options, ask: Ask) -> Answer:
    found = node_pages.cluster_value(ask("cluster_status", {}), options.own_node)
    return Answer(node_pages.cluster_page(found), found)


def _forget(command: Command, options: Options, ask: Ask) -> Answer:
    if options.offline:
        raise UsageError(
            "--offline is not needed: the metadata is in etcd, so use any node that runs"
        )
    found = ask(command.verb, {"node": options.removed, "dry_run": options.dry_run})
    queues = found["queues"]
    verb = "would be deleted" if options.dry_run else "were deleted"
    lines = [f"{len(queues)} durable queues of node {printable(options.removed)} {verb}"]
    lines += [printable(f"{each['name']} in vhost {each['vhost']}") for each in queues]
    return ok(options, "\n".join(lines), found)


def _await_nodes(command: Command, options: Options, ask: Ask) -> None:
    """Wait for nodes, whether or not the broker runs already."""
    if not (options.count.isascii() and options.count.isdigit() and int(options.count) > 0):
        raise UsageError("Bad argument: Argument must be a positive integer")
    count = int(options.count)

    def are_up() -> bool:
        try:
            running = ask("running_nodes", {})
        except NoBrokerError:
            return False
        if running == [""] and count > 1:
            raise RefusedError(SINGLE_NODE, EX_UNAVAILABLE)
        return len(running) >= count

    if not wait_until(are_up, options.timeout):
        raise RefusedError(
            f"Error: timed out while waiting. Not enough nodes joined {options.own_node}'s cluster.",
            EX_SOFTWARE,
        )


def _instead(command: Command, _options: Options, _ask: Ask) -> NoReturn:
    verb = "reset" if command.verb == "force_reset" else command.verb
    raise RefusedError(f"{command.verb} is not there. {INSTEAD[verb]}", EX_UNAVAILABLE)


CLUSTER: Final[dict[str, Action]] = {
    "cluster_status": _cluster_status,
    "forget_cluster_node": _forget,
    "await_online_nodes": _await_nodes,
    "join_cluster": _instead,
    "stop_app": _instead,
    "start_app": _instead,
    "reset": _instead,
    "force_reset": _instead,
}
