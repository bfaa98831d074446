"""Rounds: a broker's lives, each with clients at work until it ends, checked by the next."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from durable.kills.clients import Client, CountingClient
from durable.workers import BrokerWorker
from rigs.waiting import wait_until

ENDS_S = 30


class Rounds(ABC):
    """The lives of one broker.

    Attributes:
        confirmed: how many messages were confirmed.
        starts: how often the broker was started.
    """

    def __init__(self, folder: Path, rng: random.Random, disk: str) -> None:
        self.rng = rng
        self.confirmed = self.starts = 0
        self.folder = folder
        self._disk = disk
        self._worker: BrokerWorker | None = None

    def run(self, rounds: int) -> None:
        try:
            for _ in range(rounds):
                self.one()
            self.last()
        finally:
            if self._worker is not None:
                self._worker.end()

    @abstractmethod
    def one(self) -> None:
        """One life: check the recovered state, use the broker, crash."""

    @abstractmethod
    def last(self) -> None:
        """The last life: check the recovered state, stop in order."""

    def start(self) -> BrokerWorker:
        self.starts += 1
        self._worker = BrokerWorker(self.folder, self.rng.getrandbits(32), self._disk)
        return self._worker

    def crash_amid(
        self,
        publishers: Sequence[CountingClient],
        others: Sequence[Client],
        confirmed_max: int,
    ) -> None:
        """Let clients work until a random number of messages has been confirmed, then crash."""
        clients = (*publishers, *others)
        for client in clients:
            client.start()
        wanted = self.rng.randrange(1, confirmed_max)

        def is_enough() -> bool:
            return sum(each.confirmed for each in publishers) >= wanted or any(
                client.error for client in clients
            )

        wait_until(is_enough, within_s=60)
        for client in clients:
            client.is_ending = True
        assert self._worker is not None
        self._worker.crash()
        for client in clients:
            client.join(ENDS_S)
            assert not client.is_alive()
            assert client.error is None, client.error
        log = self._worker.log.read_text()
        assert "Traceback" not in log, log
        self.confirmed += sum(each.confirmed for each in publishers)
