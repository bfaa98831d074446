"""Publishers and consumers with pika that connect again whenever they lose their connection.

All that they do and see goes into one ``History``. Consumers publish to their own queue from time to time:
once that is confirmed, the broker has taken the acks before it.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

from leveret.testing.history import History

PERSISTENT = pika.BasicProperties(delivery_mode=2)
LOST = (
    pika.exceptions.AMQPError,
    ConnectionError,
)
PREFETCH = 5
ACKS_AT_ONCE = 5
PAUSE_S = 0.01  # before another try
LOOK_S = 0.1  # whether it is over


class Worker(threading.Thread, ABC):
    """A client that goes on until it is over.

    Attributes:
        done: confirmed publishes, or acked deliveries.
        losses: connections and consumers that ended, and how.
        over: set when it is to stop.
        surprises: what may never happen.
    """

    def __init__(self, url: str, history: History, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._parameters = pika.URLParameters(url)
        self._history = history
        self._lives = 0
        self._sent = 0
        self.done = 0
        self.losses: list[str] = []
        self.surprises: list[str] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            try:
                with self._channel() as channel:
                    self._lives += 1
                    self._work(channel)
            except LOST as loss:
                self.losses.append(repr(loss))
                self.over.wait(PAUSE_S)
            except Exception as error:  # noqa: BLE001  # the test fails with it
                self.surprises.append(repr(error))
                return

    @contextmanager
    def _channel(self) -> Iterator[BlockingChannel]:
        connection = pika.BlockingConnection(self._parameters)
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel
        finally:
            with suppress(*LOST):  # it has ended
                connection.close()

    @property
    def life(self) -> str:
        """Its present channel, as the history calls it."""
        return f"{self.name}/{self._lives}"

    def _publish(self, channel: BlockingChannel, exchange: str, key: str, *queues: str) -> bool:
        """Publish the next message; return whether it was confirmed."""
        name = f"{self.name}.{self._sent}"
        self._sent += 1
        self._history.sent(self.life, name, *queues)
        try:
            channel.basic_publish(exchange, key, name.encode(), PERSISTENT)
        except pika.exceptions.NackError:
            return False
        self._history.confirmed(name)
        return True

    @abstractmethod
    def _work(self, channel: BlockingChannel) -> None:
        """Do the work until it is over."""


class Publisher(Worker):
    """Publishes to all queues that are bound to a fanout, one message after the other."""

    def __init__(self, url: str, history: History, name: str, queues: tuple[str, ...]) -> None:
        super().__init__(url, history, name)
        self._queues = queues

    def _work(self, channel: BlockingChannel) -> None:
        while not self.over.is_set():
            self.done += self._publish(channel, "amq.fanout", "", *self._queues)


class Consumer(Worker):
    """Consumes one queue and acks.

    Attributes:
        settled: how often it has learned that its acks have been taken.
    """

    def __init__(self, url: str, history: History, name: str, queue: str) -> None:
        super().__init__(url, history, name)
        self._queue = queue
        self.settled = 0

    def _work(self, channel: BlockingChannel) -> None:
        history, queue = self._history, self._queue
        channel.basic_qos(prefetch_count=PREFETCH)
        acks = 0
        for method, _, body in channel.consume(queue, inactivity_timeout=LOOK_S):
            if self.over.is_set():
                return
            if method is None:
                continue
            name = body.decode()
            history.delivered(queue, self.life, name, method.redelivered)
            history.acked(queue, self.life, name)
            channel.basic_ack(method.delivery_tag)
            self.done += 1
            acks += 1
            if acks % ACKS_AT_ONCE == 0 and self._publish(channel, "", queue, queue):
                history.settled(self.life)
                self.settled += 1
        self.losses.append("cancelled")
