"""Configuration files into a ``Config``: ``leveret.toml`` and, ending in ``.conf``, RabbitMQ's format.

All errors of a file are found at once; each names the file, the line and, for an unknown key, the most similar known
one. In RabbitMQ's format each line is ``key = value``, ``#`` begins a comment anywhere, and the last of two equal keys
counts.

Differs from RabbitMQ: a bare port in ``listeners.tcp.*`` listens on 127.0.0.1 and ::1, not on all
interfaces; a listener is reachable from outside only if its address is configured.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from leveret.core.addresses import AMQP, AMQPS, Address, parse_address
from leveret.core.errors import ConfigError
from leveret.core.log.loggers import logger
from leveret.core.sizes import SizeLimit
from leveret.server.config.config import (
    DEFAULT_LISTEN,
    INTERNAL,
    LINK_SEPARATOR,
    MECHANISMS,
    PAUSE_MINORITY,
    TLS_VERSIONS,
    Config,
    SettingError,
    default_data_dir,
)
from leveret.server.config.keys import (
    KEYS,
    LACKING,
    WITHOUT_EFFECT,
    Converter,
    Key,
    conf_milliseconds,
    conf_share,
    conf_switch,
    entry_of,
    size,
)

log = logger(__name__)

NATIVE: Final[dict[str, Key]] = {key.native: key for key in KEYS}
RABBITMQ: Final[dict[str, Key]] = {
    name: key for key in KEYS if key.from_conf is not None for name in key.rabbitmq.split()
}

_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_ASSIGNMENT = re.compile(r"\s*([A-Za-z0-9_.\-\"' ]+?)\s*=")


Take: TypeAlias = "Callable[[dict[str, Line], Path], Any]"


class Line(NamedTuple):
    """One setting of a file in RabbitMQ's format."""

    number: int
    key: str
    value: str


class LineError(ConfigError):
    """A line of a file cannot be used; the text begins with the file and the line."""

    def __init__(self, path: Path, line: int, text: str) -> None:
        super().__init__(f"{path}:{line}: {text}")
        self.line = line


@dataclass(slots=True)
class Found:
    """The settings, errors and warnings of a file.

    Attributes:
        values: the values, by field of ``Config``.
        lines: the line numbers of the values, by field.
        keys: the keys of the values, as the file writes them, by field.
        errors: the errors of lines, in any order.
        warnings: texts, each with its line number.
        useless: the fields whose values have an error.
    """

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    errors: list[LineError] = field(default_factory=list)
    warnings: list[tuple[int, str]] = field(default_factory=list)
    useless: set[str] = field(default_factory=set)

    def take(self, path: Path, line: Line, key: Key, convert: Converter, value: Any) -> None:
        """Take the value of a key, or note why it cannot be used."""
        self._at(key.field, line)
        try:
            self.values[key.field] = _converted(convert, value, path, line.number, line.key)
        except LineError as error:
            self.errors.append(error)
            self.useless.add(key.field)

    def take_group(self, path: Path, group: dict[str, Line], name: str, take: Take) -> None:
        """Take a value that several lines make together, or note the error of each wrong line."""
        self._at(name, next(iter(group.values())))
        while group:
            try:
                self.values[name] = take(group, path)
                return
            except LineError as error:
                self.errors.append(error)
                self.useless.add(name)
                group = {part: line for part, line in group.items() if line.number != error.line}

    def _at(self, name: str, line: Line) -> None:
        self.lines[name], self.keys[name] = line.number, line.key

    def warn(self, path: Path, line: int, text: str) -> None:
        """Note a warning about a line."""
        self.warnings.append((line, f"{path}:{line}: {text}"))


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking a configuration without a start.

    Attributes:
        config: None if there are errors.
        errors: a line of text for each error, in the order of the file.
        warnings: a line of text for each warning, in the order of the file.
    """

    config: Config | None
    errors: list[str]
    warnings: list[str]


def load(path: Path | None, given: dict[str, Any] | None = None) -> Config:
    """Make the configuration from a file and the overriding command line.

    Args:
        path: ``.conf`` is RabbitMQ's format, any other suffix TOML; None: no file.
        given: fields of ``Config`` that override the file.

    Raises:
        ConfigError: a line for each error, with file and line number if known.
    """
    checked = check(path, given)
    for text in checked.warnings:
        log.warning("%s", text)
    if checked.config is None:
        raise ConfigError("\n".join(checked.errors))
    return checked.config


def check(path: Path | None, given: dict[str, Any] | None = None) -> Checked:
    """Find all errors and warnings of a configuration; the arguments are as for ``load``."""
    given = given or {}
    try:
        found = Found() if path is None else read(path)
    except ConfigError as error:
        return Checked(None, [str(error)], [])
    values = {"data_dir": default_data_dir()} | found.values | given
    if path is not None:
        _leave_out_locator(values, found, path)
    config, others = _config(values, found, path, given)
    if config is not None and path is not None:
        _warn(config, path, found)
    errors = sorted(found.errors, key=lambda error: error.line)
    texts = [str(error) for error in errors] + others
    warnings = [text for _, text in sorted(set(found.warnings))]
    return Checked(None if texts else config, texts, warnings)


def _leave_out_locator(values: dict[str, Any], found: Found, path: Path) -> None:
    """Ignore the queue master locator on a single node, as RabbitMQ does."""
    name = "cluster_queue_master_locator"
    if path.suffix == ".conf" and name in found.lines and not values.get("cluster"):
        values.pop(name, None)
        found.warn(path, found.lines[name], f"{found.keys[name]} has no effect on a single node")


def _config(
    values: dict[str, Any], found: Found, path: Path | None, given: dict[str, Any]
) -> tuple[Config | None, list[str]]:
    """Make the configuration without the wrong values; return it with the errors that belong to no line."""
    others: list[str] = []
    while True:
        try:
            return Config(**values), others
        except SettingError as error:
            name, text = error.field, str(error)
            if path is not None and name in found.lines and name not in given:
                if not any(re.search(rf"\b{each}\b", text) for each in found.useless):
                    words = _in_words_of(path, found, text)
                    found.errors.append(LineError(path, found.lines[name], words))
                found.useless.add(name)
            else:
                others.append(text)
            if name not in values:  # a required setting is missing
                return None, others
            del values[name]


def _in_words_of(path: Path, found: Found, text: str) -> str:
    """Replace the names of fields in an error text with the file's keys."""
    names: dict[str, str] = {}
    for key in KEYS:
        in_conf = key.rabbitmq.partition(" ")[0].partition(".$")[0]
        names[key.field] = (in_conf if path.suffix == ".conf" else "") or key.native
        if key.from_conf is conf_milliseconds and names[key.field] == in_conf:
            names[key.field] += " (in seconds)"
    first, space, rest = text.partition(" ")
    if not names[first].endswith(")"):
        names[first] = found.keys[first]
    rest = re.sub(r"[a-z]+_[a-z_]+", lambda word: names.get(word[0], word[0]), rest)
    return f"{names[first]}{space}{rest}"


def _warn(config: Config, path: Path, found: Found) -> None:
    """Warn of settings of the file that have another effect than they seem to have."""
    handling, watermark = "cluster_partition_handling", "memory_high_watermark"
    if handling in found.lines and not config.cluster:
        found.warn(
            path, found.lines[handling], f"{found.keys[handling]} has no effect on a single node"
        )
    elif handling in found.lines and config.cluster_partition_handling != PAUSE_MINORITY:
        found.warn(
            path,
            found.lines[handling],
            f"{found.keys[handling]} is {config.cluster_partition_handling}, but Leveret always does {PAUSE_MINORITY}: a node that does not"
            " reach the majority of etcd closes its connections until it does",
        )
    if watermark in found.lines and not config.memory_high_watermark.of(2**40):
        found.warn(
            path,
            found.lines[watermark],
            f"{found.keys[watermark]} is 0: the memory alarm never ends, and all publishers are blocked",
        )


def read(path: Path) -> Found:
    """Read a file of either format; each value is checked on its own.

    Raises:
        ConfigError: the file cannot be read.
    """
    if path.suffix == ".config":
        raise ConfigError(
            f"{path} has the form of Erlang's terms, which is not read: write it as leveret.toml or rabbitmq.conf"
        )
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
    found = Found()
    for name, value in _flat(document, ""):
        line = Line(where.get(name, 0), name, "")
        key = NATIVE.get(name)
        if key is None:
            found.errors.append(_unknown(path, line.number, name, list(NATIVE)))
        else:
            found.take(path, line, key, key.from_toml, value)
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
    found, folder = Found(), None
    for line in _rabbitmq_lines(source, path, found):
        group = next((g for g in COLLECTED if line.key == g or line.key.startswith(g + ".")), None)
        if group is not None:
            collected[group][line.key[len(group) + 1 :]] = line
        elif line.key == "log.dir":
            folder = line
        else:
            _take_key(line, path, found)
    for name, (of, take) in COLLECTED.items():
        if collected[name]:
            found.take_group(path, collected[name], of, take)
    if folder is not None:
        _place_log(folder, path, found)
    if "log_file_level" in found.values and found.values.get("log_file") is None:
        found.values.setdefault("log_level", found.values["log_file_level"])
    return found


def _take_key(line: Line, path: Path, found: Found) -> None:
    """Take a key that sets a value on its own, or warn that it has no effect."""
    key = RABBITMQ.get(line.key)
    if key is not None and key.from_conf is not None:
        found.take(path, line, key, key.from_conf, line.value)
    elif line.key == "log.console":
        if line.value != "true":
            found.take(path, line, NATIVE["log.level"], _no_console, line.value)
    elif (why := entry_of(line.key, WITHOUT_EFFECT)) is not None:
        found.warn(path, line.number, f"{line.key} has no effect: {why}")
    else:
        found.errors.append(_unknown(path, line.number, line.key, _rabbitmq_names()))


def _rabbitmq_names() -> list[str]:
    names = [name for key in KEYS for name in key.rabbitmq.split()]
    families = [name.removesuffix(".*") for name in (*WITHOUT_EFFECT, *LACKING)]
    return [*names, *_LISTENERS, "log.console", "log.dir", *families]


def _rabbitmq_lines(source: str, path: Path, found: Found) -> Iterator[Line]:
    for number, raw in enumerate(source.splitlines(), 1):
        stripped = raw.partition("#")[0].strip()
        if not stripped:
            continue
        key, equals, value = stripped.partition("=")
        if equals and key.strip() and value.strip():
            yield Line(number, key.strip(), value.strip())
        else:
            found.errors.append(LineError(path, number, f'"{stripped}" is not key = value'))


def _no_console(value: str) -> str:
    conf_switch(value)
    return "none"


def _place_log(folder: Line, path: Path, found: Found) -> None:
    """Put a log file with a relative path into the folder of ``log.dir``."""
    file = found.values.get("log_file")
    if file is None:
        text = "log.dir has no effect without log.file: the log goes to stderr"
        found.warn(path, folder.number, text)
    else:
        found.values["log_file"] = Path(folder.value, file)


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
        raise LineError(path, line.number, f'{line.key} is "{value}"; allowed: PORT, HOST:PORT')
    found = _converted(parse_address, value, path, line.number, line.key)
    return replace(found, scheme=_SCHEMES[kind])  # type: ignore[no-any-return]


def _texts(
    lines: dict[str, Line], path: Path, allowed: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """Collect the values of numbered keys, in the order of the file."""
    for name, line in lines.items():
        if not name or "." in name:
            raise _unknown(path, line.number, line.key, [line.key + ".1"])
        if allowed is not None and line.value not in allowed:
            texts = line.key, line.value, ", ".join(allowed)
            raise LineError(path, line.number, '{} is "{}"; allowed: {}'.format(*texts))
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
        raise LineError(path, bare.number, f'loopback_users is "{bare.value}"; allowed: none')
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
    """Parse a limit; if both forms are given the relative one counts, as RabbitMQ's ``rabbit.schema`` says."""
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
            raise _unknown(path, line.number, line.key, ["auth_backends.1"])
        if line.value not in _BACKENDS:
            allowed = ", ".join(_BACKENDS)
            raise LineError(path, line.number, f'{line.key} is "{line.value}"; allowed: {allowed}')
        link = found.setdefault(int(number), {})
        if link and not (what and link.keys() <= {"authn", "authz"}):
            raise LineError(path, line.number, f"{line.key} is given twice")
        link[what] = _BACKENDS[line.value]
    return tuple(_link(found[number]) for number in sorted(found))


def _link(named: dict[str, str]) -> str:
    one = next(iter(named.values()))
    both = [named.get("authn", one), named.get("authz", one)]
    return LINK_SEPARATOR.join(dict.fromkeys(both))


COLLECTED: Final[dict[str, tuple[str, Take]]] = {
    "listeners": ("listen", _listeners),
    "auth_mechanisms": ("auth_mechanisms", partial(_texts, allowed=MECHANISMS)),
    "ssl_options.versions": ("tls_versions", partial(_texts, allowed=TLS_VERSIONS)),
    "ssl_options.ciphers": ("tls_ciphers", _texts),
    "default_user_tags": ("default_user_tags", _user_tags),
    "loopback_users": ("loopback_users", _loopback_users),
    "auth_backends": ("auth_backends", _auth_backends),
    "default_permissions": ("default_permissions", _permissions),
    "vm_memory_high_watermark": ("memory_high_watermark", _limit),
    "disk_free_limit": ("disk_free_limit", _limit),
}
"""Groups of keys that make one field together: the field, and the function that reads the group's lines."""


def _converted(convert: Any, value: Any, path: Path, line: int, name: str) -> Any:
    try:
        return convert(value)
    except ValueError as error:
        shown = "..." if name.endswith(("pass", "password")) else value
        raise LineError(path, line, f'{name} is "{shown}"; allowed: {error}') from error
    except ConfigError as error:
        raise LineError(path, line, f"{name}: {error}") from error


def _unknown(path: Path, line: int, name: str, known: list[str]) -> LineError:
    why = entry_of(name, LACKING) if path.suffix == ".conf" else None
    if why is not None:
        return LineError(path, line, f"{name} is a key of RabbitMQ's that Leveret lacks: {why}")
    leaves = {key.rpartition(".")[2]: key for key in known}
    near = difflib.get_close_matches(name, known, 1, 0.6)
    near = near or [leaves[leaf] for leaf in difflib.get_close_matches(name, leaves, 1, 0.6)]
    tail = name.rpartition(".")[2]
    near = near or [leaves[leaf] for leaf in difflib.get_close_matches(tail, leaves, 1, 0.7)]
    suggestion = f'; did you mean "{near[0]}"?' if near else ""
    return LineError(path, line, f'unknown key "{name}"{suggestion}')
