"""Attempts of one partition, killed, retried and running at once: what a ledger makes a successful end worth.

A message counts as delivered when the attempt has seen its confirm (for losses), and as sent when it left (for
duplicates).
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter, deque
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from leveret.spark.publish.errors import LedgerError
from leveret.spark.publish.identity import Key
from leveret.spark.publish.ledger import KeyOrder, Ledger

ROWS = [Key("/", "q", 0, number) for number in range(12)]
OTHER_ROWS = {
    "reversed": ROWS[::-1],
    "swapped": [ROWS[1], ROWS[0], *ROWS[2:]],
    "without the first": ROWS[1:],
    "every second": ROWS[::2],
    "with another": [*ROWS[:3], Key("/", "q", 0, 100), *ROWS[4:]],
}
WINDOW = 4
STEP = 3


class Attempt:
    def __init__(self, path: Path, rows: list[Key]) -> None:
        self.rows = rows
        self.left = deque(rows)
        self.flights: deque[Key] = deque()
        self.ledger = Ledger(path, STEP)
        self.order = KeyOrder()

    @property
    def settled_rows(self) -> int:
        return self.ledger.rows - len(self.flights)

    def send(self) -> Key | None:
        key = self.left.popleft()
        self.order.check(key)
        if self.ledger.skips(key):
            return None
        self.flights.append(key)
        return key

    def save(self) -> None:
        if entry := self.ledger.ready(self.settled_rows):
            self.ledger.write(entry)


class Attempts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "part-00000.json"
        self.running: list[Attempt] = []
        self.sent: Counter[Key] = Counter()
        self.delivered: set[Key] = set()
        self.failures = 0
        self.had_other_rows = False
        self.had_two = False

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @precondition(lambda self: len(self.running) < 3)
    @rule()
    def start(self) -> None:
        self.running.append(Attempt(self.path, ROWS))
        self.had_two |= len(self.running) > 1

    @precondition(lambda self: len(self.running) < 3)
    @rule(which=st.sampled_from(sorted(OTHER_ROWS)))
    def start_with_other_rows(self, which: str) -> None:
        self.had_other_rows = True
        self.running.append(Attempt(self.path, OTHER_ROWS[which]))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), count=st.integers(1, WINDOW))
    def send(self, data: st.DataObject, count: int) -> None:
        attempt = data.draw(st.sampled_from(self.running))
        self._guarded(attempt, lambda: self._send(attempt, count))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), count=st.integers(1, WINDOW))
    def confirm(self, data: st.DataObject, count: int) -> None:
        attempt = data.draw(st.sampled_from(self.running))
        self._confirm(attempt, count)
        self._guarded(attempt, attempt.save)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        self.running.remove(data.draw(st.sampled_from(self.running)))
        self.failures += 1

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(self.running))
        if self._guarded(attempt, lambda: self._end(attempt)):
            self.running.remove(attempt)
            lost = set(attempt.rows) - self.delivered
            assert not lost, f"the attempt ended well and lost {sorted(lost)}"

    def _send(self, attempt: Attempt, count: int) -> None:
        for _ in range(min(count, WINDOW - len(attempt.flights), len(attempt.left))):
            key = attempt.send()
            if key is not None:
                self.sent[key] += 1
        self._check_duplicates()

    def _confirm(self, attempt: Attempt, count: int) -> None:
        for _ in range(min(count, len(attempt.flights))):
            self.delivered.add(attempt.flights.popleft())

    def _end(self, attempt: Attempt) -> None:
        while attempt.left:
            self._send(attempt, WINDOW)
            self._confirm(attempt, WINDOW)
            attempt.save()
        self._confirm(attempt, WINDOW)
        attempt.ledger.end()
        attempt.save()

    def _guarded(self, attempt: Attempt, step: object) -> bool:
        """Run a step; an attempt that the ledger refuses has ended, which only other rows may cause."""
        assert callable(step)
        try:
            step()
        except LedgerError:
            assert self.had_other_rows, "an attempt with the same rows was refused"
            self.running.remove(attempt)
            self.failures += 1
            return False
        return True

    def _check_duplicates(self) -> None:
        if self.had_other_rows or self.had_two:
            return
        duplicates = sum(self.sent.values()) - len(self.sent)
        assert duplicates <= self.failures * (WINDOW + STEP - 1)


TestAttempts = Attempts.TestCase
TestAttempts.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
