"""Types of the compiled kernel; ``leveret/amqp/kernel.py`` explains them."""

from typing import Any, Final

from leveret.core.message import Message

SOURCE_HASH: Final[str]

class Scanner:
    frame_max: int
    stepwise: bool
    def __init__(self, frame_max: int, message_max: int) -> None: ...
    @property
    def message_max(self) -> int: ...
    @property
    def pending(self) -> tuple[int, ...]: ...
    @property
    def buffered(self) -> int: ...
    def scan(self, data: bytes) -> list[tuple[Any, ...]]: ...

def deliveries(
    channel: int,
    consumer_tag: bytes,
    first_tag: int,
    redelivered: int,
    frame_max: int,
    messages: list[Message],
) -> bytes: ...
def content(channel: int, method: bytes, frame_max: int, head: bytes, body: bytes) -> bytes: ...
def read_fields(data: bytes, start: int, end: int) -> dict[str, Any]: ...
def write_fields(table: dict[str, Any], long_letter: str) -> bytes: ...
