"""Types of the compiled kernel; what they mean stands in ``leveret/msg_store/kernel.py``."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from leveret.core.message import Message
from leveret.msg_store.index_rows import IndexRow, Location
from leveret.msg_store.record import Place, Want

SOURCE_HASH: Final[str]

def runs(places: list[Place], gap_bytes: int, join_bytes: int) -> list[tuple[int, int]] | None: ...
def decode_run(
    data: bytes,
    start: int,
    msg_nos: list[int],
    places: list[Place],
    kind: int,
    seed: int,
    parts_of: Callable[[bytes], tuple[bytes, bytes]],
    messages: dict[int, Message],
) -> tuple[list[Want], int]: ...
def locations(values: list[bytes]) -> list[Location]: ...
def rows(values: list[bytes], first_seq: int) -> list[IndexRow]: ...
def entries(rows: list[IndexRow], persistent: bool) -> list[tuple[Any, ...]]: ...
def row_items(queue_no: int, rows: list[IndexRow]) -> list[tuple[bytes, bytes]]: ...
def location_items(
    places: list[tuple[int, Location | None]],
) -> list[tuple[bytes, bytes]]: ...
def take(contents: dict[int, Message], keys: list[int]) -> tuple[list[Message], int]: ...
def size_of(messages: Iterable[Message]) -> int: ...
