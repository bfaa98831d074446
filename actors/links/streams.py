"""Streams: the mail of one sender to one receiver, in order, under one credit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from leveret.actors.credit import CreditSender
from leveret.actors.links.codec import Buffer
from leveret.actors.links.limits import LinkLimits


class Mail(NamedTuple):
    """A packed message that waits."""

    packed: bytes
    bodies: list[Buffer]
    size: int  # of both, in bytes


class Signal(NamedTuple):
    """A packed signal that waits behind mail."""

    packed: bytes


class Barrier:
    """A signal that is sent when several streams have sent what waits in them now."""

    __slots__ = ("left", "packed")

    def __init__(self, packed: bytes, left: int) -> None:
        self.packed = packed
        self.left = left


class Notice(NamedTuple):
    """Calls back when all before it has been written."""

    call: Callable[[], None]


Item: TypeAlias = Mail | Signal | Barrier | Notice


class OutStream:
    """The sending end.

    Attributes:
        number: names the stream on the connection.
        key: by which the owner knows the stream.
        credit: spent by mail when it is written, granted by the receiver's node.
        queue: mail and signals that wait for credit, or for their turn behind a large mail.
        waived: how many items of the queue are sent even without credit.
        is_ready: it waits for its turn to write.
        parts: of the large mail that is being written.
    """

    __slots__ = ("credit", "is_ready", "key", "number", "parts", "queue", "waived")

    def __init__(self, number: int, key: Any, limits: LinkLimits) -> None:
        self.number = number
        self.key = key
        self.credit = CreditSender((limits.credit_messages, 0), (limits.credit_bytes, 0))
        self.queue: deque[Item] = deque()
        self.waived = 0
        self.is_ready = False
        self.parts: deque[memoryview] | None = None

    @property
    def is_held(self) -> bool:
        """Whether the next item must wait for credit."""
        return self.credit.is_blocked and not self.waived and self.parts is None

    @property
    def is_idle(self) -> bool:
        """Whether no mail waits or is being written, and the receiver has handled all that was sent."""
        return not self.queue and self.parts is None and self.credit.is_whole

    def pop(self) -> Item:
        if self.waived:
            self.waived -= 1
        return self.queue.popleft()

    def waive(self) -> None:
        """Let the items that wait now go without credit, because a signal waits behind them."""
        self.waived = len(self.queue)

    def begin_large(self, mail: Mail) -> None:
        self.parts = deque(memoryview(part) for part in (mail.packed, *mail.bodies) if len(part))

    def next_chunk(self, size_max: int) -> list[memoryview]:
        """Return the next parts of the large mail, at most ``size_max`` bytes."""
        parts = self.parts
        assert parts is not None
        chunk: list[memoryview] = []
        while parts and size_max:
            part = parts.popleft()
            if len(part) > size_max:
                parts.appendleft(part[size_max:])
                part = part[:size_max]
            size_max -= len(part)
            chunk.append(part)
        if not parts:
            self.parts = None
        return chunk


class InStream:
    """The receiving end.

    Attributes:
        number: names the stream on the connection.
        sender: of its mail, as the owner knows it.
        to: the receiver of its mail, as the owner knows it.
        messages: how many have come for which credit was not given back.
        size: the bytes of these.
        is_due: the sender stops soon, unless the owner grants.
        large: the large mail of which parts have come.
    """

    __slots__ = ("is_due", "is_noted", "large", "messages", "number", "sender", "size", "to")

    def __init__(self, number: int, sender: Any, to: Any) -> None:
        self.number = number
        self.sender = sender
        self.to = to
        self.messages = 0
        self.size = 0
        self.is_due = False
        self.is_noted = False
        self.large: LargeMail | None = None


class LargeMail:
    """A large mail, put together from its parts; one that comes in one part is used where it lies."""

    __slots__ = ("_filled", "_memory", "_packed_bytes", "size")

    def __init__(self, size: int, packed_bytes: int) -> None:
        self.size = size
        self._packed_bytes = packed_bytes
        self._memory: memoryview | bytearray | None = None
        self._filled = 0

    def add(self, data: memoryview) -> bool:
        """Add a part; return whether the mail is whole. ValueError: the parts are longer than was announced.

        Args:
            data: of memory that nobody changes.
        """
        end = self._filled + len(data)
        if end > self.size:
            raise ValueError("more than was announced")
        if end == self.size and self._memory is None:
            self._memory = data
            return True
        if self._memory is None:
            self._memory = bytearray(self.size)
        self._memory[self._filled : end] = data
        self._filled = end
        return end == self.size

    def take(self) -> tuple[memoryview, memoryview]:
        """Return the message and the bodies."""
        assert self._memory is not None
        view = memoryview(self._memory)
        return view[: self._packed_bytes], view[self._packed_bytes :]
