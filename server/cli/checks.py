"""Health checks of ``leveret ctl``: rabbitmq-diagnostics' verbs, which exit with 69 when they find something."""

from __future__ import annotations

import socket
import time
from typing import Any, Final

from leveret.management.errors import EX_SOFTWARE, RefusedError
from leveret.server.cli.actions import Action, Answer, Ask, CheckFailedError, Options, UsageError
from leveret.server.cli.commands import Command
from leveret.server.output.node_pages import ALARMS, listener_lines, listeners_of

OK: Final = {"result": "ok"}

_PROTOCOLS: Final = {
    "amqp091": "amqp", "amqp0.9.1": "amqp", "amqp0-9-1": "amqp", "amqp0_9_1": "amqp", "amqps": "amqp/ssl",
}  # fmt: skip
"""Other names of protocols, as rabbitmq-diagnostics knows them."""


def _ping(_command: Command, _options: Options, ask: Ask) -> str:
    ask("ping", {})
    return "Ping succeeded"


def _is_running(_command: Command, options: Options, ask: Ask) -> Answer:
    ask("ping", {})
    text = f"RabbitMQ on node {options.own_node} is fully booted and running"
    return Answer(text, {"message": text, "result": True})


def _is_booting(_command: Command, options: Options, ask: Ask) -> Answer:
    """The socket exists when the start is over; ``check_virtual_hosts`` reports vhosts that are down."""
    ask("ping", {})
    text = (
        f"RabbitMQ on node {options.own_node} is fully booted (check with is_running), stopped or has not"
        " started booting yet"
    )
    return Answer(text, {"message": text, "result": False})


def _check_running(_command: Command, options: Options, ask: Ask) -> str:
    ask("ping", {})
    return f"RabbitMQ on node {options.own_node} is fully booted and running"


def _alarms(_command: Command, options: Options, ask: Ask) -> Answer:
    local, remote = _raised(options, ask)
    if not local + remote:
        text = f"Node {options.own_node} reported no alarms, local or clusterwide"
        return Answer(text, {"alarms": [], "node": options.own_node, "result": "ok"})
    message = f"Node {options.own_node} reported alarms"
    value = {"global": remote, "local": local, "message": message, "result": "ok"}
    return Answer("\n".join(local + remote), value)


def _check_alarms(_command: Command, options: Options, ask: Ask) -> Answer:
    local, remote = _raised(options, ask)
    if local + remote:
        message = f"Node {options.own_node} reported alarms"
        value = {"global": remote, "local": local, "message": message, "result": "error"}
        raise CheckFailedError("\n".join(local + remote), value)
    return _passed(options, f"Node {options.own_node} reported no alarms, local or clusterwide")


def _check_local_alarms(_command: Command, options: Options, ask: Ask) -> Answer:
    local, _ = _raised(options, ask)
    if local:
        message = f"Node {options.own_node} reported local alarms"
        value = {"local": local, "message": message, "result": "error"}
        raise CheckFailedError("Error:\n" + "\n".join(local), value)
    return _passed(options, f"Node {options.own_node} reported no local alarms")


def _raised(options: Options, ask: Ask) -> tuple[list[str], list[str]]:
    """Return a line for each alarm of this node, and of the other nodes of its cluster."""
    about = ask("about", {})
    local = [ALARMS[each].format(options.own_node) for each in about["alarms"]]
    remote = [
        ALARMS[each].format(node)
        for node, alarms in about["alarms_elsewhere"].items()
        for each in alarms
    ]
    return local, remote


def _passed(options: Options, text: str) -> Answer:
    return Answer(None if options.silent else text, OK)


def _check_virtual_hosts(_command: Command, options: Options, ask: Ask) -> Answer:
    down = ask("check_virtual_hosts", {})
    if down:
        lines = [f"{row['vhost']}: {row['reason']}" for row in down]
        text = f"Error:\nSome virtual hosts on node {options.own_node} are down:\n" + "\n".join(
            lines
        )
        value = {"down_vhosts": [row["vhost"] for row in down], "result": "error"}
        raise CheckFailedError(text, value)
    return _passed(options, f"Node {options.own_node} reported all vhosts as running")


def _listeners(_command: Command, options: Options, ask: Ask) -> Any:
    found = listeners_of(ask("about", {}), options.own_node)
    value = {"listeners": found, "node": options.own_node, "result": "ok"}
    return Answer("\n".join(listener_lines(found)), value)


def _listens(options: Options, what: str, value: str) -> Answer:
    text = f"A listener for {what} {value} is running on node {options.own_node}."
    return Answer(text, {"node": options.own_node, what: value, "result": "ok"})


def _check_port_listener(_command: Command, options: Options, ask: Ask) -> Answer:
    found = listeners_of(ask("about", {}), options.own_node)
    ports = sorted(row["port"] for row in found)
    if not options.port.isdigit() or int(options.port) <= 0:
        raise RefusedError("Bad argument: The argument must be a positive integer")
    port = options.port
    if int(port) in ports:
        return _listens(options, "port", port)
    text = (
        f"No listener for port {port} is active on node {options.own_node}. "
        f"Found listeners that use the following ports: {', '.join(map(str, ports))}"
    )
    value = {"listeners": found, "missing": port, "ports": ports, "result": "error"}
    raise CheckFailedError(text, value)


def _check_protocol_listener(_command: Command, options: Options, ask: Ask) -> Answer:
    found = listeners_of(ask("about", {}), options.own_node)
    wanted = options.protocol.lower()
    wanted = _PROTOCOLS.get(wanted, wanted)
    protocols = sorted(row["protocol"] for row in found)
    if wanted in protocols:
        return _listens(options, "protocol", wanted)
    text = (
        f"Error:\nNo listener for protocol {wanted} is active on node {options.own_node}. "
        f"Found listeners for the following protocols: {', '.join(protocols)}"
    )
    value = {"listeners": found, "missing": wanted, "protocols": protocols, "result": "error"}
    raise CheckFailedError(text, value)


def _check_port_connectivity(_command: Command, options: Options, ask: Ask) -> Answer:
    found = listeners_of(ask("about", {}), options.own_node)
    until_s = time.monotonic() + options.timeout
    failed = [row for row in found if not _accepts(row, until_s - time.monotonic())]
    if failed:
        lines = [
            f"Connection to ports of the following listeners on node {options.own_node} failed: "
        ]
        text = "Error:\n" + "\n".join(lines + listener_lines(failed))
        raise CheckFailedError(
            text, {"failures": failed, "node": options.own_node, "result": "error"}
        )
    ports = ", ".join(str(port) for port in sorted(row["port"] for row in found))
    value = {"listeners": found, "node": options.own_node, "result": "ok"}
    return Answer(f"Successfully connected to ports {ports} on node {options.own_node}.", value)


def _accepts(listener: dict[str, Any], timeout_s: float) -> bool:
    """Whether a listener accepts a connection; one on all addresses is reached through loopback."""
    host = _REACHED.get(listener["interface"], listener["interface"].strip("[]"))
    try:
        if host.startswith("/"):
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(max(0.1, timeout_s))
                client.connect(host)
            return True
        with socket.create_connection((host, listener["port"]), max(0.1, timeout_s)):
            return True
    except OSError:
        return False


_REACHED: Final = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}


def _check_certificate_expiration(_command: Command, options: Options, ask: Ask) -> Answer:
    unit, within = options.unit.lower(), options.within
    if unit not in _UNITS_S:
        raise UsageError(
            f"unit '{options.unit}' is not supported. Please use one of: {', '.join(_UNITS_S)}"
        )
    now_s = time.time()
    found = []
    for row in ask("certificates", {}):
        ends = {
            path: [_validity(start_s, end_s, now_s) for start_s, end_s in dates
                   if end_s < now_s + within * _UNITS_S[unit] or start_s > now_s]
            for path, dates in row.pop("files").items()
        }  # fmt: skip
        if any(ends.values()):
            found.append(
                row
                | {
                    "node": options.own_node,
                    "expires": {path: of for path, of in ends.items() if of},
                }
            )
    if not found:
        label = unit[:-1] if within == 1 else unit
        return Answer(f"No certificates are expiring within {within} {label}.", OK)
    lines = [
        f"Interface: {row['interface']}, port: {row['port']}, certificate {path}: {', '.join(of)}"
        for row in found
        for path, of in row["expires"].items()
    ]
    raise CheckFailedError("\n".join(lines), {"expired": found, "result": "error"})


def _validity(start_s: float, end_s: float, now_s: float) -> str:
    """Return when a certificate becomes valid, or else when it expires."""
    at_s, word = (start_s, "not valid before") if start_s > now_s else (end_s, "expires on")
    return f"{word} {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(at_s))}"


_UNITS_S: Final = {
    "days": 86_400,
    "weeks": 604_800,
    "months": 86_400 * 365 / 12,
    "years": 31_536_000,
}


def _node_health_check(_command: Command, options: Options, ask: Ask) -> str:
    about = ask("about", {})
    ask("list_channels", {})
    for vhost in about["vhosts"]:
        ask("list_queues", {"vhost": vhost})
    if about["alarms"]:
        message = f"resource alarm(s) in effect:[{','.join(about['alarms'])}]"
        raise RefusedError(f"Error: health check failed. Message: {message}", EX_SOFTWARE)
    return "Health check passed"


CHECKS: Final[dict[str, Action]] = {
    "ping": _ping,
    "is_running": _is_running,
    "is_booting": _is_booting,
    "check_running": _check_running,
    "alarms": _alarms,
    "check_alarms": _check_alarms,
    "check_local_alarms": _check_local_alarms,
    "check_virtual_hosts": _check_virtual_hosts,
    "listeners": _listeners,
    "check_port_listener": _check_port_listener,
    "check_protocol_listener": _check_protocol_listener,
    "check_port_connectivity": _check_port_connectivity,
    "check_certificate_expiration": _check_certificate_expiration,
    "node_health_check": _node_health_check,
}
