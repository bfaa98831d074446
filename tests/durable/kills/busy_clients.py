"""Clients that do to durable queues all that clients and operators can do, until the broker ends.

A fan-out of ``COUNT`` queues: one has priorities, one is lazy, one lets its messages expire. Some of them are
consumed in all ways, some purged, one is deleted and declared again; policies of all of them change.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from conformance.raw import Channel
from durable.kills.clients import Client, ConfirmedPublisher
from durable.kills.oracle import Known, name_of, place_of
from leveret.server.control_client import ControlFailedError, NoBrokerError, ask

COUNT: Final = 20
WIDE: Final = "wide"
QUEUES: Final = tuple(f"wide.{number}" for number in range(COUNT))
PRIORITY, LAZY, EXPIRING, PURGED, REPLACED, *_ = QUEUES
CONSUMED: Final = (PRIORITY, LAZY, *QUEUES[5:11])
QUEUE_TTL_MS: Final = 1_500
ROUNDING_S: Final = 0.01  # the broker counts milliseconds
ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    PRIORITY: {"x-max-priority": 3},
    LAZY: {"x-queue-mode": "lazy"},
    EXPIRING: {"x-message-ttl": QUEUE_TTL_MS},
}
IN_FLIGHT: Final = 60
POLICIES: Final = (
    '{"queue-mode": "lazy"}',
    '{"queue-mode": "default"}',
    '{"message-ttl": 3600000}',
    '{"queue-mode": "lazy", "expires": 3600000}',
)


@dataclass(slots=True)
class Facts:
    """What the clients of all lives know of one queue, besides its contents.

    Attributes:
        known: the contents.
        delivered: names that were delivered before, in any life.
        may_be_empty: a purge or deletion was sent, and its answer did not come.
    """

    known: Known
    delivered: set[str] = field(default_factory=set)
    may_be_empty: bool = False

    def empty(self) -> None:
        """Note that all that was published may have gone."""
        self.known.acked |= self.known.published


class Ages:
    """When messages have certainly expired, in wall-clock seconds, which are the broker's.

    A message was published before its confirm came, or before the broker ended. One that the broker delivered
    was alive when the broker took the request for it, thus at some time after the client sent that.
    """

    def __init__(self) -> None:
        self._ttls_s: dict[str, float] = {}  # of messages that may not have been published yet
        self._ends_s: dict[str, float] = {}

    def note(self, name: str, ttl_ms: int) -> None:
        self._ttls_s[name] = ttl_ms / 1000

    def published(self, names: Iterable[str]) -> None:
        now_s = time.time()
        for name in names:
            if name in self._ttls_s:
                self._ends_s[name] = now_s + self._ttls_s.pop(name)

    def broker_ended(self) -> None:
        self.published(list(self._ttls_s))

    def check(self, name: str, asked_s: float) -> None:
        """Check that a message which was asked for at some time had not expired before."""
        end_s = self._ends_s.get(name, float("inf")) + ROUNDING_S
        assert asked_s < end_s, (
            f"{name} had expired {asked_s - end_s:.3f} s before it was asked for"
        )


def declare(channel: Channel, queue: str) -> None:
    arguments = ARGUMENTS.get(queue, {})
    channel.ok("queue.declare", queue=queue, durable=True, arguments=arguments)
    channel.ok("queue.bind", queue=queue, exchange=WIDE)


class WidePublisher(ConfirmedPublisher):
    """Publishes small, large, transient and expiring messages, to all queues or to one."""

    in_flight = IN_FLIGHT

    def __init__(
        self,
        address: tuple[str, int],
        known: dict[str, Known],
        ages: Ages,
        publisher: str,
        rng: random.Random,
    ) -> None:
        super().__init__(address, known)
        self._ages, self._publisher, self._rng = ages, publisher, rng
        self._number = 0

    def publish(self) -> None:
        rng, known = self._rng, self.known
        kind = rng.choices(["", "t", "l", "x"], [80, 8, 1, 11])[0]
        self._number += 1
        name = f"{self._publisher}.{self._number:07}.{rng.randint(0, 3)}{kind}"
        if rng.random() < 0.4:
            queues, exchange, key = QUEUES, WIDE, ""
        else:
            queues, exchange, key = (rng.choice(QUEUES),), "", ""
            key = queues[0]
        properties = {}
        if kind == "x":
            ttl_ms = rng.choice([0, 100, 1_000, 3_000])
            properties["expiration"] = str(ttl_ms)
            self._ages.note(name, ttl_ms)
            for queue in queues:
                known[queue].acked.add(name)
        if EXPIRING in queues:
            known[EXPIRING].acked.add(name)
        self.confirms.publish(name, queues, exchange, key, **properties)

    def settled(self, names: list[str]) -> None:
        self._ages.published(names)
        super().settled(names)


class BusyConsumer(Client):
    """Acknowledges, rejects, puts back and recovers what one queue has; holds order and flags to be right."""

    def __init__(
        self,
        address: tuple[str, int],
        facts: Facts,
        ages: Ages,
        queue: str,
        rng: random.Random,
    ) -> None:
        self._facts, self._ages, self._queue, self._rng = facts, ages, queue, rng
        self._recovered = facts.known.published.copy()
        self._last: dict[str, int] = {}
        self._is_recovering = False
        self._recovers_s = 0.0
        super().__init__(address, {queue: facts.known})

    def prepare(self, channel: Channel) -> None:
        prefetch_count = self._rng.choice([1, 10, 50, 200])
        channel.ok("basic.qos", prefetch_count=prefetch_count)
        # When room for each further delivery was given; the next one takes the oldest.
        self._asked_s = deque([time.time()] * prefetch_count)
        channel.ok("basic.consume", queue=self._queue, consumer_tag="c")

    def work(self, channel: Channel) -> None:
        unacked: dict[int, str] = {}
        for event in self.events(channel):
            if event.name == "basic.recover-ok":
                self._is_recovering = False
                self._asked_s.extend([self._recovers_s] * len(unacked))
                unacked.clear()
                continue
            assert event.name == "basic.deliver", event
            name = name_of(event.body)
            self._check(name, event.redelivered)
            unacked[event.delivery_tag] = name
            if not self._is_recovering and (len(unacked) >= 5 or self._rng.random() < 0.3):
                self._settle(channel, unacked)

    def _check(self, name: str, redelivered: bool) -> None:
        facts = self._facts
        self._ages.check(name, self._asked_s.popleft())
        if redelivered:
            known_before = name in facts.delivered or name in self._recovered
            assert known_before, f"{name} is new and called redelivered"
        else:
            assert name not in facts.delivered, f"{name} comes again and is called new"
            if self._queue != PRIORITY:
                publisher, _, number = place_of(name)
                assert self._last.get(publisher, -1) < number, f"{name} overtook an older message"
                self._last[publisher] = number
        facts.delivered.add(name)

    def _settle(self, channel: Channel, unacked: dict[int, str]) -> None:
        rng, acked = self._rng, self._facts.known.acked
        tag = rng.choice(list(unacked))
        way = rng.choices(
            ["ack", "ack up to", "reject", "requeue", "requeue up to", "recover"],
            [40, 30, 10, 10, 8, 2],
        )[0]
        some = [each for each in unacked if each <= tag]
        before, now_s = len(unacked), time.time()
        match way:
            case "ack":
                acked.add(unacked.pop(tag))
                channel.send("basic.ack", delivery_tag=tag, multiple=False)
            case "ack up to":
                acked.update(unacked.pop(each) for each in some)
                channel.send("basic.ack", delivery_tag=tag, multiple=True)
            case "reject":
                acked.add(unacked.pop(tag))
                channel.send("basic.reject", delivery_tag=tag, requeue=False)
            case "requeue":
                del unacked[tag]
                channel.send("basic.reject", delivery_tag=tag, requeue=True)
            case "requeue up to":
                for each in some:
                    del unacked[each]
                channel.send("basic.nack", delivery_tag=tag, multiple=True, requeue=True)
            case "recover":
                self._is_recovering, self._recovers_s = True, now_s
                channel.send("basic.recover", requeue=True)
        self._asked_s.extend([now_s] * (before - len(unacked)))


class Emptier(Client):
    """Purges one queue, and deletes and declares another, over and over."""

    def __init__(
        self, address: tuple[str, int], facts: dict[str, Facts], rng: random.Random
    ) -> None:
        self._facts, self._rng = facts, rng
        super().__init__(address, {})

    def work(self, channel: Channel) -> None:
        while True:
            time.sleep(self._rng.uniform(0.01, 0.1))  # queues fill in between
            queue = PURGED if self._rng.random() < 0.6 else REPLACED
            facts = self._facts[queue]
            facts.may_be_empty = True
            if queue == PURGED:
                answers = [channel.call("queue.purge", queue=queue)]
            else:
                answers = [
                    channel.call("queue.delete", queue=queue),
                    channel.call("queue.declare", queue=queue, durable=True),
                    channel.call("queue.bind", queue=queue, exchange=WIDE),
                ]
            if any(not answer.name.endswith("-ok") for answer in answers):
                assert answers[-1].name in {"closed", "connection.close"}, answers
                return
            facts.empty()
            facts.may_be_empty = False


class Operator(threading.Thread):
    """Changes the policy of the queues until the broker has ended."""

    def __init__(self, data_dir: Path, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self._data_dir, self._rng = data_dir, rng

    def run(self) -> None:
        try:
            while True:
                arguments = {
                    "vhost": "/",
                    "name": "flips",
                    "pattern": self._rng.choice(["^wide", r"\.1", r"[0-4]$"]),
                    "definition": self._rng.choice(POLICIES),
                    "priority": 1,
                    "apply_to": "queues",
                }
                ask(self._data_dir, "set_policy", arguments, 30.0)
                time.sleep(self._rng.uniform(0.005, 0.1))  # messages come under each policy
        except (NoBrokerError, ControlFailedError):
            return  # the broker has ended
