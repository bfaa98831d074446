"""What takes effect in a queue: its arguments without their wire types, and its policies.

Of a limit the least holds, whether an argument, a policy or an operator policy sets it; of everything
else an argument is stronger than a policy, and the operator's has no say. Source:
``rabbit_amqqueue_process:process_args_policy`` and ``rabbit_policy:get``, 3.10.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from leveret.core.limits import TTL_MS_MAX
from leveret.queue_backing.api import QueueMode

if TYPE_CHECKING:
    from leveret.metadata.tables import PolicyRow

PRIORITY_MAX: Final = 255

Arguments: TypeAlias = "dict[str, tuple[str, Any]]"


class ArgumentsView(Struct):
    """What arguments and policies say about a queue, without wire types; None = nothing."""

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

    @property
    def highest_priority(self) -> int:
        """The highest priority that the queue tells from others; 0 when it knows none."""
        return min(self.max_priority or 0, PRIORITY_MAX)


NO_ARGUMENTS: Final = ArgumentsView()

_FIELDS: Final = {
    "x-expires": "expires_ms",
    "x-message-ttl": "message_ttl_ms",
    "x-max-length": "max_length",
    "x-max-length-bytes": "max_length_bytes",
    "x-max-priority": "max_priority",
    "x-overflow": "overflow",
    "x-queue-mode": "queue_mode",
    "x-dead-letter-exchange": "dead_letter_exchange",
    "x-dead-letter-routing-key": "dead_letter_routing_key",
    "x-single-active-consumer": "single_active_consumer",
}
_LIMITS: Final[Mapping[str, str]] = {
    "expires": "expires_ms",
    "message-ttl": "message_ttl_ms",
    "max-length": "max_length",
    "max-length-bytes": "max_length_bytes",
}
_CHOICES: Final[Mapping[str, str]] = {
    "overflow": "overflow",
    "queue-mode": "queue_mode",
    "dead-letter-exchange": "dead_letter_exchange",
    "dead-letter-routing-key": "dead_letter_routing_key",
}
_TIMES: Final = frozenset({"expires", "message-ttl"})


def view_of(arguments: Arguments) -> ArgumentsView:
    """Return the view of checked arguments; the common empty one when none of them matters."""
    values: dict[str, Any] = {}
    for name, attribute in _FIELDS.items():
        if name in arguments:
            value = arguments[name][1]
            values[attribute] = (
                value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
            )
    return ArgumentsView(**values) if values else NO_ARGUMENTS


@dataclass(frozen=True, slots=True, eq=False)
class Applied:
    """What applies to a queue or exchange; the same object for all to which the same applies.

    Attributes:
        policy: the policy, None = no one.
        operator: the operator policy, likewise.
        definition: what both come to, by key; empty when neither applies.
        view: the same for a queue without arguments.
    """

    policy: PolicyRow | None = None
    operator: PolicyRow | None = None
    definition: Mapping[str, Any] = field(init=False)
    view: ArgumentsView = field(init=False)

    def __post_init__(self) -> None:
        """Work out what both come to."""
        object.__setattr__(self, "definition", _merged(self.policy, self.operator))
        object.__setattr__(self, "view", view_under(NO_ARGUMENTS, self.definition))


def _merged(policy: PolicyRow | None, operator: PolicyRow | None) -> dict[str, Any]:
    merged = dict(policy.definition) if policy is not None else {}
    for key, value in operator.definition.items() if operator is not None else ():
        merged[key] = min(merged[key], value) if key in merged else value
    return dict(sorted(merged.items()))


def view_under(own: ArgumentsView, definition: Mapping[str, Any]) -> ArgumentsView:
    """Return what takes effect in a queue.

    Args:
        own: its arguments.
        definition: of the policies that apply.
    """
    changes: dict[str, Any] = {}
    for key, attribute in _LIMITS.items():
        if key in definition:
            limit = definition[key]
            if key in _TIMES:
                limit = min(limit, TTL_MS_MAX)  # a policy's is not checked to be less
            argument = getattr(own, attribute)
            changes[attribute] = limit if argument is None else min(limit, argument)
    for key, attribute in _CHOICES.items():
        if key in definition and getattr(own, attribute) is None:
            changes[attribute] = definition[key]
    return replace(own, **changes) if changes else own


NOTHING: Final = Applied()
