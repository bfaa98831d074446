"""The loads of ``growth.py``: each grows one thing, and sends small batches of messages through it.

A write has ``WRITE`` messages, and at most ``IN_FLIGHT`` of them are on their way, so the batches that a broker can
make are the same at every size. ``Connections`` has one message on its way for each connection.
"""

from __future__ import annotations

import random
import selectors
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # also where PYTHONSAFEPATH is set
from harness.peer import Peer, RefusedError, frames, message

from leveret.amqp import methods, spec
from leveret.amqp.tables import encode_table

if TYPE_CHECKING:
    from harness.brokers import Broker

    from leveret.amqp.fields import Method

WRITE: Final = 10
IN_FLIGHT: Final = 2 * WRITE
SIZE: Final = 256
BODY: Final = bytes(SIZE)
DECLARES: Final = 1_000  # in one write
OPENINGS: Final = 50  # at once
TARGETS: Final = 10  # queues to which the bindings lead
PATIENCE_S: Final = 300.0


class Load(ABC):
    """Messages through a broker in which something grows."""

    def __init__(self, broker: Broker) -> None:
        self._address = broker.host, broker.port
        self._size = 0
        self._random = random.Random(1)

    def grow(self, size: int) -> None:
        """Make it that large."""
        self._add(range(self._size, size))
        self._size = size

    @abstractmethod
    def _add(self, numbers: Sequence[int]) -> None: ...

    @abstractmethod
    def run(self, duration_s: float) -> int:
        """Publish for some time, and wait until all is delivered; return the number of deliveries."""

    @abstractmethod
    def close(self) -> None: ...


class _PairLoad(Load):
    """One publisher and one consumer, which consumes from all queues with automatic acks."""

    copies = 1  # deliveries of a message

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._publisher, self._consumer = Peer(self._address), Peer(self._address)

    def run(self, duration_s: float) -> int:
        return self._pass(self._writes_until(time.monotonic() + duration_s))

    def _writes_until(self, end_s: float) -> Iterator[bytes]:
        while time.monotonic() < end_s:
            yield b"".join([self._message() for _ in range(WRITE)])

    def _pass(self, writes: Iterable[bytes]) -> int:
        """Publish ``WRITE`` messages at a time, and wait until all is delivered; return the number of deliveries."""
        before = expected = self._consumer.seen[spec.BASIC_DELIVER]
        for data in writes:
            self._publisher.raw(data)
            expected += WRITE * self.copies
            self._consumer.wait(
                spec.BASIC_DELIVER, expected - (IN_FLIGHT - WRITE) * self.copies, PATIENCE_S
            )
        self._consumer.wait(spec.BASIC_DELIVER, expected, PATIENCE_S)
        return expected - before

    @abstractmethod
    def _message(self) -> bytes: ...

    def close(self) -> None:
        self._publisher.drop()
        self._consumer.drop()

    def _call(self, several: Iterable[Method]) -> None:
        """Send methods of one kind, and wait for their answers."""
        waiting = list(several)
        for at in range(0, len(waiting), DECLARES):
            self._consumer.calls(1, waiting[at : at + DECLARES])

    def _consume(self, names: Sequence[str]) -> None:
        self._call(methods.QueueDeclare(name) for name in names)
        self._call(methods.BasicConsume(name, no_ack=True) for name in names)


class Queues(_PairLoad):
    """Messages to random ones of many queues, through the default exchange.

    Each queue gets a message before the rounds: a channel's first one for a queue is more work in both brokers, and
    were there fewer messages in a round than queues, most would be first ones.
    """

    def _add(self, numbers: Sequence[int]) -> None:
        self._consume([f"q.{number}" for number in numbers])
        parts = [numbers[at : at + WRITE] for at in range(0, len(numbers), WRITE)]
        self._pass(b"".join(map(self._to, part)) for part in parts)

    def _message(self) -> bytes:
        return self._to(self._random.randrange(self._size))

    def _to(self, number: int) -> bytes:
        return message(1, b"q.%d" % number, BODY)


class FanOut(_PairLoad):
    """Messages to all queues of a fanout exchange."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._call([methods.ExchangeDeclare("fan", "fanout")])

    @property
    def copies(self) -> int:  # type: ignore[override]
        return self._size

    def _add(self, numbers: Sequence[int]) -> None:
        names = [f"f.{number}" for number in numbers]
        self._consume(names)
        self._call(methods.QueueBind(name, "fan", "") for name in names)

    def _message(self) -> bytes:
        return message(1, b"", BODY, exchange=b"fan")


class _BindingLoad(_PairLoad):
    """Many bindings of one exchange to few queues; a random one of them matches a message."""

    kind = ""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._call([methods.ExchangeDeclare(self.kind, self.kind)])
        self._consume([f"{self.kind}.{number}" for number in range(TARGETS)])

    def _add(self, numbers: Sequence[int]) -> None:
        self._call(map(self._bind, numbers))

    @abstractmethod
    def _bind(self, number: int) -> Method: ...


class TopicBindings(_BindingLoad):
    """Patterns with both wildcards; no two messages have the same key."""

    kind = "topic"
    _patterns: Final = ("k.{}.*", "k.{}.#", "*.{}.*", "*.{}.#")

    def _bind(self, number: int) -> Method:
        pattern = self._patterns[number % len(self._patterns)].format(number)
        return methods.QueueBind(f"topic.{number % TARGETS}", "topic", pattern)

    def _message(self) -> bytes:
        key = b"k.%d.%d" % (self._random.randrange(self._size), self._random.getrandbits(32))
        return message(1, key, BODY, exchange=b"topic")


class HeadersBindings(_BindingLoad):
    """Bindings of two headers each, ``x-match`` being ``all``."""

    kind = "headers"

    def _bind(self, number: int) -> Method:
        arguments: Any = {"x-match": ("S", b"all"), **self._headers(number)}
        return methods.QueueBind(f"headers.{number % TARGETS}", "headers", "", arguments=arguments)

    def _message(self) -> bytes:
        table = encode_table(self._headers(self._random.randrange(self._size)))
        return message(1, b"", BODY, exchange=b"headers", properties=b"\x20\x00" + table)

    def _headers(self, number: int) -> Any:
        return {"kind": ("S", b"order"), "number": ("I", number)}


class Connections(Load):
    """Connections, each with a queue to which it publishes, and from which it consumes, one message at a time."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []

    def _add(self, numbers: Sequence[int]) -> None:
        for at in range(0, len(numbers), OPENINGS):
            some = numbers[at : at + OPENINGS]
            made = [self._open(number) for number in some]
            for number, each in zip(some, made, strict=True):
                _receive(each, frames(1, [methods.BasicConsumeOk("c")]))
                publish = message(1, b"c.%d" % number, BODY)
                self._selector.register(each, selectors.EVENT_READ, publish)
            self._sockets += made

    def _open(self, number: int) -> socket.socket:
        made = socket.create_connection(self._address, PATIENCE_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.sendall(_opening(f"c.{number}"))
        return made

    def run(self, duration_s: float) -> int:
        end_s, tail = time.monotonic() + duration_s, BODY + b"\xce"
        for key in self._selector.get_map().values():
            key.fileobj.send(key.data)  # type: ignore[union-attr]
        missing, count = len(self._sockets), 0
        while missing:
            ready = self._selector.select(PATIENCE_S)
            if not ready:
                raise RefusedError(f"{missing} messages were not delivered")
            is_over = time.monotonic() >= end_s
            for key, _ in ready:
                made: Any = key.fileobj
                _receive(made, tail)
                count += 1
                if is_over:
                    missing -= 1
                else:
                    made.send(key.data)
        return count

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        self._selector.close()


def _opening(queue: str) -> bytes:
    """Return all that a client sends until it consumes, without waiting for answers."""
    opened: list[Method] = [
        methods.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"),
        methods.ConnectionTuneOk(2047, 131_072, 0),
        methods.ConnectionOpen("/"),
    ]
    consumes: list[Method] = [
        methods.ChannelOpen(),
        methods.QueueDeclare(queue),
        methods.BasicConsume(queue, "c", no_ack=True),
    ]
    return spec.PROTOCOL_HEADER + frames(0, opened) + frames(1, consumes)


def _receive(made: socket.socket, tail: bytes) -> None:
    """Receive until the last bytes are these."""
    data = b""
    while not data.endswith(tail):
        more = made.recv(65536)
        if not more:
            raise RefusedError(f"closed after {data[-100:]!r}")
        data += more


LOADS: dict[str, tuple[type[Load], tuple[int, ...]]] = {
    "queues": (Queues, (100, 1_000, 10_000, 50_000)),
    "connections": (Connections, (10, 100, 1_000, 5_000)),
    "fan-out": (FanOut, (10, 100, 1_000, 10_000)),
    "topic": (TopicBindings, (100, 1_000, 10_000, 100_000)),
    "headers": (HeadersBindings, (100, 1_000, 10_000, 100_000)),
}
"""The curves, each with its sizes."""
