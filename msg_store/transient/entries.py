"""The tuples that the parts of the transient store share: a queue's entries and rows, keys, places.

*Entries* are the queue's own tuples (``queue_backing/status.py``); five of their positions are read here.
*Rows* are those of ``LmdbIndex``, so that both can be merged, with flags 0: not persistent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from leveret.core.message import Message

Entry: TypeAlias = tuple[Any, ...]
Row: TypeAlias = tuple[int, int, int, int, int]  # seq, msg_no, size, expiry_ms, flags
Key: TypeAlias = tuple[int, int]  # incarnation, seq
Place: TypeAlias = tuple[int, int, int]  # file_no, offset, length
GotRows: TypeAlias = Callable[[list[Row]], None]
GotContents: TypeAlias = Callable[[dict[int, Message]], None]  # by seq

SEQ: Final = 0
MESSAGE: Final = 1
EXPIRY_MS: Final = 2
MSG_NO: Final = 4
SIZE: Final = 5

SEQ_END: Final = 1 << 64
_FLAGS: Final = 0


class KeyRange(NamedTuple):
    """The keys of an incarnation with ``low <= seq < high``."""

    incarnation: int
    low: int
    high: int


def row_of(entry: Entry) -> Row:
    """Return the row of an entry."""
    return entry[SEQ], entry[MSG_NO], entry[SIZE], entry[EXPIRY_MS], _FLAGS
