"""A queue with thousands of publishers: their accounts are looked at in slices, each once in its time."""

from __future__ import annotations

from functools import partial
from typing import Any

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.broker import mail
from leveret.broker.queue.publishers.publishers import (
    CHECKED_PER_TURN,
    CROWDED_S,
    IDLE_S,
    Publishers,
)
from leveret.testing.virtual_clock import VirtualClock

LOOK = "look"


class Queue(OtpActor):
    """Owes its publishers credit."""

    def init(self, closed: list[int]) -> None:
        start_timer = partial(self.start_timer, message=LOOK)
        self.publishers = Publishers(self.runtime.turns, self.ref, start_timer)
        self.closed = closed  # by each look

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        if message == LOOK:
            before = self.publishers.account_count()
            self.publishers.close_idle()
            self.closed.append(before - self.publishers.account_count())
        else:
            self.publishers.published(message, 1, 0)


class Channel(OtpActor):
    """Notes the grants with which its account was closed."""

    def init(self, lasts: list[mail.CreditGrant]) -> None:
        self.lasts = lasts

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        assert message.is_last
        self.lasts.append(message)


class Crowd:
    """A queue and its publishers."""

    def __init__(self, channels: int) -> None:
        self.clock = VirtualClock()
        self.runtime = Runtime(clock=self.clock)
        self.closed: list[int] = []
        self.lasts: list[mail.CreditGrant] = []
        self.queue = self.runtime.spawn(Queue, self.closed)
        self.channels = [self.runtime.spawn(Channel, self.lasts) for _ in range(channels)]

    def publish(self, channels: int) -> None:
        """Have the first of the channels publish a message each."""
        for channel in self.channels[:channels]:
            self.runtime.send(self.queue, mail.Publish([(b"", b"x")], False, [(channel, 1, 1, 0)]))
        self.clock.jump(0.0)

    @property
    def accounts(self) -> int:
        count: int = self.queue.cell.actor.publishers.account_count()
        return count


def test_thousands_of_accounts_are_closed_a_slice_at_a_time() -> None:
    crowd = Crowd(5_000)
    crowd.publish(5_000)
    crowd.clock.jump(IDLE_S + 3 * CROWDED_S)

    assert crowd.accounts == 0
    assert [(each.messages, each.size_bytes) for each in crowd.lasts] == [(1, 1)] * 5_000
    assert max(crowd.closed) <= CHECKED_PER_TURN
    assert crowd.queue.cell.timers is None


def test_accounts_in_use_stay_while_thousands_beside_them_are_closed() -> None:
    crowd = Crowd(5_000)
    crowd.publish(5_000)
    for _ in range(20):
        crowd.clock.jump(CROWDED_S / 2)
        crowd.publish(500)

    assert crowd.accounts == 500
    assert len(crowd.lasts) == 4_500


def test_each_account_is_looked_at_once_in_its_time() -> None:
    crowd = Crowd(3_000)
    for _ in range(20):
        crowd.publish(3_000)
        crowd.clock.jump(CROWDED_S / 2)

    assert len(crowd.closed) <= 3_000 / CHECKED_PER_TURN * (10 + 1)


def test_a_channel_whose_account_was_closed_opens_another() -> None:
    crowd = Crowd(1)
    for _ in range(2):
        crowd.publish(1)
        assert crowd.accounts == 1
        crowd.clock.jump(2 * IDLE_S + 1)
        assert crowd.accounts == 0

    assert [(each.messages, each.size_bytes) for each in crowd.lasts] == [(1, 1)] * 2
