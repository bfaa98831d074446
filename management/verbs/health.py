"""What health checks and reports ask of a node: listeners, alarms, settings, log files, parts of the memory."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import leveret
from leveret.broker.node.background import in_thread
from leveret.core.addresses import AMQPS, parse_address
from leveret.core.log.loggers import LOG_LEVELS
from leveret.core.sizes import SizeLimit
from leveret.management.audit_log import audit
from leveret.management.errors import EX_SOFTWARE, EX_UNAVAILABLE, RefusedError
from leveret.management.memory_parts import memory_parts
from leveret.management.queue_stats import totals

if TYPE_CHECKING:
    from leveret.broker.connection.layers.credentials import Credentials
    from leveret.core.addresses import Address
    from leveret.management.json_text import Row
    from leveret.management.running_broker import LinkCertificates, OwnProcess, RunningBroker

TLS: Final = "amqp/ssl"  # as RabbitMQ calls it
UNIX: Final = "amqp/unix"
CLUSTERING: Final = "clustering"
HIDDEN: Final = "********"
_SECRET: Final = re.compile("pass|secret|token", re.IGNORECASE)
_LOGIN: Final = re.compile("(?<=//)[^/@]*@")  # of a URL
_VARIABLES: Final = ("LEVERET_COMPILED", "LEVERET_DATA", "LEVERET_KERNEL", "LEVERET_LOOP")


class HealthAdmin:
    """Answers questions about a running broker, and ends its process."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker

    async def ping(self) -> None:
        """Answer."""

    async def stop(self) -> None:
        """Have the process end in order, if it is a broker's own."""
        process = self._process("and ends with it")
        audit("stop requested by=%s")
        process.stop()

    async def set_log_level(self, level: str) -> None:
        """Set the level of the log of a broker's own process."""
        process = self._process("which has its own log")
        if level not in LOG_LEVELS:
            allowed = ", ".join(LOG_LEVELS)
            raise RefusedError(f"level {level} is not supported. Try one of {allowed}", EX_SOFTWARE)
        process.set_log_level(level)
        audit("log level set level=%s by=%s", level)

    def _process(self, why: str) -> OwnProcess:
        if self._broker.process is None:
            raise RefusedError(f"the broker belongs to a service, {why}", EX_UNAVAILABLE)
        return self._broker.process

    async def about(self) -> Row:
        """Return versions, system, listeners, log files, alarms and limits, for reports."""
        node = self._broker.node
        resources, settings = node.resources, node.settings
        return {
            "leveret_version": leveret.__version__,
            "product_name": settings.product,
            "product_version": settings.product_version,
            "python_version": platform.python_version(),
            "cluster_name": node.cluster_name,
            "os": f"{platform.system()} {platform.release()}",
            "pid": os.getpid(),
            "alarms": list(resources.alarms.own),
            "alarms_elsewhere": resources.alarms.remote,
            "listeners": self._listeners(),
            "log_files": self._log_files(),
            "memory_watermark": _shown(resources.memory_limit),
            "vhosts_down": {name: each.reason for name, each in node.outages.by_vhost.items()},
            "vhosts": list(node.vhosts),
        }

    def _listeners(self) -> list[Row]:
        found = [_listener(address) for address in self._broker.addresses]
        if self._broker.cluster is not None:
            address = parse_address(self._broker.cluster.listening)
            found.append(_listener(address) | {"protocol": CLUSTERING})
        return found

    async def certificates(self) -> list[Row]:
        """Return the listeners with TLS, each with the dates of its certificates by file, in seconds since 1970."""
        cluster = self._broker.cluster
        credentials: dict[str, Credentials | LinkCertificates] = {}
        if self._broker.credentials is not None:
            credentials[TLS] = self._broker.credentials
        if cluster is not None and cluster.certificates is not None:
            credentials[CLUSTERING] = cluster.certificates
        files: dict[str, dict[str, list[list[float]]]] = {}

        def read() -> None:
            for protocol, each in credentials.items():
                dates = each.dates().items()
                files[protocol] = {str(path): [*map(list, of)] for path, of in dates}

        try:
            await in_thread(self._broker.node.gil_yielding, "leveret-certificates", read)
        except (OSError, ValueError) as error:
            raise RefusedError(f"certificates cannot be read: {error}", EX_UNAVAILABLE) from error
        return [
            row | {"files": files[row["protocol"]]}
            for row in self._listeners()
            if row["protocol"] in files
        ]

    def _log_files(self) -> list[str]:
        file = self._broker.log_file
        return [str(file.absolute())] if file is not None else []

    async def environment(self) -> Row:
        """Return the settings in effect, by their names; secrets are hidden."""
        settings = self._broker.node.settings
        return {
            field.name: _unless_secret(field.name, getattr(settings, field.name))
            for field in fields(settings)
        }

    async def os_env(self) -> dict[str, str]:
        """Return the variables of the environment that a broker reads."""
        return {name: os.environ[name] for name in _VARIABLES if name in os.environ}

    async def memory_breakdown(self) -> dict[str, int]:
        """Return the bytes of each part of the memory in use, by RabbitMQ's names, and their ``total``."""
        node = self._broker.node
        sums, _ = await totals(node.runtime, list(node.vhosts.values()))
        parts = await memory_parts(node)
        parts["metadata"] = sum(parts["metadata"].values())
        parts["queue_procs"] = sums["memory"]
        used_bytes = node.resources.stats()["memory"]["used_bytes"] or 0
        total = max(used_bytes, sum(parts.values()))
        return {"total": total, "other": total - sum(parts.values())} | parts


def _listener(address: Address) -> Row:
    """Return a listener: interface (a path for a Unix socket), port and protocol."""
    if address.path:
        return {"interface": address.path, "port": 0, "protocol": UNIX}
    host = f"[{address.host}]" if ":" in address.host else address.host
    protocol = TLS if address.scheme == AMQPS else "amqp"
    return {"interface": host, "port": address.port, "protocol": protocol}


def _unless_secret(name: str, value: Any) -> Any:
    return HIDDEN if value and _SECRET.search(name) else _shown(value)


def _shown(value: Any) -> Any:
    """Return a setting as JSON has it."""
    match value:
        case SizeLimit(size_bytes, share):
            return size_bytes if share is None else {"relative": share}
        case dict():
            return {str(name): _unless_secret(str(name), each) for name, each in value.items()}
        case tuple() | list() if not hasattr(value, "_fields"):
            return [_shown(each) for each in value]
        case None | bool() | int() | float():
            return value
    return _LOGIN.sub(f"{HIDDEN}@", str(value))
