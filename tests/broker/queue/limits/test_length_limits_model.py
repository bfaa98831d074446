"""Length limits against a model: priorities, unacked messages, requeues, dead letters and live changes of the limits.

The model takes messages one after the other, as RabbitMQ does; the queue takes them in batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.amqp.properties import Properties, head_of
from leveret.broker import mail, queue_requests
from leveret.broker.queue.limits.length_limits import LengthLimits
from leveret.broker.queue.storage.factory import priority_of
from leveret.queue_backing.priority_queue import PriorityQueue
from leveret.queue_backing.variable.queue import VariableQueue
from rigs.dead_letter_rig import LetterRig

PRIORITIES = 2
pick = st.integers(0, 1000)
limits = st.none() | st.integers(0, 6)
sized = st.tuples(st.integers(0, PRIORITIES), st.integers(1, 9))


@dataclass(frozen=True)
class Message:
    """Ordered as it is delivered."""

    rank: tuple[int, int]  # the higher priority first, then the older
    size: int

    @property
    def body(self) -> bytes:
        return b"%d " % self.rank[1] + b"x" * (self.size - 1)


class Machine(RuleBasedStateMachine):
    """A queue with priorities; its limits are set by a policy."""

    @initialize(has_dead_letters=st.booleans())
    def start(self, has_dead_letters: bool) -> None:
        arguments: dict[str, tuple[str, Any]] = {"x-max-priority": ("l", PRIORITIES)}
        self.rig = LetterRig(
            make_backing=lambda _: PriorityQueue(
                [VariableQueue() for _ in range(PRIORITIES + 1)], priority_of
            ),
            arguments=arguments,
        )
        if not has_dead_letters:
            self.rig.home.topology.remove_exchange("dlx")
        self.target = self.rig.target() if has_dead_letters else None
        self.channel = self.rig.channel()
        self.limits = LengthLimits(None, None, None)
        self.ready: list[Message] = []
        self.unacked: dict[Message, int] = {}
        self.dead: list[Message] = []
        self.published = 0

    @rule(length=limits, size_bytes=st.none() | st.integers(0, 30), overflow=st.sampled_from(
        [None, "drop-head", "reject-publish", "reject-publish-dlx"]
    ))  # fmt: skip
    def change_limits(
        self, length: int | None, size_bytes: int | None, overflow: str | None
    ) -> None:
        values = {"max_length": length, "max_length_bytes": size_bytes, "overflow": overflow}
        self.rig.set_policy(**{name: value for name, value in values.items() if value is not None})
        self.limits = LengthLimits(length, size_bytes, overflow)
        self.drop_head()

    @rule(batch=st.lists(sized, min_size=1, max_size=8), mails=st.integers(1, 2))
    def publish(self, batch: list[tuple[int, int]], mails: int) -> None:
        expected: list[bool] = []
        for _ in range(mails):
            messages = []
            for priority, size in batch:
                new = Message((-priority, self.published), size)
                self.published += 1
                messages.append(new)
                expected.append(self.take_in(new))
            self.send(messages)
        self.rig.settle()
        answers = {}
        for confirm in self.channel.take(mail.Confirm):
            for first, count in confirm.ranges:
                answers.update(dict.fromkeys(range(first, first + count), confirm.ok))
        first = self.published - len(expected) + 1
        assert answers == dict(enumerate(expected, first))

    def send(self, messages: list[Message]) -> None:
        wire = []
        for each in messages:
            body = each.body
            assert len(body) >= each.size
            wire.append((b"\0\0", head_of(Properties(priority=-each.rank[0]), len(body)), body))
        head_bytes = sum(len(head) for _, head, _ in wire)
        size_bytes = head_bytes + sum(len(body) for _, _, body in wire)
        publisher = (self.channel.ref, len(wire), size_bytes, messages[0].rank[1] + 1)
        self.channel.send(mail.Publish(wire, False, [publisher], head_bytes=head_bytes))

    def take_in(self, new: Message) -> bool:
        if self.limits.refuses:
            size_bytes = sum(len(each.body) for each in self.ready) + len(new.body)
            if len(self.ready) + 1 > self.limits.length or size_bytes > self.limits.size_bytes:
                if self.limits.dead_letters_refused:
                    self.dead.append(new)
                return False
        self.ready.append(new)
        self.drop_head()
        return True

    def drop_head(self) -> None:
        self.ready.sort(key=lambda each: each.rank)
        while not self.limits.refuses and (
            len(self.ready) > self.limits.length
            or sum(len(each.body) for each in self.ready) > self.limits.size_bytes
        ):
            self.dead.append(self.ready.pop(0))

    @rule(count=st.integers(1, 4))
    def get(self, count: int) -> None:
        for _ in range(count):
            got = self.channel.ask(queue_requests.Get(self.channel.ref, False))
            if got is None:
                assert not self.ready
                return
            head = self.ready.pop(0)
            assert got[1][2] == head.body
            assert got[4] == len(self.ready)
            self.unacked[head] = got[2]

    @rule(
        numbers=st.lists(pick, min_size=1, max_size=3),
        kind=st.sampled_from(["ack", "requeue", "reject"]),
    )
    def settle(self, numbers: list[int], kind: str) -> None:
        chosen = (
            {list(self.unacked)[n % len(self.unacked)] for n in numbers} if self.unacked else set()
        )
        own = sorted(chosen, key=lambda each: each.rank[1])
        seqs = [self.unacked.pop(each) for each in own]
        if not own:
            return
        if kind == "ack":
            self.channel.ack(None, *seqs)
        elif kind == "reject":
            self.rig.reject(self.channel, *seqs)
            self.dead += own
        else:
            self.channel.requeue(None, *seqs)
            self.ready += own
            self.drop_head()

    @rule()
    def purge(self) -> None:
        assert self.channel.ask(queue_requests.Purge()) == len(self.ready)
        self.ready.clear()

    @invariant()
    def the_same_are_dead(self) -> None:
        dead, self.dead = self.dead, []
        if self.target is None:
            assert self.rig.info()["messages_unacknowledged"] == len(self.unacked)
            return
        dead_letters = self.target.dead_letters()
        bodies = [message[2] for letter in dead_letters for message in letter.messages]
        assert sorted(bodies) == sorted(each.body for each in dead)
        self.target.answer(dead_letters)
        assert self.rig.unacked() == len(self.unacked)

    @invariant()
    def the_same_are_ready(self) -> None:
        stats = self.rig.info()
        assert stats["messages_ready"] == len(self.ready)
        assert stats["message_bytes_ready"] == sum(len(each.body) for each in self.ready)


Machine.TestCase.settings = settings(max_examples=150, deadline=None)
TestLengthLimits = Machine.TestCase
