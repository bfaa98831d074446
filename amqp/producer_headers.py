"""The headers with which a publisher numbers its messages, for queues that filter duplicates.

==================  ======================================================================
``x-producer-id``   longstr of 1 to 255 bytes: who sends
``x-producer-epoch``  whole number from 0 on, 0 by default: which life of the sender
``x-producer-seq``  whole number from 0 on: rises strictly within an epoch, gaps allowed
==================  ======================================================================

``docs/producers.md`` says what a queue does with them. Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.amqp.errors import PreconditionFailed, SyntaxError_
from leveret.amqp.properties import examine
from leveret.amqp.tables import type_name

if TYPE_CHECKING:
    from leveret.amqp.tables import Table

ID: Final = "x-producer-id"
EPOCH: Final = "x-producer-epoch"
SEQ: Final = "x-producer-seq"

ID_BYTES_MAX: Final = 255
NUMBER_MAX: Final = (1 << 63) - 1
_INTEGERS: Final = frozenset("bBsuIilL")
_PREFIX: Final = b"x-producer-"

Sent: TypeAlias = tuple[bytes, int, int]
"""Producer id, epoch, sequence."""


def producer_of(headers: Table) -> Sent | None:
    """Return who sent a message, and as which; None: it has none of the headers.

    Raises:
        PreconditionFailed: one of them is missing or malformed; the text names it.
    """
    if ID not in headers and SEQ not in headers and EPOCH not in headers:
        return None
    for name in (ID, SEQ):
        if name not in headers:
            raise PreconditionFailed(f"header '{name}' is missing beside other x-producer headers")
    kind, value = headers[ID]
    if kind != "S":
        raise PreconditionFailed(f"header '{ID}' must be a longstr, not {type_name(headers[ID])}")
    if not 1 <= len(value) <= ID_BYTES_MAX:
        raise PreconditionFailed(
            f"header '{ID}' must have 1 to {ID_BYTES_MAX} bytes, not {len(value)}"
        )
    return bytes(value), _number(headers, EPOCH), _number(headers, SEQ)


def _number(headers: Table, name: str) -> int:
    field = headers.get(name)
    if field is None:
        return 0  # the epoch
    kind, value = field
    if kind not in _INTEGERS:
        raise PreconditionFailed(f"header '{name}' must be an integer, not {type_name(field)}")
    if not 0 <= value <= NUMBER_MAX:
        raise PreconditionFailed(f"header '{name}' must be 0 to 2^63-1, not {value}")
    return int(value)


def producer_in(head: bytes) -> Sent | None:
    """Return the same for a stored content header; None as well if they are malformed, or it is a dead letter's.

    A dead letter keeps its headers, and no queue filters it.
    """
    if _PREFIX not in head:
        return None
    try:
        headers = examine(head).headers or {}
        return None if "x-death" in headers else producer_of(headers)
    except (SyntaxError_, PreconditionFailed):
        return None
