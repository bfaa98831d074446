"""Transfers: the pumps of several vhosts, each with a connection to either broker, in one thread.

A transfer ends when the source has had no message left in two looks at each queue, a moment apart, with nothing on its
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
from leveret.amqp.fields import Method
from leveret.server.migrate.pump import MigrationFailed, Pump
from leveret.spark.publish.client import Client, connect
from leveret.spark.publish.errors import ConnectionFailed
from leveret.spark.publish.incoming import CHANNEL, Answer
from leveret.spark.publish.target import Target, Tls

Seen: TypeAlias = Callable[[int], None]  # how many messages have been moved

CONNECT_S: Final = 10.0
SILENCE_S: Final = 60.0  # without a confirm that is due, unless the target blocks publishers
_LOOK_S: Final = 0.2
_WAIT_MS: Final = 100
_LOOKS: Final = 2
_ANSWER_S: Final = 30.0
_ABSENT: Final = frozenset({404, 405})  # no such queue; exclusive to another connection


@dataclass(frozen=True, slots=True)
class QueueLook:
    """A queue as a broker describes it; ``reply`` is why it is not usable, empty if it is."""

    messages: int = 0
    consumers: int = 0
    reply: str = ""


def connected(place: Target, vhost: str, tls: Tls) -> Client:
    """Return a connection to a vhost of a broker; ConnectionFailed: it is refused."""
    return connect(replace(place, vhost=vhost), tls, CONNECT_S)


def looked_at(client: Client, queues: Sequence[str]) -> dict[str, QueueLook]:
    """Ask for queues by their names; ConnectionFailed: the broker closes the connection or does not answer."""
    return {name: _look(client, name) for name in queues}


def _look(client: Client, name: str) -> QueueLook:
    answer = _asked(client, methods.QueueDeclare(name, True), methods.QueueDeclareOk)
    if isinstance(answer, methods.QueueDeclareOk):
        return QueueLook(answer.message_count, answer.consumer_count)
    assert isinstance(answer, methods.ChannelClose)
    if answer.reply_code not in _ABSENT:
        raise ConnectionFailed(f'queue "{name}": {answer.reply_code} {answer.reply_text}')
    _send(client, methods.ChannelCloseOk())
    for method, wanted in (
        (methods.ChannelOpen(), methods.ChannelOpenOk),
        (methods.ConfirmSelect(), methods.ConfirmSelectOk),
    ):
        _asked(client, method, wanted)
    return QueueLook(reply=f"{answer.reply_code} {answer.reply_text}")


def _asked(client: Client, method: Method, wanted: type[Method]) -> Method:
    """Return the answer, or channel.close."""
    _send(client, method)
    deadline_s = time.monotonic() + _ANSWER_S
    while (wait_s := deadline_s - time.monotonic()) > 0:
        for event in client.step(wait_s):
            if isinstance(event, Answer):
                if isinstance(event.method, methods.ConnectionClose):
                    raise ConnectionFailed(f"{event.method.reply_code} {event.method.reply_text}")
                if isinstance(event.method, wanted | methods.ChannelClose):
                    return event.method
    raise ConnectionFailed(f"no answer to {method.NAME} within {_ANSWER_S:g} s")


def _send(client: Client, method: Method) -> None:
    client.send(methods.method_frame(CHANNEL, methods.encode(method)))


class Transfer:
    """The transfer of one vhost."""

    def __init__(
        self, source: Client, target: Client, queues: Sequence[str], prefetch: int
    ) -> None:
        self.pump = Pump(list(queues), target.frame_max)
        self.source = source
        self.target = target
        self._asked_s = 0.0
        self._confirmed_s = time.monotonic()
        _send(source, methods.BasicQos(0, prefetch, False))
        source.send(self.pump.consume())

    def step(self) -> bool:
        """Move what has come, without waiting; return whether something has.

        Raises:
            MigrationFailed, ConnectionFailed: one of the brokers will not go on.
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
        if has_moved or self.pump.is_blocked:
            self._confirmed_s = now_s
        elif now_s - self._confirmed_s > SILENCE_S:
            raise MigrationFailed(
                f"target: no confirm for {SILENCE_S:g} s with {self.pump.flights} messages unconfirmed"
            )

    def look(self) -> None:
        """Ask how many messages are left, now and then."""
        now_s = time.monotonic()
        if now_s - self._asked_s >= _LOOK_S:
            self._asked_s = now_s
            self.source.send(self.pump.look())

    @property
    def is_done(self) -> bool:
        return not self.pump.flights and all(
            queue.is_cancelled or queue.empty_looks >= _LOOKS for queue in self.pump.queues
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
        seen: told how many messages have been moved.

    Raises:
        MigrationFailed, ConnectionFailed: a broker will not go on; its text names the vhost.
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
                transfer.look()
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
    except (MigrationFailed, ConnectionFailed) as error:
        raise MigrationFailed(f'vhost "{vhost}": {error}') from None
