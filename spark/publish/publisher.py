"""The publisher, without I/O: tags, confirms, returns, retries, dead letters, and how many rows are settled.

A published message is a *flight* under its delivery tag until the broker confirms it. A broker sends basic.return
before the confirm of a message that no queue took, so a confirm of a returned flight is not a success.
basic.return names no tag: it belongs to the oldest flight with the same exchange, routing key, header and body (or,
if the broker has taken ``BCC`` out of the header, the same body). Flights that are equal in all of these are
interchangeable.

Rows are settled in any order; ``settled_rows`` counts those of the beginning without a gap, which is what a ledger may
say. A flight that is retried or dead-lettered is not settled before the new flight is confirmed.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from leveret.amqp import kernel, methods
from leveret.client.blocking import CHANNEL
from leveret.client.errors import BrokerError
from leveret.client.events import Confirmed, Event, Returned
from leveret.core.message import exchange_and_key
from leveret.spark.publish import edits
from leveret.spark.publish.errors import Nacked, Unroutable
from leveret.spark.publish.options import DEADLETTER, DROP, RETRY, WriteOptions
from leveret.spark.publish.rejects import Reject
from leveret.spark.publish.report import Report
from leveret.spark.publish.rows import Row

WINDOW_BYTES: Final = 64 * 1024 * 1024  # bodies in flight; one body may be larger
UNROUTABLE: Final = "unroutable"
NACKED: Final = "nacked"
REASON_HEADER: Final = "x-reject-reason"
EXCHANGE_HEADER: Final = "x-reject-exchange"
_RETRY_S: Final = 0.1  # doubled for each retry
_RETRY_S_MAX: Final = 5.0


class Flight:
    """A message on its way: ``method``, ``properties`` and the row's body."""

    __slots__ = ("is_letter", "method", "nacks", "properties", "returned", "row", "sent_s")

    def __init__(self, row: Row, method: bytes, properties: bytes) -> None:
        self.row = row
        self.method = method
        self.properties = properties
        self.is_letter = False
        self.nacks = 0
        self.returned = ""
        self.sent_s = 0.0


class SettledRows:
    """Counts the settled rows of the beginning; rows are numbered from 0."""

    def __init__(self) -> None:
        self.count = 0
        self._later: set[int] = set()

    def add(self, place: int) -> None:
        if place != self.count:
            self._later.add(place)
            return
        self.count += 1
        while self.count in self._later:
            self._later.remove(self.count)
            self.count += 1


class Publisher:
    """One channel in confirm mode.

    Attributes:
        rejects: rows for the reject file, since they were last taken.
    """

    def __init__(self, options: WriteOptions, report: Report, frame_max: int = 0) -> None:
        self.rejects: list[Reject] = []
        self._options = options
        self._report = report
        self.frame_max = frame_max
        self._keeps_rejects = bool(options.ledger)
        self._settled = SettledRows()
        self._flights: dict[int, Flight] = {}
        self._next_tag = 1
        self._low_tag = 1  # no flight is below
        self._flight_bytes = 0
        self._retries: deque[tuple[float, Flight]] = deque()
        self._out: list[bytes] = []

    # Asking.

    @property
    def settled_rows(self) -> int:
        return self._settled.count

    @property
    def unsettled(self) -> int:
        """Flights, and messages that wait to be sent again."""
        return len(self._flights) + len(self._retries)

    @property
    def has_room(self) -> bool:
        return self.unsettled < self._options.window and (
            self._flight_bytes < WINDOW_BYTES or not self._flights
        )

    @property
    def next_retry_s(self) -> float | None:
        return self._retries[0][0] if self._retries else None

    def oldest_s(self) -> float | None:
        """Return when the oldest flight was sent, None without flights."""
        while self._low_tag < self._next_tag:
            flight = self._flights.get(self._low_tag)
            if flight is not None:
                return flight.sent_s
            self._low_tag += 1
        return None

    # Sending.

    def skip(self, row_place: int) -> None:
        """Count a row as settled that the ledger has."""
        self._settled.add(row_place)

    def publish(self, row: Row, now_s: float) -> None:
        self._send(Flight(row, row.method, row.properties), now_s)

    def send_retries(self, now_s: float) -> None:
        """Send again what is due."""
        while self._retries and self._retries[0][0] <= now_s:
            self._send(self._retries.popleft()[1], now_s)

    def restart_timers(self, now_s: float) -> None:
        """Count the age of all flights from now on, after a time in which no confirm could come."""
        for flight in self._flights.values():
            flight.sent_s = now_s

    def take_output(self) -> bytes:
        """Return the bytes to send since the last call."""
        out, self._out = self._out, []
        return b"".join(out)

    def take_rejects(self) -> list[Reject]:
        rejects, self.rejects = self.rejects, []
        return rejects

    def _send(self, flight: Flight, now_s: float) -> None:
        body = flight.row.body
        head = edits.head(flight.properties, len(body))
        self._out.append(kernel.content(CHANNEL, flight.method, self.frame_max, head, body))
        flight.sent_s = now_s
        flight.returned = ""
        self._flights[self._next_tag] = flight
        self._next_tag += 1
        self._flight_bytes += len(body)

    # The broker's events.

    def handle(self, event: Event, now_s: float) -> None:
        """Take an event.

        Raises:
            Unroutable, Nacked: a message was not taken, and the policy is to fail.
            BrokerError: the broker sent what a publisher does not await.
        """
        if isinstance(event, Confirmed):
            self._confirmed(event, now_s)
        elif isinstance(event, Returned):
            self._returned(event)
        else:
            raise BrokerError(f"the broker sent {event!r:.99}, which was not awaited")

    def _confirmed(self, event: Confirmed, now_s: float) -> None:
        _, tag, multiple, accepted = event
        last = self._next_tag - 1 if multiple and not tag else tag  # 0: all so far
        if not 0 < last < self._next_tag:
            raise BrokerError(f"the broker confirmed tag {tag}, which was not published")
        flights = self._flights
        first = self._low_tag if multiple else last
        for each in range(first, last + 1):
            flight = flights.pop(each, None)
            if flight is not None:
                self._flight_bytes -= len(flight.row.body)
                self._settle(flight, accepted, now_s)
        if multiple:
            self._low_tag = max(self._low_tag, last + 1)

    def _settle(self, flight: Flight, accepted: bool, now_s: float) -> None:
        if accepted and not flight.returned:
            if flight.is_letter:
                self._report.dead_lettered += 1
            else:
                self._report.sent += 1
            self._settled.add(flight.row.place)
        elif flight.returned:
            self._unroutable(flight, now_s)
        else:
            self._nacked(flight, now_s)

    def _unroutable(self, flight: Flight, now_s: float) -> None:
        policy = self._options.on_unroutable
        if flight.is_letter or policy not in {DROP, DEADLETTER}:
            raise Unroutable(
                f"{flight.row}: no queue took the message from {_place(flight)}: {flight.returned};"
                f" bind a queue, or set onUnroutable to {DEADLETTER} or {DROP}"
            )
        if policy == DROP:
            self._report.dropped += 1
            self._settled.add(flight.row.place)
        else:
            self._dead_letter(flight, UNROUTABLE, flight.returned, now_s)

    def _nacked(self, flight: Flight, now_s: float) -> None:
        self._report.nacked += 1
        flight.nacks += 1
        options = self._options
        if options.on_nack == RETRY and flight.nacks <= options.retries:
            delay_s = min(_RETRY_S * 2 ** (flight.nacks - 1), _RETRY_S_MAX)
            self._retry(now_s + delay_s, flight)
        elif options.on_nack == DEADLETTER and not flight.is_letter:
            self._dead_letter(flight, NACKED, "basic.nack", now_s)
        else:
            times = f"{flight.nacks} times" if flight.nacks > 1 else "once"
            raise Nacked(
                f"{flight.row}: the broker refused the message to {_place(flight)} {times};"
                " look for a queue at its length limit, or for a queue that crashed"
            )

    def _retry(self, due_s: float, flight: Flight) -> None:
        """Keep the retries in the order of their times."""
        place = len(self._retries)
        while place and self._retries[place - 1][0] > due_s:
            place -= 1
        self._retries.insert(place, (due_s, flight))

    def _dead_letter(self, flight: Flight, reason: str, reply: str, now_s: float) -> None:
        row = flight.row
        if self._keeps_rejects:
            self.rejects.append(Reject(row, reason, reply))
        exchange = self._options.dead_letter_exchange
        if exchange is None:
            self._report.dead_lettered += 1
            self._settled.add(row.place)
            return
        before, routing_key = exchange_and_key(row.method[6:-1])
        method = methods.BasicPublish(exchange, routing_key.decode(), True)
        headers = ((REASON_HEADER, reason), (EXCHANGE_HEADER, before.decode()))
        properties = edits.edited(row.properties, headers)  # without the sender's
        letter = Flight(row, methods.encode(method), properties)
        letter.is_letter = True
        self._send(letter, now_s)

    def _returned(self, event: Returned) -> None:
        flight = self._find(event)
        if flight is None:
            raise BrokerError("the broker returned a message that is not awaited")
        self._report.returned += 1
        flight.returned = event.reply

    def _find(self, event: Returned) -> Flight | None:
        similar = None
        for flight in self._flights.values():
            if flight.returned or flight.method[6:-1] != event.origin:
                continue
            if flight.row.body == event.body:
                if flight.properties == event.head[12:]:
                    return flight
                similar = similar or flight
        return similar


def _place(flight: Flight) -> str:
    exchange, routing_key = exchange_and_key(flight.method[6:-1])
    return f'exchange "{exchange.decode()}" with routing key "{routing_key.decode()}"'
