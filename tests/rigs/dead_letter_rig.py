"""A queue under test that dead-letters, or delays, and targets that answer by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import KILL
from leveret.amqp.properties import Properties, head_of
from leveret.amqp.tables import Table
from leveret.broker import mail, queue_requests
from leveret.broker.registry.registry import QueueEntry
from leveret.core.message import origin_of
from leveret.routing.bindings import QUEUE
from leveret.routing.delayed import DELAYED, DELAYED_TYPE, queue_of
from leveret.routing.exchange import Exchange
from leveret.routing.topology import Topology
from rigs.queues.queue_rig import Channel, Inbox, Rig

DLX = "dlx"


class Store:
    """A vhost's store that is not there."""

    msg_store: Any = None


class Home:
    """The vhost of the queues."""

    def __init__(self) -> None:
        self.topology: Topology[QueueEntry] = Topology("/")
        self.store = Store()
        self.firehose = None
        self.alarms = SimpleNamespace(raised=())
        self.node_producers = None


class Target:
    """A queue that is sent letters; it answers when the test says so."""

    def __init__(self, rig: TargetRig, name: str) -> None:
        self.rig = rig
        self.entry = QueueEntry("/", name)
        self.box: list[Any] = []
        rig.home.topology.add_queue(name, self.entry)
        rig.home.topology.bind(rig.exchange.name, QUEUE, name, b"", {})
        self.start()

    def start(self) -> None:
        self.ref = self.rig.runtime.spawn(Inbox, self.box, label=self.entry.name)
        self.entry.up(self.ref)

    def die(self) -> None:
        """Crash, with the mail that has come."""
        self.rig.runtime.exit(self.ref, KILL)
        self.rig.settle()
        self.box.clear()

    def dead_letters(self) -> list[mail.Publish]:
        """Take the letters that have come."""
        self.rig.settle()
        taken, self.box[:] = self.box.copy(), []
        assert all(type(each) is mail.Publish and each.by_queue for each in taken)
        return taken

    def bodies(self) -> list[bytes]:
        return [
            message[2] for dead_letter in self.dead_letters() for message in dead_letter.messages
        ]

    def answer(self, dead_letters: list[mail.Publish], ok: bool = True) -> None:
        """Confirm letters, as ranges that may span several of them."""
        ranges = [(seqno, count) for each in dead_letters for _, count, _, seqno in each.publishers]
        self.confirm(*ranges, ok=ok)

    def confirm(self, *ranges: tuple[int, int], ok: bool = True) -> None:
        self.rig.runtime.send(self.rig.queue, mail.Confirm(self.ref, list(ranges), ok))
        self.rig.settle()

    def delete(self) -> None:
        """Be deleted, owing confirms."""
        self.entry.deleted()
        self.rig.runtime.send(self.rig.queue, mail.QueueDeleted(self.ref))
        self.rig.runtime.exit(self.ref, "normal")
        self.rig.settle()


class TargetRig(Rig):
    """One queue that publishes to an exchange."""

    def __init__(self, exchange: Exchange, **more: Any) -> None:
        self.exchange = exchange
        self.home = Home()
        self.home.topology.add_exchange(exchange)
        super().__init__(vhost=self.home, **more)
        self.home.topology.add_queue(self.entry.name, self.entry)

    def target(self, name: str = "t") -> Target:
        return Target(self, name)

    def unacked(self) -> int:
        count: int = self.info()["messages_unacknowledged"]
        return count


class DelayRig(TargetRig):
    """The delay queue of an exchange."""

    def __init__(self, **more: Any) -> None:
        arguments: Table = {DELAYED_TYPE: ("S", b"fanout")}
        exchange = Exchange("x", DELAYED, arguments=arguments)
        super().__init__(exchange, name=queue_of("x"), durable=True, **more)


class LetterRig(TargetRig):
    """One queue with a dead-letter exchange, a fanout unless told otherwise."""

    def __init__(self, kind: str = "fanout", arguments: Table | None = None, **more: Any) -> None:
        own: Table = {"x-dead-letter-exchange": ("S", DLX.encode())}
        super().__init__(Exchange(DLX, kind), arguments=own | (arguments or {}), **more)

    def reject(self, channel: Channel, *seqs: int, tag: bytes | None = None) -> None:
        channel.send(mail.Reject(channel.ref, tag, list(seqs)))
        self.settle()

    def get_all(self, channel: Channel) -> list[int]:
        """Get all messages; return their seqs."""
        seqs = []
        while (got := channel.ask(queue_requests.Get(channel.ref, False))) is not None:
            seqs.append(got[2])
        return seqs


def message(body: bytes = b"x", key: bytes = b"k", **properties: Any) -> tuple[bytes, bytes, bytes]:
    return origin_of(b"ex", key), head_of(Properties(**properties), len(body)), body


def publish(rig: Rig, channel: Channel, *messages: tuple[bytes, bytes, bytes]) -> None:
    size_bytes = sum(len(head) + len(body) for _, head, body in messages)
    head_bytes = sum(len(head) for _, head, _ in messages)
    publisher: tuple[Ref, int, int, int] = (channel.ref, len(messages), size_bytes, 0)
    rig.runtime.send(
        rig.queue, mail.Publish(list(messages), False, [publisher], head_bytes=head_bytes)
    )
    rig.settle()
