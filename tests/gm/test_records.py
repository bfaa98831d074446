"""The record of a group: its transactions, its form as bytes, and how a transaction gets through to a store.

Tests: gm/records/codec.py, gm/records/group.py, gm/records/memory_store.py,
    gm/records/transactions.py, gm/records/transactor.py
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.gm.records.codec import RECORD_BYTES_MAX, RecordError, pack, unpack
from leveret.gm.records.group import ENTRIES_MAX, Entry, Group, LostMembershipError, MemberId
from leveret.gm.records.memory_store import MemoryGroupStore
from leveret.gm.records.store import Conflict, Stored, Then, Unavailable
from leveret.gm.records.transactions import Add, Create, Erase, Forget, MarkDead, Read, Transaction
from leveret.gm.records.transactor import RETRY_MAX_S, SILENCES_LOGGED, Result, Transactor
from leveret.testing.virtual_clock import VirtualClock

A, B, C = (MemberId("n", number) for number in (1, 2, 3))


def group(text: str, version: int = 4, epoch: int = 7) -> Group:
    """Make a record: ``"A b C"`` has B dead."""
    names = {"a": A, "b": B, "c": C}
    return Group(epoch, version, tuple(Entry(names[x.lower()], x.isupper()) for x in text.split()))


LOST = "lost"
AB = group("A B")

CASES: list[tuple[str, Transaction, Group | None, Any]] = [
    ("reading", Read(), AB, AB),
    ("reading nothing", Read(), None, None),
    ("a first group", Create(A), None, group("A", 0, 0)),
    ("a group of the dead", Create(C), group("a b"), group("C", 5, 0)),
    ("a group that lives", Create(C), AB, AB),
    ("an addition", Add(C, A), AB, group("A C B", 5)),
    ("an addition at the end", Add(C, B), AB, group("A B C", 5)),
    ("an addition before the dead", Add(C, A), group("A b"), group("A C b", 5)),
    ("an addition made before", Add(B, A), AB, AB),
    ("an addition of the dead", Add(B, A), group("A b"), group("A b")),
    ("an addition by a stranger", Add(C, B), group("A"), LOST),
    ("an addition by the dead", Add(C, B), group("A b"), LOST),
    ("an addition to nothing", Add(C, A), None, LOST),
    ("a death", MarkDead(B, A), AB, group("A b", 5)),
    ("a death known before", MarkDead(B, A), group("A b"), group("A b")),
    ("a death by the dead", MarkDead(A, B), group("A b"), LOST),
    ("a death in nothing", MarkDead(B, A), None, LOST),
    ("a death by a newcomer", MarkDead(B, None), AB, group("A b", 5)),
    ("a death of a stranger", MarkDead(C, None), AB, AB),
    ("a death by a newcomer in nothing", MarkDead(B, None), None, None),
    ("an erasure", Erase(frozenset({B}), A), group("A b C"), group("A C", 5)),
    ("an erasure of two", Erase(frozenset({B, C}), A), group("A b c"), group("A", 5)),
    ("an erasure made before", Erase(frozenset({B}), A), group("A"), group("A")),
    ("an erasure of the living", Erase(frozenset({B}), A), AB, AB),
    ("an erasure by the dead", Erase(frozenset({B}), A), group("a b C"), LOST),
    ("a deletion", Forget(7), AB, None),
    ("a deletion of nothing", Forget(7), None, None),
    ("a deletion of a later group of that name", Forget(6), AB, AB),
]


@pytest.mark.parametrize(
    ("transaction", "before", "after"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_a_transaction(transaction: Transaction, before: Group | None, after: Any) -> None:
    if after is LOST:
        with pytest.raises(LostMembershipError):
            transaction.apply(before)
        return
    result = transaction.apply(before)

    assert result == after
    if result == before:
        assert result is before, "nothing is to be written"
    elif result is not None and not isinstance(transaction, Create):
        assert transaction.apply(result) is result, "again it finds all done"


def test_a_full_record_takes_no_member_more_and_one_below_does() -> None:
    members = tuple(Entry(MemberId("n", number), True) for number in range(1, ENTRIES_MAX + 1))
    full, nearly = Group(7, 4, members), Group(7, 4, members[:-1])
    add = Add(MemberId("x", 1), A)

    assert add.apply(full) is full
    filled = add.apply(nearly)
    assert filled is not None
    assert len(filled.entries) == ENTRIES_MAX
    assert unpack(pack(filled), revision=3) == filled


def test_a_record_above_a_limit_is_not_written() -> None:
    members = tuple(Entry(MemberId("n", number), True) for number in range(ENTRIES_MAX + 1))
    with pytest.raises(RecordError, match="1001 members"):
        pack(Group(7, 4, members))
    with pytest.raises(RecordError, match="names of nodes shorter"):
        pack(Group(7, 4, (Entry(MemberId("n" * RECORD_BYTES_MAX, 1), True),)))


NUMBERS = st.integers(1, 2**40)
GROUPS = st.builds(
    Group,
    NUMBERS,
    NUMBERS,
    st.lists(
        st.builds(Entry, st.builds(MemberId, st.text(max_size=8), NUMBERS), st.booleans()),
        unique_by=lambda entry: entry.member,
    ).map(tuple),
)


@given(GROUPS)
def test_a_record_is_read_as_it_was_written(record: Group) -> None:
    assert unpack(pack(record), revision=3) == record


def test_a_new_epoch_is_the_revision_of_its_write() -> None:
    assert unpack(pack(group("A", epoch=0)), revision=9).epoch == 9


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        msgpack.packb(7),
        msgpack.packb([]),
        msgpack.packb([2, 1, 1, []]),
        msgpack.packb([1, 1, 1]),
        msgpack.packb([1, -1, 1, []]),
        msgpack.packb([1, 1, True, []]),
        msgpack.packb([1, 1, 1, [["n", 1]]]),
        msgpack.packb([1, 1, 1, [["n", "1", True]]]),
        msgpack.packb([1, 1, 1, [["n", 1, 1]]]),
        msgpack.packb([1, 1, 1, [["n", 1, True]] * (ENTRIES_MAX + 1)]),
        msgpack.packb([1, 1, 1, [["n", 1, True], ["n", 1, False]]]),
        msgpack.packb([1, 1, 1, {}]),
        msgpack.packb([1, 1, 1, 5]),
        b"\x91" * 10_000,
        pack(group("A"))[:-1],
    ],
)
def test_bytes_that_are_no_record_are_an_error(packed: bytes) -> None:
    with pytest.raises(RecordError, match="revision 3"):
        unpack(packed, revision=3)


@given(st.binary(max_size=100) | GROUPS.map(pack), st.data())
def test_any_bytes_are_a_record_or_an_error_of_the_record(
    packed: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, max(0, len(packed) - 1)))
    damaged = packed[:at] + data.draw(st.binary(max_size=3)) + packed[at + 1 :]
    for each in (packed, damaged, packed[:at]):
        try:
            assert isinstance(unpack(each, revision=3), Group)
        except RecordError as error:
            assert "revision 3" in str(error)  # noqa: PT017 - both outcomes are right


def test_epochs_increase_also_when_the_record_was_deleted() -> None:
    store, clock = MemoryGroupStore(), VirtualClock()
    transactor = Transactor(store, "g", clock)
    epochs = []
    for _ in range(3):
        transactor.run(Create(A), lambda _: None)
        record = store.current("g").group
        assert record is not None
        epochs.append(record.epoch)
        transactor.run(Forget(record.epoch), lambda _: None)

    assert epochs == sorted(set(epochs))
    assert store.current("g") == Stored(None, 0)


def test_a_write_with_an_old_revision_changes_nothing() -> None:
    store = MemoryGroupStore()
    answers: list[Any] = []
    store.write("g", group("A"), 0, answers.append)
    store.write("g", group("B"), 0, answers.append)
    store.write("g", None, 5, answers.append)

    stored = Stored(group("A"), 1)
    assert answers == [stored, Conflict(stored), Conflict(stored)]


class ScriptedStore:
    """A store whose answers are given by hand."""

    def __init__(self) -> None:
        self.memory = MemoryGroupStore()
        self.asked: list[tuple[Callable[[Then], None], Then]] = []

    def read(self, name: str, then: Then) -> None:
        self.asked.append((lambda then: self.memory.read(name, then), then))

    def write(self, name: str, group: Group | None, revision: int, then: Then) -> None:
        self.asked.append((lambda then: self.memory.write(name, group, revision, then), then))

    def answer(self) -> None:
        operation, then = self.asked.pop(0)
        operation(then)

    def fail(self, *, has_effect: bool) -> None:
        operation, then = self.asked.pop(0)
        if has_effect:
            operation(lambda _: None)
        then(Unavailable("no answer"))


def begun(
    transaction: Transaction, text: str = "A B"
) -> tuple[ScriptedStore, VirtualClock, list[Result], Transactor]:
    store, clock = ScriptedStore(), VirtualClock()
    if text:
        store.memory.write("g", group(text), 0, lambda _: None)
    results: list[Result] = []
    transactor = Transactor(store, "g", clock)
    transactor.run(transaction, results.append)
    return store, clock, results, transactor


def test_a_transaction_reads_and_then_writes() -> None:
    store, _, results, _ = begun(MarkDead(B, A))
    store.answer()
    assert results == []
    store.answer()

    assert results == [group("A b", 5)]
    assert store.asked == []


def test_a_transaction_that_changes_nothing_writes_nothing() -> None:
    store, _, results, _ = begun(MarkDead(B, A), "A b")
    store.answer()

    assert results == [group("A b")]
    assert store.asked == []


def test_after_a_conflict_a_transaction_is_applied_to_what_is_there_now() -> None:
    store, _, results, _ = begun(MarkDead(B, A))
    store.answer()
    store.memory.write("g", group("A C B", 5), 1, lambda _: None)
    store.answer()
    store.answer()

    assert results == [group("A C b", 6)]


def test_a_transaction_that_lost_its_member_meanwhile_says_so() -> None:
    store, _, results, _ = begun(MarkDead(B, A))
    store.answer()
    store.memory.write("g", group("a B", 5), 1, lambda _: None)
    store.answer()

    assert [type(result) for result in results] == [LostMembershipError]


@pytest.mark.parametrize("has_effect", [False, True])
def test_a_write_without_an_answer_is_not_made_twice(has_effect: bool) -> None:
    store, clock, results, _ = begun(MarkDead(B, A))
    store.answer()
    store.fail(has_effect=has_effect)
    assert store.asked == [], "it waits a little"
    clock.jump(1.0)
    store.answer()
    if not has_effect:
        store.answer()

    assert results == [group("A b", 5)]
    assert store.memory.current("g").group == group("A b", 5)


def test_a_store_that_is_down_is_asked_ever_more_rarely_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="leveret.gm")
    store, clock, results, _ = begun(Read())
    asked = 0
    while clock.monotonic_s() < 60.0:
        if store.asked:
            store.fail(has_effect=False)
            asked += 1
        clock.jump(0.01)
    assert SILENCES_LOGGED < asked < 60 / RETRY_MAX_S + 10

    clock.jump(RETRY_MAX_S)
    store.answer()

    assert results == [AB]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "group=g reason=" in caplog.text


@pytest.mark.parametrize("answers", [0, 1])
def test_a_closed_transactor_gives_no_result_and_asks_no_more(answers: int) -> None:
    store, clock, results, transactor = begun(MarkDead(B, A))
    for _ in range(answers):
        store.answer()
    transactor.close()
    store.answer()

    assert (results, store.asked, clock.pending_count) == ([], [], 0)


def test_a_transactor_that_is_closed_between_two_questions_asks_no_more() -> None:
    store, clock, results, transactor = begun(Read())
    store.fail(has_effect=False)
    transactor.close()
    clock.jump(5.0)

    assert (results, store.asked, clock.pending_count) == ([], [], 0)
