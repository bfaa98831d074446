"""Exchanges, and the registry of their types.

The type of an exchange is a *matcher*: an index over the bindings of that one exchange. New types
(a plug-in's) are added with ``register_type``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from leveret.amqp.tables import pack, unpack
from leveret.routing.direct import DirectMatcher
from leveret.routing.fanout import FanoutMatcher
from leveret.routing.headers import HeadersMatcher
from leveret.routing.topic import TopicMatcher

if TYPE_CHECKING:
    from leveret.amqp.tables import Table
    from leveret.routing.bindings import Binding, Identity

ALTERNATE_EXCHANGE: Final = "alternate-exchange"
DEFAULT_EXCHANGE: Final = ""


class Matcher(Protocol):
    """An exchange type: stores the bindings of an exchange and finds the matching ones."""

    @property
    def uses_headers(self) -> bool:
        """Whether messages with the same keys may have different routes."""

    def check(self, key: bytes, arguments: Table) -> None:
        """Refuse an invalid binding with a ``SoftError``."""

    def add(self, binding: Binding) -> None: ...

    def remove(self, binding: Binding) -> None: ...

    def match(self, keys: Sequence[bytes], headers: Table | None, found: dict[Any, Any]) -> int:
        """Put the ``target`` of every matching binding into ``found`` as a key.

        Returns:
            What was looked at besides the targets, or ``NEEDS_WALK``: then ``walk`` does the work, and
            may find targets again that are in ``found`` already.
        """

    def walk(
        self, keys: Sequence[bytes], headers: Table | None, found: dict[Any, Any]
    ) -> Iterator[int]:
        """Do the same in slices, and yield the work of each; bindings may change in between."""


_TYPES: Final[dict[str, Callable[[], Matcher]]] = {
    "direct": DirectMatcher,
    "fanout": FanoutMatcher,
    "topic": TopicMatcher,
    "headers": HeadersMatcher,
}


def register_type(name: str, matcher: Callable[[], Matcher]) -> None:
    """Register an exchange type; ValueError: the name is taken."""
    if name in _TYPES:
        raise ValueError(f"exchange type {name!r} is registered already")
    _TYPES[name] = matcher


def is_type(name: str) -> bool:
    """Return whether this exchange type is registered."""
    return name in _TYPES


class Exchange:
    """One exchange of a vhost with the index over its bindings.

    Attributes:
        bindings: the bindings of which it is the source, by identity.
        exchange_bindings: how many of them lead to exchanges; 0 lets a route end early.
        policy_alternate: the alternate exchange that a policy names.
    """

    __slots__ = (
        "_own_alternate",
        "_packed_arguments",
        "auto_delete",
        "bindings",
        "durable",
        "exchange_bindings",
        "internal",
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
    ) -> None:
        self.name = name
        self.type = type
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self._packed_arguments = pack(arguments or {})
        self._own_alternate = _alternate_in(arguments or {})
        self.matcher = _TYPES[type]()
        self.bindings: dict[Identity, Binding] = {}
        self.exchange_bindings = 0
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

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r} {self.type}>"


def _alternate_in(arguments: Table) -> str | None:
    field = arguments.get(ALTERNATE_EXCHANGE)
    if field is None or field[0] != "S":
        return None
    name: str = field[1].decode("utf-8", "surrogateescape")
    return name
