"""Actors that send each other counted messages, and judge what has come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import Down, MonitorRef


class Talker(OtpActor):
    """Sends counted messages; monitors each address that it gets mail from, and notes everything.

    Attributes:
        sent: how many messages each address was sent.
        came: what came from each address: the numbers of its messages, then the reason of its end.
    """

    def init(self) -> None:
        self.sent: defaultdict[Ref, int] = defaultdict(int)
        self.came: defaultdict[Ref, list[Any]] = defaultdict(list)
        self.monitors: set[MonitorRef] = set()
        self.downs: list[MonitorRef] = []

    def talk(self, to: Ref, size: int) -> None:
        if to.is_alive:
            number = self.sent[to]
            self.sent[to] += 1
            self.post(to, (number, b"." * size))

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        if callable(message):
            message(self)
        elif isinstance(message, Down):
            self.downs.append(message.monitor)
            self.came[message.ref].append(message.reason)
        elif sender is not None:
            if sender not in self.came:
                self.monitors.add(self.monitor(sender))
            self.came[sender].append(message[0])

    def judged(self) -> Iterator[tuple[Ref, list[int]]]:
        """Return the numbers that have come from each address, which have no gap, and one end at most behind them."""
        assert len(self.downs) == len(set(self.downs)), "a monitor was told twice"
        assert set(self.downs) <= self.monitors
        for sender, came in self.came.items():
            numbers = [each for each in came if isinstance(each, int)]
            reasons = came[len(numbers) :]
            assert numbers == list(range(len(numbers))), f"gap, copy or other order: {came}"
            assert len(reasons) <= 1
            assert bool(reasons) is not sender.is_alive, "an end was not told, or told wrongly"
            yield sender, numbers
