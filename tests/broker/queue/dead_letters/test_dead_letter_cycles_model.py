"""Queues that dead-letter to each other, against a model: three queues with limits, TTL 0, and rejections.

The model follows each letter from queue to queue, with RabbitMQ's rules for ``x-death`` and cycles written once more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from leveret.amqp import methods as m
from leveret.amqp.properties import decode_properties
from rigs.broker_rig import HEAD, METHOD, Client, Rig

NAMES = ("a", "b", "c")
which = st.sampled_from(NAMES)
Deaths = tuple[tuple[str, str, int], ...]  # queue, reason, count


@dataclass(frozen=True)
class Letter:
    number: int
    deaths: Deaths = ()
    first: tuple[str, str] | None = None

    def after(self, queue: str, reason: str) -> Letter:
        others = [each for each in self.deaths if each[:2] != (queue, reason)]
        count = 1 + sum(each[2] for each in self.deaths if each[:2] == (queue, reason))
        deaths = ((queue, reason, count), *others)
        return replace(self, deaths=deaths, first=self.first or (queue, reason))

    def comes_round_to(self, queue: str) -> bool:
        for each, reason, _ in self.deaths:
            if reason == "rejected":
                return False
            if each == queue:
                return True
        return False


@dataclass
class Queue:
    ttl_0: bool
    length: int | None
    target: str | None
    ready: list[Letter] = field(default_factory=list)


queues = st.fixed_dictionaries(
    {
        name: st.builds(
            Queue,
            st.booleans(),
            st.sampled_from([None, None, 0, 1, 2]),
            st.none() | which,
            st.builds(list),
        )
        for name in NAMES
    }
)


class Machine(RuleBasedStateMachine):
    @initialize(queues=queues)
    def start(self, queues: dict[str, Queue]) -> None:
        self.queues = queues
        self.rig = Rig()
        self.client: Client = self.rig.session()
        self.published = 0
        for name, queue in queues.items():
            arguments: dict[str, Any] = {}
            if queue.ttl_0:
                arguments["x-message-ttl"] = ("l", 0)
            if queue.length is not None:
                arguments["x-max-length"] = ("l", queue.length)
            if queue.target is not None:
                arguments["x-dead-letter-exchange"] = ("S", b"")
                arguments["x-dead-letter-routing-key"] = ("S", queue.target.encode())
            answer = self.client.ask(1, m.QueueDeclare(name, arguments=arguments))
            assert type(answer) is m.QueueDeclareOk

    # The model.

    def arrive(self, name: str, letter: Letter, is_expired: bool = False) -> None:
        todo = [(name, letter, is_expired)]
        while todo:
            name, letter, is_expired = todo.pop(0)
            queue = self.queues[name]
            queue.ready.append(letter)
            while queue.length is not None and len(queue.ready) > queue.length:
                todo += self.dies(name, queue.ready.pop(0), "maxlen")
            if (is_expired or queue.ttl_0) and len(queue.ready) == 1:
                todo += self.dies(name, queue.ready.pop(0), "expired")

    def dies(self, name: str, letter: Letter, reason: str) -> list[tuple[str, Letter, bool]]:
        target = self.queues[name].target
        dead = letter.after(name, reason)
        if target is None or (reason != "rejected" and dead.comes_round_to(target)):
            return []
        return [(target, dead, False)]

    # What happens.

    @rule(name=which, count=st.integers(1, 3))
    def publish(self, name: str, count: int) -> None:
        for _ in range(count):
            self.client.publish(1, name, b"%d" % self.published)
            self.arrive(name, Letter(self.published))
            self.published += 1

    @rule(name=which)
    def reject(self, name: str) -> None:
        self.client.send(1, m.BasicGet(name))
        answer = self.client.take()[0]
        ready = self.queues[name].ready
        if not ready:
            assert type(answer) is m.BasicGetEmpty
            return
        self.client.send(1, m.BasicReject(answer.delivery_tag, requeue=False))
        for target, letter, _ in self.dies(name, ready.pop(0), "rejected"):
            self.arrive(target, letter)

    @rule(name=which)
    def consume(self, name: str) -> None:
        """Compare what is in a queue, and empty it."""
        expected, self.queues[name].ready = self.queues[name].ready, []
        found = []
        while (letter := self.get(name)) is not None:
            found.append(letter)
        assert found == expected

    def get(self, name: str) -> Letter | None:
        self.client.send(1, m.BasicGet(name, no_ack=True))
        frames = self.client.frames()
        method = m.decode(int.from_bytes(frames[0].payload[:4], "big"), frames[0].payload[4:])
        assert frames[0].kind == METHOD
        if type(method) is m.BasicGetEmpty:
            return None
        assert frames[1].kind == HEAD
        headers = decode_properties(frames[1].payload).headers or {}
        deaths = tuple(
            (table["queue"][1].decode(), table["reason"][1].decode(), table["count"][1])
            for _, table in headers.get("x-death", ("A", ()))[1]
        )
        first = None
        if "x-first-death-queue" in headers:
            names = ("x-first-death-queue", "x-first-death-reason")
            first = tuple(headers[each][1].decode() for each in names)
        return Letter(int(frames[2].payload), deaths, first)  # type: ignore[arg-type]

    def teardown(self) -> None:
        if hasattr(self, "queues"):
            for name in NAMES:
                self.consume(name)
            for name in NAMES:
                answer = self.client.ask(1, m.QueueDelete(name))
                assert answer.message_count == 0


Machine.TestCase.settings = settings(max_examples=120, deadline=None)
TestDeadLetterCycles = Machine.TestCase
