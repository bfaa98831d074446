"""What the statistics of a variable queue are computed from: its memory, and the timestamp of its head.

``memory`` is an estimate from existing counters: bodies in RAM, and for each message what CPython
takes for its tuples and their bytes (measured with ``tracemalloc``, 64-bit, heads of 35 bytes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.amqp.errors import SyntaxError_
from leveret.amqp.properties import decode_properties
from leveret.core.entry import MESSAGE
from leveret.core.message import HEAD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.core.entry import Entry
    from leveret.core.message import Message

PAIR_BYTES: Final = 3_000  # the two actors of a queue and its empty parts
MESSAGE_BYTES: Final = 170  # a message beside its body
ENTRY_BYTES: Final = 160  # its place in the queue

_FLAGS_AT: Final = 13  # the second octet of the property flags, in a content header
_HAS_TIMESTAMP: Final = 0x40


def memory_bytes(body_bytes: int, messages: int, entries: int) -> int:
    """Return about how much RAM a queue takes for bodies, contents, and entries with content or without."""
    return PAIR_BYTES + body_bytes + messages * MESSAGE_BYTES + entries * ENTRY_BYTES


def head_timestamp(heads: Iterable[Entry | None]) -> int | None:
    """Return the least ``timestamp`` of the entries; without content or timestamp an entry has none."""
    messages = [head[MESSAGE] for head in heads if head is not None]
    stamps = [timestamp_of(message) for message in messages if message is not None]
    return min((stamp for stamp in stamps if stamp is not None), default=None)


def timestamp_of(message: Message) -> int | None:
    """Return the timestamp property, None when there is none or the head cannot be read."""
    head = message[HEAD]
    if len(head) <= _FLAGS_AT or not head[_FLAGS_AT] & _HAS_TIMESTAMP:
        return None
    try:
        return decode_properties(head).timestamp
    except SyntaxError_:
        return None
