"""A QueueIndex over two dicts: rows by seq and contents by msg_no, read late when told so.

``sync`` syncs and confirms all issued changes; ``crash`` keeps the synced ones. Every call
checks what a queue may do, so that a leak or a double write fails where it happens.
"""

from __future__ import annotations

from leveret.core.entry import (
    CONTENT_ON_DISK,
    INDEX_ON_DISK,
    MESSAGE,
    MSG_NO,
    PERSISTENT,
    SEQ,
    SIZE,
    Entry,
)
from leveret.core.message import LOST, Message
from leveret.msg_store.client import CleanTerms
from leveret.msg_store.format.seq_range import SeqRange

SEQS_LOST_AT_MOST = 50  # after a crash the next seq jumps ahead by so many


class FakeIndex:
    """One queue's rows and contents.

    Args:
        is_late: a read finds its rows and contents in RAM only the second time.
        credit: contents the transient store takes until ``grant``; None = no end.
    """

    def __init__(self, is_late: bool = False, credit: int | None = None) -> None:
        self.is_late = is_late
        self.credit = credit
        self.rows: dict[int, Entry] = {}
        self.contents: dict[int, Message] = {}  # by msg_no
        self.synced: dict[int, Entry] = {}
        self.synced_contents: dict[int, Message] = {}
        self.owed: list[tuple[int, int]] = []  # (first_seq, count) not synced yet
        self.confirmed: list[tuple[int, int]] = []
        self.kept_terms: CleanTerms | None = None
        self.highest = 0
        self.discarded: list[int] = []
        self.writes = self.row_writes = self.reads = 0
        self.resident: set[int] = set()  # msg_nos
        self.asked: set[int] = set()
        self.rows_resident: set[int] = set()  # lows of ranges
        self.rows_asked: set[int] = set()
        self.owes_resume = False
        self.forgets = True  # rows that were read once must be read again
        self.damaged: set[int] = set()  # msg_nos that cannot be read any more

    # What the test does.

    def route(self, first_msg_no: int, messages: list[Message]) -> None:
        """Write the contents of persistent messages, as the channel does."""
        for number, message in enumerate(messages, first_msg_no):
            assert number not in self.contents
            self.contents[number] = message
            self.writes += 1

    def arrive(self) -> bool:
        """Have everything that was asked for in RAM; return whether a resume is owed."""
        self.resident |= self.asked
        self.rows_resident |= self.rows_asked
        has_room = self.credit is None or self.credit > 0
        owed = bool(self.asked or self.rows_asked) or (self.owes_resume and has_room)
        self.asked, self.rows_asked = set(), set()
        self.owes_resume = self.owes_resume and not has_room
        return owed

    def grant(self, credit: int | None) -> None:
        """Take more contents."""
        self.credit = credit

    def sync(self) -> None:
        """Sync all that was issued."""
        self.synced = {seq: row for seq, row in self.rows.items() if row[PERSISTENT]}
        self.synced_contents = dict(self.contents)
        self.confirmed += self.owed
        self.owed = []

    def restart(self, crash: bool) -> FakeIndex:
        """Return what the queue finds after a restart."""
        after = FakeIndex(self.is_late, self.credit)
        after.rows = dict(self.synced)
        after.highest = self.highest
        if crash:
            after.highest += SEQS_LOST_AT_MOST
        else:
            after.kept_terms = self.kept_terms
        kept = {row[MSG_NO] for row in after.rows.values()}
        after.contents = {number: self.synced_contents[number] for number in kept}
        after.synced, after.synced_contents = dict(after.rows), dict(after.contents)
        return after

    # What the queue does.

    def publish(self, entries: list[Entry]) -> None:
        for entry in entries:
            assert entry[PERSISTENT]
            assert entry[MSG_NO] in self.contents, "the channel writes first"
            self._add(entry)
        self.owed.append((entries[0][SEQ], len(entries)))

    def discard(self, first_msg_no: int, count: int) -> None:
        for number in range(first_msg_no, first_msg_no + count):
            del self.contents[number]
            self.discarded.append(number)

    def page_out(self, entries: list[Entry], must: bool = False) -> int:
        assert entries, "nothing to page out"
        taken = len(entries)
        if self.credit is not None:
            taken = taken if must else max(0, min(taken, self.credit))
            self.credit -= taken
            self.owes_resume = self.owes_resume or taken < len(entries)
        for entry in entries[:taken]:
            assert not entry[PERSISTENT], "it was written at routing"
            assert not entry[CONTENT_ON_DISK]
            assert entry[MSG_NO] not in self.contents, "written twice"
            assert entry[MESSAGE] is not None
            self.contents[entry[MSG_NO]] = entry[MESSAGE]
            self.writes += 1
        return taken

    def add(self, entries: list[Entry]) -> None:
        assert entries, "nothing to add"
        for entry in entries:
            assert not entry[PERSISTENT]
            assert entry[MSG_NO] in self.contents, "a row before its content"
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        assert entry[SEQ] not in self.rows, "a row twice"
        seq, _, expiry, persistent, msg_no, size, _, _ = entry
        self.rows[seq] = (seq, None, expiry, persistent, msg_no, size, True, True)
        self.highest = max(self.highest, seq + 1)
        self.row_writes += 1

    def ack(self, entries: list[Entry]) -> None:
        assert entries, "nothing to ack"
        for entry in entries:
            assert entry[CONTENT_ON_DISK], "nothing of it is on disk"
            if entry[INDEX_ON_DISK]:
                del self.rows[entry[SEQ]]
            assert entry[SEQ] not in self.rows, "the row stays behind"
            del self.contents[entry[MSG_NO]]

    def ack_range(self, seqs: SeqRange, messages: int, size_bytes: int) -> None:
        assert seqs.low < seqs.high
        assert sorted(seqs.kept) == list(seqs.kept)
        gone = [self.rows.pop(seq) for seq in list(self.rows) if seq in seqs]
        for row in gone:
            del self.contents[row[MSG_NO]]
        sizes = [row[SIZE] for row in gone if row[PERSISTENT]]
        assert (messages, size_bytes) == (len(sizes), sum(sizes)), "the queue has counted wrong"

    def read(self, low: int, high: int, limit: int) -> list[Entry] | None:
        if self.is_late:
            if low not in self.rows_resident:
                self.rows_asked.add(low)
                return None
            if self.forgets:
                self.rows_resident.discard(low)
        return [self.rows[seq] for seq in sorted(self.rows) if low <= seq < high][:limit]

    def ahead(self, low: int, high: int, limit: int) -> list[Entry]:
        if self.is_late and low not in self.rows_resident:
            return []
        return [self.rows[seq] for seq in sorted(self.rows) if low <= seq < high][:limit]

    def fetch_contents(self, entries: list[Entry]) -> list[Message | None]:
        found: list[Message | None] = []
        for entry in entries:
            message = self.contents[entry[MSG_NO]]
            assert len(message[2]) == entry[SIZE]
            if self.is_late and entry[MSG_NO] not in self.resident:
                found.append(None)
            elif entry[MSG_NO] in self.damaged:
                found.append(LOST)
            else:
                found.append(message)
                self.reads += 1
        return found

    def prefetch(self, entries: list[Entry]) -> None:
        for entry in entries:
            assert entry[MSG_NO] in self.contents
        if self.is_late:
            self.asked.update(entry[MSG_NO] for entry in entries)
            self.asked -= self.resident

    def persistent(self) -> tuple[int, int]:
        sizes = [row[SIZE] for row in self.rows.values() if row[PERSISTENT]]
        return len(sizes), sum(sizes)

    def bounds(self) -> tuple[int, int]:
        return min(self.rows, default=self.highest), self.highest

    def terms(self) -> CleanTerms | None:
        terms, self.kept_terms = self.kept_terms, None
        return terms

    def terminate(self, next_seq: int, next_deliver: int) -> None:
        self.sync()
        self.kept_terms = CleanTerms(next_seq, next_deliver)
        self.forget()

    def forget(self) -> None:
        self.rows = {seq: row for seq, row in self.rows.items() if row[PERSISTENT]}
        kept = {row[MSG_NO] for row in self.rows.values()}
        self.contents = {n: message for n, message in self.contents.items() if n in kept}

    def delete(self) -> None:
        self.rows, self.contents, self.synced = {}, {}, {}
