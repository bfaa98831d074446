"""A flood is read no faster than the queues take it in, so that others wait for a round of them only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.actors.runtime import scheduler
from leveret.amqp import methods as m
from leveret.broker.connection.reading.read_control import READS_PER_ROUND
from leveret.broker.connection.reading.read_sizes import FIRST_READ_BYTES, READ_BYTES
from leveret.broker.mail import Publish
from rigs.broker_rig import Client, Rig, Wire

QUEUES = [f"q{number}" for number in range(50)]
BODY = bytes(400)
MESSAGES_PER_READ = FIRST_READ_BYTES // len(BODY)
PUBLISHERS = 3
UNLIKE = ({"delivery_mode": 1}, {"delivery_mode": 2})  # each message is a mail of its own


class Publisher:
    """Floods: there are always bytes to read."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.data = b""

    def read(self) -> None:
        """Let the broker read as much as it wants, if it reads."""
        wire = self.client.wire
        if not wire.is_reading:
            return
        size: int = wire.max_size  # type: ignore[attr-defined]
        while len(self.data) < size:
            for properties in UNLIKE:
                contents = [("", name, BODY, properties) for name in QUEUES]
                self.data += self.client.contents(1, *contents)
        read, self.data = self.data[:size], self.data[size:]
        self.client.protocol.data_received(read)


@pytest.fixture
def flood(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what lets one round of the loop pass: it reads all sockets, then it drains."""
    monkeypatch.setattr(Wire, "max_size", READ_BYTES, raising=False)
    publishers = [Publisher(rig.session()) for _ in range(PUBLISHERS)]
    for name in QUEUES:
        publishers[0].client.ask(1, m.QueueDeclare(name))
    monkeypatch.setattr(scheduler, "DRAIN_S", 0.0)  # so a drain is a few turns

    def passes() -> None:
        for each in publishers:
            each.read()
        rig.runtime.drain()

    return passes


def waiting(rig: Rig) -> int:
    """Return how many messages the queues have not taken in yet."""
    inboxes = [rig.queues[name].ref.cell.inbox or () for name in QUEUES]
    mails = [mail for inbox in inboxes for mail, _ in inbox]
    return sum(len(mail.messages) for mail in mails if isinstance(mail, Publish))


def test_what_waits_for_the_queues_is_bounded_by_a_few_reads(
    rig: Rig, flood: Callable[[], None]
) -> None:
    most = 0
    for _ in range(400):
        flood()
        most = max(most, waiting(rig))

    assert MESSAGES_PER_READ < most <= 2 * READS_PER_ROUND * MESSAGES_PER_READ


def test_what_others_ask_of_the_queues_waits_for_a_few_reads_as_well(
    rig: Rig, flood: Callable[[], None]
) -> None:
    quiet = rig.session()
    question = m.method_frame(1, m.encode(m.QueueDeclare(QUEUES[-1], passive=True)))
    for _ in range(1_000):
        flood()
    drains = 0
    quiet.protocol.data_received(question)
    while not quiet.wire.out:
        flood()
        drains += 1
    assert drains < 60  # of one long turn; 271, where reading does not wait for the queues
