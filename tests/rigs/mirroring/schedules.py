"""Random schedules of a mirrored queue: nodes crash, are cut off and come back under load; then all is judged."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from random import Random
from typing import Final

from leveret.mirroring.replicas.master import Master
from leveret.mirroring.replicas.mirror import Mirror, Phase
from leveret.mirroring.replicas.seq_runs import EPOCH_SHIFT
from rigs.mirroring.cluster import Cluster

RUN_S: Final = 1.0
REST_S: Final = 30.0


class Schedule:
    """One random schedule."""

    def __init__(self, seed: int | str, make: type[Cluster] = Cluster) -> None:
        random = self._random = Random(f"replicas {seed}")
        nodes = random.choice((2, 3, 3, 5))
        self.cluster = make(random, nodes, random.choice((1, 2, 2)))
        self._actions = self._mix()

    def run(self) -> list[str]:
        """Run it and return what is wrong."""
        cluster, random = self.cluster, self._random
        for node in cluster.nodes.values():
            node.start()
        cluster.clock.jump(random.choice((0.0, 0.5)))
        cluster.etcd.faults = random.choice((0.0, 0.0, 0.3))
        end_s = cluster.now_s() + RUN_S
        while cluster.now_s() < end_s:
            cluster.clock.jump(random.choice((0.0, 0.001, 0.004, 0.02)))
            random.choice(self._actions)()
        return self._rest()

    def _mix(self) -> list[Callable[[], None]]:
        choice = self._random.choice
        return [
            *[self._publish] * 12,
            *[self._consume] * choice((0, 0, 3, 8)),
            *[self._hand_out] * choice((0, 2, 5)),
            *[self._crash] * choice((0, 1, 2)),
            *[self._crash_all] * choice((0, 0, 0, 1)),
            *[self._start] * choice((1, 2)),
            *[self._cut] * choice((0, 1, 2)),
            *[self._heal] * choice((0, 1, 1)),
            *[self._cut_etcd] * choice((0, 1)),
            *[self._heal_etcd] * 1,
        ]

    def _publish(self) -> None:
        for master in self.cluster.masters():
            is_handed_out = self._random.random() < 0.2
            self.cluster.publish(master, self._random.choice((1, 1, 3)), is_handed_out)

    def _hand_out(self) -> None:
        for master in self.cluster.masters():
            self.cluster.hand_out(master, self._random.choice((1, 5, 1_000)))

    def _consume(self) -> None:
        for master in self.cluster.masters():
            self.cluster.consume(master)

    def _crash(self) -> None:
        up = [each for each in self.cluster.nodes.values() if each.is_up]
        if up:
            self._random.choice(up).crash()

    def _crash_all(self) -> None:
        for each in self.cluster.nodes.values():
            if each.is_up:
                each.crash()

    def _start(self) -> None:
        down = [each for each in self.cluster.nodes.values() if not each.is_up]
        if down:
            self._random.choice(down).start()

    def _cut(self) -> None:
        self.cluster.cut.add(frozenset(self._random.sample(sorted(self.cluster.nodes), 2)))

    def _heal(self) -> None:
        cut, self.cluster.cut = self.cluster.cut, set()
        for each in sorted({name for pair in cut for name in pair}):
            replica = self.cluster.nodes[each].replica
            if isinstance(replica, Mirror):
                replica.rejoined()

    def _cut_etcd(self) -> None:
        node = self._random.choice(list(self.cluster.nodes.values()))
        node.reaches_etcd = False
        if node.is_up:
            etcd = self.cluster.etcd
            self.cluster.clock.call_later(0.1, etcd.expire, node.me)

    def _heal_etcd(self) -> None:
        for each in self.cluster.nodes.values():
            each.reaches_etcd = True

    def _rest(self) -> list[str]:
        """Mend everything, wait until the replicas are at rest, publish once more, and judge."""
        cluster = self.cluster
        cluster.etcd.faults = 0.0
        self._heal()
        self._heal_etcd()
        for each in cluster.nodes.values():
            if not each.is_up:
                each.start()
        self._wait(self._are_equal)
        found = self._judge()
        for master in cluster.masters():
            cluster.publish(master)
        self._wait(lambda: self._are_equal() and not self._waits())
        return cluster.violations + found + self._judge() + self._waits()

    def _wait(self, until: Callable[[], bool]) -> None:
        waited_s = 0.0
        while waited_s < REST_S and not until():
            self.cluster.clock.jump(0.1)
            waited_s += 0.1

    def _are_equal(self) -> bool:
        return not self._judge()

    def _waits(self) -> list[str]:
        found = []
        for master in self.cluster.masters():
            left = self.cluster.unconfirmed.get((master.me, master.epoch))
            if left:
                found.append(f"I5: {master.me} never confirms {left}")
        return found

    def _judge(self) -> list[str]:
        cluster = self.cluster
        masters = cluster.masters()
        if len(masters) != 1:
            return [f"I4: at rest the masters are {[each.me for each in masters]}"]
        master: Master = masters[0]
        messages = cluster.nodes[master.me.node].messages
        found = []
        if lost := cluster.confirmed - cluster.consumed - set(messages.values()):
            found.append(f"I1: lost {sorted(lost)}")
        if len(set(messages.values())) != len(messages):
            found.append(f"I2: twice: {sorted(messages.values())}")
        # A master that was replaced, and has not heard of it, publishes at the same time as the next one.
        for epoch, seqs in groupby(sorted(messages), lambda seq: seq >> EPOCH_SHIFT):
            of_epoch = [messages[seq] for seq in seqs]
            if of_epoch != sorted(of_epoch):
                found.append(f"I2: out of order in epoch {epoch}: {of_epoch}")
        record = master.record
        if {each.node for each in record.in_sync} != set(cluster.nodes):
            found.append(f"not all are in sync: {record}")
        for node in cluster.nodes.values():
            if node.messages != messages:
                found.append(f"I6: {node.name} differs from the master")
            if isinstance(node.replica, Mirror) and node.replica.phase is not Phase.COMPLETE:
                found.append(f"{node.name} {node.replica.phase.value} for ever")
        return found
