"""Clients that keep a broker busy until it ends, and record its promises (``oracle``)."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any

from conformance.raw import Channel, Connection, Event
from durable.kills.oracle import Known, body_of, is_transient, name_of, place_of

FAN_OUT = "fan-out"
ECHOED = "echoed"
PRIORITY = "priorities"
FANNED = ("consumed", "kept", ECHOED, PRIORITY)
RECREATED = "recreated"
PRIORITY_MAX = 3
IN_FLIGHT = 100


class Names:
    """Gives names to messages; one for each publisher, for all lives of the broker."""

    def __init__(self, publisher: str, rng: random.Random) -> None:
        self._publisher = publisher
        self._rng = rng
        self._number = 0

    def next(self) -> str:
        self._number += 1
        priority, kind = self._rng.randint(0, PRIORITY_MAX), self._rng.random()
        return f"{self._publisher}.{self._number:07}.{priority}{'t' if kind < 0.1 else ''}"


class Client(ABC, threading.Thread):
    """One connection with one channel; it works until the connection ends.

    Attributes:
        error: why it stopped, if that was not the end of the broker.
    """

    def __init__(self, address: tuple[str, int], known: dict[str, Known]) -> None:
        super().__init__(daemon=True)
        self.known = known
        self.error: BaseException | None = None
        self.is_ending = False
        self.connection = Connection(address)
        self.connection.open()
        self.channel = self.connection.channel()
        self.prepare(self.channel)

    def prepare(self, channel: Channel) -> None:
        """Do what must be done before the broker may end."""

    def run(self) -> None:
        try:
            self.work(self.channel)
        except (ConnectionError, OSError) as error:
            if not self.is_ending:
                self.error = error
        except Exception as error:  # noqa: BLE001  the test fails with it
            self.error = error
        finally:
            self.connection.drop()

    @abstractmethod
    def work(self, channel: Channel) -> None:
        """Do it until the connection ends."""

    def events(self, channel: Channel) -> Iterator[Event]:
        while (event := channel.read()).name not in {"closed", "connection.close"}:
            yield event
        if event.name != "closed" and not self.is_ending:
            raise AssertionError(event)


class Confirms:
    """Publishes of a channel that wait for their confirms."""

    def __init__(self, channel: Channel, known: dict[str, Known]) -> None:
        channel.ok("confirm.select")
        self._channel = channel
        self._known = known
        self._next_tag = 1
        self.waiting: dict[int, tuple[str, tuple[str, ...]]] = {}

    def publish(
        self, name: str, queues: tuple[str, ...], exchange: str, key: str, **properties: Any
    ) -> None:
        for queue in queues:
            self._known[queue].published.add(name)
        self.waiting[self._next_tag] = name, queues
        self._next_tag += 1
        mode, priority = 1 if is_transient(name) else 2, place_of(name)[1]
        body = body_of(name)
        self._channel.publish(
            key, body, exchange, delivery_mode=mode, priority=priority, **properties
        )

    def settled(self, event: Event) -> list[str]:
        """Handle a confirm; return the names of the confirmed messages."""
        assert event.name in {"basic.ack", "basic.nack"}, event
        tags = [event.delivery_tag]
        if event.multiple:
            tags = [tag for tag in self.waiting if tag <= event.delivery_tag]
        done = [self.waiting.pop(tag) for tag in tags]
        if event.name == "basic.nack":
            return []
        for name, queues in done:
            if not is_transient(name):
                for queue in queues:
                    self._known[queue].confirmed.add(name)
        return [name for name, _ in done]


class CountingClient(Client):
    """A client that counts what the broker has promised.

    Attributes:
        confirmed: how many messages were confirmed.
    """

    confirmed = 0


class ConfirmedPublisher(CountingClient):
    """Publishes as many messages ahead of their confirms as may be in flight."""

    in_flight = IN_FLIGHT

    def prepare(self, channel: Channel) -> None:
        self.confirms = Confirms(channel, self.known)

    def work(self, channel: Channel) -> None:
        self._fill()
        for event in self.events(channel):
            self.settled(self.confirms.settled(event))
            self._fill()

    def settled(self, names: list[str]) -> None:
        """Note the confirms that have come."""
        self.confirmed += len(names)

    def _fill(self) -> None:
        while len(self.confirms.waiting) < self.in_flight:
            self.publish()

    @abstractmethod
    def publish(self) -> None:
        """Publish one message."""


class Publisher(ConfirmedPublisher):
    """Publishes to all queues, or to one of them."""

    def __init__(
        self, address: tuple[str, int], known: dict[str, Known], names: Names, rng: random.Random
    ) -> None:
        super().__init__(address, known)
        self._names, self._rng = names, rng

    def publish(self) -> None:
        name = self._names.next()
        if self._rng.random() < 0.5:
            self.confirms.publish(name, FANNED, FAN_OUT, "")
        else:
            queue = self._rng.choice(FANNED)
            self.confirms.publish(name, (queue,), "", queue)


class Consumer(Client):
    """Acknowledges or puts back what one queue has, one by one or many at once, in any order."""

    def __init__(
        self, address: tuple[str, int], known: dict[str, Known], queue: str, rng: random.Random
    ) -> None:
        self._queue, self._rng = queue, rng
        super().__init__(address, known)

    def prepare(self, channel: Channel) -> None:
        channel.ok("basic.qos", prefetch_count=self._rng.choice([10, 50, 200]))
        channel.ok("basic.consume", queue=self._queue, consumer_tag="c")

    def work(self, channel: Channel) -> None:
        unacked: dict[int, str] = {}
        for event in self.events(channel):
            assert event.name == "basic.deliver", event
            unacked[event.delivery_tag] = name_of(event.body)
            if len(unacked) >= 5:
                self._settle(channel, unacked)

    def _settle(self, channel: Channel, unacked: dict[int, str]) -> None:
        rng, acked = self._rng, self.known[self._queue].acked
        if rng.random() < 0.5:
            tag = rng.choice(list(unacked))
            acked.add(unacked.pop(tag))
            channel.send("basic.ack", delivery_tag=tag, multiple=False)
        elif rng.random() < 0.3:
            tag = rng.choice(list(unacked))
            del unacked[tag]
            channel.send("basic.reject", delivery_tag=tag, requeue=True)
        else:
            acked.update(unacked.values())
            channel.send("basic.ack", delivery_tag=max(unacked), multiple=True)
            unacked.clear()


class Echo(Client):
    """Acknowledges, then publishes to the same queue: once that is confirmed, so are the acks durable.

    An ack and a publish of one channel to one queue cannot overtake one another. Its own messages are
    not acknowledged before it is confirmed: acknowledged messages need not get to the disk.
    """

    def __init__(self, address: tuple[str, int], known: dict[str, Known], names: Names) -> None:
        super().__init__(address, known)
        self._names = names
        self._acked: list[str] = []  # since the last message was published
        self._before: deque[tuple[str, list[str]]] = deque()  # message, names acked before it
        self._held: dict[str, int] = {}  # own messages that came before their confirms

    def prepare(self, channel: Channel) -> None:
        self._confirms = Confirms(channel, self.known)
        channel.ok("basic.qos", prefetch_count=50)
        channel.ok("basic.consume", queue=ECHOED, consumer_tag="c")

    def work(self, channel: Channel) -> None:
        for event in self.events(channel):
            if event.name == "basic.deliver":
                self._delivered(channel, name_of(event.body), event.delivery_tag)
            else:
                self._settled(channel, self._confirms.settled(event))

    def _delivered(self, channel: Channel, name: str, tag: int) -> None:
        if any(name == own for own, _ in self._before):
            self._held[name] = tag
            return
        self._ack(channel, name, tag)
        if len(self._acked) >= 10:
            own = self._names.next().removesuffix("t")
            self._before.append((own, self._acked))
            self._acked = []
            self._confirms.publish(own, (ECHOED,), "", ECHOED)

    def _ack(self, channel: Channel, name: str, tag: int) -> None:
        self.known[ECHOED].acked.add(name)
        self._acked.append(name)
        channel.send("basic.ack", delivery_tag=tag, multiple=False)

    def _settled(self, channel: Channel, names: list[str]) -> None:
        while self._before and self._before[0][0] in names:
            own, acked = self._before.popleft()
            self.known[ECHOED].gone.update(acked)
            if own in self._held:
                self._ack(channel, own, self._held.pop(own))


class Recreator(Client):
    """Fills a queue, deletes it and declares it again, over and over.

    ``names`` are those of a publisher for each life of the queue.
    """

    def __init__(
        self, address: tuple[str, int], known: dict[str, Known], lives: Iterator[Names]
    ) -> None:
        super().__init__(address, known)
        self._lives = lives

    def prepare(self, channel: Channel) -> None:
        self._confirms = Confirms(channel, self.known)

    def work(self, channel: Channel) -> None:
        known, confirms = self.known[RECREATED], self._confirms
        while True:
            names = next(self._lives)
            for _ in range(30):
                confirms.publish(names.next(), (RECREATED,), "", RECREATED)
            while confirms.waiting:
                event = channel.read()
                if event.name in {"closed", "connection.close"}:
                    return
                confirms.settled(event)
            known.acked |= known.confirmed  # the deletion may take them
            if channel.call("queue.delete", queue=RECREATED).name != "queue.delete-ok":
                return
            # Nothing of it may be seen again, under whatever name.
            known.published.clear()
            known.confirmed.clear()
            known.acked.clear()
            if not is_declared(channel, RECREATED):
                return


def is_declared(channel: Channel, queue: str) -> bool:
    """Declare a queue as all lives do; False when the broker has ended."""
    arguments = {"x-max-priority": PRIORITY_MAX} if queue == PRIORITY else {}
    reply = channel.call("queue.declare", queue=queue, durable=True, arguments=arguments)
    return reply.name == "queue.declare-ok"
