"""The settings in effect in a queue: its arguments, without their wire types, and its policies.

The lowest of all limits holds, whether an argument, a policy or an operator policy sets it; for other
settings an argument overrules a policy, and an operator policy does not count. As in RabbitMQ 3.10.8,
``rabbit_amqqueue_process:process_args_policy`` and ``rabbit_policy:get``. Of a quorum queue a policy overrules
``x-expires`` and ``x-overflow``, and the overflow ``reject-publish-dlx`` counts as ``drop-head``
(``rabbit_quorum_queue:ra_machine_config``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from leveret.broker.registry.queue_types import CLASSIC, QUEUE_TYPE, QUORUM
from leveret.core.limits import PRIORITIES_MAX, TTL_MS_MAX
from leveret.queue_backing.api import QueueMode

if TYPE_CHECKING:
    from leveret.metadata.tables import PolicyRow

Arguments: TypeAlias = "dict[str, tuple[str, Any]]"


class QueueSettings(Struct):
    """The settings that arguments and policies make; None = neither does.

    Attributes:
        delivery_limit: a message that has come back more often is dropped.
        replay_retention_ms, replay_retention_bytes: how long settled messages stay; by policies only.
    """

    queue_type: str = CLASSIC
    expires_ms: int | None = None
    message_ttl_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    max_priority: int | None = None
    overflow: str | None = None
    queue_mode: QueueMode | None = None
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    replay_retention_ms: int | None = None
    replay_retention_bytes: int | None = None

    @property
    def is_quorum(self) -> bool:
        return self.queue_type == QUORUM

    @property
    def highest_priority(self) -> int:
        """The highest priority of the queue; 0 when it has no ``x-max-priority``."""
        return min(self.max_priority or 0, PRIORITIES_MAX)


NO_SETTINGS: Final = QueueSettings()

_LIMITS: Final[Mapping[str, str]] = {
    "expires": "expires_ms",
    "message-ttl": "message_ttl_ms",
    "max-length": "max_length",
    "max-length-bytes": "max_length_bytes",
    "delivery-limit": "delivery_limit",
}
_CHOICES: Final[Mapping[str, str]] = {
    "overflow": "overflow",
    "queue-mode": "queue_mode",
    "dead-letter-exchange": "dead_letter_exchange",
    "dead-letter-routing-key": "dead_letter_routing_key",
}
_FIELDS: Final = {
    **{f"x-{key}": attribute for key, attribute in (*_LIMITS.items(), *_CHOICES.items())},
    "x-max-priority": "max_priority",
    "x-single-active-consumer": "single_active_consumer",
    QUEUE_TYPE: "queue_type",
}
_DELIVERY_LIMIT: Final = "x-delivery-limit"
_RETENTION: Final = "replay-retention"
_RETENTION_BYTES: Final = "replay-retention-bytes"
_UNITS_MS: Final[Mapping[str, int]] = {
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "D": 86_400_000,
    "M": 30 * 86_400_000,
    "Y": 365 * 86_400_000,
}
_TIMES: Final = frozenset({"expires", "message-ttl"})
_POLICY_OVERRULES: Final = frozenset({"expires", "overflow"})  # the argument of a quorum queue
_INTEGERS: Final = frozenset("bBsuIilL")


def settings_of(arguments: Arguments) -> QueueSettings:
    """Return the settings that checked arguments make; ``NO_SETTINGS`` when they make none."""
    values: dict[str, Any] = {}
    for name, attribute in _FIELDS.items():
        if name in arguments:
            letter, value = arguments[name]
            if name == _DELIVERY_LIMIT and letter not in _INTEGERS:
                continue  # RabbitMQ does not check it, and no count is larger than anything else
            values[attribute] = (
                value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
            )
    if values.get("queue_type") == CLASSIC:
        del values["queue_type"]
    return _effective(QueueSettings(**values)) if values else NO_SETTINGS


def _effective(settings: QueueSettings) -> QueueSettings:
    if settings.is_quorum and settings.overflow == "reject-publish-dlx":
        settings.overflow = None
    return settings


class AppliedPolicies:
    """The policies that apply to a queue or exchange; one object for all with the same policies.

    Attributes:
        policy: the policy, None = no policy applies.
        operator: the operator policy, likewise.
        definition: both merged, by key; empty when neither applies.
        settings: of a queue without arguments under these policies.
    """

    def __init__(self, policy: PolicyRow | None = None, operator: PolicyRow | None = None) -> None:
        self.policy = policy
        self.operator = operator
        self.definition: Mapping[str, Any] = _merged(policy, operator)
        self.settings = settings_under(NO_SETTINGS, self.definition)


def _merged(policy: PolicyRow | None, operator: PolicyRow | None) -> dict[str, Any]:
    merged = dict(policy.definition) if policy is not None else {}
    for key, value in operator.definition.items() if operator is not None else ():
        merged[key] = min(merged[key], value, key=_size_of) if key in merged else value
    return dict(sorted(merged.items()))


def retention_ms(value: int | str) -> int:
    """Return a checked ``replay-retention`` in ms: a number of ms, or a text as ``24h`` (units ``YMDhms``)."""
    return value if isinstance(value, int) else int(value[:-1]) * _UNITS_MS[value[-1]]


def _size_of(value: Any) -> Any:
    """Return what two values of a key that operators may set are compared by."""
    return retention_ms(value) if isinstance(value, str) else value


def settings_under(own: QueueSettings, definition: Mapping[str, Any]) -> QueueSettings:
    """Return the settings in effect: the arguments' settings under the policies that apply."""
    changes: dict[str, Any] = {}
    for key, attribute in _LIMITS.items():
        if key in definition:
            limit = definition[key]
            if key in _TIMES:
                limit = min(limit, TTL_MS_MAX)  # policies may have larger ones
            argument = getattr(own, attribute)
            if argument is not None and not (own.is_quorum and key in _POLICY_OVERRULES):
                limit = min(limit, argument)
            changes[attribute] = limit
    for key, attribute in _CHOICES.items():
        is_free = getattr(own, attribute) is None or (own.is_quorum and key in _POLICY_OVERRULES)
        if key in definition and is_free:
            changes[attribute] = definition[key]
    if _RETENTION in definition:
        changes["replay_retention_ms"] = retention_ms(definition[_RETENTION])
    if _RETENTION_BYTES in definition:
        changes["replay_retention_bytes"] = definition[_RETENTION_BYTES]
    return _effective(replace(own, **changes)) if changes else own


NO_POLICIES: Final = AppliedPolicies()
