"""What a publisher and a consumer saw of one life of a node, and what must be true in the next one."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from conformance.raw import Channel, Connection
from leveret.testing.history import History as Notes
from rigs.waiting import wait_until

QUEUES = ("kept", "consumed")  # of a fan-out; the second one has a consumer
IN_FLIGHT = 200  # publishes ahead of their confirms


@dataclass
class History:
    """All lives together.

    Attributes:
        next_number: of the next message; each is published once, in this order.
        confirmed: numbers the broker has promised to keep.
        acked: numbers a consumer has acknowledged, whether the broker has heard it or not.
        deliveries: consumer, number, and whether it was marked as redelivered.
    """

    next_number: int = 0
    confirmed: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    deliveries: list[tuple[str, int, bool]] = field(default_factory=list)

    def check(self, kept: list[int], consumed: list[int]) -> None:
        """Hold what two queues of a fan-out have to it, of which one had a consumer."""
        notes = Notes()
        for number in range(self.next_number):
            notes.sent("publisher", number, *QUEUES)
        for number in self.confirmed:
            notes.confirmed(number)
        for consumer, number, redelivered in self.deliveries:
            notes.delivered("consumed", consumer, number, redelivered)
        for number in self.acked:
            notes.acked("consumed", "a consumer", number)
        notes.check(dict(zip(QUEUES, (kept, consumed), strict=True)))


class Load:
    """A publisher of a fan-out with confirms and a consumer of one of its queues, until the end."""

    def __init__(self, address: tuple[str, int], history: History) -> None:
        self._address = address
        self._history = history
        self._ends = threading.Event()
        self._is_enough = threading.Event()
        self._consumes = threading.Event()
        self._connections: list[Connection] = []
        self.errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._safely, args=(work,))
            for work in (self._publish, self._consume)
        ]
        for thread in self._threads:
            thread.start()

    def wait_for(self, confirmed: int) -> None:
        """Wait until so many messages have been confirmed, and the consumer consumes."""
        history, consumes = self._history, self._consumes.is_set
        wait_until(
            lambda: (len(history.confirmed) >= confirmed and consumes()) or self.errors,
            within_s=60,
        )

    def wait_for_new(self, confirmed: int) -> None:
        """Wait until a message has been confirmed before which that many were published from now on."""
        history, number = self._history, self._history.next_number + confirmed
        wait_until(lambda: max(history.confirmed, default=0) >= number or self.errors, within_s=60)

    def settle(self) -> None:
        """Publish nothing more, and see that every publish has been answered: confirmed or refused."""
        self._is_enough.set()
        self._threads[0].join(20)
        assert not self._threads[0].is_alive(), "publishes were never answered"
        assert not self.errors, self.errors

    def end_is_near(self) -> None:
        """From now on the end of a connection is no error."""
        self._ends.set()

    def stop(self) -> None:
        """Leave the node."""
        self.end_is_near()
        for connection in self._connections:
            with suppress(OSError):  # it has left already
                connection.socket.shutdown(socket.SHUT_RDWR)
        self.join()

    def join(self) -> None:
        """Wait until both have seen the end of their connections."""
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()
        assert not self.errors, self.errors

    def _safely(self, work: object) -> None:
        connection = Connection(self._address)
        self._connections.append(connection)
        try:
            connection.open()
            work(connection.channel())  # type: ignore[operator]
        except (ConnectionError, AssertionError, OSError) as error:
            if not self._ends.is_set():
                self.errors.append(error)
        finally:
            connection.drop()

    def _publish(self, channel: Channel) -> None:
        history, first = self._history, self._history.next_number
        channel.ok("confirm.select")
        waiting: set[int] = set()  # tags
        while True:
            while len(waiting) < IN_FLIGHT and not self._is_enough.is_set():
                number = history.next_number
                history.next_number += 1
                body = b"%d " % number + b"x" * (number * 37 % 3000)
                channel.publish("", body, "amq.fanout", delivery_mode=2)
                waiting.add(history.next_number - first)
            if not waiting:
                return
            event = channel.read()
            if event.name == "closed":
                return
            assert event.name in {"basic.ack", "basic.nack"}, event
            tags = {event.delivery_tag}
            if event.multiple:
                tags = {tag for tag in waiting if tag <= event.delivery_tag}
            assert tags <= waiting, "answered twice"
            waiting -= tags
            if event.name == "basic.ack":
                history.confirmed.update(first + tag - 1 for tag in tags)

    def _consume(self, channel: Channel) -> None:
        consumer = f"consumer at {channel.connection.socket.getsockname()}"
        channel.ok("basic.qos", prefetch_count=50)
        channel.ok("basic.consume", queue="consumed", consumer_tag="c")
        self._consumes.set()
        while True:
            event = channel.read()
            if event.name == "closed":
                return
            assert event.name == "basic.deliver", event
            number = int(event.body.split()[0])
            self._history.deliveries.append((consumer, number, event.redelivered))
            self._history.acked.add(number)
            channel.send("basic.ack", delivery_tag=event.delivery_tag, multiple=False)


def contents(channel: Channel, queue: str) -> list[int]:
    """Return the numbers a queue holds, without taking them."""
    numbers = []
    last = 0
    while True:
        event = channel.get(queue, no_ack=False)
        if event.name == "basic.get-empty":
            break
        last = event.delivery_tag
        number, padding = event.body.split(b" ", 1)
        assert padding == b"x" * (int(number) * 37 % 3000)
        numbers.append(int(number))
    if last:
        channel.send("basic.nack", delivery_tag=last, multiple=True, requeue=True)
        channel.settle()
    return numbers


def loaded(channel: Channel, address: tuple[str, int]) -> tuple[Load, History]:
    """Declare the queues of a load, and begin it."""
    for queue in QUEUES:
        channel.ok("queue.declare", queue=queue, durable=True)
        channel.ok("queue.bind", queue=queue, exchange="amq.fanout")
    history = History()
    host, port = address
    return Load((host, port), history), history


def check_contents(channel: Channel, history: History) -> None:
    """Hold both queues of a load to its history."""
    history.check(contents(channel, "kept"), contents(channel, "consumed"))
