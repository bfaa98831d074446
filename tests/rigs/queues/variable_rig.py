"""A variable queue on a fake index and virtual time, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from leveret.core.entry import INDEX_ON_DISK, MESSAGE, SEQ, Entry
from leveret.core.message import Message, origin_of
from leveret.queue_backing.api import QueueMode
from leveret.queue_backing.variable.limits import Limits
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.testing.virtual_clock import VirtualClock
from rigs.queues.fake_index import FakeIndex

UNBOUNDED = 1 << 40
SMALL = Limits(segment=4, io_batch=1, step=3, read_max=4, slack=0)
ON_DISK = 0.0  # a target that leaves no content in RAM
_ORIGIN = origin_of(b"o", b"k")
MANUAL = 1 << 30  # a slack that no publish passes: the test says when to reduce


def message(size: int, mark: int = 0) -> Message:
    """Return a message with a body of this size that begins with the mark, if it fits."""
    return (_ORIGIN, b"h", (b"%d" % mark).ljust(size, b".")[:size])


class VariableRig:
    """The queue, its index and its clock; numbers and routes published messages."""

    def __init__(
        self,
        limits: Limits | None = None,
        target: float = float("inf"),
        is_late: bool = False,
        credit: int | None = None,
        mode: QueueMode = "default",
        is_durable: bool = True,
    ) -> None:
        self.clock = VirtualClock()
        self.limits = limits or Limits()
        self.index = FakeIndex(is_late, credit)
        self.is_durable = is_durable
        self.next_msg_no = int(is_durable)  # messages in columns are numbered by their seqs
        self.queue = self._queue()
        self.queue.init(False)
        self.queue.set_queue_mode(mode)
        self.set_target(target)

    def _queue(self) -> VariableQueue:
        if self.is_durable:
            return VariableQueue(self.index, self.clock, self.limits)
        return VariableQueue(None, self.clock, self.limits, lambda: self.index)

    def publish(
        self,
        messages: list[Message],
        persistent: bool = False,
        expiries: list[int] | None = None,
        is_straight: bool = False,
        **more: Any,
    ) -> tuple[int, bool]:
        first_msg_no, self.next_msg_no = self.next_msg_no, self.next_msg_no + len(messages)
        if persistent:
            self.index.route(first_msg_no, messages)
        publish = self.queue.publish_delivered if is_straight else self.queue.publish
        return publish(messages, persistent, expiries, first_msg_no=first_msg_no, **more)

    def publish_some(self, count: int, persistent: bool = False) -> int:
        """Publish so many of one byte, in one batch; return the first seq."""
        return self.publish([message(1)] * count, persistent)[0]

    def take_confirmed(self) -> list[tuple[int, int]]:
        """Return the ``(first_seq, count)`` that became safe since the last time."""
        taken, self.index.confirmed = self.index.confirmed, []
        return taken

    def set_target(self, count: float) -> None:
        """Let this many messages be in RAM."""
        if count == float("inf") and not self.queue.can_page:
            return
        self.queue.begin_paging()
        rates = self.queue.ram.rates
        before = rates.incoming, rates.outgoing, rates.ack_in, rates.ack_out
        rates.incoming, rates.outgoing, rates.ack_in, rates.ack_out = 1.0, 0.0, 0.0, 0.0
        self.queue.set_ram_duration_target(count)
        rates.incoming, rates.outgoing, rates.ack_in, rates.ack_out = before

    def settle(self, turns: int = 1_000) -> None:
        """Do all work that the queue asks for, and complete its reads."""
        for _ in range(turns):
            if self.queue.needs_timeout():
                self.queue.timeout()
            elif self.index.arrive():
                self.queue.resume()
            else:
                return
        raise AssertionError("the queue does not come to rest")

    def restart(self, crash: bool) -> None:
        """End the queue, or just drop it, and start another on its index."""
        if not crash:
            self.queue.terminate()
        self.index = self.index.restart(crash)
        self.queue = self._queue()
        self.queue.init(True)

    def shape(self) -> dict[str, Any]:
        """Return the parts as lists of seqs with their state: a, b or g."""
        queue, delta = self.queue, self.queue.paged.delta
        parts = {name: " ".join(map(state, part)) for name, part in parts_of(queue).items()}
        return parts | {"delta": (delta.start, delta.end - 1, delta.length) if delta.length else ()}


def parts_of(queue: VariableQueue) -> dict[str, Iterable[Entry]]:
    """Return the parts but delta by name."""
    paged = queue.paged
    return {"q4": queue.q4, "q3": paged.q3, "q2": paged.q2, "q1": queue.q1}


def state(entry: Entry) -> str:
    """Return an entry's seq with its state."""
    letter = "a" if entry[MESSAGE] is not None else "g" if entry[INDEX_ON_DISK] else "b"
    return f"{entry[SEQ]}{letter}"
