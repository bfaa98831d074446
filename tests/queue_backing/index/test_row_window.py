"""RowWindow against a dict: ranges come out right, also if rows are read late, acked or added meanwhile."""

from __future__ import annotations

import random
from typing import Any

import pytest

from leveret.msg_store.format.seq_range import SeqRange
from leveret.queue_backing.index import row_window
from leveret.queue_backing.index.row_window import Answer, RowWindow

END = 1 << 64


class Rows:
    """Rows on a disk that answers when it is told to."""

    def __init__(self, seqs: Any = ()) -> None:
        self.rows: dict[int, tuple] = {seq: (seq, "row") for seq in seqs}
        self.asked: list[tuple[int, int, Answer]] = []
        self.resumed = 0
        self.reads = 0
        self.window = RowWindow(self.ask, self.resume)

    def ask(self, low: int, limit: int, answer: Answer) -> None:
        self.asked.append((low, limit, answer))

    def resume(self) -> None:
        self.resumed += 1

    def answer(self, rows_max: int | None = None) -> bool:
        """Answer the oldest request, with fewer rows than wanted if told so."""
        if not self.asked:
            return False
        low, limit, answer = self.asked.pop(0)
        self.reads += 1
        limit = min(limit, rows_max or limit)
        behind = [seq for seq in sorted(self.rows) if seq >= low]
        upto = behind[limit - 1] + 1 if len(behind) >= limit else END
        answer([self.rows[seq] for seq in behind[:limit]], upto)
        return True

    def read(self, low: int, high: int, limit: int = 100) -> list[int]:
        for _ in range(1000):
            found = self.window.read(low, high, limit)
            if found is not None:
                return [row[0] for row in found]
            assert self.answer()
        raise AssertionError("never answered")


def test_ranges_behind_the_one_that_was_asked_for_are_there_already() -> None:
    rows = Rows(range(0, 1000, 3))

    assert rows.window.read(0, 10, 100) is None
    rows.answer()
    assert rows.resumed == 1
    assert rows.read(0, 10) == [0, 3, 6, 9]
    assert rows.read(10, 500, 1000) == list(range(12, 500, 3))
    assert rows.reads == 1


def test_a_hole_of_any_size_is_jumped_over_in_one_read() -> None:
    rows = Rows([5, 1 << 40, (1 << 40) + 1])

    assert rows.read(0, 10) == [5]
    assert rows.read(10, 1 << 41, 1) == [1 << 40]
    assert rows.reads == 1


def test_a_range_longer_than_one_read_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_window, "ROWS", 10)
    rows = Rows(range(35))

    assert rows.read(0, 35) == list(range(35))
    assert rows.reads == 4
    assert rows.resumed == 1


def test_rows_that_are_acked_leave_the_window() -> None:
    rows = Rows(range(10))
    rows.read(0, 10)

    for seq in (2, 3):
        del rows.rows[seq]
    rows.window.forget([2, 3, 99])
    rows.window.forget_range(SeqRange(4, 7, [4]))

    assert rows.read(0, 10) == [0, 1, 4, 7, 8, 9]


def test_an_answer_to_a_question_that_is_not_asked_any_more_is_not_taken() -> None:
    rows = Rows(range(100, 110))
    assert rows.window.read(100, 105, 9) is None
    assert rows.window.read(0, 50, 9) is None
    late, right = rows.asked
    late[2]([(1, "old")], END)
    assert rows.resumed == 0
    rows.asked = [right]

    assert rows.read(0, 50) == []
    rows.window.read(100, 105, 9)
    rows.window.close()
    assert rows.resumed == 1


def test_what_is_read_ahead_is_there_when_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_window, "ROWS", 10)
    rows = Rows(range(25))
    assert rows.read(0, 10) == list(range(10))

    assert rows.window.ahead(5, 25, 9) == [(seq, "row") for seq in range(5, 10)]
    assert rows.window.ahead(5, 25, 9), "it is asked for once"
    assert [(low, limit) for low, limit, _ in rows.asked] == [(10, 10)]
    rows.answer()
    assert rows.window.read(10, 20, 99) == [(seq, "row") for seq in range(10, 20)]
    assert len(rows.window.ahead(10, 20, 99)) == 10, "nothing is read beyond what will be wanted"
    assert rows.window.ahead(90, 99, 9) == [], "nor are rows behind a gap"
    assert not rows.asked


def test_what_has_been_loaded_does_not_stay_in_ram(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_window, "ROWS", 50)
    rows = Rows(range(10_000))
    for low in range(0, 10_000, 10):
        assert rows.read(low, low + 10) == list(range(low, low + 10))
        assert len(rows.window._entries) <= 100
    assert rows.reads <= 201


def test_a_window_whose_rows_have_all_gone_takes_no_ram_and_is_still_known() -> None:
    rows = Rows(range(100))
    rows.read(0, 100)

    rows.window.forget(range(100))
    rows.rows.clear()

    assert not rows.window._entries
    assert not rows.window._gone
    assert rows.read(0, 100) == []
    assert rows.reads == 1


def test_whatever_happens_a_range_is_what_it_is(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_window, "ROWS", 7)
    for _ in range(200):
        rows = Rows(rng.sample(range(60), rng.randint(0, 40)))
        next_seq = 60
        for _ in range(60):
            what = rng.random()
            low = rng.randint(0, next_seq)
            high, limit = low + rng.randint(1, 30), rng.randint(1, 9)
            if what < 0.2:
                seq = rng.choice([next_seq, next_seq, rng.randint(0, next_seq)])
                if seq not in rows.rows:
                    rows.rows[seq] = (seq, "row")
                    rows.window.cut(seq)
                    next_seq = max(next_seq, seq + 1)
            elif what < 0.4:
                gone = rng.sample(sorted(rows.rows), min(3, len(rows.rows)))
                for seq in gone:
                    del rows.rows[seq]
                rows.window.forget(gone)
            elif what < 0.5:
                rows.window.read(low, high, limit)
            elif what < 0.55:
                found = [row[0] for row in rows.window.ahead(low, high, limit)]
                expected = [seq for seq in sorted(rows.rows) if low <= seq < high][:limit]
                assert found == expected[: len(found)]
            elif what < 0.65:
                rows.answer(rng.choice([None, 1, 3]))
            else:
                expected = [seq for seq in sorted(rows.rows) if low <= seq < high][:limit]
                assert rows.read(low, high, limit) == expected
