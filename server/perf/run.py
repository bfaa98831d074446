"""One run: topology, agents, the timed phase, and the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections import defaultdict
from typing import Any

from leveret.amqp import methods
from leveret.amqp.tables import typed_table
from leveret.client.asynchronous import AsyncConnection, connect
from leveret.client.errors import BrokerError
from leveret.server.output.terminal import OutputClosedError
from leveret.server.perf.agents import Consumer, Lane, Producer, Tally
from leveret.server.perf.cpu import Meter
from leveret.server.perf.report import Reporter
from leveret.server.perf.scenario import Scenario
from leveret.server.perf.verify import ConsumerCheck, QueueLedger

PRODUCT = "leveret perf"
CONNECTING_AT_ONCE = 32
LATE_CHECK_S = 0.25


class Run:
    """A scenario under way."""

    _control: AsyncConnection  # declares and deletes; opened first

    def __init__(self, scenario: Scenario, reporter: Reporter) -> None:
        self.scenario = scenario
        self.tally = Tally()
        self._reporter = reporter
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        self._queues: list[str] = list(scenario.queues)
        self._ledgers: dict[str, QueueLedger] = {}
        self._connections: list[AsyncConnection] = []
        self._meter = Meter(scenario.pids)
        self._started_ns = 0
        self._ended_ns = 0
        self._cpu_ns = 0
        self._is_settled = True
        self._kept = 0
        self._confirms_checked_s = 0.0

    async def __call__(self) -> dict[str, Any]:
        """Run and return the result; ``ok`` is the verdict.

        Raises:
            BrokerError: the broker was not there, or refused the topology.
            OutputClosedError: the reader of the report has closed the output.
        """
        try:
            await self._prepare()
            await self._measure()
            self._settle()
        finally:
            await self._tear_down()
        return self._result()

    def stop(self) -> None:
        """Stop publishing; messages in flight are still awaited."""
        for producer in self._producers:
            producer.stop()
        for consumer in () if self._producers else self._consumers:
            consumer.stopped = True
        self.tally.moved.set()

    # Before.

    async def _prepare(self) -> None:
        self._control = await self._connection()
        await self._control.channel(1)
        await self._declare()
        for queue in self._queues:
            self._ledgers[queue] = QueueLedger(queue, self.tally.violations)
        await self._make_producers()
        await self._make_consumers()

    async def _connection(self) -> AsyncConnection:
        scenario = self.scenario
        context = _any_broker() if scenario.target.has_tls else None
        connection = await connect(
            scenario.target, PRODUCT, context, scenario.heartbeat_s, scenario.frame_max
        )
        self._connections.append(connection)
        return connection

    async def _connect_many(self, count: int) -> list[AsyncConnection]:
        gate = asyncio.Semaphore(CONNECTING_AT_ONCE)

        async def one() -> AsyncConnection:
            async with gate:
                return await self._connection()

        return list(await asyncio.gather(*(one() for _ in range(count))))

    async def _declare(self) -> None:
        scenario, call = self.scenario, self._control.call
        if scenario.predeclared:
            return
        if scenario.exchange and not scenario.exchange.startswith("amq."):
            await call(1, methods.ExchangeDeclare(scenario.exchange, scenario.kind))
        names = scenario.queues or ("",) * scenario.all_consumers
        durable = scenario.persistent and bool(scenario.queues)
        arguments = typed_table(scenario.queue_arguments)
        declared = []
        for name in names:
            # No auto-delete while a backlog is built: the end of the last consumer would delete the queue.
            auto_delete = scenario.auto_delete and not scenario.consume_after
            declare = methods.QueueDeclare(
                name, False, durable, False, auto_delete, False, arguments
            )
            declared.append((await call(1, declare)).queue)
            await call(1, methods.QueuePurge(declared[-1]))
        self._queues = declared
        await self._bind()

    async def _bind(self) -> None:
        scenario = self.scenario
        if not scenario.exchange:
            return
        queues = self._queues
        keys = [(queue, queue if scenario.pattern else scenario.routing_key) for queue in queues]
        if scenario.bindings:
            numbers = range(scenario.bindings)
            keys = [(queues[number % len(queues)], f"perf.{number}.*") for number in numbers]
        for queue, key in keys:
            await self._control.call(1, methods.QueueBind(queue, scenario.exchange, key))

    async def _make_producers(self) -> None:
        scenario = self.scenario
        connections = await self._connect_many(scenario.producers)
        for index in range(scenario.all_producers):
            connection = connections[index // scenario.producer_channels]
            channel = index % scenario.producer_channels + 1
            lanes = [
                Lane(index * max(1, len(self._queues)) + offset, self._publish(channel, key))
                for offset, key in self._keys_of(index)
            ]
            producer = Producer(scenario, self.tally, connection, channel, lanes)
            await connection.channel(channel, producer)
            if scenario.confirm:
                await connection.call(channel, methods.ConfirmSelect())
            self._producers.append(producer)

    def _keys_of(self, producer: int) -> list[tuple[int, str]]:
        """Return the routing keys that a producer cycles through, each with its lane."""
        scenario, count = self.scenario, len(self._queues)
        if scenario.bindings:
            bound = scenario.bindings
            return [
                (key % bound % count, f"perf.{key % bound}.{key}") for key in range(scenario.keys)
            ]
        if scenario.pattern or (not scenario.exchange and self._queues):
            offset = producer % count
            return [(offset, self._queues[offset])]
        return [(0, scenario.routing_key)]

    def _targets_of(self, lane: int) -> list[str]:
        """Return the queues that all messages of a lane must reach."""
        scenario = self.scenario
        offset = lane % max(1, len(self._queues))
        if scenario.bindings or scenario.pattern or not scenario.exchange:
            return self._queues[offset : offset + 1]
        return self._queues

    def _publish(self, channel: int, key: str) -> bytes:
        publish = methods.BasicPublish(self.scenario.exchange, key, self.scenario.mandatory)
        return methods.method_frame(channel, methods.encode(publish))

    async def _make_consumers(self) -> None:
        scenario = self.scenario
        connections = await self._connect_many(scenario.consumers)
        for index in range(scenario.all_consumers):
            connection = connections[index // scenario.consumer_channels]
            channel = index % scenario.consumer_channels + 1
            ledger = self._ledgers[self._queues[index % len(self._queues)]]
            check = ConsumerCheck(ledger, self.tally.violations)
            consumer = Consumer(scenario, self.tally, connection, channel, check)
            await connection.channel(channel, consumer)
            self._consumers.append(consumer)

    # The timed phase.

    async def _measure(self) -> None:
        if self.scenario.consume_after:
            self._publish_all()
            await self._wait(self._producers_done)
            await self._barrier()
        else:
            await self._consume_all()
        self._meter.start()
        self._started_ns = time.monotonic_ns()
        reporting = asyncio.ensure_future(self._report())
        try:
            if self.scenario.consume_after:
                await self._consume_all()
            else:
                self._publish_all()
            await self._until_done()
            if not self._consumers:
                await self._barrier()
                if not self.scenario.predeclared:  # others may consume
                    self._kept = await self._count_queued()
        finally:
            reporting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reporting
        self._ended_ns = self.tally.last_ns if self._consumers else time.monotonic_ns()
        self._cpu_ns = self._meter.read_ns()

    def _publish_all(self) -> None:
        for producer in self._producers:
            producer.start()

    async def _consume_all(self) -> None:
        for consumer in self._consumers:
            await consumer.start()

    async def _until_done(self) -> None:
        time_s = self.scenario.time_s
        if time_s:
            await self._wait(self._producers_done if self._producers else self._all_done, time_s)
            self.stop()
        self._is_settled = await self._wait(self._all_done)

    def _producers_done(self) -> bool:
        return all(producer.is_done for producer in self._producers)

    def _all_done(self) -> bool:
        if not self._producers_done():
            return False
        if self.scenario.consumer_messages or not self._producers:
            return all(consumer.stopped for consumer in self._consumers)
        return not self._consumers or self.tally.received >= self._expected()

    def _expected(self) -> int:
        return sum(
            count * len(self._targets_of(lane))
            for producer in self._producers
            for lane, count in producer.sent_per_lane.items()
        )

    async def _wait(self, is_done: Any, limit_s: float = 0.0) -> bool:
        """Wait until ``is_done``, or the limit, or ``stall_s`` without progress."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + limit_s if limit_s else float("inf")
        progress, seen_s = -1, loop.time()
        while not is_done():
            self._raise_if_over()
            now_s = loop.time()
            if self._confirms_are_late(now_s):
                return False
            moved = self.tally.received + self.tally.confirmed + self.tally.sent
            if moved != progress:
                progress, seen_s = moved, now_s
            if now_s >= end_s or now_s - seen_s >= self.scenario.stall_s:
                return False
            self.tally.moved.clear()
            pause_s = min(0.25, max(0.001, end_s - now_s))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.tally.moved.wait(), pause_s)
        return True

    def _confirms_are_late(self, now_s: float) -> bool:
        if not self.scenario.confirm or now_s < self._confirms_checked_s + LATE_CHECK_S:
            return False
        self._confirms_checked_s = now_s
        limit_s = self.scenario.confirm_timeout_s
        return any(producer.confirm_wait_s() > limit_s for producer in self._producers)

    def _raise_if_over(self) -> None:
        if self._reporter.is_closed:
            raise OutputClosedError
        for connection in self._connections:
            if connection.error is not None:
                raise connection.error

    async def _barrier(self) -> None:
        """Wait until the broker has processed all publishes."""
        if not self._queues:
            return
        for producer in self._producers:
            await producer.flush(self._queues[0])

    async def _count_queued(self) -> int:
        """Count the messages in the queues until all are there or the count stays the same.

        RabbitMQ answers a passive declare before the messages waiting in the queue's mailbox.
        """
        found, grew_s = -1, time.monotonic()
        while found != self._expected() and time.monotonic() - grew_s < self.scenario.stall_s:
            before, found = found, 0
            for queue in self._queues:
                answer = await self._control.call(1, methods.QueueDeclare(queue, True))
                found += answer.message_count
            if found != before:
                grew_s = time.monotonic()
        return found

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(self.scenario.interval_s)
            self._reporter.line(self.tally, time.monotonic_ns() - self._started_ns)

    # After.

    def _settle(self) -> None:
        for consumer in self._consumers:
            consumer.finish()
        if not self._is_settled:
            self.tally.violations.add("stalled", f"nothing moved for {self.scenario.stall_s:g} s")
        if not self._producers or self.scenario.predeclared or self.scenario.consumer_messages:
            return
        if self._consumers:
            self._settle_consumed()
        elif self._queues:
            self._settle_kept()
        unconfirmed = sum(producer.unconfirmed for producer in self._producers)
        if unconfirmed:
            self.tally.violations.add("unconfirmed", f"{unconfirmed} publishes", unconfirmed)

    def _settle_consumed(self) -> None:
        sent: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for producer in self._producers:
            for lane, count in producer.sent_per_lane.items():
                for queue in self._targets_of(lane):
                    sent[queue][lane] = count
        for queue in {consumer.queue for consumer in self._consumers}:
            self._ledgers[queue].settle(sent[queue])

    def _settle_kept(self) -> None:
        if self._kept != self._expected():
            text = f"{self._kept} messages in the queues, {self._expected()} published"
            self.tally.violations.add("lost", text, abs(self._expected() - self._kept))

    async def _tear_down(self) -> None:
        for connection in self._connections[1:]:
            await _close(connection)
        for control in self._connections[:1]:
            if control.error is None and not self.scenario.predeclared:
                with contextlib.suppress(BrokerError):
                    await self._delete_all()
            await _close(control)

    async def _delete_all(self) -> None:
        for queue in self._queues:
            await self._control.call(1, methods.QueueDelete(queue))
        if self.scenario.exchange and not self.scenario.exchange.startswith("amq."):
            await self._control.call(1, methods.ExchangeDelete(self.scenario.exchange))

    def _result(self) -> dict[str, Any]:
        tally, scenario = self.tally, self.scenario
        tally.close_window()
        took_s = max(1, self._ended_ns - self._started_ns) / 1e9
        is_drain = scenario.consume_after or not self._producers
        messages = tally.received if is_drain else tally.sent
        result: dict[str, Any] = {
            "id": scenario.id,
            "ok": not tally.violations,
            "sent": tally.sent,
            "received": tally.received,
            "confirmed": tally.confirmed,
            "nacked": tally.nacked,
            "returned": tally.returned,
            "redelivered": sum(consumer.check.redelivered for consumer in self._consumers),
            "took_s": round(took_s, 6),
            "msgs_per_s": round(messages / took_s, 1),
            "sent_per_s": round(tally.sent / took_s, 1),
            "received_per_s": round(tally.received / took_s, 1),
            "violations": dict(tally.violations.counts),
            "violation_texts": tally.violations.texts,
        }
        if tally.latency.count and not scenario.consume_after:
            result["latency_us"] = tally.latency.summary()
        if tally.confirm_latency.count:
            result["confirm_us"] = tally.confirm_latency.summary()
        if scenario.pids and messages:
            result["broker_cpu_us_per_msg"] = round(self._cpu_ns / messages / 1000, 4)
        return result


async def _close(connection: AsyncConnection) -> None:
    with contextlib.suppress(BrokerError):
        await connection.close()


def _any_broker() -> ssl.SSLContext:
    """Return a context that trusts any broker, as PerfTest does: the test messages are no secret."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
