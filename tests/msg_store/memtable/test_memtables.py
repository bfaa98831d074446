"""Memtables: look-ups in memtables and index, rows that vanish, owed changes, rotation.

Tests: msg_store/memtable/file_states.py, msg_store/memtable/memtable.py,
    msg_store/memtable/read_view.py
"""

from __future__ import annotations

import gc

import pytest

from leveret.msg_store.format.rows import Checkpoint, FileRow, Location, QueueTerms
from leveret.msg_store.memtable.memtables import (
    BEHIND_MEMTABLES,
    READ_LOCATIONS_MAX,
    Memtables,
    Relocation,
)
from rigs.store.memory_index import MemoryIndex

POINT = Checkpoint(1, 1, 1, 1)


class Rig:
    """Memtables over an index, driven as a flush would."""

    def __init__(self) -> None:
        self.held: dict[int, Location] = {}
        self.index = MemoryIndex()
        self.memtables = Memtables(self.held)
        self.offset = 64

    def publish(self, queue_nos: tuple[int, ...], seqs: range, first: int, file_no: int = 1):
        """Make messages ``first``.. durable at the same seqs of queues; 100 bytes of 10 each."""
        new = {}
        for msg_no in range(first, first + len(seqs)):
            new[msg_no] = (file_no, self.offset, 100, 10, 1)
            self.offset += 100
        self.memtables.placed(new)
        self.memtables.files.fill(file_no, 100 * len(seqs), self.offset)
        for queue_no in queue_nos:
            rows = [(seq, first + index, 10, 0, 1) for index, seq in enumerate(seqs)]
            self.memtables.published(queue_no, rows)
        if len(queue_nos) > 1:
            self.memtables.count_rows(dict.fromkeys(new, len(queue_nos)), new, {})

    def ack(self, queue_no: int, *acked: tuple[int, int]) -> None:
        self.memtables.acked(queue_no, acked)

    def resolve(self) -> None:
        wanted = self.memtables.unresolved()
        self.memtables.resolve(wanted, self.index.locations(wanted))

    def learn(self, *msg_nos: int) -> None:
        self.memtables.learn(self.memtables.read_view(), self.index.locations(msg_nos))

    def checkpoint(self) -> None:
        self.resolve()
        memtable = self.memtables.rotate(POINT)
        self.index.write(memtable.batch())
        self.memtables.commit(memtable)

    def rows(self, queue_no: int = 1, low: int = 0, high: int = 1 << 64, limit: int = 99):
        base = self.index.rows(queue_no, low, high, limit)
        return [row[0] for row in self.memtables.read_view().rows(queue_no, low, high, limit, base)]

    def valid(self, file_no: int = 1) -> int:
        return self.memtables.files[file_no].valid_bytes


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_what_lives_shortly_leaves_nothing(rig: Rig) -> None:
    rig.publish((1, 2), range(5), 100)
    rig.ack(1, *zip(range(5), range(100, 105), strict=True))
    assert rig.valid() == 500
    rig.ack(2, *zip(range(5), range(100, 105), strict=True))

    active = rig.memtables.active
    assert (active.weight, active.rows, active.inserted, active.changed) == (0, {}, {}, {})
    assert rig.valid() == 0
    assert rig.rows() == []


def test_rows_come_from_the_index_and_every_generation(rig: Rig) -> None:
    rig.publish((1,), range(4), 100)
    rig.checkpoint()
    rig.publish((1,), range(4, 8), 104)
    rig.memtables.rotate(POINT)
    rig.publish((1,), range(8, 12), 108)
    rig.ack(1, (1, 101), (5, 105), (9, 109))

    assert rig.rows() == [0, 2, 3, 4, 6, 7, 8, 10, 11]
    assert rig.rows(low=2, high=8) == [2, 3, 4, 6, 7]
    assert rig.rows(limit=4) == [0, 2, 3]  # 4 of the index are known: up to its last
    assert rig.rows(low=4, limit=4) == [4, 6, 7, 8]


def test_rows_acked_later_do_not_make_a_page_end_too_early(rig: Rig) -> None:
    rig.publish((1,), range(20), 100)
    rig.memtables.rotate(POINT)
    rig.publish((1,), range(20, 25), 120)
    rig.ack(1, *[(seq, 100 + seq) for seq in range(10)])

    assert rig.rows(limit=5) == [10, 11, 12, 13, 14]


def test_seqs_with_a_hole_between_are_found(rig: Rig) -> None:
    rig.publish((1,), range(3), 100)
    rig.publish((1,), range(1 << 40, (1 << 40) + 2), 103)

    assert rig.rows(low=1) == [1, 2, 1 << 40, (1 << 40) + 1]
    assert rig.rows(low=1, limit=3) == [1, 2, 1 << 40]


def test_rows_may_come_in_any_order(rig: Rig) -> None:
    """Those of a mirror do, which catches up."""
    rig.publish((1,), range(10, 13), 100)
    rig.publish((1,), range(2, 4), 103)
    assert rig.rows() == [2, 3, 10, 11, 12]
    rig.publish((1,), range(5, 7), 105)
    assert rig.rows(high=11) == [2, 3, 5, 6, 10]
    rig.checkpoint()
    rig.publish((1,), range(4, 5), 107)

    assert rig.rows(limit=3) == [2, 3, 4]
    assert rig.memtables.terms[1].next_seq == 13


def test_a_view_knows_what_happens_until_it_is_answered(rig: Rig) -> None:
    rig.publish((1,), range(3), 100)
    read_view = rig.memtables.read_view()
    base = rig.index.rows(1, 0, 99, 99)
    for first in (3, 6):
        rig.checkpoint()
        rig.publish((1,), range(first, first + 3), 100 + first)
        rig.ack(1, (first - 3, 97 + first))

    assert [row[0] for row in read_view.rows(1, 0, 99, 99, base)] == [1, 2, 4, 5, 6, 7, 8]
    late = rig.index.rows(1, 0, 99, 99)
    assert read_view.rows(1, 0, 99, 99, late) == read_view.rows(1, 0, 99, 99, base)


def test_an_ack_of_what_only_the_index_knows_is_owed_and_paid(rig: Rig) -> None:
    rig.publish((1, 2), range(2), 100)
    rig.checkpoint()
    rig.ack(1, (0, 100))
    rig.ack(2, (0, 100), (1, 101))
    assert sorted(rig.memtables.unresolved()) == [100, 101]
    assert rig.valid() == 200

    rig.resolve()

    assert rig.valid() == 100
    assert rig.memtables.active.changed == {100: None, 101: (1, 164, 100, 10, 1)}
    assert (rig.memtables.terms[1].messages, rig.memtables.terms[1].size_bytes) == (1, 10)
    assert (rig.memtables.terms[2].messages, rig.memtables.terms[2].size_bytes) == (0, 0)
    rig.checkpoint()
    assert rig.index.by_msg_no == {101: (1, 164, 100, 10, 1)}
    assert rig.index.by_queue[1].keys() == {1}
    assert rig.index.by_queue[2].keys() == set()


def test_many_acks_of_rows_in_the_index_make_no_work_for_the_garbage_collector(rig: Rig) -> None:
    rig.publish((1,), range(20_000), first=1)
    rig.checkpoint()
    acked = [(seq, seq + 1) for seq in range(20_000)]
    collections: list[str] = []
    gc.callbacks.append(lambda phase, _: collections.append(phase))
    try:
        rig.ack(1, *acked)
    finally:
        gc.callbacks.pop()

    assert len(collections) <= 4, "a collection or two"
    rig.resolve()
    assert rig.rows() == []
    assert rig.memtables.terms[1].size_bytes == 0


def test_nothing_is_frozen_while_anything_is_owed(rig: Rig) -> None:
    rig.publish((1,), range(1), 100)
    rig.checkpoint()
    rig.ack(1, (0, 100))

    with pytest.raises(AssertionError, match="owed"):
        rig.memtables.rotate(POINT)


def test_an_ack_of_a_frozen_row_owes_nothing(rig: Rig) -> None:
    rig.publish((1, 2), range(1), 100)
    frozen = rig.memtables.rotate(POINT)
    rig.ack(1, (0, 100))
    assert rig.memtables.unresolved() == []
    assert rig.memtables.location(100) == (1, 64, 100, 10, 1)
    rig.ack(2, (0, 100))

    assert frozen.inserted == {100: (1, 64, 100, 10, 2)}
    assert rig.memtables.location(100) is None
    rig.index.write(frozen.batch())
    rig.memtables.commit(frozen)
    rig.checkpoint()
    assert (rig.index.by_msg_no, rig.valid()) == ({}, 0)


def test_an_ack_of_what_was_read_from_the_index_owes_nothing(rig: Rig) -> None:
    rig.publish((1, 2), range(3), 100)
    rig.checkpoint()
    rig.learn(100, 101)
    assert rig.memtables.places([100, 101, 102]) == [
        (1, 64, 100, 10, 2),
        (1, 164, 100, 10, 2),
        None,
    ]

    rig.ack(1, (0, 100), (1, 101), (2, 102))
    assert rig.memtables.unresolved() == [102]
    rig.ack(2, (0, 100))
    assert (rig.memtables.terms[1].size_bytes, rig.memtables.terms[2].size_bytes) == (10, 20)
    assert rig.valid() == 200

    rig.checkpoint()
    rig.ack(2, (1, 101), (2, 102))
    assert sorted(rig.memtables.unresolved()) == [101, 102], "its count has changed since"
    rig.checkpoint()
    assert (rig.valid(), rig.index.by_msg_no) == (0, {})


def test_messages_that_were_all_read_just_before_lose_one_row_each(rig: Rig) -> None:
    rig.publish((1, 2), range(2), 100, file_no=1)
    rig.publish((1,), range(2, 4), 102, file_no=2)
    rig.checkpoint()
    rig.learn(*range(100, 104))

    rig.ack(1, (0, 100), (1, 101))
    rig.ack(1, (2, 102), (3, 103))

    assert not rig.memtables.has_unresolved
    assert (rig.valid(1), rig.valid(2)) == (200, 0)
    assert rig.memtables.terms[1].size_bytes == 0
    rig.checkpoint()
    rig.learn(100, 101)
    assert rig.memtables.places([100]) == [(1, 64, 100, 10, 1)]
    rig.ack(2, (0, 100), (1, 101))
    rig.checkpoint()
    assert (rig.valid(1), rig.index.by_msg_no) == (0, {})


def test_messages_of_two_segments_are_freed_in_each(rig: Rig) -> None:
    rig.publish((1,), range(2), 100, file_no=1)
    rig.publish((1,), range(2, 5), 102, file_no=2)
    rig.checkpoint()
    rig.learn(*range(100, 104))

    rig.ack(1, (1, 101), (2, 102), (3, 103))

    assert not rig.memtables.has_unresolved
    assert (rig.valid(1), rig.valid(2)) == (100, 100)


def test_a_held_message_that_was_read_just_before_is_no_garbage(rig: Rig) -> None:
    rig.publish((1,), range(1), 100)
    rig.checkpoint()
    rig.learn(100)
    rig.held[100] = (1, 64, 100, 10, 1)

    rig.ack(1, (0, 100))

    assert rig.valid() == 100
    rig.memtables.unheld(100, rig.held.pop(100))
    assert rig.valid() == 0


@pytest.mark.parametrize("is_owed", [True, False])
def test_what_is_acked_while_it_is_read_is_not_taken_from_the_index(
    rig: Rig, is_owed: bool
) -> None:
    rig.publish((1, 2, 3), range(1), 100)
    rig.checkpoint()
    read_view = rig.memtables.read_view()
    found = rig.index.locations([100])
    rig.ack(1, (0, 100))
    if not is_owed:
        rig.checkpoint()
    rig.memtables.learn(read_view, found)

    rig.ack(2, (0, 100))
    rig.checkpoint()
    assert rig.index.by_msg_no == {100: (1, 64, 100, 10, 1)}
    rig.ack(3, (0, 100))
    rig.checkpoint()
    assert (rig.valid(), rig.index.by_msg_no) == (0, {})


def test_a_place_that_was_read_is_given_up_when_the_message_moves(rig: Rig) -> None:
    rig.publish((1,), range(1), 100)
    rig.checkpoint()
    rig.memtables.files.add_sealed(2, 164)
    rig.learn(100)
    rig.memtables.moved([Relocation(100, 1, 2, 64, 100)], lambda used: None)

    assert rig.memtables.places([100]) == [(2, 64, 100, 10, 1)]
    rig.checkpoint()
    assert rig.memtables.places([100]) == [None]
    rig.ack(1, (0, 100))
    rig.checkpoint()
    assert (rig.valid(1), rig.valid(2)) == (0, 0)


def test_few_places_are_kept(rig: Rig) -> None:
    rig.publish((1,), range(2), 100)
    rig.checkpoint()
    rig.learn(101)
    place = (1, 64, 100, 10, 1)
    rig.memtables.learn(
        rig.memtables.read_view(), dict.fromkeys(range(200, 200 + READ_LOCATIONS_MAX), place)
    )

    assert rig.memtables.places([101, 200]) == [None, place]


def test_an_ack_that_is_named_twice_counts_once(rig: Rig) -> None:
    rig.publish((1, 2), range(1), 100)
    rig.checkpoint()
    rig.ack(1, (0, 100))
    rig.ack(1, (0, 100))

    rig.checkpoint()

    assert rig.index.by_msg_no[100][4] == 1
    assert rig.index.terms[1].messages == 0


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_row_that_comes_late_is_counted_wherever_the_message_is(rig: Rig, depth: int) -> None:
    rig.publish((1,), range(1), 100)
    place = rig.held[100] = (1, 64, 100, 10, 1)
    if depth == 1:
        rig.memtables.rotate(POINT)
    elif depth == 2:
        rig.checkpoint()
    rig.memtables.published(2, [(7, 100, 10, 0, 1)])
    rig.memtables.count_rows({100: 1}, {}, {100: place})
    del rig.held[100]
    rig.memtables.unheld(100, place)
    rig.ack(1, (0, 100))
    rig.resolve()
    assert rig.valid() == 100

    rig.ack(2, (7, 100))
    rig.resolve()
    assert rig.valid() == 0


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("comes", [True, False])
def test_a_message_whose_rows_are_gone_is_kept_for_the_queue_that_was_promised_it(
    rig: Rig, depth: int, comes: bool
) -> None:
    rig.publish((1,), range(1), 100)
    place = rig.held[100] = (1, 64, 100, 10, 1)
    if depth == 1:
        rig.memtables.rotate(POINT)
    elif depth == 2:
        rig.checkpoint()
    rig.ack(1, (0, 100))
    rig.resolve()
    assert rig.valid() == 100
    assert rig.memtables.location(100) == place
    if depth != 1:
        rig.checkpoint()
        assert rig.index.by_file[1] == FileRow(0, 164), "a start would know nothing of it"
    if comes:
        rig.memtables.published(2, [(7, 100, 10, 0, 1)])
        rig.memtables.count_rows({100: 1}, {}, {100: place})
    del rig.held[100]
    rig.memtables.unheld(100, place)

    assert rig.valid() == 100 * comes
    rig.resolve()
    if depth != 1:
        rig.checkpoint()
        assert rig.index.by_file[1] == FileRow(100 * comes, 164)
        assert list(rig.index.by_msg_no) == [100] * comes


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_copies_are_used_of_messages_that_are_still_where_they_were(rig: Rig, depth: int) -> None:
    rig.publish((1,), range(3), 100)
    if depth == 1:
        rig.memtables.rotate(POINT)
    elif depth == 2:
        rig.checkpoint()
    rig.ack(1, (1, 101))
    used: list[bool] = []
    rig.memtables.files.add_sealed(2, 364)
    moves = [Relocation(100 + n, 1 if n < 2 else 9, 2, 64 + 100 * n, 100) for n in range(3)]
    rig.memtables.moved(moves, used.append)
    rig.resolve()

    assert sorted(used) == [False, False, True]
    assert rig.memtables.location(100) == (2, 64, 100, 10, 1)
    assert (rig.valid(1), rig.valid(2)) == (100, 100)


def test_a_segment_may_go_when_the_index_knows_it_empty(rig: Rig) -> None:
    rig.publish((1,), range(1), 100, file_no=1)
    rig.publish((1,), range(1, 2), 101, file_no=2)
    rig.checkpoint()
    rig.ack(1, (0, 100))
    rig.resolve()
    assert rig.memtables.removable() == []
    rig.memtables.rotate(POINT)
    assert rig.memtables.removable() == []

    rig.memtables.commit(rig.memtables.frozen[0])
    assert rig.memtables.removable() == [1]
    rig.memtables.files.remove(1)
    rig.checkpoint()
    assert rig.memtables.removable() == []
    assert rig.index.by_file.keys() <= {2}


def test_the_segment_in_use_does_not_go_and_neither_does_a_copy_not_used_yet(rig: Rig) -> None:
    rig.publish((1,), range(1), 100)
    rig.ack(1, (0, 100))
    rig.memtables.files.add_sealed(2, 500)
    rig.checkpoint()

    assert rig.memtables.removable() == []
    rig.memtables.files.seal()
    assert rig.memtables.removable() == [1]


def test_a_frozen_memtable_keeps_the_terms_of_its_end_and_rotation_copies_none(rig: Rig) -> None:
    rig.publish((1, 2), range(3), 100)
    terms = rig.memtables.terms[1]

    frozen = rig.memtables.rotate(POINT)
    assert rig.memtables.terms[1] is terms
    rig.publish((1,), range(3, 5), 200)
    rig.memtables.close_queue(2, 9, 2)

    assert dict(frozen.batch().queues) == {
        1: QueueTerms(3, 0, 3, 30, False), 2: QueueTerms(3, 0, 3, 30, False),
    }  # fmt: skip
    assert list(rig.memtables.active.queues) == [1, 2]
    assert rig.memtables.terms[1].messages == 5


def test_terms_are_those_of_the_rows_until_a_queue_closes(rig: Rig) -> None:
    rig.publish((1,), range(3), 100)
    rig.memtables.close_queue(1, 9, 2)
    rig.checkpoint()
    assert rig.index.terms[1] == QueueTerms(9, 2, 3, 30, True)

    again = Memtables({}, rig.index.by_file, rig.index.terms)
    assert not again.terms[1].is_clean
    assert list(again.active.queues) == [1]
    rig.ack(1, (0, 100))  # was on its way
    rig.checkpoint()
    assert rig.index.terms[1] == QueueTerms(9, 2, 2, 20, True)
    rig.memtables.reopen_queue(1)
    rig.checkpoint()
    assert rig.index.terms[1] == QueueTerms(9, 2, 2, 20, False)
    rig.memtables.forget_queue(1)
    rig.checkpoint()
    assert rig.index.terms[1].messages == 2, "it has rows"
    rig.ack(1, (1, 101), (2, 102))
    rig.checkpoint()
    assert rig.index.terms == {}


def test_a_disk_that_does_not_follow_is_seen(rig: Rig) -> None:
    for index in range(BEHIND_MEMTABLES):
        assert not rig.memtables.is_behind
        rig.publish((1,), range(index, index + 1), 100 + index)
        rig.memtables.rotate(POINT)

    assert rig.memtables.is_behind
