"""Configuration files into a ``Config``: ``leveret.toml`` and, ending in ``.conf``, RabbitMQ's format.

An unknown key is an error that names the file, the line and the most similar known key. In RabbitMQ's format
each line is ``key = value``, ``#`` begins a comment anywhere, and the last of two equal keys counts.

Differs from RabbitMQ: a bare port in ``listeners.tcp.*`` listens on 127.0.0.1 and ::1, not on all
interfaces; a listener is reachable from outside only if its address is configured.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from leveret.core.addresses import AMQP, AMQPS, Address, parse_address
from leveret.core.errors import ConfigError
from leveret.core.log.loggers import logger
from leveret.core.sizes import SizeLimit
from leveret.server.config.config import (
    DEFAULT_LISTEN,
    INTERNAL,
    LINK_SEPARATOR,
    PAUSE_MINORITY,
    Config,
    SettingError,
)
from leveret.server.config.keys import (
    KEYS,
    OF_LATER_VERSIONS,
    WITHOUT_EFFECT,
    Key,
    conf_share,
    conf_switch,
    size,
)

log = logger(__name__)

NATIVE: Final[dict[str, Key]] = {key.native: key for key in KEYS}
RABBITMQ: Final[dict[str, Key]] = {
    name: key for key in KEYS if key.from_conf is not None for name in key.rabbitmq.split()
}

_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_ASSIGNMENT = re.compile(r"\s*([A-Za-z0-9_.\-\"' ]+?)\s*=")


class Line(NamedTuple):
    """One setting of a file in RabbitMQ's format."""

    number: int
    key: str
    value: str


class Found(NamedTuple):
    """Values by field of ``Config``, with their lines."""

    values: dict[str, Any]
    lines: dict[str, int]


def load(path: Path | None, given: dict[str, Any] | None = None) -> Config:
    """Make the configuration from a file and the overriding command line.

    Args:
        path: ``.conf`` is RabbitMQ's format, any other suffix TOML; None: no file.
        given: fields of ``Config`` that override the file.

    Raises:
        ConfigError: one line, with file and line number if known.
    """
    found = Found({}, {}) if path is None else read(path)
    values = found.values | (given or {})
    try:
        config = Config(**values)
    except SettingError as error:
        if path is None or error.field not in found.lines or error.field in (given or {}):
            raise
        raise ConfigError(f"{path}:{found.lines[error.field]}: {error}") from error
    _warn_of_partition_handling(config, path, found.lines)
    return config


def _warn_of_partition_handling(config: Config, path: Path | None, lines: dict[str, int]) -> None:
    """Say what is done in the place of the setting, where a file has it."""
    line = lines.get("cluster_partition_handling")
    if line is None:
        return
    if not config.cluster:
        log.warning("%s:%d: cluster_partition_handling has no effect on a single node", path, line)
    elif config.cluster_partition_handling != PAUSE_MINORITY:
        log.warning(
            "%s:%d: cluster_partition_handling is %s, what is done is %s: a node that does not reach the majority of "
            "etcd closes its connections until it does",
            path, line, config.cluster_partition_handling, PAUSE_MINORITY,
        )  # fmt: skip


def read(path: Path) -> Found:
    """Read a file of either format; the values are checked one by one only."""
    try:
        source = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8") from error
    return read_rabbitmq(source, path) if path.suffix == ".conf" else read_toml(source, path)


def read_toml(source: str, path: Path) -> Found:
    """Parse the native format."""
    try:
        document = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    where = dict(_toml_lines(source))
    found = Found({}, {})
    for name, value in _flat(document, ""):
        line = where.get(name, 0)
        key = NATIVE.get(name)
        if key is None:
            raise _unknown(path, line, name, list(NATIVE))
        found.values[key.field] = _converted(key.from_toml, value, path, line, name)
        found.lines[key.field] = line
    return found


def _flat(table: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _toml_lines(source: str) -> Iterator[tuple[str, int]]:
    section = ""
    for number, line in enumerate(source.splitlines(), 1):
        if header := _HEADER.match(line):
            section = header[1] + "."
        elif assignment := _ASSIGNMENT.match(line):
            yield section + re.sub(r"[\"' ]", "", assignment[1]), number


def read_rabbitmq(source: str, path: Path) -> Found:
    """Parse RabbitMQ's format."""
    collected: dict[str, dict[str, Line]] = {group: {} for group in COLLECTED}
    found = Found({}, {})
    for line in _rabbitmq_lines(source, path):
        group = next((g for g in COLLECTED if line.key == g or line.key.startswith(g + ".")), None)
        if group is not None:
            collected[group][line.key[len(group) + 1 :]] = line
        elif line.key in RABBITMQ:
            key = RABBITMQ[line.key]
            assert key.from_conf is not None
            found.values[key.field] = _converted(
                key.from_conf, line.value, path, line.number, line.key
            )
            found.lines[key.field] = line.number
        elif line.key in WITHOUT_EFFECT:
            log.warning("%s:%d: %s has no effect: %s", path, *line[:2], WITHOUT_EFFECT[line.key])
        elif line.key == "log.console":
            _log_console(line, path, found)
        else:
            raise _unknown(path, line.number, line.key, _rabbitmq_names())
    _take_collected(collected, path, found)
    if "log_file_level" in found.values and found.values.get("log_file") is None:
        found.values.setdefault("log_level", found.values["log_file_level"])
    return found


def _rabbitmq_names() -> list[str]:
    names = [name for key in KEYS for name in key.rabbitmq.split()]
    return [*names, *_LISTENERS, "log.console", *WITHOUT_EFFECT]


def _rabbitmq_lines(source: str, path: Path) -> Iterator[Line]:
    for number, raw in enumerate(source.splitlines(), 1):
        stripped = raw.partition("#")[0].strip()
        if not stripped:
            continue
        key, equals, value = stripped.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ConfigError(f'{path}:{number}: "{stripped}" is not key = value')
        yield Line(number, key.strip(), value.strip())


def _log_console(line: Line, path: Path, found: Found) -> None:
    if not _converted(conf_switch, line.value, path, line.number, line.key):
        found.values["log_level"] = "none"
        found.lines["log_level"] = line.number


def _take_collected(collected: dict[str, dict[str, Line]], path: Path, found: Found) -> None:
    for group, (field, take) in COLLECTED.items():
        if lines := collected[group]:
            found.values[field] = take(lines, path)
            found.lines[field] = next(iter(lines.values())).number


def _listeners(lines: dict[str, Line], path: Path) -> tuple[Address, ...]:
    """Collect the listeners; the default ones stay unless others without TLS are named, or ``none``."""
    listen: list[Address] = []
    keeps_default = True
    for name, line in lines.items():
        kind, _, own = name.partition(".")
        if kind not in _SCHEMES or "." in own or (not own and line.value != "none"):
            raise _unknown(path, line.number, line.key, _LISTENERS)
        if kind == "tcp":
            keeps_default = False
        if not own:
            continue
        if line.value.isdigit():
            hosts = ("127.0.0.1", "::1")
            listen += [_address(f"[{host}]:{line.value}", path, line, kind) for host in hosts]
        else:
            listen.append(_address(line.value, path, line, kind))
    return tuple(dict.fromkeys([*(DEFAULT_LISTEN if keeps_default else ()), *listen]))


_SCHEMES: Final = {"tcp": AMQP, "ssl": AMQPS}
_LISTENERS: Final = ["listeners.tcp.default", "listeners.ssl.default"]


def _address(value: str, path: Path, line: Line, kind: str) -> Address:
    if value.count(":") > 1 and not value.startswith("["):  # RabbitMQ accepts ::1:5672
        host, _, port = value.rpartition(":")
        value = f"[{host}]:{port}"
    if "/" in value or "?" in value:
        raise ConfigError(
            f'{path}:{line.number}: {line.key} is "{value}"; allowed: PORT, HOST:PORT'
        )
    found = _converted(parse_address, value, path, line.number, line.key)
    return replace(found, scheme=_SCHEMES[kind])  # type: ignore[no-any-return]


def _texts(lines: dict[str, Line], path: Path) -> tuple[str, ...]:
    """Collect the values of numbered keys, in the order of the file."""
    for name, line in lines.items():
        if not name or "." in name:
            raise _unknown(path, line.number, line.key, [line.key + ".1"])
    return tuple(line.value for line in lines.values())


def _named(lines: dict[str, Line], path: Path) -> Iterator[str]:
    """Yield the names whose value is true."""
    for name, line in lines.items():
        if not name:
            raise _unknown(path, line.number, line.key, [line.key + ".NAME"])
        if _converted(conf_switch, line.value, path, line.number, line.key):
            yield name


def _user_tags(lines: dict[str, Line], path: Path) -> tuple[str, ...]:
    return tuple(_named(lines, path))


def _loopback_users(lines: dict[str, Line], path: Path) -> tuple[str, ...]:
    bare = lines.get("")
    if bare is None:
        return tuple(_named(lines, path))  # as in RabbitMQ: replaces the default
    if bare.value != "none":
        raise ConfigError(f'{path}:{bare.number}: loopback_users is "{bare.value}"; allowed: none')
    return ()


def _permissions(lines: dict[str, Line], path: Path) -> tuple[str, str, str]:
    kinds = ("configure", "write", "read")
    for name, line in lines.items():
        if name not in kinds:
            allowed = [f"default_permissions.{kind}" for kind in kinds]
            raise _unknown(path, line.number, line.key, allowed)
    got = [lines[kind].value if kind in lines else ".*" for kind in kinds]
    return got[0], got[1], got[2]


def _limit(lines: dict[str, Line], path: Path) -> SizeLimit:
    """Parse a limit; if both forms are given the relative one counts, as in RabbitMQ."""
    for name, line in lines.items():
        if name not in {"relative", "absolute"}:
            allowed = [f"{line.key.partition('.')[0]}.{kind}" for kind in ("relative", "absolute")]
            raise _unknown(path, line.number, line.key, allowed)
    line = lines.get("relative") or lines["absolute"]
    if "relative" in lines:
        return SizeLimit(share=_converted(conf_share, line.value, path, line.number, line.key))
    return SizeLimit(_converted(size, line.value, path, line.number, line.key))


_BACKENDS: Final = {
    "internal": INTERNAL, "rabbit_auth_backend_internal": INTERNAL,
    "http": "http", "rabbit_auth_backend_http": "http",
}  # fmt: skip


def _auth_backends(lines: dict[str, Line], path: Path) -> tuple[str, ...]:
    """Return the back ends in the order of their numbers; one of ``authn`` and ``authz`` alone stands for both."""
    found: dict[int, dict[str, str]] = {}
    for name, line in lines.items():
        number, _, what = name.partition(".")
        if not number.isdigit() or what not in {"", "authn", "authz"}:
            text = f'{path}:{line.number}: "{line.key}" is a key of RabbitMQ\'s that Leveret lacks'
            raise ConfigError(text)
        if line.value not in _BACKENDS:
            allowed = ", ".join(_BACKENDS)
            raise ConfigError(
                f'{path}:{line.number}: {line.key} is "{line.value}"; allowed: {allowed}'
            )
        link = found.setdefault(int(number), {})
        if link and not (what and link.keys() <= {"authn", "authz"}):
            raise ConfigError(f"{path}:{line.number}: {line.key} is given twice")
        link[what] = _BACKENDS[line.value]
    return tuple(_link(found[number]) for number in sorted(found))


def _link(named: dict[str, str]) -> str:
    one = next(iter(named.values()))
    both = [named.get("authn", one), named.get("authz", one)]
    return LINK_SEPARATOR.join(dict.fromkeys(both))


def _partition_handling(lines: dict[str, Line], path: Path) -> str:
    """Return how partitions are handled; the further keys of ``pause_if_all_down`` have no effect."""
    found = PAUSE_MINORITY
    for name, line in lines.items():
        if not name:
            found = line.value
        elif name == "pause_if_all_down.recover" or name.startswith("pause_if_all_down.nodes."):
            why = f"what is done is {PAUSE_MINORITY}, of the nodes of etcd"
            log.warning("%s:%d: %s has no effect: %s", path, line.number, line.key, why)
        else:
            raise _unknown(path, line.number, line.key, ["cluster_partition_handling"])
    return found


COLLECTED: Final[dict[str, tuple[str, Callable[[dict[str, Line], Path], Any]]]] = {
    "listeners": ("listen", _listeners),
    "auth_mechanisms": ("auth_mechanisms", _texts),
    "ssl_options.versions": ("tls_versions", _texts),
    "ssl_options.ciphers": ("tls_ciphers", _texts),
    "default_user_tags": ("default_user_tags", _user_tags),
    "loopback_users": ("loopback_users", _loopback_users),
    "auth_backends": ("auth_backends", _auth_backends),
    "default_permissions": ("default_permissions", _permissions),
    "vm_memory_high_watermark": ("memory_high_watermark", _limit),
    "disk_free_limit": ("disk_free_limit", _limit),
    "cluster_partition_handling": ("cluster_partition_handling", _partition_handling),
}
"""Groups of keys that make one field together: the field, and the function that reads the group's lines."""


def _converted(convert: Any, value: Any, path: Path, line: int, name: str) -> Any:
    try:
        return convert(value)
    except ValueError as error:
        shown = "..." if name.endswith(("pass", "password")) else value
        raise ConfigError(f'{path}:{line}: {name} is "{shown}"; allowed: {error}') from error
    except ConfigError as error:
        raise ConfigError(f"{path}:{line}: {name}: {error}") from error


def _unknown(path: Path, line: int, name: str, known: list[str]) -> ConfigError:
    if path.suffix == ".conf" and name.startswith(OF_LATER_VERSIONS):
        return ConfigError(f'{path}:{line}: "{name}" is a key of RabbitMQ\'s that Leveret lacks')
    leaves = {key.rpartition(".")[2]: key for key in known}
    near = difflib.get_close_matches(name, known, 1, 0.6)
    near = near or [leaves[leaf] for leaf in difflib.get_close_matches(name, leaves, 1, 0.6)]
    tail = name.rpartition(".")[2]
    near = near or [leaves[leaf] for leaf in difflib.get_close_matches(tail, leaves, 1, 0.7)]
    suggestion = f'; did you mean "{near[0]}"?' if near else ""
    return ConfigError(f'{path}:{line}: unknown key "{name}"{suggestion}')
