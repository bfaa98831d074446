"""A publishing and a consuming channel: synchronous, driven by the socket and by timers.

Both count in ``Tally``, which the run and the report read. Publishers write in batches of about 64 KiB and
return to the event loop in between, so that deliveries are read in time.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from typing import Any, Final, NamedTuple
from zlib import crc32

from leveret.amqp import methods, spec
from leveret.client.asynchronous import AsyncConnection
from leveret.client.events import Cancelled, Confirmed, Delivered, Event, Returned
from leveret.client.protocol import FRAME, acks
from leveret.server.perf.latency import Histogram
from leveret.server.perf.scenario import Scenario
from leveret.server.perf.verify import CHECK, HEAD, ConsumerCheck, Violations, filler

BATCH_BYTES: Final = 65_536
SLACK_S: Final = 0.01  # how much idle time a slow consumer may make up for
LATE_NS: Final = 2_000_000
_PERSISTENT: Final = b"\x02"
_HEADER_START: Final = b"\x00\x3c\x00\x00"  # class 60, weight 0
_PROCESS_BATCH: Final = 64


class Tally:
    """The counts of all agents together."""

    def __init__(self) -> None:
        self.violations = Violations()
        self.sent = 0
        self.received = 0
        self.confirmed = 0
        self.nacked = 0
        self.returned = 0
        self.latency = Histogram()
        self.confirm_latency = Histogram()
        self.window = Histogram()
        self.first_sent_ns = 0
        self.last_ns = 0
        self.moved = asyncio.Event()

    def close_window(self) -> Histogram:
        """Return the latencies since the last call, and merge them into ``latency``."""
        window, self.window = self.window, Histogram()
        self.latency.merge(window)
        return window


class Lane(NamedTuple):
    """A numbered sequence of messages, with the encoded start of its publishes."""

    number: int
    publish: bytes


class Producer:
    """Publishes on one channel until its count is reached or ``stop`` is called."""

    def __init__(
        self,
        scenario: Scenario,
        tally: Tally,
        connection: AsyncConnection,
        channel: int,
        key_lanes: list[Lane],  # of every routing key, used in turn
    ) -> None:
        self.sent_per_lane = {lane.number: 0 for lane in key_lanes}
        self.sent = 0
        self.stopped = False
        self._scenario = scenario
        self._tally = tally
        self._connection = connection
        self._channel = channel
        self._lanes = key_lanes
        self._unconfirmed: dict[int, int] = {}
        self._starts: list[bytes] = []
        self._started_ns = 0
        self._scheduled = False
        batch = max(1, BATCH_BYTES // (scenario.body_bytes + 80))
        self._batch = batch if not scenario.confirm else min(batch, scenario.confirm)

    def start(self) -> None:
        # The encoded publish up to the body, if all messages have the same header.
        header = b"" if self._scenario.vary else self._header(self._scenario.body_bytes, b"")
        self._starts = [lane.publish + header for lane in self._lanes]
        self._started_ns = time.monotonic_ns()
        self._pump()

    async def flush(self, queue: str) -> None:
        """Wait until the broker has processed all publishes of this channel."""
        await self._connection.call(self._channel, methods.QueueDeclare(queue, True))

    @property
    def is_done(self) -> bool:
        return self.stopped and not self._unconfirmed

    @property
    def unconfirmed(self) -> int:
        return len(self._unconfirmed)

    def confirm_wait_s(self) -> float:
        oldest_ns = next(iter(self._unconfirmed.values()), None)
        return 0.0 if oldest_ns is None else (time.monotonic_ns() - oldest_ns) / 1e9

    # Agent.

    def on_writable(self) -> None:
        self._pump()

    def on_event(self, event: Event) -> None:
        """Count a confirm; each publish gets exactly one."""
        if type(event) is not Confirmed:
            self._violated(event)
            return
        _, tag, multiple, accepted = event
        pending = self._unconfirmed
        if multiple:
            tags = list(itertools.takewhile(tag.__ge__, pending))
        else:
            tags = [tag] if tag in pending else []
        if not tags:
            self._tally.violations.add("confirm", f"unexpected confirm of {tag}")
        now_ns = time.monotonic_ns()
        for done in tags:
            self._tally.confirm_latency.add((now_ns - pending.pop(done)) // 1000)
        self._tally.confirmed += len(tags)
        if not accepted:
            self._tally.nacked += len(tags)
            self._tally.violations.add("nack", f"publish {tag} was refused", len(tags))
        self._tally.last_ns = now_ns

    def _violated(self, event: Event) -> None:
        if isinstance(event, Returned):
            self._tally.returned += 1
            self._tally.violations.add("returned", "a message was not routed to any queue")
        else:
            self._tally.violations.add("unexpected", f"for a publishing channel: {event!r:.99}")

    def on_read(self) -> None:
        if self._scenario.confirm:
            self._tally.moved.set()
            self._pump()

    # Publishing.

    def _header(self, size: int, message_id: bytes) -> bytes:
        persistent = self._scenario.persistent
        flags = 0x1000 * persistent | 0x0080 * bool(message_id)
        properties = _PERSISTENT * persistent
        if message_id:
            properties += b"%c%b" % (len(message_id), message_id)
        payload = _HEADER_START + size.to_bytes(8, "big") + flags.to_bytes(2, "big") + properties
        header = FRAME.pack(spec.FRAME_HEADER, self._channel, len(payload)) + payload + b"\xce"
        if size > self._connection.frame_max - 8:
            return header
        return header + FRAME.pack(spec.FRAME_BODY, self._channel, size)

    def _on_due(self) -> None:
        self._scheduled = False
        self._pump()

    def _pump(self) -> None:
        if not self._starts:
            return  # answers while the run is prepared
        while not (self.stopped or self._connection.paused or self._connection.error):
            count = self._allowed()
            if count <= 0:
                break
            self._publish(count)
            if not self._scenario.rate:
                break
        self._reschedule()

    def _allowed(self) -> int:
        scenario, count = self._scenario, self._batch
        if scenario.producer_messages:
            count = min(count, scenario.producer_messages - self.sent)
        if scenario.confirm:
            count = min(count, scenario.confirm - len(self._unconfirmed))
        if scenario.rate:
            elapsed_s = (time.monotonic_ns() - self._started_ns) / 1e9
            count = min(count, int(elapsed_s * scenario.rate) + 1 - self.sent)
        return count

    def _reschedule(self) -> None:
        scenario = self._scenario
        if scenario.producer_messages and self.sent >= scenario.producer_messages:
            self.stop()
        if self.stopped or self._scheduled or self._connection.paused or self._connection.error:
            return
        if scenario.confirm and len(self._unconfirmed) >= scenario.confirm:
            return
        loop = asyncio.get_running_loop()
        self._scheduled = True
        if scenario.rate:
            due_s = self._started_ns / 1e9 + self.sent / scenario.rate
            loop.call_later(max(0.0, due_s - time.monotonic_ns() / 1e9), self._on_due)
        else:
            loop.call_soon(self._on_due)

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self._tally.moved.set()

    def _publish(self, count: int) -> None:
        parts: list[bytes] = []
        now_ns = time.monotonic_ns()
        for _ in range(count):
            key = self.sent % len(self._lanes)
            lane = self._lanes[key].number
            number = self.sent_per_lane[lane]
            self.sent_per_lane[lane] = number + 1
            self.sent += 1
            self._append(parts, key, lane, number, self._due_ns(now_ns))
            if self._scenario.confirm:
                self._unconfirmed[self.sent] = now_ns
        tally = self._tally
        tally.sent += count
        tally.first_sent_ns = tally.first_sent_ns or now_ns
        tally.last_ns = now_ns
        self._connection.transport.write(b"".join(parts))

    def _due_ns(self, now_ns: int) -> int:
        """Return the time this message was due, so that a stall counts for all messages it delays."""
        if not self._scenario.rate:
            return now_ns
        due_ns = self._started_ns + int((self.sent - 1) * 1e9 / self._scenario.rate)
        return due_ns if now_ns - due_ns > LATE_NS else now_ns

    def _append(self, parts: list[bytes], key: int, lane: int, number: int, at_ns: int) -> None:
        size = self._scenario.body_bytes
        start = self._starts[key]
        if self._scenario.vary:
            size += number % 97
            start += self._header(size, b"%b-%d" % (self._scenario.id.encode(), number))
        head = HEAD.pack(lane, number, at_ns)
        check = CHECK.pack(crc32(head) & 0xFFFF)
        if size <= self._connection.frame_max - 8:
            parts += (start, head, filler(size), check, b"\xce")
        else:
            parts.append(start)
            self._append_cut(parts, b"%b%b%b" % (head, filler(size), check))

    def _append_cut(self, parts: list[bytes], body: bytes) -> None:
        step = self._connection.frame_max - 8
        for position in range(0, len(body), step):
            piece = body[position : position + step]
            parts += (FRAME.pack(spec.FRAME_BODY, self._channel, len(piece)), piece, b"\xce")


class Consumer:
    """Consumes on one channel, checks every message and acknowledges it."""

    def __init__(
        self,
        scenario: Scenario,
        tally: Tally,
        connection: AsyncConnection,
        channel: int,
        check: ConsumerCheck,
    ) -> None:
        self.check = check
        self.queue = check.ledger.name
        self.stopped = False
        self._scenario = scenario
        self._tally = tally
        self._connection = connection
        self._channel = channel
        self._tags: list[int] = []
        self._last_tag = 0
        self._slow: deque[tuple[bytes, bool]] = deque()
        self._due_s = 0.0
        self._works = False

    async def start(self) -> None:
        scenario = self._scenario
        for count, is_global in ((scenario.prefetch, False), (scenario.channel_prefetch, True)):
            if count:
                await self._connection.call(self._channel, methods.BasicQos(0, count, is_global))
        await self._connection.call(
            self._channel, methods.BasicConsume(self.queue, "", False, scenario.autoack)
        )

    # Agent.

    def on_event(self, event: Event) -> None:
        """Check a message; a slow consumer queues it."""
        if type(event) is not Delivered:
            self._violated(event)
            return
        if self.stopped:
            return
        _, _, tag, redelivered, _, body = event
        if tag != self._last_tag + 1:
            self._tally.violations.add("tag", f"delivery tag {tag} after {self._last_tag}")
        self._last_tag = tag
        if self._scenario.consumer_rate:
            self._slow.append((body, redelivered))
            return
        self._take(tag, redelivered, body)

    def on_read(self) -> None:
        if self._slow and not self._works:
            self._work_slowly()
        if len(self._tags) >= self._scenario.ack_every:
            self._acknowledge()
        self._tally.moved.set()

    def _violated(self, event: Event) -> None:
        if isinstance(event, Cancelled):
            text = f"consumer of {self.queue} cancelled by the broker"
            self._tally.violations.add("cancelled", text)
        else:
            self._tally.violations.add("unexpected", f"for a consuming channel: {event!r:.99}")

    def on_writable(self) -> None:
        """Acknowledgements are small; they wait in the transport."""

    def finish(self) -> None:
        if self._tags and not self._connection.error:
            self._acknowledge()

    def _take(self, tag: int, redelivered: bool, body: bytes) -> None:
        now_ns = self._connection.read_ns
        sent_ns = self.check.take(body, redelivered)
        tally = self._tally
        tally.received += 1
        tally.last_ns = now_ns
        if sent_ns >= 0 and self._scenario.producers:
            tally.window.add((now_ns - sent_ns) // 1000)
        if not self._scenario.autoack:
            self._tags.append(tag)
        if self.check.received == self._scenario.consumer_messages:
            self.stopped = True

    def _acknowledge(self) -> None:
        every = self._scenario.ack_every
        count = len(self._tags) if self.stopped or every == 1 else len(self._tags) // every * every
        tags, self._tags = self._tags[:count], self._tags[count:]
        if tags:
            self._connection.transport.write(acks(self._channel, tags, every > 1))

    def _work_slowly(self) -> None:
        """Handle messages at the consumer's rate; the socket is not read while many wait."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self._due_s = max(self._due_s, now_s - SLACK_S)
        while self._slow and self._due_s <= now_s:
            body, redelivered = self._slow.popleft()
            self._connection.read_ns = time.monotonic_ns()
            self._take(self._last_tag - len(self._slow), redelivered, body)
            self._due_s += 1 / self._scenario.consumer_rate
        self._acknowledge()
        self._hold(len(self._slow) > _PROCESS_BATCH * 4)
        self._works = bool(self._slow)
        if self._works:
            loop.call_later(max(0.0, self._due_s - now_s), self._work_slowly)

    def _hold(self, is_full: bool) -> None:
        transport: Any = self._connection.transport
        if is_full and transport.is_reading():
            transport.pause_reading()
        elif not is_full and not transport.is_reading() and not transport.is_closing():
            transport.resume_reading()
