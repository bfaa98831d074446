"""The schedule of a delay queue, compared with a sorted list."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from leveret.broker.queue.delays.schedule import Schedule, seq_of

TIMES = st.one_of(st.integers(0, 20), st.sampled_from([2**40, 2**62]))


class ScheduleModel(RuleBasedStateMachine):
    """Messages are added, withdrawn and taken when they are due."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule = Schedule()
        self.waiting: list[tuple[int, int]] = []  # time and seq
        self.next_seq = 0
        self.now_ms = 0

    @rule(times=st.lists(TIMES, max_size=5))
    def add(self, times: list[int]) -> None:
        seqs = range(self.next_seq, self.next_seq + len(times))
        self.schedule.add(times, seqs)
        self.waiting += zip(times, seqs, strict=True)
        self.next_seq += len(times)

    @rule(choice=st.randoms(use_true_random=False))
    def withdraw(self, choice: object) -> None:
        gone = [each for each in self.waiting if choice.random() < 0.3]  # type: ignore[attr-defined]
        self.schedule.withdraw([seq for _, seq in gone])
        self.waiting = [each for each in self.waiting if each not in gone]

    @rule(later_ms=st.integers(0, 5), limit=st.integers(1, 4))
    def take_due(self, later_ms: int, limit: int) -> None:
        self.now_ms += later_ms
        due = sorted(each for each in self.waiting if each[0] <= self.now_ms)

        taken = self.schedule.take_due(self.now_ms, limit)

        assert taken == [seq for _, seq in due[: len(taken)]]
        first_ms = self.schedule.first_ms()
        if len(taken) < min(limit, len(due)):  # places of withdrawn ones count
            assert first_ms is not None
        self.waiting = [each for each in self.waiting if each[1] not in taken]

    @rule()
    def take_all(self) -> None:
        taken = {seq_of(key) for key in self.schedule.take_all()}
        assert taken >= {seq for _, seq in self.waiting}
        self.waiting = []

    @invariant()
    def knows_how_many_there_are_and_which(self) -> None:
        assert len(self.schedule) == len(self.waiting)
        there = {seq for _, seq in self.waiting}
        in_order = [seq for key in sorted(self.schedule.keys()) if (seq := seq_of(key)) in there]
        assert in_order == [seq for _, seq in sorted(self.waiting)]
        first_ms = self.schedule.first_ms()
        assert not self.waiting or (first_ms is not None and first_ms <= min(self.waiting)[0])


TestScheduleModel = ScheduleModel.TestCase


def test_messages_of_one_millisecond_come_in_the_order_of_their_seqs() -> None:
    schedule = Schedule()
    schedule.add([7] * 5, [3, 1, 4, 0, 2])

    assert schedule.take_due(6, 10) == []
    assert schedule.take_due(7, 10) == [0, 1, 2, 3, 4]
    assert schedule.first_ms() is None
