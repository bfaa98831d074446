"""What a publisher and a consumer saw of one life of a node, and what must be true in the next one."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from conformance.raw import Channel, Connection
from waiting import wait_until

QUEUES = ("kept", "consumed")  # of a fan-out; the second one has a consumer
IN_FLIGHT = 200  # publishes ahead of their confirms


@dataclass
class History:
    """All lives together.

    Attributes:
        next_number: of the next message; each is published once, in this order.
        confirmed: numbers the broker has promised to keep.
        acked: numbers a consumer has acknowledged, whether the broker has heard it or not.
    """

    next_number: int = 0
    confirmed: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)

    def check(self, kept: list[int], consumed: list[int]) -> None:
        """Hold what two queues of a fan-out have to it, of which one had a consumer."""
        assert kept == sorted(set(kept)), "out of order, or twice"
        assert consumed == sorted(set(consumed)), "out of order, or twice"
        assert self.confirmed <= set(kept), sorted(self.confirmed - set(kept))
        owed = self.confirmed - self.acked
        assert owed <= set(consumed), sorted(owed - set(consumed))
        assert max(kept, default=-1) < self.next_number


class Load:
    """A publisher of a fan-out with confirms and a consumer of one of its queues, until the end."""

    def __init__(self, address: tuple[str, int], history: History) -> None:
        self._address = address
        self._history = history
        self._ends = threading.Event()
        self._is_enough = threading.Event()
        self._connections: list[Connection] = []
        self.errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._safely, args=(work,))
            for work in (self._publish, self._consume)
        ]
        for thread in self._threads:
            thread.start()

    def wait_for(self, confirmed: int) -> None:
        """Wait until so many messages have been confirmed."""
        history = self._history
        wait_until(lambda: len(history.confirmed) >= confirmed or self.errors, within_s=60)

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
        channel.ok("basic.qos", prefetch_count=50)
        channel.ok("basic.consume", queue="consumed", consumer_tag="c")
        while True:
            event = channel.read()
            if event.name == "closed":
                return
            assert event.name == "basic.deliver", event
            self._history.acked.add(int(event.body.split()[0]))
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
    return Load((address[0], address[1]), history), history
