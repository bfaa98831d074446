"""Transactions against a model: random publishes, gets, settlements, commits and rollbacks on one channel."""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Callable
from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.broker.channel import transaction
from rigs.broker_rig import Client, Rig

STEPS = 60


class Model:
    """What the queue and the channel must have; messages are numbered in the order of their commits."""

    def __init__(self) -> None:
        self.ready: list[int] = []
        self.delivered: set[int] = set()  # some time
        self.unacked: dict[int, int] = {}
        self.published = 0  # in the open transaction
        self.settled: list[tuple[str, list[int]]] = []  # in it
        self.count = 0
        self.next_tag = 1

    @property
    def open_tags(self) -> list[int]:
        """Tags that can be settled."""
        gone = {tag for _, tags in self.settled for tag in tags}
        return [tag for tag in self.unacked if tag not in gone]

    def settle(self, kind: str, tag: int, multiple: bool) -> bool:
        """Note a settlement; return whether its tag is known."""
        known = self.open_tags
        if multiple:
            if tag and tag not in known:
                return False
            self.settled.append((kind, [each for each in known if not tag or each <= tag]))
        elif tag not in known:
            return False
        else:
            self.settled.append((kind, [tag]))
        return True

    def commit(self) -> None:
        self.ready += range(self.count, self.count + self.published)
        self.count += self.published
        self.published = 0
        settled, self.settled = self.settled, []
        for kind, tags in settled:
            for number in [self.unacked.pop(tag) for tag in tags]:
                if kind == "requeue":
                    insort(self.ready, number)

    def rollback(self) -> None:
        self.published = 0
        self.settled = []

    def requeue(self, tags: list[int]) -> None:
        for tag in tags:
            insort(self.ready, self.unacked.pop(tag))


class Session:
    """A channel under test beside its model."""

    def __init__(self, rig: Rig, rng: random.Random) -> None:
        self.model, self.rng = Model(), rng
        self.client: Client = rig.session(channels=2)
        self.client.ask(1, m.QueueDeclare("q"))
        self.client.ask(1, m.TxSelect())
        self.is_open = True

    def run(self) -> None:
        steps: list[Callable[[], None]] = [
            self.publish, self.publish, self.get, self.get, self.get, self.settle, self.settle,
            self.settle, self.commit, self.commit, self.rollback, self.recover,
        ]  # fmt: skip
        for _ in range(STEPS):
            self.rng.choice(steps)()
            if not self.is_open:
                break
        else:
            assert self.client.ask(1, m.ChannelClose(200, "", 0, 0)) == m.ChannelCloseOk()
        self.model.rollback()
        self.model.requeue(list(self.model.unacked))
        self.check()

    def check(self) -> None:
        """Take all messages of the queue."""
        found = []
        while type(got := self.get_from(2, no_ack=True)) is not m.BasicGetEmpty:
            found.append((got[1], got[0].redelivered))
        model = self.model
        assert found == [(b"%d" % each, each in model.delivered) for each in model.ready]

    def get_from(self, channel: int, no_ack: bool) -> Any:
        self.client.send(channel, m.BasicGet("q", no_ack))
        answer = self.client.take()
        return answer[0] if len(answer) == 1 else answer

    def publish(self) -> None:
        model = self.model
        for _ in range(self.rng.randint(1, 5)):
            number = model.count + model.published
            more = {"priority": 1} if self.rng.random() < 0.3 else {}
            self.client.publish(1, "q", b"%d" % number, **more)
            model.published += 1

    def get(self) -> None:
        model, got = self.model, self.get_from(1, no_ack=False)
        if not model.ready:
            assert type(got) is m.BasicGetEmpty
            return
        number = model.ready.pop(0)
        assert (got[0].delivery_tag, got[1]) == (model.next_tag, b"%d" % number)
        assert got[0].redelivered == (number in model.delivered)
        model.delivered.add(number)
        model.unacked[model.next_tag] = number
        model.next_tag += 1

    def settle(self) -> None:
        model, rng = self.model, self.rng
        known = model.open_tags
        tag = rng.choice(known) if known and rng.random() < 0.98 else rng.randrange(10)
        kind, multiple = rng.choice(["ack", "requeue", "reject"]), rng.random() < 0.4
        tag = 0 if multiple and rng.random() < 0.2 else tag
        if kind == "ack":
            self.client.send(1, m.BasicAck(tag, multiple))
        elif multiple or rng.random() < 0.5:
            self.client.send(1, m.BasicNack(tag, multiple, kind == "requeue"))
        else:
            self.client.send(1, m.BasicReject(tag, kind == "requeue"))
        if model.settle(kind, tag, multiple):
            assert self.client.take() == []
        else:
            (closed,) = self.client.take()
            assert closed.reply_text == f"PRECONDITION_FAILED - unknown delivery tag {tag}"
            self.is_open = False

    def commit(self) -> None:
        assert self.client.ask(1, m.TxCommit()) == m.TxCommitOk()
        self.model.commit()

    def rollback(self) -> None:
        assert self.client.ask(1, m.TxRollback()) == m.TxRollbackOk()
        self.model.rollback()

    def recover(self) -> None:
        assert self.client.ask(1, m.BasicRecover(True)) == m.BasicRecoverOk()
        self.model.requeue(self.model.open_tags)


@pytest.mark.parametrize("size", [1, 1_000])
def test_random_transactions(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """``size``: of batches and of settlements in a turn."""
    monkeypatch.setattr(transaction, "_JOINED_MESSAGES", size)
    monkeypatch.setattr(transaction, "SETTLED_MAX", size)
    for module in ("deliveries", "unacked"):
        monkeypatch.setattr(f"leveret.broker.channel.consuming.{module}.SETTLED_MAX", size)
    monkeypatch.setattr(transaction, "PUBLISH_TURN_WORK", 100 * size)
    for _ in range(60):
        Session(Rig(), rng).run()
