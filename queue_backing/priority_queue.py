"""PriorityQueue: a backing queue that is one variable queue per priority, the highest first.

RabbitMQ names a message by priority and seq (``rabbit_priority_queue``). Here a seq stays one integer,
because all levels draw from one counter: a batch of mixed priorities has consecutive seqs, and each level
sees ascending seqs with gaps, which a variable queue allows (``skip_to``). For unacked messages a dict maps
the seq to the level that it came from.

A fetch serves one level, the highest that has messages, so that the redelivered messages are always the
first of a batch; the caller asks again. A message without priority has 0, and the queue's maximum
replaces a higher one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any

from leveret.queue_backing.api import (
    Accumulator,
    AckStep,
    Dropped,
    Fetched,
    FoldStep,
    Predicate,
    ReplicaQueue,
)
from leveret.queue_backing.variable.queue import VariableQueue, fold_queues, ready_seqs_of

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.core.message import Message
    from leveret.queue_backing.api import QueueMode


class PriorityQueue(ReplicaQueue):
    """See ``BackingQueue`` for the methods.

    Args:
        levels: an empty queue for each priority from 0 up; each has its own index.
        priority_of: tells a message's priority, 0 when it has none.
    """

    __slots__ = ("_level_of", "_levels", "_next_seq", "_priority_of")

    def __init__(self, levels: list[VariableQueue], priority_of: Callable[[Message], int]) -> None:
        self._levels = levels[::-1]  # the highest first
        self._priority_of = priority_of
        self._level_of: dict[int, VariableQueue] = {}
        self._next_seq = 0
        for level in levels:
            level.expect_gaps()  # the seqs between its own belong to other levels

    # Lifecycle.

    def init(self, recover: bool) -> None:
        for level in self._levels:
            level.init(recover)
        self._next_seq = max(level.next_seq for level in self._levels)

    def terminate(self) -> None:
        self._level_of = {}
        for level in self._levels:
            level.terminate()

    def abandon(self) -> None:
        self._level_of = {}
        for level in self._levels:
            level.abandon()

    def delete_and_terminate(self) -> None:
        self._level_of = {}
        for level in self._levels:
            level.delete_and_terminate()

    # In.

    def publish(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        delivered: bool = False,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        first, is_safe = self._next_seq, True
        for level, at, end in self._runs(messages):
            level.skip_to(first + at)
            _, is_safe = level.publish(
                messages[at:end],
                persistent,
                expiries[at:end] if expiries else None,
                None,
                delivered,
                first_msg_no + at,
            )
        self._next_seq = first + len(messages)
        return first, is_safe

    def publish_delivered(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        """Take a batch as unacked, each run of one priority by its level."""
        first, is_safe = self._next_seq, True
        for level, at, end in self._runs(messages):
            level.skip_to(first + at)
            own = expiries[at:end] if expiries else None
            _, is_safe = level.publish_delivered(
                messages[at:end], persistent, own, None, first_msg_no + at
            )
            self._level_of.update(zip(range(first + at, first + end), repeat(level), strict=False))
        self._next_seq = first + len(messages)
        return first, is_safe

    def expect_gaps(self) -> None:
        """Nothing is to be done: the seqs of each level have gaps."""

    def skip_to(self, seq: int) -> None:
        self._next_seq = seq

    def insert(
        self,
        first_seq: int,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        first_msg_no: int = 0,
    ) -> bool:
        is_safe = True
        for level, at, end in self._runs(messages):
            own = expiries[at:end] if expiries else None
            is_safe = level.insert(
                first_seq + at, messages[at:end], persistent, own, first_msg_no + at
            )
        self._next_seq = max(self._next_seq, first_seq + len(messages))
        return is_safe

    def _runs(self, messages: list[Message]) -> list[tuple[VariableQueue, int, int]]:
        """Return runs of one priority, as positions in the batch."""
        highest = len(self._levels) - 1
        priorities = [min(self._priority_of(message), highest) for message in messages]
        runs, at = [], 0
        for priority, run in groupby(priorities):
            end = at + sum(1 for _ in run)
            runs.append((self._levels[highest - priority], at, end))
            at = end
        return runs

    def discard(self, messages: list[Message], persistent: bool, first_msg_no: int = 0) -> None:
        for level, at, end in self._runs(messages):
            level.discard(messages[at:end], persistent, first_msg_no + at)

    # Out.

    def _head(self) -> VariableQueue | None:
        for level in self._levels:
            if level.count:
                return level
        return None

    def fetch(self, limit: int, bytes_max: int, ack_required: bool) -> Fetched:
        level = self._head()
        if level is None:
            return Fetched([], [])
        fetched = level.fetch(limit, bytes_max, ack_required)
        if ack_required:
            self._level_of.update(zip(fetched.seqs, repeat(level), strict=False))
        return fetched

    def drop(self, limit: int, ack_required: bool) -> list[int]:
        level = self._head()
        if level is None:
            return []
        seqs = level.drop(limit, ack_required)
        if ack_required:
            self._level_of.update(zip(seqs, repeat(level), strict=False))
        return seqs

    def take_below(self, seq: int, limit: int) -> Fetched:
        """Take from all levels: none is the head."""
        result = Fetched([], [])
        for level in self._levels:
            taken = level.take_below(seq, limit - len(result.seqs))
            self._level_of.update(zip(taken.seqs, repeat(level), strict=False))
            result.seqs += taken.seqs
            result.pending = result.pending or taken.pending
        return result

    def ready_seqs(self, from_seq: int, limit: int) -> Fetched:
        return ready_seqs_of(self._levels, from_seq, limit)

    def set_next_deliver(self, seq: int) -> None:
        for level in self._levels:
            level.set_next_deliver(seq)

    def dropwhile(self, predicate: Predicate, limit: int) -> Dropped:
        """Remove from the highest level, and from the next when none is left there."""
        count = 0
        for level in self._levels:
            dropped = level.dropwhile(predicate, limit - count)
            count += dropped.count
            if dropped.head is not None or dropped.pending:
                return Dropped(count, dropped.head, dropped.pending)
        return Dropped(count, None)

    def fetchwhile(
        self, predicate: Predicate, limit: int, bytes_max: int
    ) -> tuple[Fetched, Entry | None]:
        """Hand out from the highest level; the entry that stays may be of a lower one."""
        result = Fetched([], [])
        for level in self._levels:
            is_first = not result.seqs
            room = limit if is_first else 0  # later levels are only looked at
            fetched, head = level.fetchwhile(predicate, room, bytes_max)
            if fetched.seqs:
                self._level_of.update(zip(fetched.seqs, repeat(level), strict=False))
                result = fetched
            if head is not None or fetched.pending:
                result.pending = fetched.pending
                return result, head
        return result, None

    # Back.

    def _by_level(self, seqs: list[int], forget: bool) -> dict[VariableQueue, list[int]]:
        """Group unacked seqs by level, in order; unknown seqs are passed over."""
        by_level: dict[VariableQueue, list[int]] = {}
        levels = map(self._level_of.pop if forget else self._level_of.get, seqs, repeat(None))
        for seq, level in zip(seqs, levels, strict=True):
            if level is not None:
                by_level.setdefault(level, []).append(seq)
        return by_level

    def ack(self, seqs: list[int]) -> int:
        by_level = self._by_level(seqs, forget=True)
        return sum(level.ack(own) for level, own in by_level.items())

    def requeue(self, seqs: list[int]) -> int:
        by_level = self._by_level(seqs, forget=True)
        return sum(level.requeue(own) for level, own in by_level.items())

    # All.

    def ackfold(
        self, step: AckStep[Accumulator], start: Accumulator, seqs: list[int]
    ) -> Accumulator:
        for level, run in groupby(seqs, self._level_of.get):
            if level is not None:
                start = level.ackfold(step, start, list(run))
        return start

    def expiries(self, seqs: list[int]) -> dict[int, int]:
        by_level = self._by_level(seqs, forget=False)
        return {
            seq: ms for level, own in by_level.items() for seq, ms in level.expiries(own).items()
        }

    def fold(
        self, step: FoldStep[Accumulator], start: Accumulator, from_seq: int = 0
    ) -> Accumulator:
        """Fold over all levels by ``seq``, which is the order of publishing, not of delivery."""
        return fold_queues(self._levels, step, start, from_seq)

    def purge(self) -> int:
        return sum(level.purge() for level in self._levels)

    def purge_acks(self) -> int:
        self._level_of = {}
        return sum(level.purge_acks() for level in self._levels)

    # Statistics and housekeeping.

    def take_fetch_ready(self) -> bool:
        """Whether the pending messages of any level may be in RAM now."""
        ready = [level.take_fetch_ready() for level in self._levels]
        return any(ready)

    def len(self) -> int:
        return sum(level.count for level in self._levels)

    def len_bytes(self) -> int:
        return sum(level.ready_bytes for level in self._levels)

    def is_empty(self) -> bool:
        return self._head() is None

    def depth(self) -> int:
        return sum(level.depth() for level in self._levels)

    def ram_duration(self) -> float:
        return min(level.ram_duration() for level in self._levels)

    def set_ram_duration_target(self, duration_s: float) -> None:
        """Set it for all levels, which then page one after the other, a step in each turn."""
        lower = [level for level in self._levels if level.aim_at(duration_s)]
        if lower:
            self.timeout()

    def set_queue_mode(self, mode: QueueMode) -> None:
        for level in self._levels:
            level.set_queue_mode(mode)

    def needs_timeout(self) -> bool:
        return any(level.needs_timeout() for level in self._levels)

    def timeout(self) -> None:
        """Do a slice for the first level that asks for it."""
        for level in self._levels:
            if level.needs_timeout():
                level.timeout()
                return

    def resume(self) -> None:
        """Go on in all levels, a step in each turn."""
        for level in self._levels:
            level.resume_later()
        self.timeout()

    def info(self) -> dict[str, Any]:
        """Return statistics: numbers are summed up, except statistics that all levels share."""
        infos = [level.info() for level in self._levels]
        total = dict(infos[0])
        for name, value in total.items():
            if isinstance(value, int | float) and name not in _SHARED:
                total[name] = sum(info[name] for info in infos)
        total.pop("delta", None)
        stamps = [info["head_message_timestamp"] for info in infos]
        total["head_message_timestamp"] = next(
            iter([each for each in stamps if each is not None]), None
        )
        total["next_seq_id"] = self._next_seq
        return total


_SHARED = frozenset({
    "next_seq_id", "next_deliver_seq_id", "target_ram_count", "head_message_timestamp",
})  # fmt: skip
