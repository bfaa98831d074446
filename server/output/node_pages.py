"""The pages of rabbitmqctl about a node: status, cluster_status, environment, memory_breakdown, listeners.

What only an Erlang node has (run queue, net_ticktime, Raft) is left out; Python's version stands where Erlang's would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from leveret.core.printable import printable
from leveret.management.json_text import Row

ALARMS: Final = {
    "memory": "Memory alarm on node {}",
    "disk": "Free disk space alarm on node {}",
}
UNITS: Final = {"bytes": 1, "mb": 1_000_000, "gb": 1_000_000_000}
_PURPOSES: Final = {
    "amqp": "AMQP 0-9-1",
    "amqp/ssl": "AMQP 0-9-1 over TLS",
    "amqp/unix": "AMQP 0-9-1 on a Unix socket",
    "clustering": "inter-node and CLI tool communication",
}


def listeners_of(about: Row, node: str) -> list[Row]:
    """Return the listeners as rabbitmq-diagnostics' JSON has them."""
    return [
        {
            "interface": row["interface"],
            "node": node,
            "port": row["port"],
            "protocol": row["protocol"],
            "purpose": _PURPOSES.get(row["protocol"], row["protocol"]),
        }
        for row in about["listeners"]
    ]


def listener_lines(listeners: Sequence[Row]) -> list[str]:
    """Return a line for each listener."""
    return [
        f"Interface: {row['interface']}, port: {row['port']}, protocol: {row['protocol']},"
        f" purpose: {row['purpose']}"
        for row in listeners
    ]


def in_unit(size_bytes: int | None, unit: str) -> str:
    """Return a size in one of ``UNITS``, rounded as RabbitMQ rounds it."""
    if size_bytes is None:
        return "unknown"
    return str(size_bytes) if unit == "bytes" else f"{round(size_bytes / UNITS[unit], 4)}"


def shares(parts: dict[str, int]) -> dict[str, dict[str, Any]]:
    """Return bytes and percentage of each part of the memory but ``total``, the largest first."""
    total = parts["total"] or 1
    found = {
        name: {"bytes": size, "percentage": round(size / total * 100, 2)}
        for name, size in parts.items()
        if name != "total"
    }
    return dict(sorted(found.items(), key=lambda item: -item[1]["bytes"]))


def memory_lines(parts: dict[str, int], unit: str, space: str = "") -> list[str]:
    """Return a line for each part of the memory; ``space`` stands before the percent sign."""
    return [
        f"{name}: {in_unit(part['bytes'], unit)} {unit} ({part['percentage']}{space}%)"
        for name, part in shares(parts).items()
    ]


def status_value(status: Row, about: Row, parts: dict[str, int], node: str) -> Row:
    """Return the node's status with the names of rabbitmqctl's JSON."""
    memory, disk = status["memory"], status["disk"]
    return {
        "active_plugins": [],
        "alarms": [
            {"node": node, "resource": each, "type": "resource_limit"} for each in about["alarms"]
        ],
        "data_directory": status["data_dir"],
        "disk_free": disk["free_bytes"],
        "disk_free_limit": disk["limit_bytes"],
        "file_descriptors": status["file_descriptors"],
        "is_under_maintenance": False,
        "leveret_version": about["leveret_version"],
        "listeners": listeners_of(about, node),
        "log_files": about["log_files"],
        "memory": {**parts, "total": {"rss": parts["total"]}},
        "os": about["os"],
        "pid": about["pid"],
        "product_name": about["product_name"],
        "product_version": about["product_version"],
        "python_version": about["python_version"],
        "rabbitmq_version": about["product_version"],
        "totals": {
            "connection_count": status["connections"],
            "queue_count": status["queues"]["count"],
            "virtual_host_count": status["vhosts"],
        },
        "uptime": int(status["uptime_s"]),
        "vm_memory_calculation_strategy": "rss",
        "vm_memory_high_watermark_limit": memory["limit_bytes"],
        "vm_memory_high_watermark_setting": _watermark(about),
    }


def _watermark(about: Row) -> Row:
    setting = about["memory_watermark"]
    return setting if isinstance(setting, dict) else {"absolute": setting}


def status_page(found: Row, parts: dict[str, int], node: str, unit: str) -> str:
    """Return the page of ``leveret ctl status``."""
    setting = found["vm_memory_high_watermark_setting"]
    watermark = (
        f"{setting['relative']} of available memory"
        if "relative" in setting
        else f"{in_unit(setting['absolute'], unit)} {unit}"
    )
    files, totals = found["file_descriptors"], found["totals"]
    sections = {
        "Runtime": [
            f"OS PID: {found['pid']}",
            f"OS: {found['os']}",
            f"Uptime (seconds): {found['uptime']}",
            f"Is under maintenance?: {_flag(found['is_under_maintenance'])}",
            f"Product name: {found['product_name']}",
            f"Product version: {found['product_version']}",
            f"RabbitMQ version: {found['rabbitmq_version']}",
            f"Leveret version: {found['leveret_version']}",
            f"Node name: {node}",
            f"Python: {found['python_version']}",
        ],
        "Data directory": [f"Node data directory: {found['data_directory']}"],
        "Log file(s)": [f" * {path}" for path in found["log_files"]],
        "Alarms": _alarm_lines(found["alarms"], node),
        "Memory": [
            f"Total memory used: {in_unit(parts['total'], unit)} {unit}",
            f"Calculation strategy: {found['vm_memory_calculation_strategy']}",
            f"Memory high watermark setting: {watermark}, computed to: "
            f"{in_unit(found['vm_memory_high_watermark_limit'], unit)} {unit}",
            "",
            *memory_lines(parts, unit, " "),
        ],
        "File Descriptors": [
            f"Total: {files['total_used']}, limit: {files['total_limit']}",
            f"Sockets: {files['sockets_used']}, limit: {files['sockets_limit']}",
        ],
        "Free Disk Space": [
            f"Low free disk space watermark: {in_unit(found['disk_free_limit'], unit)} {unit}",
            f"Free disk space: {in_unit(found['disk_free'], unit)} {unit}",
        ],
        "Totals": [
            f"Connection count: {totals['connection_count']}",
            f"Queue count: {totals['queue_count']}",
            f"Virtual host count: {totals['virtual_host_count']}",
        ],
        "Listeners": listener_lines(found["listeners"]) or ["(none)"],
    }
    return _page(sections)


def cluster_value(status: Row, single: str) -> Row:
    """Return the status of a cluster with the names of rabbitmqctl's JSON.

    Args:
        status: what the verb ``cluster_status`` has answered.
        single: the name of the node where it is of no cluster.
    """
    cluster = status["cluster"]
    nodes = {name or single: about for name, about in status["nodes"].items()}
    return {
        "alarms": [
            {"node": node, "resource": each, "type": "resource_limit"}
            for node, about in nodes.items()
            for each in about["alarms"]
        ],
        "cluster_name": status["cluster_name"],
        "disk_nodes": [single] if cluster is None else cluster["nodes"],
        "feature_flags": [],
        "listeners": {node: listeners_of(about, node) for node, about in nodes.items()},
        "maintenance_status": dict.fromkeys(nodes, "not under maintenance"),
        "partitions": {},
        "ram_nodes": [],
        "running_nodes": [single] if cluster is None else cluster["running_nodes"],
        "versions": {
            node: {
                "leveret_version": about["leveret_version"],
                "rabbitmq_name": about["product_name"],
                "rabbitmq_version": about["product_version"],
            }
            for node, about in nodes.items()
        },
    }


def cluster_page(found: Row) -> str:
    """Return the page of ``leveret ctl cluster_status``."""
    alarms = [ALARMS[each["resource"]].format(each["node"]) for each in found["alarms"]]
    sections = {
        "Basics": [f"Cluster name: {printable(found['cluster_name'])}"],
        "Disk Nodes": found["disk_nodes"],
        "Running Nodes": found["running_nodes"],
        "Versions": [
            f"{node}: {each['rabbitmq_name']} {each['rabbitmq_version']} by Leveret {each['leveret_version']}"
            for node, each in found["versions"].items()
        ],
        "Maintenance status": [
            f"Node: {node}, status: {each}" for node, each in found["maintenance_status"].items()
        ],
        "Alarms": alarms or ["(none)"],
        "Network Partitions": ["(none)"],
        "Listeners": [
            f"Node: {node}, {line[0].lower()}{line[1:]}"
            for node, listeners in found["listeners"].items()
            for line in listener_lines(listeners)
        ],
        "Feature flags": ["(none)"],
    }
    return _page(sections)


def environment_page(found: Row, term: Callable[[Any], str]) -> str:
    """Return the settings as rabbitmqctl prints an application's: a list of Erlang pairs.

    Args:
        found: settings by name.
        term: prints a value as Erlang does.
    """
    pairs = ",\n      ".join(f"{{{name},{term(value)}}}" for name, value in found.items())
    return f"[{{leveret,\n     [{pairs}]}}]"


def _page(sections: dict[str, list[str]]) -> str:
    return "\n\n".join("\n".join([name, "", *lines]) for name, lines in sections.items())


def _alarm_lines(alarms: Sequence[Row], node: str) -> list[str]:
    return [ALARMS[each["resource"]].format(node) for each in alarms] or ["(none)"]


def _flag(value: bool) -> str:
    return "true" if value else "false"
