"""Replicas of one queue on simulated nodes: etcd, links, disks that lose what was not synced, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

from leveret.mirroring.replicas.master import Master
from leveret.mirroring.replicas.messages import Direct, Instruction
from leveret.mirroring.replicas.mirror import Mirror
from leveret.mirroring.replicas.ports import SyncPoint
from leveret.mirroring.replicas.record import QueueRecord, Replica, Stored
from leveret.mirroring.replicas.seq_runs import LiveSeqs, SeqRuns, runs_of, seqs_of
from leveret.testing.virtual_clock import VirtualClock

LINK_S: Final = 0.01
DISK_S: Final = 0.02
ETCD_S: Final = 0.01
LEASE_S: Final = 0.1
TICK_S: Final = 0.05
LAG_MAX_S: Final = 0.3


class Disk:
    """What one node keeps: a journal of which a crash leaves a part that is not shorter than what was synced."""

    def __init__(self) -> None:
        self.journal: list[Callable[[SimulatedContent], None]] = []
        self.added: list[Iterable[Any]] = []  # messages, by step of the journal
        self.synced = 0
        self.unsynced = 0  # a sync is not done before this length
        self.ever: set[Any] = set()  # messages that were synced at any time

    def sync(self, length: int) -> None:
        for each in self.added[self.synced : length]:
            self.ever.update(each)
        self.synced = max(self.synced, length)

    def crash(self, random: Random) -> None:
        length = random.randint(self.synced, len(self.journal))
        self.sync(length)
        del self.journal[length:], self.added[length:]


class SimulatedContent:
    """The messages of a replica: in memory, and on its node's disk."""

    def __init__(self, node: SimulatedNode) -> None:
        self.live = LiveSeqs()
        self.messages: dict[int, Any] = {}
        self._leaving: dict[int, Any] = {}
        self._unsettled: set[int] = set()
        self._node = node
        self._disk = node.disk
        for step in self._disk.journal:
            step(self)
        self._disk.unsynced = 0
        self._leaving.clear()
        self.handed_out = self.live.end  # nobody knows what was

    def publish(self, first_seq: int, messages: Any) -> None:
        assert first_seq >= self.live.end, "a message is appended before others"
        self._add(dict(enumerate(messages, first_seq)))

    def insert(self, messages: Iterable[tuple[int, Any]]) -> None:
        added = dict(messages)
        assert self.is_settled
        assert not added.keys() & self._leaving.keys(), "a message is added that has not left"
        self._add(added)

    def _add(self, added: dict[int, Any]) -> None:
        assert not added.keys() & self.messages.keys(), "a message was added that is here"
        assert list(added) == sorted(added)

        def step(content: SimulatedContent) -> None:
            content.messages.update(added)
            for first, end in runs_of(added):
                content.live.add(first, end)

        self._do(step, added.values())
        self._disk.unsynced = len(self._disk.journal)

    def remove(self, seqs: SeqRuns) -> None:
        def step(content: SimulatedContent) -> None:
            for first, end in seqs:
                for seq in [seq for seq in content.messages if first <= seq < end]:
                    content.removed(seq, content.messages.pop(seq))
                content.live.remove(first, end)

        self._do(step)

    def removed(self, seq: int, message: Any) -> None:
        """Have a message leave, some time later."""
        self._leaving[seq] = message
        self._node.later(DISK_S, self._leaving.pop, seq, None)

    def settle(self) -> None:
        self._unsettled = set(self._leaving)

    @property
    def is_settled(self) -> bool:
        self._unsettled &= self._leaving.keys()
        return not self._unsettled

    def read(self, seqs: SeqRuns, found: Callable[[int, list[tuple[int, Any]]], None]) -> None:
        """Find some of them, some time later."""
        all_seqs = list(seqs_of(seqs))
        wanted = all_seqs[: self._node.cluster.random.choice((1, 2, 1_000))]

        def come() -> None:
            found(
                wanted[-1] + 1,
                [(seq, self.messages[seq]) for seq in wanted if seq in self.messages],
            )

        self._node.later(DISK_S, come)

    def sync(self, point: SyncPoint) -> None:
        """Wait for the messages that were added, and not for what follows the last of them."""
        self._node.later(DISK_S, self._is_synced, self._disk.unsynced, point)

    def _is_synced(self, length: int, point: SyncPoint) -> None:
        self._disk.sync(length)
        if self._node.replica is not None:
            self._node.replica.synced(point)

    def _do(self, step: Callable[[SimulatedContent], None], added: Iterable[Any] = ()) -> None:
        self._disk.journal.append(step)
        self._disk.added.append(added)
        step(self)


class Etcd:
    """The record, and the replicas whose nodes have a lease."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.stored = Stored(None, 0)
        self.leases: dict[str, Replica] = {}
        self.masters: dict[int, Replica] = {}  # by epoch
        self.faults = 0.0

    def write(self, node: SimulatedNode, record: QueueRecord, revision: int) -> None:
        """Change the record after a while; the answer, the request, or both are late or get lost."""
        random, cluster = self._cluster.random, self._cluster
        life = node.life
        is_faulty = random.random() < self.faults
        delay_s = random.random() * ETCD_S

        def effect() -> None:
            if self.stored.revision == revision:
                assert self.masters.setdefault(record.epoch, record.master) == record.master
                self.stored = Stored(record, revision + 1)
                cluster.check_durable(cluster.confirmed - cluster.consumed)
                self.tell()
            if not is_faulty:
                cluster.clock.call_later(random.random() * ETCD_S, answer, self.stored)

        def answer(stored: Stored | None) -> None:
            if node.life == life and node.replica is not None:
                node.replica.written(stored if node.reaches_etcd else None)

        if is_faulty or not node.reaches_etcd:
            cluster.clock.call_later(2 * ETCD_S, answer, None)
            delay_s = (
                random.choice((0.0, 0.5, 5.0)) * ETCD_S
            )  # it may take effect behind its answer
            if not node.reaches_etcd or random.random() < 0.5:
                return
        cluster.clock.call_later(delay_s, effect)

    def read(self, node: SimulatedNode) -> None:
        if node.reaches_etcd and self._cluster.random.random() >= self.faults:
            node.later(ETCD_S, node.see, self.stored)

    def tell(self) -> None:
        """Tell all nodes the record and the leases, after a while, in order."""
        for node in self._cluster.nodes.values():
            if node.is_up and node.reaches_etcd:
                node.in_order(ETCD_S, node.watch, self.stored, frozenset(self.leases.values()))

    def lease(self, replica: Replica) -> None:
        self.leases[replica.node] = replica
        self.tell()

    def expire(self, replica: Replica) -> None:
        node = self._cluster.nodes[replica.node]
        if self.leases.get(replica.node) == replica and not (
            node.is_up and node.reaches_etcd and node.me == replica
        ):
            del self.leases[replica.node]
            self.tell()


class SimulatedNode:
    """A node with one replica, and its ``Outside``."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.cluster = cluster
        self.disk = Disk()
        self.life = 0
        self.is_up = False
        self.reaches_etcd = True
        self.replica: Master | Mirror | None = None
        self.content: SimulatedContent
        self._told_s = 0.0

    @property
    def me(self) -> Replica:
        return Replica(self.name, self.life)

    @property
    def master(self) -> Master | None:
        replica = self.replica
        return replica if isinstance(replica, Master) and not replica.has_ended else None

    @property
    def messages(self) -> dict[int, Any]:
        """All messages of the replica, by seq."""
        return self.content.messages

    def start(self) -> None:
        self.life += 1
        self.is_up = True
        self.begin_content()
        self.cluster.etcd.leases.pop(self.name, None)
        if self.reaches_etcd:
            self.begin(self.life)
        self.later(TICK_S, self._tick)

    def begin_content(self) -> None:
        self.content = SimulatedContent(self)

    def begin(self, life: int) -> None:
        """Join, once etcd is reached."""
        if self.is_up and self.life == life and self.replica is None and self.reaches_etcd:
            etcd = self.cluster.etcd
            if etcd.stored.record is None:
                etcd.stored = Stored(QueueRecord(1, self.me, (self.me,)), 1)
                etcd.masters[1] = self.me
                self.became_master(etcd.stored)
            else:
                self.replica = Mirror(
                    self.me, etcd.stored, self.content, self, self.cluster.fetched
                )
                self.replica.start()
            etcd.lease(self.me)

    def crash(self) -> None:
        self.is_up, self.replica = False, None
        self.disk.crash(self.cluster.random)
        self.life += 0
        me = self.me
        self.cluster.clock.call_later(LEASE_S, self.cluster.etcd.expire, me)

    def later(self, longest_s: float, call: Callable[..., None], *args: Any) -> None:
        """Call after a while, if this life goes on."""
        life = self.life

        def run() -> None:
            if self.is_up and self.life == life:
                call(*args)

        self.cluster.clock.call_later(self.cluster.random.random() * longest_s, run)

    def in_order(self, longest_s: float, call: Callable[..., None], *args: Any) -> None:
        life, now_s = self.life, self.cluster.now_s()
        self._told_s = max(self._told_s, now_s + self.cluster.random.random() * longest_s)

        def run() -> None:
            if self.is_up and self.life == life and self.reaches_etcd:
                call(*args)

        self.cluster.clock.call_later(self._told_s - now_s, run)

    def _tick(self) -> None:
        self.begin(self.life)
        if isinstance(self.replica, Mirror):
            self.replica.tick()
        elif isinstance(self.replica, Master):
            self.replica.check_lag(self.cluster.now_s(), LAG_MAX_S)
        if self.reaches_etcd and self.replica is not None:
            etcd = self.cluster.etcd
            if self.name not in etcd.leases:
                etcd.lease(self.me)
            self.watch(etcd.stored, frozenset(etcd.leases.values()))
        self.later(TICK_S, self._tick)

    def see(self, stored: Stored) -> None:
        if self.replica is not None:
            self.replica.seen(stored)

    def watch(self, stored: Stored, living: frozenset[Replica]) -> None:
        self.see(stored)
        if self.replica is not None:
            self.replica.living(living)

    # Outside.

    def broadcast(self, instruction: Instruction) -> None:
        for name, node in self.cluster.nodes.items():
            if name != self.name and node.is_up:
                self.cluster.carry(self.me, node.me, instruction)

    def send(self, to: Replica, message: Direct) -> None:
        self.cluster.carry(self.me, to, message)

    def write(self, record: QueueRecord, revision: int) -> None:
        self.cluster.etcd.write(self, record, revision)

    def read(self) -> None:
        self.cluster.etcd.read(self)

    def confirmed(self, no: int) -> None:
        assert isinstance(self.replica, Master)
        self.cluster.confirm(self.replica, no)

    def deliverable(self, below: int) -> None:
        assert isinstance(self.replica, Master)
        self.cluster.deliver(self.replica, below)

    def became_master(self, stored: Stored) -> None:
        assert stored.record is not None
        least, runs = self.cluster.in_sync_min, self.cluster.runs
        self.replica = Master(
            self.me, stored.record, stored.revision, self.content, self, least, runs
        )

    def ended(self, reason: str) -> None:
        stored = self.cluster.etcd.stored
        self.replica = Mirror(self.me, stored, self.content, self, self.cluster.fetched)
        self.replica.start()


class Cluster:
    """Nodes, and what clients of the queue know.

    Attributes:
        unconfirmed: messages of each master, by instruction.
        confirmed, consumed, delivered: messages.
        unacked: messages that were handed out, by master.
    """

    node_class: type[SimulatedNode] = SimulatedNode

    def __init__(self, random: Random, nodes: int, in_sync_min: int) -> None:
        self.random = random
        self.clock = VirtualClock()
        self.in_sync_min = in_sync_min
        self.fetched = random.choice((1, 3, 1_000))
        self.runs = random.choice((1, 2, 1_000))
        self.etcd = Etcd(self)
        self.nodes = {f"n{no}": self.node_class(f"n{no}", self) for no in range(nodes)}
        self.unconfirmed: dict[tuple[Replica, int], dict[int, list[int]]] = {}
        self.confirmed: set[int] = set()
        self.consumed: set[int] = set()
        self.published = 0
        self.delivered: set[int] = set()
        self.unacked: dict[tuple[Replica, int], set[int]] = {}
        self.violations: list[str] = []
        self.cut: set[frozenset[str]] = set()
        self._arrivals: dict[tuple[Replica, Replica, bool], float] = {}

    def now_s(self) -> float:
        return self.clock.monotonic_s()

    def carry(self, sender: Replica, to: Replica, message: Direct | Instruction) -> None:
        """Deliver a message in the order of its link, unless the link is cut or the addressee ends before."""
        if frozenset((sender.node, to.node)) in self.cut:
            return
        now_s = self.now_s()
        way = sender, to, isinstance(message, Instruction)  # these go round the ring
        at_s = max(self._arrivals.get(way, 0.0), now_s + self.random.random() * LINK_S)
        self._arrivals[way] = at_s
        self.clock.call_later(at_s - now_s, self._arrive, sender, to, message)

    def _arrive(self, sender: Replica, to: Replica, message: Any) -> None:
        node = self.nodes[to.node]
        if not node.is_up or node.me != to or node.replica is None:
            return
        if frozenset((sender.node, to.node)) in self.cut:
            return
        if not isinstance(message, Instruction):
            node.replica.receive(sender, message)
        elif isinstance(node.replica, Mirror):
            node.replica.instruct(message)

    # Clients.

    def masters(self) -> list[Master]:
        return [master for node in self.nodes.values() if (master := node.master) is not None]

    def publish(self, master: Master, count: int = 1, is_handed_out: bool = False) -> None:
        messages = list(range(self.published, self.published + count))
        self.published += count
        no = master.publish(messages, self.now_s(), is_handed_out)
        if is_handed_out:
            self.delivered.update(messages)
            self.unacked.setdefault((master.me, master.epoch), set()).update(messages)
        self.unconfirmed.setdefault((master.me, master.epoch), {})[no] = messages

    def hand_out(self, master: Master, count: int) -> None:
        """Let consumers have the next messages of the queue."""
        content = self.nodes[master.me.node].content
        behind = [seq for seq in content.messages if seq >= master.deliverable_below]
        below = sorted(behind)[:count][-1:]
        master.hand_out(below[0] + 1 if below else master.next_seq, self.now_s())

    def deliver(self, master: Master, below: int) -> None:
        """Consumers get all messages below a seq that they have not had of this master."""
        unacked = self.unacked.setdefault((master.me, master.epoch), set())
        for seq, message in self.nodes[master.me.node].content.messages.items():
            if seq < below and message not in unacked:
                unacked.add(message)
                is_redelivered = seq < master.redelivered_below
                if (
                    message in self.delivered
                    and not is_redelivered
                    and not self._is_deposed(master)
                ):
                    self.violations.append(f"I3: {message} comes again and is called new")
                self.delivered.add(message)

    def _is_deposed(self, master: Master) -> bool:
        """Whether there is another master, of which this one has not heard."""
        record = self.etcd.stored.record
        return record is None or record.epoch > master.epoch

    def consume(self, master: Master) -> None:
        content = self.nodes[master.me.node].content
        if content.messages:
            ready = sorted(content.messages)
            seqs = sorted(self.random.sample(ready, min(len(ready), self.random.choice((1, 1, 4)))))
            self.consumed.update(content.messages[seq] for seq in seqs)
            master.remove(runs_of(seqs), self.now_s())

    def confirm(self, master: Master, no: int) -> None:
        waiting = self.unconfirmed.get((master.me, master.epoch), {})
        for each in [each for each in waiting if each <= no]:
            messages = waiting.pop(each)
            self.confirmed.update(messages)
            self.check_durable(set(messages) - self.consumed)

    def check_durable(self, messages: set[int]) -> None:
        """What is confirmed has been durable on all replicas that are in sync, whoever is master now."""
        record = self.etcd.stored.record
        assert record is not None
        for each in record.in_sync:
            if not messages <= self.nodes[each.node].disk.ever:
                self.violations.append(f"I1: {messages} is confirmed and not durable on {each}")
        count = sum(messages <= each.disk.ever for each in self.nodes.values())
        if count < self.in_sync_min:
            self.violations.append(f"I1: {messages} is confirmed and durable on {count} nodes")
