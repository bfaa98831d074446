"""Transfers: the pumps of several vhosts, each with a connection to either broker, in one thread.

A transfer ends when the source has had no message left in two polls of each queue, a moment apart, with nothing on its
way; with ``follow`` it goes on until it is stopped, and then waits for the confirms that are due.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from leveret.amqp import methods
from leveret.client.blocking import BlockingConnection, connect
from leveret.client.errors import BrokerError, ChannelClosed
from leveret.client.target import Target
from leveret.server.migrate.pump import MigrationFailed, Pump
from leveret.spark.publish.target import Tls

Seen: TypeAlias = Callable[[int], None]  # how many messages have been moved

CONNECT_S: Final = 10.0
SILENCE_S: Final = 60.0  # without a confirm that is due, unless the target blocks publishers
_POLL_S: Final = 0.2
_WAIT_MS: Final = 100
_EMPTY_POLLS: Final = 2
_ABSENT: Final = frozenset({404, 405})  # no such queue; exclusive to another connection


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A queue as a broker reports it; ``reply`` is why it cannot be used, empty if it can."""

    messages: int = 0
    consumers: int = 0
    reply: str = ""


def connected(place: Target, vhost: str, tls: Tls) -> BlockingConnection:
    """Return a connection to a vhost of a broker; BrokerError: it is refused."""
    context = tls.context() if place.has_tls else None
    return connect(replace(place, vhost=vhost), CONNECT_S, context, tls.server_name)


def queue_statuses(client: BlockingConnection, queues: Sequence[str]) -> dict[str, QueueStatus]:
    """Ask for queues by their names; BrokerError: the broker closes the connection or does not answer."""
    return {name: _queue_status(client, name) for name in queues}


def _queue_status(client: BlockingConnection, name: str) -> QueueStatus:
    try:
        answer = client.call(methods.QueueDeclare(name, True))
    except ChannelClosed as closed:
        reply = f"{closed.reply_code} {closed.reply_text}"
        if closed.reply_code not in _ABSENT:
            raise BrokerError(f'queue "{name}": {reply}') from None
        client.open_channel()
        return QueueStatus(reply=reply)
    return QueueStatus(answer.message_count, answer.consumer_count)


class Transfer:
    """The transfer of one vhost."""

    def __init__(
        self,
        source: BlockingConnection,
        target: BlockingConnection,
        queues: Sequence[str],
        prefetch: int,
    ) -> None:
        self.pump = Pump(list(queues), target.protocol.frame_max)
        self.source = source
        self.target = target
        self._asked_s = 0.0
        self._confirmed_s = time.monotonic()
        source.call(methods.BasicQos(0, prefetch, False))
        source.send(self.pump.consume())

    def step(self) -> bool:
        """Move what has come, without waiting; return whether something has.

        Raises:
            MigrationFailed, BrokerError: one of the brokers will not go on.
        """
        pump, had_flights = self.pump, self.pump.flights > 0
        deliveries = self.source.step(0)
        for event in deliveries:
            pump.from_source(event)
        self.target.send(pump.take_publishes())
        confirms = self.target.step(0)
        for event in confirms:
            pump.from_target(event)
        self.source.send(pump.take_acks())
        self._check_silence(bool(confirms) or not had_flights)
        return bool(deliveries or confirms)

    def _check_silence(self, has_moved: bool) -> None:
        now_s = time.monotonic()
        if has_moved or self.target.protocol.blocked:
            self._confirmed_s = now_s
        elif now_s - self._confirmed_s > SILENCE_S:
            raise MigrationFailed(
                f"target: no confirm for {SILENCE_S:g} s with {self.pump.flights} messages unconfirmed"
            )

    def poll(self) -> None:
        """Ask how many messages are left, every ``_POLL_S``."""
        now_s = time.monotonic()
        if now_s - self._asked_s >= _POLL_S:
            self._asked_s = now_s
            self.source.send(self.pump.poll())

    @property
    def is_done(self) -> bool:
        return not self.pump.flights and all(
            queue.is_cancelled or queue.empty_polls >= _EMPTY_POLLS for queue in self.pump.queues
        )

    def close(self) -> None:
        """Have the last acknowledgements sent, and close both connections."""
        self.source.close()
        self.target.close()

    def abort(self) -> None:
        self.source.abort()
        self.target.abort()


def run(
    transfers: Mapping[str, Transfer], *, follow: bool, is_stopped: Callable[[], bool], seen: Seen
) -> None:
    """Run transfers until they are done; with ``follow`` until they are stopped.

    Args:
        transfers: by vhost.
        follow: go on when there is no message left.
        is_stopped: asked often; True: publish no more, and end when all confirms have come.
        seen: gets the number of messages moved.

    Raises:
        MigrationFailed, BrokerError: a broker will not go on; its text names the vhost.
    """
    poll = select.poll()
    for transfer in transfers.values():
        for client in (transfer.source, transfer.target):
            poll.register(client.fileno(), select.POLLIN)
    try:
        while not _is_over(transfers, follow):
            if is_stopped():
                for transfer in transfers.values():
                    transfer.pump.is_stopping = True
            if not _step(transfers, follow):
                poll.poll(_wait_ms(transfers))
            seen(sum(queue.moved for each in transfers.values() for queue in each.pump.queues))
        for transfer in transfers.values():
            transfer.close()
    except BaseException:
        for transfer in transfers.values():
            transfer.abort()
        raise


def _step(transfers: Mapping[str, Transfer], follow: bool) -> bool:
    """Take a step in each vhost; return whether something was moved."""
    has_moved = False
    for vhost, transfer in transfers.items():
        with _named(vhost):
            if transfer.step():
                has_moved = True
            elif not follow:
                transfer.poll()
    return has_moved


def _wait_ms(transfers: Mapping[str, Transfer]) -> int:
    has_unsent = any(
        each.source.unsent_bytes or each.target.unsent_bytes for each in transfers.values()
    )
    return 1 if has_unsent else _WAIT_MS


def _is_over(transfers: Mapping[str, Transfer], follow: bool) -> bool:
    pumps = [each.pump for each in transfers.values()]
    if any(pump.is_stopping for pump in pumps):
        return not any(pump.flights for pump in pumps)
    return not follow and all(each.is_done for each in transfers.values())


@contextmanager
def _named(vhost: str) -> Iterator[None]:
    try:
        yield
    except (MigrationFailed, BrokerError) as error:
        raise MigrationFailed(f'vhost "{vhost}": {error}') from None
