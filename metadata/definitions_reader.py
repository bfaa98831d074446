"""Import of definitions: RabbitMQ's JSON document to rows.

The peculiar forms of 3.10's command line are understood: objects as lists of pairs, no tags as ``""``, tags as
text with commas. References between rows are not checked here.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from leveret.amqp.errors import SyntaxError_
from leveret.amqp.tables import Table, decode_table, plain, typed_table
from leveret.core.errors import ConfigError
from leveret.metadata.definitions import EXACT_ARGUMENTS, OPERATOR_POLICY, VHOST_LIMITS, Definitions
from leveret.metadata.passwords import ALGORITHMS, MD5, SHA256, hash_password
from leveret.metadata.tables import (
    BindingRow,
    ExchangeRow,
    GlobalParameterRow,
    ParameterRow,
    PermissionRow,
    PolicyRow,
    QueueRow,
    Row,
    TopicPermissionRow,
    UserRow,
    VhostRow,
)

Entry: TypeAlias = Mapping[str, Any]
NewSalt: TypeAlias = Callable[[], bytes]

APPLY_TO: Final = ("all", "queues", "exchanges")
USER_LIMITS: Final = ("max-connections", "max-channels")
LIMITS_OF_VHOST: Final = ("max-connections", "max-queues")

# These versions do not name the algorithm.
_WITH_MD5: Final = tuple(f"3.{minor}." for minor in range(6))


def parsed_rows(definitions: Any, new_salt: NewSalt) -> Iterator[Row]:
    """Yield the rows of a definitions document one by one.

    Args:
        definitions: the parsed JSON.
        new_salt: makes salts for users with a plain ``password``.

    Raises:
        ConfigError: a field is missing or has the wrong type; the text says where.
    """
    if not isinstance(definitions, dict):
        raise ConfigError(f"definitions are a {type(definitions).__name__}, not an object")
    parse_user = partial(_parse_user, new_salt=new_salt, algorithm=_default_algorithm(definitions))
    parsers: dict[str, Callable[[Entry], Row]] = {"users": parse_user, **_PARSERS}
    for section, parse in parsers.items():
        entries = definitions.get(section) or []
        if not isinstance(entries, list):
            raise ConfigError(f"{section} is no list")
        for number, entry in enumerate(entries):
            where = f"{section}[{number}]"
            try:
                yield parse(_object(entry))
            except KeyError as error:
                raise ConfigError(f"{where} has no {error.args[0]!r}") from error
            except (TypeError, ValueError, Base64Error) as error:
                raise ConfigError(f"{where}: {error}") from error


def _default_algorithm(definitions: Definitions) -> str:
    version = definitions.get("rabbit_version") or definitions.get("rabbitmq_version")
    return MD5 if str(version).startswith(_WITH_MD5) else SHA256


def _object(value: Any) -> Definitions:
    """Return a JSON object; a list of pairs from the command line is converted."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and all(isinstance(e, list) and len(e) == 2 for e in value):
        return dict(value)
    raise TypeError(f"{value!r} is not an object")


def _unpaired(value: Any) -> Any:
    """Return a parameter's value with lists of (name, value) pairs converted to objects."""
    is_paired = isinstance(value, list) and value and all(
        isinstance(e, list) and len(e) == 2 and isinstance(e[0], str) for e in value
    )  # fmt: skip
    return {name: _unpaired(each) for name, each in value} if is_paired else value


def _text(entry: Entry, name: str, default: str | None = None) -> str:
    value = entry[name] if default is None else entry.get(name, default)
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, not a text")
    value.encode("utf-8", "surrogateescape")  # raises ValueError for a lone surrogate
    return value


def _name(entry: Entry) -> str:
    name = _text(entry, "name")
    if not name:
        raise ValueError("name is empty")
    return name


def _flag(entry: Entry, name: str, default: bool) -> bool:
    value = entry.get(name, default)
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, not true or false")
    return value


def _whole(entry: Entry, name: str, default: int) -> int:
    value = entry.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, not an integer")
    return value


def _tags(value: Any) -> list[str]:
    if isinstance(value, str):
        value = value.split(",")
    tags = value or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise TypeError(f"tags are {value!r}, not texts")
    return [tag.strip() for tag in tags if tag.strip()]


def _limits(value: Any, names: tuple[str, ...]) -> dict[str, int]:
    limits = _object(value or {})
    for name in limits:
        if name not in names:
            raise ValueError(f"{name!r} is none of the limits {', '.join(names)}")
        _whole(limits, name, 0)
    return limits


def _arguments(entry: Entry) -> Table:
    shown = _object(entry.get("arguments") or {})
    if EXACT_ARGUMENTS in entry:
        try:
            exact, _ = decode_table(b64decode(_text(entry, EXACT_ARGUMENTS), validate=True), 0)
        except SyntaxError_ as error:
            raise ValueError(f"{EXACT_ARGUMENTS}: {error}") from error
        if plain(exact) == shown:
            return exact
    return typed_table(shown)


def _parse_user(entry: Entry, new_salt: NewSalt, algorithm: str) -> UserRow:
    algorithm = _text(entry, "hashing_algorithm", algorithm)
    if algorithm not in ALGORITHMS:
        raise ValueError(f"hashing_algorithm {algorithm!r} is none of {', '.join(ALGORITHMS)}")
    if "password" in entry:
        secret = _text(entry, "password").encode("utf-8", "surrogateescape")
        stored = hash_password(secret, new_salt(), algorithm) if secret else b""
    else:  # without either the user cannot log in with a password
        stored = b64decode(_text(entry, "password_hash", ""), validate=True)
    limits = _limits(entry.get("limits"), USER_LIMITS)
    return UserRow(_name(entry), stored, algorithm, _tags(entry.get("tags")), limits)


def _parse_vhost(entry: Entry) -> VhostRow:
    about = _object(entry.get("metadata") or {})
    description = about.get("description") or entry.get("description") or ""
    text = _text({"description": description}, "description")
    queue_type = _text(about, "default_queue_type", "")
    return VhostRow(_name(entry), text, _tags(about.get("tags")), queue_type)


def _texts_of(kind: Any) -> Callable[[Entry], Row]:
    """Return the parser of rows whose fields are all texts."""
    return lambda entry: kind(*(_text(entry, name) for name in kind.__struct_fields__))


def _parse_parameter(entry: Entry) -> Row:
    vhost, component = _text(entry, "vhost"), _text(entry, "component")
    name, value = _name(entry), entry["value"]
    if component == OPERATOR_POLICY:
        return _policy_row(vhost, name, _object(value), is_operator=True)
    if component == VHOST_LIMITS:
        return ParameterRow(vhost, component, name, _limits(value, LIMITS_OF_VHOST))
    return ParameterRow(vhost, component, name, _unpaired(value))


def _parse_policy(entry: Entry) -> PolicyRow:
    return _policy_row(_text(entry, "vhost"), _name(entry), entry, is_operator=False)


def _policy_row(vhost: str, name: str, entry: Entry, is_operator: bool) -> PolicyRow:
    pattern, definition = _text(entry, "pattern"), _object(entry["definition"])
    apply_to = _text(entry, "apply-to", "all")
    if apply_to not in APPLY_TO:
        raise ValueError(f"apply-to {apply_to!r} is none of {', '.join(APPLY_TO)}")
    priority = _whole(entry, "priority", 0)
    if not definition:
        raise ValueError("definition is empty")
    return PolicyRow(vhost, name, pattern, definition, priority, apply_to, is_operator)


def _parse_global_parameter(entry: Entry) -> GlobalParameterRow:
    return GlobalParameterRow(_name(entry), _unpaired(entry["value"]))


def _parse_exchange(entry: Entry) -> ExchangeRow:
    return ExchangeRow(
        _text(entry, "vhost"),
        _text(entry, "name"),
        _text(entry, "type"),
        _flag(entry, "durable", True),
        _flag(entry, "auto_delete", False),
        _flag(entry, "internal", False),
        _arguments(entry),
    )


def _parse_queue(entry: Entry) -> QueueRow:
    arguments = _arguments(entry)
    kind = _text(entry, "type", "classic")
    if kind != "classic":
        arguments.setdefault("x-queue-type", ("S", kind.encode()))
    return QueueRow(
        _text(entry, "vhost"),
        _name(entry),
        _flag(entry, "durable", True),
        _flag(entry, "auto_delete", False),
        arguments,
    )


def _parse_binding(entry: Entry) -> BindingRow:
    kind = _text(entry, "destination_type")
    if kind not in {"queue", "exchange"}:
        raise ValueError(f"destination_type {kind!r} is neither queue nor exchange")
    return BindingRow(
        _text(entry, "vhost"),
        _text(entry, "source"),
        kind,
        _text(entry, "destination"),
        _text(entry, "routing_key", "").encode("utf-8", "surrogateescape"),
        _arguments(entry),
    )


_PARSERS: Final[dict[str, Callable[[Entry], Row]]] = {
    "vhosts": _parse_vhost,
    "permissions": _texts_of(PermissionRow),
    "topic_permissions": _texts_of(TopicPermissionRow),
    "parameters": _parse_parameter,
    "global_parameters": _parse_global_parameter,
    "policies": _parse_policy,
    "queues": _parse_queue,
    "exchanges": _parse_exchange,
    "bindings": _parse_binding,
}
