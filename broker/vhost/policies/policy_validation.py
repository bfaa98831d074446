"""The valid keys and values of policies, and RabbitMQ's texts for all others.

Keys are checked in RabbitMQ's order: those of the broker itself, sorted, then the ``ha-`` ones, then the
master's locator; the first wrong key is reported, unknown ones last. Source: ``rabbit_policies``,
``rabbit_mirror_queue_misc`` and ``rabbit_policy:validation``, 3.10.8.

Differs from RabbitMQ: where it crashes (a definition that is no object, a ``max-age`` without a number,
an ``ha-mode`` that is no text), the value is refused like others of its key. ``replay-retention`` and
``replay-retention-bytes`` are Leveret's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leveret.amqp.erlang_text import string
from leveret.broker.vhost.patterns import PatternError, compile_pattern
from leveret.core.errors import ConfigError
from leveret.routing.json_terms import pairs, term

if TYPE_CHECKING:
    from leveret.metadata.tables import PolicyRow

SEGMENT_BYTES_MAX: Final = 3_000_000_000

_APPLY_TO: Final = ("queues", "exchanges", "all")
_MAX_AGE: Final = re.compile(r"[0-9]+[YMDhms]")
_NONE: Final = "none"

_IsValid: TypeAlias = Callable[[Any], bool]


class PolicyError(ConfigError):
    """A policy has an invalid key or value."""


def _at_least(least: int, most: float = float("inf")) -> _IsValid:
    return lambda value: _is_integer(value) and least <= value <= most


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _one_of(*values: Any) -> _IsValid:
    return lambda value: not isinstance(value, bool | float) and value in values


def _is_retention(value: Any) -> bool:
    """At least a millisecond, as a number of them or as ``max-age`` is written."""
    if _is_age(value):
        return int(value[:-1]) > 0
    return _at_least(1)(value)


def _is_age(value: Any) -> bool:
    return _is_text(value) and _MAX_AGE.fullmatch(value) is not None


_NOT_VALID: Final = "{} is not a valid "
_KEYS: Final[Mapping[str, tuple[_IsValid, str]]] = {
    "alternate-exchange": (_is_text, "alternate exchange name"),
    "dead-letter-exchange": (_is_text, "dead letter exchange name"),
    "dead-letter-routing-key": (_is_text, "dead letter routing key"),
    "dead-letter-strategy": (_one_of("at-most-once", "at-least-once"), "dead letter strategy"),
    "delivery-limit": (_at_least(0), "delivery limit"),
    "expires": (_at_least(1), "queue expiry"),
    "initial-cluster-size": (_at_least(0), "cluster size"),
    "max-age": (_is_age, "max age"),
    "max-in-memory-bytes": (_at_least(0), "maximum memory in bytes"),
    "max-in-memory-length": (_at_least(0), "maximum memory in bytes"),
    "max-length": (_at_least(0), "maximum length"),
    "max-length-bytes": (_at_least(0), "maximum length in bytes"),
    "message-ttl": (_at_least(0), "message TTL"),
    "overflow": (_one_of("drop-head", "reject-publish", "reject-publish-dlx"), "overflow value"),
    "queue-leader-locator": (
        _one_of("client-local", "balanced", "random", "least-leaders"),
        "queue leader locator value",
    ),
    "queue-mode": (_one_of("default", "lazy"), "queue-mode value"),
    "queue-version": (_one_of(1, 2), "queue-version value"),
    "replay-retention": (_is_retention, "replay retention"),
    "replay-retention-bytes": (_at_least(1), "replay retention in bytes"),
    "stream-max-segment-size-bytes": (_at_least(0, SEGMENT_BYTES_MAX), "segment size"),
}
_OPERATORS: Final = frozenset({
    "expires", "message-ttl", "max-length", "max-length-bytes", "max-in-memory-length",
    "max-in-memory-bytes", "delivery-limit", "replay-retention", "replay-retention-bytes",
})  # fmt: skip
_MIRRORING: Final = (
    "ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-shutdown",
    "ha-promote-on-failure",
)  # fmt: skip
_LOCATOR: Final = "queue-master-locator"
_LOCATORS: Final = ("min-masters", "client-local", "random")


def check(row: PolicyRow) -> None:
    """Raise PolicyError for an invalid policy: RabbitMQ's text without ``Validation failed``."""
    if not _is_integer(row.priority):
        raise PolicyError(f"priority should be number, actually was {term(row.priority)}")
    if not _is_text(row.pattern):
        raise PolicyError(f"pattern should be a binary but was {term(row.pattern)}")
    try:
        compile_pattern(row.pattern)
    except PatternError as error:
        raise PolicyError(
            "pattern should be regular expression but is invalid: "
            f"{{{string(error.reason.encode())},{error.position}}}"
        ) from error
    if row.apply_to not in _APPLY_TO:
        raise PolicyError(
            f"apply-to '{row.apply_to}' unrecognised; should be 'queues', 'exchanges' or 'all'"
        )
    check_definition(row.definition, row.is_operator)


def check_definition(definition: Any, is_operator: bool) -> None:
    """Raise PolicyError, as ``check``, for an invalid definition."""
    if not isinstance(definition, dict):
        raise PolicyError(f"definition must be a dictionary: {term(definition)}")
    if not definition:
        raise PolicyError("no policy provided")
    known = _OPERATORS if is_operator else _KEYS.keys()
    for key in sorted(known & definition.keys()):
        is_valid, what = _KEYS[key]
        if not is_valid(definition[key]):
            raise PolicyError(_NOT_VALID.format(term(definition[key])) + what)
    left = {key: definition[key] for key in definition if key not in known}
    if not is_operator:
        _check_mirroring({key: left.pop(key) for key in _MIRRORING if key in left})
        if _LOCATOR in left and (locator := left.pop(_LOCATOR)) not in _LOCATORS:
            raise PolicyError(f"{term(locator)} invalid queue-master-locator value")
    if left:
        raise PolicyError(f"{pairs(left)} are not recognised policy settings")


def _check_mirroring(given: dict[str, Any]) -> None:
    if not given:
        return
    if "ha-mode" not in given:
        raise PolicyError(
            "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"
        )
    mode = given["ha-mode"]
    check_params = _HA_MODES.get(mode) if _is_text(mode) else None
    if check_params is None:
        raise PolicyError(f"{term(mode)} is not a valid ha-mode value")
    check_params(given)
    for key, is_valid, reason in _HA_KEYS:
        if key in given and not is_valid(given[key]):
            raise PolicyError(reason.format(term(given[key])))


def _check_all(given: dict[str, Any]) -> None:
    if "ha-params" in given:
        raise PolicyError('ha-mode="all" does not take parameters')


def _check_exactly(given: dict[str, Any]) -> None:
    count = given.get("ha-params")
    if not _at_least(1)(count):
        shown = term(count) if "ha-params" in given else _NONE
        raise PolicyError(f'ha-mode="exactly" takes an integer, {shown} given')


def _check_nodes(given: dict[str, Any]) -> None:
    nodes = given.get("ha-params")
    if not isinstance(nodes, list):
        shown = term(nodes) if "ha-params" in given else _NONE
        raise PolicyError(f'ha-mode="nodes" takes a list, {shown} given')
    if not nodes:
        raise PolicyError('ha-mode="nodes" list must be non-empty')
    if others := [node for node in nodes if not _is_text(node)]:
        raise PolicyError(
            f'ha-mode="nodes" takes a list of strings, {term(others)} was not a string'
        )


_HA_MODES: Final[Mapping[str, Callable[[dict[str, Any]], None]]] = {
    "all": _check_all,
    "exactly": _check_exactly,
    "nodes": _check_nodes,
}
_PROMOTE: Final = _one_of("always", "when-synced")
_HA_KEYS: Final[tuple[tuple[str, _IsValid, str], ...]] = (
    (
        "ha-sync-mode",
        _one_of("automatic", "manual"),
        'ha-sync-mode must be "manual" or "automatic", got {}',
    ),
    (
        "ha-sync-batch-size",
        _at_least(1),
        "ha-sync-batch-size takes an integer greater than 0, {} given",
    ),
    (
        "ha-promote-on-shutdown",
        _PROMOTE,
        'ha-promote-on-shutdown must be "always" or "when-synced", got {}',
    ),
    (
        "ha-promote-on-failure",
        _PROMOTE,
        'ha-promote-on-failure must be "always" or "when-synced", got {}',
    ),
)
