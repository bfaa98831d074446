"""Checks of the arguments of queue.declare and basic.consume, with RabbitMQ's error texts.

Every argument that RabbitMQ 3.10 knows is checked here, also those without effect so far. ``_CHECKS`` has
RabbitMQ's order of checks, so that the first error is the same. Unknown arguments are stored and ignored.

Streams: a declare that RabbitMQ refuses is refused with its text. All others are refused as an unsupported
type, because Leveret has no streams, and a queue in their place would break promises that the client relies on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leveret.amqp.erlang_text import binary
from leveret.amqp.errors import PreconditionFailed, ResourceLocked
from leveret.amqp.tables import type_name
from leveret.broker.queue.equivalence import assert_argument, assert_property
from leveret.broker.registry.queue_types import (
    CLASSIC,
    QUEUE_TYPE,
    QUORUM,
    STREAM,
    TYPES,
    QueueType,
    type_of,
)
from leveret.core.limits import PRIORITIES_MAX, TTL_MS_MAX

if TYPE_CHECKING:
    from leveret.amqp.tables import Field, Table
    from leveret.broker.registry.registry import QueueEntry

DEAD_LETTER_EXCHANGE: Final = "x-dead-letter-exchange"
_IDLE_KEYS: Final = frozenset({
    "max-in-memory-length", "max-in-memory-bytes", "queue-version", "queue-master-locator",
    "ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-shutdown",
    "ha-promote-on-failure",
})  # fmt: skip
WITHOUT_EFFECT: Final = _IDLE_KEYS | {f"x-{key}" for key in _IDLE_KEYS}
"""Keys of policies and arguments of queues that are checked, stored and shown, and not carried out so far."""

_OF_CLUSTERS: Final = frozenset({"queue-master-locator", "x-queue-master-locator"})
_INTEGERS: Final = frozenset("bBsuIilL")
_SERVER_NAMED: Final = "amq.gen-"


def without_effect(names: Iterable[str], is_clustered: bool = False) -> str:
    """Return those of some keys or arguments that have no effect so far, with commas; mostly empty."""
    idle = WITHOUT_EFFECT.intersection(names)
    return ", ".join(sorted(idle - _OF_CLUSTERS if is_clustered else idle))


Check: TypeAlias = Callable[["Field", "Table"], str | None]
"""Checks one argument, given the whole table; returns RabbitMQ's reason to refuse it, or None."""


def _integer(field: Field, _: Table) -> str | None:
    if field[0] in _INTEGERS:
        return None
    return f'"expected integer, got {type_name(field)}"'


def _not_negative(field: Field, table: Table) -> str | None:
    return _integer(field, table) or (f"{{value_negative,{field[1]}}}" if field[1] < 0 else None)


def _positive(field: Field, table: Table) -> str | None:
    return _not_negative(field, table) or ("{value_zero,0}" if field[1] == 0 else None)


def _ttl(field: Field, table: Table) -> str | None:
    reason = _not_negative(field, table)
    return reason or (f"{{value_too_large,{field[1]}}}" if field[1] > TTL_MS_MAX else None)


def _expires(field: Field, table: Table) -> str | None:
    return _positive(field, table) or _ttl(field, table)


def _priorities(field: Field, table: Table) -> str | None:
    reason = _not_negative(field, table)
    return reason or (f"{{max_value_exceeded,{field[1]}}}" if field[1] > PRIORITIES_MAX else None)


def _version(field: Field, table: Table) -> str | None:
    reason = _not_negative(field, table)
    return reason or (
        _listed(f"unsupported queue version '{field[1]}'") if field[1] not in {1, 2} else None
    )


def _of_type(letter: str) -> Check:
    return lambda field, _: None if field[0] == letter else _unacceptable(field)


_longstr: Final = _of_type("S")
_bool: Final = _of_type("t")


def _dead_letter_key(field: Field, table: Table) -> str | None:
    if DEAD_LETTER_EXCHANGE in table:
        return _longstr(field, table)
    return _longstr(field, table) or "routing_key_but_no_dlx_defined"


def _one_of(words: tuple[bytes, ...], reason: str) -> Check:
    def check(field: Field, table: Table) -> str | None:
        return _longstr(field, table) or (None if field[1] in words else reason)

    return check


def _named(words: tuple[bytes, ...], what: str) -> Check:
    def check(field: Field, table: Table) -> str | None:
        reason = _longstr(field, table)
        if reason is not None or field[1] in words:
            return reason
        name: str = field[1].decode("utf-8", "surrogateescape")
        return _listed(f"unsupported {what} '{name}'")

    return check


def _locator(field: Field, table: Table) -> str | None:
    # RabbitMQ fails with 541 here.
    is_known = field[0] == "S" and field[1] in {b"min-masters", b"client-local", b"random"}
    return None if is_known else "invalid_queue_locator_arg"


def _anything(field: Field, table: Table) -> str | None:
    return None


def _unacceptable(field: Field) -> str:
    return f"{{unacceptable_type,{type_name(field)}}}"


def _listed(text: str) -> str:
    """Return a text as ``~p`` prints the list of its bytes: quoted, or as numbers."""
    wire = text.encode("utf-8", "surrogateescape")
    printed = binary(wire)
    return printed[2:-2] if printed.startswith('<<"') else f"[{','.join(map(str, wire))}]"


_CHECKS: Final[dict[str, Check]] = {
    "x-expires": _expires,
    "x-message-ttl": _ttl,
    DEAD_LETTER_EXCHANGE: _longstr,
    "x-dead-letter-routing-key": _dead_letter_key,
    "x-dead-letter-strategy": _one_of((b"at-most-once", b"at-least-once"), "invalid_dlx_strategy"),
    "x-max-length": _not_negative,
    "x-max-length-bytes": _not_negative,
    "x-max-in-memory-length": _not_negative,
    "x-max-in-memory-bytes": _not_negative,
    "x-max-priority": _priorities,
    "x-overflow": _one_of(
        (b"drop-head", b"reject-publish", b"reject-publish-dlx"), "invalid_overflow"
    ),
    "x-queue-mode": _named((b"default", b"lazy"), "queue mode"),
    "x-queue-version": _version,
    "x-single-active-consumer": _bool,
    QUEUE_TYPE: _named(tuple(name.encode() for name in TYPES), "queue type"),
    "x-quorum-initial-group-size": _positive,
    "x-max-age": _anything,
    "x-stream-max-segment-size-bytes": _not_negative,
    "x-initial-cluster-size": _positive,
    "x-queue-leader-locator": _one_of(
        (b"client-local", b"balanced", b"random", b"least-leaders"), "invalid_queue_locator_arg"
    ),
    "x-queue-master-locator": _locator,
    "x-delivery-limit": _anything,
}
_CONSUMER_CHECKS: Final[dict[str, Check]] = {
    "x-priority": _integer,
    "x-cancel-on-ha-failover": _bool,
    "x-credit": _of_type(
        "F"
    ),  # of the AMQP 1.0 plug-in; RabbitMQ fails with 541 when it is no table
}


_OF_CONSUMERS: Final = frozenset().union(*(each.consumer_arguments for each in TYPES.values()))
_CLASSIC: Final = TYPES[CLASSIC]
OFFERED: Final = frozenset({CLASSIC, QUORUM})
"""The types of queues that there are here."""


def check(
    arguments: Table,
    vhost: str,
    name: str,
    *,
    durable: bool,
    exclusive: bool = False,
    auto_delete: bool = False,
) -> None:
    """Check the arguments of a new queue; its properties are given as the client said them.

    Raises:
        PreconditionFailed: the first wrong argument, with RabbitMQ's text.
    """
    what = f"queue '{name}' in vhost '{vhost}'"
    _check_one(QUEUE_TYPE, arguments, what)
    kind = type_of(arguments)
    if kind is not _CLASSIC and name.startswith(_SERVER_NAMED):
        raise PreconditionFailed(f"Cannot declare a server-named queue for type {kind.module}")
    for key in _CHECKS:
        if key in kind.arguments:
            _check_one(key, arguments, what)
    for key in arguments:
        if key in _CHECKS and key not in kind.arguments:
            raise PreconditionFailed(f"invalid arg '{key}' for {what} of queue type {kind.module}")
    if kind is not _CLASSIC:
        _check_properties(kind, what, durable, exclusive, auto_delete)


def _check_one(
    key: str, arguments: Table, what: str, checks: Mapping[str, Check] = _CHECKS
) -> None:
    field = arguments.get(key)
    reason = checks[key](field, arguments) if field is not None else None
    if reason is not None:
        raise PreconditionFailed(f"invalid arg '{key}' for {what}: {reason}")


def _check_properties(
    kind: QueueType, what: str, durable: bool, exclusive: bool, auto_delete: bool
) -> None:
    """Refuse a replicated queue with a wrong property, and every stream."""
    for is_wrong, problem in (
        (auto_delete, "auto-delete"),
        (exclusive, "exclusive-owner"),
        (not durable, "non-durable"),
    ):
        if is_wrong:
            raise PreconditionFailed(f"invalid property '{problem}' for {what}")
    if kind.name == STREAM:  # Differs from RabbitMQ: there are none here.
        reason = _listed(f"unsupported queue type '{kind.name}'")
        raise PreconditionFailed(f"invalid arg '{QUEUE_TYPE}' for {what}: {reason}")


def asked_type(arguments: Table) -> str:
    """Return the type of queue that arguments ask for, which need not exist; they need not be valid."""
    letter, name = arguments.get(QUEUE_TYPE, ("S", CLASSIC.encode()))
    return name.decode("utf-8", "surrogateescape") if letter == "S" else CLASSIC


def as_classic(arguments: Table) -> Table:
    """Return the arguments for a classic queue in the place of one of another type: without those of that type."""
    known = frozenset(_CLASSIC.arguments) - {QUEUE_TYPE}
    return {key: of for key, of in arguments.items() if key in known or key not in _CHECKS}


def check_equivalent(
    entry: QueueEntry, durable: bool, auto_delete: bool, owner: Any, arguments: Table
) -> None:
    """Check that a queue that exists is equivalent to a declare.

    An exclusive one is declared with ``durable`` False and the connection's reader as the ``owner``.

    Raises:
        ResourceLocked: the queue belongs to another connection, or only one side is exclusive.
        PreconditionFailed: names the first other difference.
    """
    if entry.exclusive is not owner:
        raise locked(entry.name, entry.vhost_name)
    what = f"queue '{entry.name}' in vhost '{entry.vhost_name}'"
    assert_property(what, "durable", entry.durable, durable)
    assert_property(what, "auto_delete", entry.auto_delete, auto_delete)
    current = entry.arguments
    kind = type_of(current)
    for key in kind.arguments:
        if key != QUEUE_TYPE or not _is_classic(current, arguments):
            assert_argument(what, key, current, arguments)


def _is_classic(*tables: Table) -> bool:
    """Whether all ask for the queue type classic, by name or by default."""
    return all(each.get(QUEUE_TYPE, ("S", b"classic")) == ("S", b"classic") for each in tables)


def locked(name: str, vhost: str) -> ResourceLocked:
    """Return the error for a queue that is exclusive to another connection."""
    return ResourceLocked(
        f"cannot obtain exclusive access to locked queue '{name}' in vhost '{vhost}'. It could be "
        "originally declared on another connection or the exclusive property value does not match "
        "that of the original declaration."
    )


def check_consumer_arguments(arguments: Table, entry: QueueEntry) -> int:
    """Return the priority that basic.consume asks for; PreconditionFailed for a wrong argument."""
    if not arguments:
        return 0
    what, kind = str(entry), TYPES[entry.settings.queue_type]
    for key in _CONSUMER_CHECKS:
        if key in kind.consumer_arguments:
            _check_one(key, arguments, what, _CONSUMER_CHECKS)
    for key in arguments:
        if key in _OF_CONSUMERS and key not in kind.consumer_arguments:
            raise PreconditionFailed(f"invalid arg '{key}' for {what} of queue type {kind.module}")
    priority: int = arguments["x-priority"][1] if "x-priority" in arguments else 0
    return priority
