"""Memtables, views and the index against a dict: any interleaving of flushes, rotations and commits.

What Hypothesis chooses: rows of one queue or several, late rows, acks, ranges of rows that are read with
memtables beginning, being committed and dropped between question and answer, and a start from the
index and a replayed memtable, with everything applied once or twice.

Tests: msg_store/recovery/rebuild.py
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from leveret.msg_store.format.journal_frames import DurablePosition, Frame
from leveret.msg_store.format.journal_records import PERSISTENT, Acks, JournalRecord, Publishes
from leveret.msg_store.format.rows import SEQ_END, Checkpoint, IndexRow, Location
from leveret.msg_store.memtable.memtables import Memtables
from leveret.msg_store.memtable.read_view import ReadView, next_low
from leveret.msg_store.recovery.replay import Replay
from rigs.store.memory_index import MemoryIndex

QUEUES = (1, 2, 3)
SIZE = 10
LENGTH = 100


class IndexMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.index = MemoryIndex()
        self.held: dict[int, Location] = {}
        self.memtables = Memtables(self.held)
        self.rows: dict[tuple[int, int], int] = {}
        self.log: list[JournalRecord] = []  # LSN 1 is the first
        self.next_seq = dict.fromkeys(QUEUES, 0)
        self.next_msg_no, self.offset = 1, 64
        self.late: dict[int, tuple[int, ...]] = {}  # msg_no -> queues that will take it
        self.read_views: list[tuple[ReadView, int, int, int, int, list[IndexRow]]] = []
        self.read: list[tuple[ReadView, dict[int, Location]]] = []

    def flush(self, rows: dict[int, list[int]], new: dict[int, Location]) -> None:
        """Make rows durable, as a flush does."""
        self.memtables.placed(new)
        if new:
            self.memtables.files.fill(1, LENGTH * len(new), self.offset)
        late = {no: self.held[no] for nos in rows.values() for no in nos if no not in new}
        for queue_no, msg_nos in rows.items():
            for msg_no in msg_nos:
                seq = self.next_seq[queue_no]
                self.next_seq[queue_no] += 1
                self.rows[queue_no, seq] = msg_no
                place = new.get(msg_no) or late[msg_no]
                self.memtables.published(queue_no, [(seq, msg_no, SIZE, 0, PERSISTENT)])
                offsets, lengths = (place[1],), (LENGTH,)
                run = (queue_no, seq, PERSISTENT, 1, (msg_no,), offsets, lengths, (SIZE,), None)
                self.log.append(Publishes(*run))
        self.memtables.count_rows(Counter(no for nos in rows.values() for no in nos), new, late)

    @rule(queue_nos=st.sets(st.sampled_from(QUEUES), min_size=1), count=st.integers(1, 5))
    def publish(self, queue_nos: set[int], count: int) -> None:
        msg_nos = list(self.place(count))
        self.flush(dict.fromkeys(sorted(queue_nos), msg_nos), self.placed)

    def place(self, count: int) -> dict[int, Location]:
        self.placed: dict[int, Location] = {}
        for _ in range(count):
            self.placed[self.next_msg_no] = (1, self.offset, LENGTH, SIZE, 1)
            self.next_msg_no += 1
            self.offset += LENGTH
        return self.placed

    @rule(first=st.sampled_from(QUEUES), others=st.sets(st.sampled_from(QUEUES), min_size=1))
    def publish_in_one_queue_first(self, first: int, others: set[int]) -> None:
        (msg_no,) = self.place(1)
        self.flush({first: [msg_no]}, self.placed)
        self.late[msg_no] = tuple(others - {first})
        if self.late[msg_no]:
            self.held[msg_no] = self.placed[msg_no]

    @rule(which=st.integers(0, 9), is_down=st.booleans())
    def take_late(self, which: int, is_down: bool) -> None:
        waiting = [no for no in self.late if self.late[no]]
        if not waiting:
            return
        msg_no = waiting[which % len(waiting)]
        queue_no, *self_left = self.late[msg_no]
        if not is_down:
            self.flush({queue_no: [msg_no]}, {})
        self.late[msg_no] = tuple(self_left)
        if not self_left:
            self.memtables.unheld(msg_no, self.held.pop(msg_no))

    @rule(data=st.data(), count=st.integers(1, 6))
    def ack(self, data: st.DataObject, count: int) -> None:
        if not self.rows:
            return
        keys = sorted(self.rows)
        first = data.draw(st.integers(0, len(keys) - 1))
        for queue_no, seq in keys[first : first + count]:
            self.memtables.acked(queue_no, [(seq, self.rows.pop((queue_no, seq)))])
            self.log.append(Acks(queue_no, (seq,)))

    @rule(queue_no=st.sampled_from(QUEUES), which=st.integers(0, 9), count=st.integers(1, 6))
    def ack_together(self, queue_no: int, which: int, count: int) -> None:
        seqs = [seq for no, seq in sorted(self.rows) if no == queue_no][which:][:count]
        if seqs:
            self.memtables.acked(queue_no, [(seq, self.rows.pop((queue_no, seq))) for seq in seqs])
            self.log.append(Acks(queue_no, tuple(seqs)))

    @rule()
    def resolve(self) -> None:
        wanted = self.memtables.unresolved()
        self.memtables.resolve(wanted, self.index.locations(wanted))

    @rule()
    def rotate(self) -> None:
        self.resolve()
        self.memtables.rotate(Checkpoint(len(self.log) + 1, 1, 1, 2))

    @rule()
    def commit(self) -> None:
        if self.memtables.frozen:
            memtable = self.memtables.frozen[0]
            self.index.write(memtable.batch())
            self.index.write(memtable.batch())  # twice is once
            self.memtables.commit(memtable)

    @rule(
        queue_no=st.sampled_from(QUEUES),
        low=st.integers(0, 20),
        count=st.integers(1, 30),
        limit=st.integers(1, 6),
    )
    def ask(self, queue_no: int, low: int, count: int, limit: int) -> None:
        read_view = self.memtables.read_view()
        base = self.index.rows(queue_no, low, low + count, limit)
        self.read_views.append((read_view, queue_no, low, low + count, limit, base))

    @rule()
    def answer(self) -> None:
        for read_view, queue_no, low, high, limit, base in self.read_views:
            found = read_view.rows(queue_no, low, high, limit, base)
            reached = next_low(found, base, limit, high)
            assert [row[0] for row in found] == [
                seq for no, seq in sorted(self.rows) if no == queue_no and low <= seq < reached
            ]
            assert reached > low
            assert all(self.rows[queue_no, row[0]] == row[1] for row in found)
        self.read_views.clear()

    @rule(low=st.integers(1, 40), count=st.integers(1, 40))
    def read_places(self, low: int, count: int) -> None:
        found = self.index.locations(range(low, low + count))
        self.read.append((self.memtables.read_view(), found))

    @rule()
    def learn(self) -> None:
        for read_view, found in self.read:
            self.memtables.learn(read_view, found)
        self.read.clear()

    @rule()
    def start_again(self) -> None:
        """Memory is lost; the committed index and the log since are left."""
        self.held.clear()
        self.late.clear()
        self.read_views.clear()
        self.read.clear()
        point = self.index.checkpoint() or Checkpoint(1, 1, 1, 2)
        self.memtables = Memtables(self.held, self.index.files(), self.index.queues())
        replay = Replay(self.memtables, self.index, point.lsn, DurablePosition(0, 0, 0))
        for lsn, record in enumerate(self.log, 1):
            replay.add(Frame(lsn, 1, 0, 0, DurablePosition(0, 0, 0), b"", 0), [record])
        replay.finish()
        self.check()

    @rule()
    def check(self) -> None:
        """Rows, counts, terms and bytes are those of the model."""
        self.resolve()
        counts = Counter(self.rows.values())
        wanted = range(1, self.next_msg_no)
        read_view = self.memtables.read_view()
        places = read_view.locations(wanted, self.index.locations(wanted))
        assert {msg_no: place[4] for msg_no, place in places.items()} == counts
        alive = counts.keys() | self.held.keys()
        if 1 in self.memtables.files:
            assert self.memtables.files[1].valid_bytes == LENGTH * len(alive)
        for queue_no, terms in self.memtables.terms.items():
            seqs = [seq for no, seq in sorted(self.rows) if no == queue_no]
            base = self.index.rows(queue_no, 0, SEQ_END, 1 << 30)
            found = read_view.rows(queue_no, 0, SEQ_END, 1 << 31, base)
            assert [row[0] for row in found] == seqs
            assert (terms.messages, terms.size_bytes) == (len(seqs), SIZE * len(seqs))

    @invariant()
    def weight_is_counted(self) -> None:
        active = self.memtables.active
        rows = sum(map(len, active.rows.values())) + sum(map(len, active.acked.values()))
        assert active.row_count == rows

    def teardown(self) -> None:
        self.answer()
        self.check()
        self.start_again()


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(max_examples=150, stateful_step_count=40)
