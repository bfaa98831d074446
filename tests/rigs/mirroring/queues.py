"""Replicas with real backing queues: variable queues over an index that loses what was not synced.

Contents, and what clients do, are others than in ``cluster.py``. A message is a number, in its body.
"""

from __future__ import annotations

from typing import Any, Final

from leveret.core.message import BODY, origin_of
from leveret.mirroring.master_content import MasterContent
from leveret.mirroring.mirror_content import MirrorContent
from leveret.mirroring.mirrored_queue import MirroredQueue
from leveret.mirroring.replicas.master import Master
from leveret.mirroring.replicas.messages import Direct, Instruction
from leveret.mirroring.replicas.mirror import Mirror
from leveret.mirroring.replicas.ports import SyncPoint
from leveret.mirroring.replicas.record import Replica, Stored
from leveret.mirroring.wire import decode, encode
from leveret.queue_backing.variable.invariants import check
from leveret.queue_backing.variable.limits import Limits
from leveret.queue_backing.variable.queue import VariableQueue
from rigs.mirroring.cluster import DISK_S, Cluster, SimulatedNode
from rigs.queues.fake_index import FakeIndex

SMALL: Final = Limits(segment=4, io_batch=1, step=3, read_max=3, slack=1)
UNBOUNDED: Final = 1 << 40
_ORIGIN: Final = origin_of(b"", b"q")


def messages_in(queue: VariableQueue) -> dict[int, int]:
    """Return all messages by seq, from RAM and disk."""
    found: dict[int, int] = {}
    rows: dict[int, Any] = dict(queue.index.rows)  # type: ignore[attr-defined]
    for entry in [*queue.q4, *queue.q1, *queue.pending.in_ram.values()]:
        rows[entry[0]] = entry
    for seq in sorted(rows):
        entry = rows[seq]
        message = entry[1] or queue.index.contents[entry[4]]  # type: ignore[attr-defined]
        found[seq] = int(message[BODY])
    return found


class QueueNode(SimulatedNode):
    """A node with a variable queue."""

    cluster: QueueCluster

    def __init__(self, name: str, cluster: Cluster) -> None:
        super().__init__(name, cluster)
        self.index = FakeIndex(is_late=True)
        self.mirrored: MirroredQueue | None = None
        self.unacked: dict[int, int] = {}  # by seq
        self._next_msg_no = 1

    def begin_content(self) -> None:
        self.index = self.index.restart(crash=True)
        self.index.forgets = False
        self.mirrored = None
        self.unacked = {}
        self.queue = VariableQueue(self.index, self.cluster.clock, SMALL)
        self.queue.init(True)
        self.queue.set_ram_duration_target(self.cluster.random.choice((0.0, float("inf"))))
        self.content = MirrorContent(self.queue, self.write_contents, set, self._reached)  # type: ignore[assignment]
        while not self.content.load():  # type: ignore[attr-defined]
            self.settle()
        self.later(DISK_S, self._sync)

    @property
    def messages(self) -> dict[int, int]:
        self.settle()
        return messages_in(self.queue)

    def write_contents(self, messages: list[Any]) -> int:
        first, self._next_msg_no = self._next_msg_no, self._next_msg_no + len(messages)
        self.index.route(first, messages)
        return first

    def _reached(self, point: SyncPoint) -> None:
        if self.replica is not None:
            self.replica.synced(point)

    def _sync(self) -> None:
        self.index.sync()
        self.disk.ever.update(int(each[BODY]) for each in self.index.synced_contents.values())
        confirmed, self.index.confirmed = self.index.confirmed, []
        self.content.points.confirmed(confirmed)  # type: ignore[attr-defined]
        self.settle()
        self.later(DISK_S, self._sync)

    def settle(self) -> None:
        """Do what the queue asks for, and complete its reads."""
        queue, content = self.queue, self.content
        for _ in range(1_000):
            if queue.needs_timeout():
                queue.timeout()
            elif self.index.arrive():
                queue.resume()
                if queue.take_fetch_ready():
                    content.resume()  # type: ignore[attr-defined]
            elif isinstance(content, MirrorContent) and content.resume():
                pass
            else:
                break
        else:
            raise AssertionError("the queue does not come to rest")
        check(queue)

    # Outside; what is sent goes as bytes.

    def broadcast(self, instruction: Instruction) -> None:
        super().broadcast(decode(encode(instruction)))

    def send(self, to: Replica, message: Direct) -> None:
        super().send(to, decode(encode(message)))

    def confirmed(self, no: int) -> None:
        super().confirmed(no)
        if self.mirrored is not None:
            self.mirrored.confirmed(no)

    def deliverable(self, below: int) -> None:
        if self.mirrored is not None:
            self.mirrored.deliverable()

    def became_master(self, stored: Stored) -> None:
        assert stored.record is not None
        content, cluster = self.content, self.cluster
        assert isinstance(content, MirrorContent)
        self.settle()
        while not content.put_back():
            self.settle()
        mastered = MasterContent(self.queue, content.live, content.handed_out, content.points)
        self.content = mastered  # type: ignore[assignment]
        self.replica = None
        self.replica = Master(
            self.me,
            stored.record,
            stored.revision,
            mastered,
            self,
            cluster.in_sync_min,
            cluster.runs,
        )
        self.mirrored = MirroredQueue(
            self.queue, mastered, self.replica, cluster.now_s, lambda runs: None
        )

    def ended(self, reason: str) -> None:
        """Become a mirror: the consumers are gone."""
        mastered = self.content
        self.mirrored, self.unacked = None, {}
        self.queue.requeue(sorted([*self.queue.pending.in_ram, *self.queue.pending.on_disk]))
        content = MirrorContent(self.queue, self.write_contents, set, self._reached)
        content.live, content.points = mastered.live, mastered.points  # type: ignore[attr-defined]
        content.handed_out = mastered.handed_out
        self.content = content  # type: ignore[assignment]
        self.replica = Mirror(
            self.me, self.cluster.etcd.stored, content, self, self.cluster.fetched
        )
        self.replica.start()


class QueueCluster(Cluster):
    """Clients publish to, and consume from, the queue of the master."""

    node_class = QueueNode

    def _queue(self, master: Master) -> tuple[QueueNode, MirroredQueue] | None:
        node = self.nodes[master.me.node]
        assert isinstance(node, QueueNode)
        return None if node.mirrored is None else (node, node.mirrored)

    def publish(self, master: Master, count: int = 1, is_handed_out: bool = False) -> None:
        found = self._queue(master)
        if found is None:
            return
        node, queue = found
        numbers = list(range(self.published, self.published + count))
        self.published += count
        messages = [(_ORIGIN, b"h", b"%d" % number) for number in numbers]
        waiting = self.unconfirmed.setdefault((master.me, master.epoch), {})
        waiting[master.last_no + 1] = numbers  # it may be confirmed at once
        first_msg_no = node.write_contents(messages)
        if is_handed_out and queue.is_empty():
            first, _ = queue.publish_delivered(messages, True, first_msg_no=first_msg_no)
            self.delivered.update(numbers)
            node.unacked.update(enumerate(numbers, first))
        else:
            queue.publish(messages, True, first_msg_no=first_msg_no)
        node.settle()

    def hand_out(self, master: Master, count: int) -> None:
        found = self._queue(master)
        if found is None:
            return
        node, queue = found
        fetched = queue.fetch(count, UNBOUNDED, True)
        for at, (seq, each) in enumerate(zip(fetched.seqs, fetched.messages, strict=True)):
            number = int(each[BODY])
            is_redelivered = at < fetched.redelivered
            if number in self.delivered and not is_redelivered and not self._is_deposed(master):
                self.violations.append(f"I3: {number} comes again and is called new")
            self.delivered.add(number)
            node.unacked[seq] = number
        node.settle()

    def consume(self, master: Master) -> None:
        found = self._queue(master)
        if found is None or not found[0].unacked:
            return
        node, queue = found
        seqs = sorted(self.random.sample(sorted(node.unacked), min(len(node.unacked), 3)))
        numbers = [node.unacked.pop(seq) for seq in seqs]
        if self.random.random() < 0.2:
            queue.requeue(seqs)
        else:
            self.consumed.update(numbers)
            queue.ack(seqs)
        node.settle()
