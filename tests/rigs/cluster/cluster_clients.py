"""Clients that keep all queues of a cluster busy on every node, whatever happens to them, and note what they see.

A client whose connection ends makes another. In the end it waits until all of its publishes, or acks, are answered.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from random import Random

from conformance.raw import Channel, Connection, Event
from leveret.testing.history import History
from rigs.cluster.cluster_processes import ClusterNode
from rigs.waiting import wait_until

FAN_OUT = "fan-out"
IN_FLIGHT = 50  # publishes ahead of their confirms
PACE_S = 0.15  # between bursts
BURST = 5
ENDS_S = 120.0  # for a machine with much else to do
ACK_AFTER = 3  # deliveries
_RETRY_S = 0.1
_READ_S = 0.1


class ClosedError(Exception):
    """Channel or connection was closed; the client makes another."""


class ClusterClient(ABC, threading.Thread):
    """One client of one node.

    Args:
        node: it connects to, again and again.
        history: takes notes.
        what: the client is, for its name.

    Attributes:
        error: why it has stopped, if it should not have.
        is_ending: it is to end as soon as nothing is under way any more.
        lives: how often it has had a channel.
    """

    def __init__(self, node: ClusterNode, history: History, what: str) -> None:
        super().__init__(daemon=True, name=f"{what} at {node.name}")
        self.history = history
        self.node = node
        self.error: BaseException | None = None
        self.is_ending = False
        self.lives = 0

    def run(self) -> None:
        try:
            wait_until(self._has_lived, within_s=inf, pause_s=_RETRY_S)
        except BaseException as error:  # noqa: BLE001  # the test fails with it
            self.error = error

    def _has_lived(self) -> bool:
        """Use one connection until the end of the client, or that of the connection or channel."""
        try:
            with self._channel() as channel:
                self.lives += 1
                self.work(channel)
                return True
        except (ClosedError, OSError):
            return False

    @contextmanager
    def _channel(self) -> Iterator[Channel]:
        connection = Connection(self.node.address)
        try:
            if connection.open().name != "connection.open-ok":
                raise ClosedError
            number = 1
            if connection.call("channel.open", number).name != "channel.open-ok":
                raise ClosedError
            yield Channel(connection, number)
        finally:
            connection.drop()

    @property
    def life(self) -> str:
        """The name of the channel."""
        return f"{self.name}, {self.lives}"

    @abstractmethod
    def work(self, channel: Channel) -> None:
        """Work until all is done."""

    def join_or_raise(self) -> None:
        self.join(ENDS_S)
        assert not self.is_alive(), f"{self.name}: something was never answered"
        if self.error is not None:
            raise self.error


def next_event(channel: Channel, within_s: float = _READ_S) -> Event | None:
    """Return the next event, None if there is none in time.

    Raises:
        ClosedError: the channel or connection was closed.
    """
    try:
        event = channel.read(within_s)
    except TimeoutError:
        return None
    if event.name in {"closed", "connection.close", "channel.close"}:
        raise ClosedError
    return event


class ClusterPublisher(ClusterClient):
    """Publishes persistent messages, to one queue or to all, with ``mandatory`` and confirms.

    Attributes:
        slowest_s: the longest that a publish has waited for its answer.
        confirmed: number of publishes that were confirmed; likewise ``nacked`` and ``returned``.
        closed: that were answered by the end of channel or connection.
    """

    def __init__(
        self, node: ClusterNode, history: History, queues: list[str], random: Random
    ) -> None:
        super().__init__(node, history, "publisher")
        self._queues = queues
        self._random = random
        self._number = 0
        self.slowest_s = 0.0
        self.confirmed = self.nacked = self.returned = self.closed = 0
        self._waiting: dict[int, tuple[str, float]] = {}

    def work(self, channel: Channel) -> None:
        if channel.call("confirm.select").name != "confirm.select-ok":
            raise ClosedError
        tag, burst_s = 0, 0.0
        try:
            while self._waiting or not self.is_ending:
                now_s = time.monotonic()
                if not self.is_ending and now_s >= burst_s and len(self._waiting) < IN_FLIGHT:
                    burst_s = now_s + PACE_S
                    for _ in range(BURST):
                        tag += 1
                        self._publish(channel, tag)
                self._take(next_event(channel))
        finally:
            self.closed += len(self._waiting)
            self._waiting.clear()

    def _publish(self, channel: Channel, tag: int) -> None:
        self._number += 1
        name = f"{self.node.name}{self._number}"
        is_for_all = self._random.random() < 0.3
        queues = self._queues if is_for_all else [self._random.choice(self._queues)]
        exchange, key = (FAN_OUT, "") if is_for_all else ("", queues[0])
        self.history.sent(self.life, name, *queues)
        self._waiting[tag] = name, time.monotonic()
        channel.publish(key, name, exchange, mandatory=True, delivery_mode=2)

    def _take(self, event: Event | None) -> None:
        if event is None:
            return
        if event.name == "basic.return":
            self.returned += 1
            return
        assert event.name in {"basic.ack", "basic.nack"}, event
        tags = [event.delivery_tag]
        if event.multiple:
            tags = [tag for tag in self._waiting if tag <= event.delivery_tag]
        for tag in tags:
            assert tag in self._waiting, f"answered twice: {event}"
            name, sent_s = self._waiting.pop(tag)
            self.slowest_s = max(self.slowest_s, time.monotonic() - sent_s)
            if event.name == "basic.ack":
                self.confirmed += 1
                self.history.confirmed(name)
            else:
                self.nacked += 1


class ClusterConsumer(ClusterClient):
    """Consumes one queue, and acknowledges some deliveries at a time.

    Attributes:
        delivered: number of deliveries.
        redelivered: those among them that were marked so.
        subscribed: how often it has subscribed.
    """

    def __init__(self, node: ClusterNode, history: History, queue: str) -> None:
        super().__init__(node, history, f"consumer of {queue}")
        self._queue = queue
        self.delivered = self.redelivered = self.subscribed = 0
        self._held: list[tuple[int, str]] = []

    def work(self, channel: Channel) -> None:
        self._held = []
        self._ok(channel.call("basic.qos", prefetch_count=10))
        self._ok(channel.call("basic.consume", queue=self._queue, consumer_tag="c"))
        self.subscribed += 1
        while not self.is_ending:
            event = next_event(channel)
            if event is None:
                self._ack(channel)
            elif event.name == "basic.cancel":
                raise ClosedError
            else:
                self._deliver(channel, event)
        self._ok(channel.call("basic.cancel", consumer_tag="c"))
        while (event := next_event(channel, 0.0)) is not None:
            self._deliver(channel, event)
        self._ack(channel)
        self._ok(channel.call("queue.declare", queue=self._queue, passive=True))

    def _deliver(self, channel: Channel, event: Event) -> None:
        assert event.name == "basic.deliver", event
        name = event.body.decode()
        self.delivered += 1
        self.redelivered += event.redelivered
        self.history.delivered(self._queue, self.life, name, event.redelivered)
        self._held.append((event.delivery_tag, name))
        if len(self._held) >= ACK_AFTER:
            self._ack(channel)

    def _ack(self, channel: Channel) -> None:
        if not self._held:
            return
        for _, name in self._held:
            self.history.acked(self._queue, self.life, name)
        channel.send("basic.ack", delivery_tag=self._held[-1][0], multiple=True)
        self._held.clear()

    @staticmethod
    def _ok(event: Event) -> None:
        if not event.name.endswith("-ok"):
            raise ClosedError
