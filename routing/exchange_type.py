"""What an exchange type has to implement.

A type is a class, a *matcher*: an index over the bindings of one exchange, made with the arguments of the exchange.
``exchange.py`` registers the types of this folder and those of plug-ins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from leveret.amqp.properties import Properties
    from leveret.amqp.tables import Table
    from leveret.routing.bindings import Binding


class Head(Protocol):
    """The properties of a message, decoded when they are asked for (``amqp.properties.Examined``)."""

    @property
    def headers(self) -> Table | None: ...

    @property
    def properties(self) -> Properties:
        """All properties; SyntaxError_: they are malformed."""


class Matcher(ABC):
    """The base of exchange types: stores the bindings of an exchange and finds the matching ones.

    A type implements ``add``, ``remove`` and ``match``, and ``walk`` if ``match`` returns ``NEEDS_WALK``. Of these only
    ``__init__`` and ``check`` may raise, and only a ``SoftError``.

    Args:
        arguments: of the exchange. A type that refuses them raises ``PreconditionFailed``.

    Attributes:
        uses_headers: messages with the same keys may have different routes. Else a route is kept for all
            messages of a connection with this exchange, key and flags.
        per_message: messages that are equal in everything may have different routes.
        leaving: deleted targets whose bindings are not removed yet; the router passes them over. Types that pick one of
            several targets must not pick these.
    """

    __slots__ = ("leaving",)

    uses_headers = False
    per_message = False

    def __init__(self, arguments: Table | None = None) -> None:
        self.leaving: Container[Any] = ()

    def check(self, key: bytes, arguments: Table) -> None:  # noqa: B027 - most types accept all
        """Raise PreconditionFailed for an invalid binding; the default accepts all."""

    @abstractmethod
    def add(self, binding: Binding) -> None:
        """Take a new binding in."""

    @abstractmethod
    def remove(self, binding: Binding) -> None:
        """Forget a binding."""

    @abstractmethod
    def match(self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]) -> int:
        """Put the ``target`` of every matching binding into ``found`` as a key.

        Args:
            keys: the routing key, then those of CC and BCC.
            head: the properties; None where no type on the way has asked for them.
            found: gets the targets.

        Returns:
            The work besides the targets, in units of ``routing/work.py``, or ``NEEDS_WALK``: then ``walk``
            does the work, and may find targets again that are in ``found`` already.
        """

    def walk(
        self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]
    ) -> Iterator[int]:
        """Do the same in slices, and yield the work of each; bindings may change in between.

        The default is for types whose ``match`` does all the work: nothing is left.
        """
        return iter(())


ExchangeType: TypeAlias = "Callable[[Table], Matcher]"
