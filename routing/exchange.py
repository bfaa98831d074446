"""Exchanges, and the registry of their types.

The type of an exchange (``exchange_type.py``) is an index over the bindings of that one exchange. Types of plug-ins
are added to those of this folder with ``register_type``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.amqp.tables import pack, unpack
from leveret.routing.delayed import DELAYED, DelayedMatcher
from leveret.routing.direct import DirectMatcher
from leveret.routing.fanout import FanoutMatcher
from leveret.routing.hashing import ConsistentHashMatcher, ModulusHashMatcher
from leveret.routing.headers import HeadersMatcher
from leveret.routing.random_choice import RandomMatcher
from leveret.routing.topic import TopicMatcher
from leveret.routing.unusable import UnusableMatcher

if TYPE_CHECKING:
    from leveret.amqp.tables import Table
    from leveret.routing.bindings import Binding, Identity
    from leveret.routing.exchange_type import ExchangeType, Matcher

ALTERNATE_EXCHANGE: Final = "alternate-exchange"
DEFAULT_EXCHANGE: Final = ""


_TYPES: Final[dict[str, ExchangeType]] = {
    "direct": DirectMatcher,
    "fanout": FanoutMatcher,
    "topic": TopicMatcher,
    "headers": HeadersMatcher,
    "x-consistent-hash": ConsistentHashMatcher,
    "x-modulus-hash": ModulusHashMatcher,
    "x-random": RandomMatcher,
}


def _delayed(arguments: Table) -> Matcher:
    return DelayedMatcher(arguments, _TYPES)


_TYPES[DELAYED] = _delayed


def register_type(name: str, type_: ExchangeType) -> None:
    """Register an exchange type; ValueError: the name is taken."""
    if name in _TYPES:
        raise ValueError(f"exchange type {name!r} is registered already")
    _TYPES[name] = type_


def is_type(name: str) -> bool:
    """Return whether this exchange type is registered."""
    return name in _TYPES


class Exchange:
    """One exchange of a vhost with the index over its bindings.

    Raises:
        SoftError: the type refuses the arguments.

    Attributes:
        bindings: the bindings of which it is the source, by identity.
        epoch: grows with every change of its bindings, with the deletion of a queue that they lead to, and its own.
        exchange_bindings: how many of them lead to exchanges; 0 lets a route end early.
        is_usable: its type is registered. Else, as for a stored exchange whose plug-in is no longer installed, it keeps
            its bindings and leads nowhere.
        policy_alternate: the alternate exchange that a policy names.
    """

    __slots__ = (
        "_own_alternate",
        "_packed_arguments",
        "auto_delete",
        "bindings",
        "durable",
        "epoch",
        "exchange_bindings",
        "internal",
        "is_usable",
        "matcher",
        "name",
        "policy_alternate",
        "type",
    )

    def __init__(
        self,
        name: str,
        type: str = "direct",
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
        is_usable: bool = True,
    ) -> None:
        self.name = name
        self.type = type
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self._packed_arguments = pack(arguments or {})
        self._own_alternate = _alternate_in(arguments or {})
        self.is_usable = is_usable and type in _TYPES
        self.matcher: Matcher = (_TYPES[type] if self.is_usable else UnusableMatcher)(
            arguments or {}
        )
        self.bindings: dict[Identity, Binding] = {}
        self.exchange_bindings = 0
        self.epoch = 0
        self.policy_alternate: str | None = None

    @property
    def arguments(self) -> Table:
        """The arguments as declared, decoded now."""
        return unpack(self._packed_arguments)

    @property
    def arguments_bytes(self) -> int:
        return len(self._packed_arguments)

    @property
    def alternate(self) -> str | None:
        """The exchange that is used when no binding matches; the argument overrides a policy."""
        return self.policy_alternate if self._own_alternate is None else self._own_alternate

    @property
    def matchers(self) -> tuple[Matcher, ...]:
        """The matcher, and the one that it stands before, if it does."""
        matcher = self.matcher
        return (matcher, matcher.inner) if isinstance(matcher, DelayedMatcher) else (matcher,)

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r} {self.type}>"


def _alternate_in(arguments: Table) -> str | None:
    field = arguments.get(ALTERNATE_EXCHANGE)
    if field is None or field[0] != "S":
        return None
    name: str = field[1].decode("utf-8", "surrogateescape")
    return name
