"""A backing queue that waits: ``pending`` reads are made, and the operation goes on from there.

So the same tests hold queues on a disk to what queues in memory do. Nothing else is hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leveret.core.entry import MESSAGE, SEQ, SIZE
from leveret.queue_backing.api import Dropped, Fetched

ROUNDS = 1_000


class PatientQueue:
    """A queue, and the call that makes its pending reads."""

    def __init__(self, queue: Any, settle: Callable[[], None]) -> None:
        self.queue = queue
        self._settle = settle

    def __getattr__(self, name: str) -> Any:
        return getattr(self.queue, name)

    def fetch(self, limit: int, bytes_max: int, ack_required: bool) -> Fetched:
        result = self.queue.fetch(limit, bytes_max, ack_required)
        for _ in range(ROUNDS):
            if not result.pending:
                return result
            self._settle()
            left = bytes_max - sum(len(each[2]) for each in result.messages)
            if result.seqs and self._head_size() > left:
                break
            result = joined(result, self.queue.fetch(limit - len(result.seqs), left, ack_required))
        result.pending = False
        return result

    def _head_size(self) -> int:
        head = self.dropwhile(lambda entry: False, 1).head
        return head[SIZE] if head else 0

    def drop(self, limit: int, ack_required: bool) -> list[int]:
        seqs = self.queue.drop(limit, ack_required)
        for _ in range(ROUNDS):
            if len(seqs) == limit or self.queue.is_empty():
                return seqs
            self._settle()
            seqs += self.queue.drop(limit - len(seqs), ack_required)
        raise AssertionError("drop does not come to an end")

    def dropwhile(self, predicate: Any, limit: int) -> Dropped:
        count = 0
        for _ in range(ROUNDS):
            dropped = self.queue.dropwhile(predicate, limit - count)
            count += dropped.count
            if not dropped.pending:
                return Dropped(count, dropped.head)
            self._settle()
        raise AssertionError("dropwhile does not come to an end")

    def fetchwhile(self, predicate: Any, limit: int, bytes_max: int) -> tuple[Fetched, Any]:
        result = Fetched([], [])
        left = bytes_max
        for _ in range(ROUNDS):
            if result.seqs and self._head_size() > left:
                result.pending = False
                return result, self.dropwhile(lambda entry: False, 1).head
            more, head = self.queue.fetchwhile(predicate, limit - len(result.seqs), left)
            result = joined(result, more)
            left = bytes_max - sum(len(each[2]) for each in result.messages)
            if not more.pending:
                result.pending = False
                return result, head
            self._settle()
        raise AssertionError("fetchwhile does not come to an end")

    def ackfold(self, step: Any, start: Any, seqs: list[int]) -> Any:
        for _ in range(ROUNDS):
            entries = self.queue.ackfold(lambda entry, acc: [*acc, entry], [], seqs)
            if all(entry[MESSAGE] is not None for entry in entries):
                for entry in entries:
                    start = step(entry, start)
                return start
            self._settle()
        raise AssertionError("ackfold does not come to an end")

    def fold(self, step: Any, start: Any, from_seq: int = 0) -> Any:
        for _ in range(ROUNDS):
            missing: list[Any] = []

            def wrapped(entry: Any, unacked: bool, acc: Any, missing: list = missing) -> Any:
                nonlocal from_seq
                if entry is None:
                    missing.append(entry)
                    return False, acc
                from_seq = entry[SEQ] + 1
                return step(entry, unacked, acc)

            start = self.queue.fold(wrapped, start, from_seq)
            if not missing:
                return start
            self._settle()
        raise AssertionError("fold does not come to an end")


def joined(first: Fetched, more: Fetched) -> Fetched:
    """Return two fetches as one."""
    return Fetched(
        first.messages + more.messages,
        first.seqs + more.seqs,
        first.redelivered + more.redelivered,
        more.pending,
    )
