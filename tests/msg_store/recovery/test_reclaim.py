"""Messages in segments that no record of the journal names: what comes back, and what is said."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path

import pytest

from leveret.msg_store.format.end_mark import NAME as END
from leveret.msg_store.format.file_header import HEADER_BYTES, JOURNAL_MAGIC, Identity
from leveret.msg_store.recovery.report import Recovered
from rigs.store.store_rig import STORE, UUID, StoreRig


class Rig(StoreRig):
    """A store with a clock that moves with each flush."""

    def __init__(self, rng: random.Random) -> None:
        self.times = count(1)
        super().__init__(rng)

    def now_ms(self) -> int:
        return next(self.times)

    @property
    def journal(self) -> Path:
        return [path for path in self.disk.paths() if path.suffix == ".jnl"][-1]

    @property
    def end(self) -> int:
        """The length of the journal in use."""
        return len(self.disk.image(self.journal))

    def cut(self, size: int) -> None:
        self.disk.damage(self.journal, lambda image: image.__delitem__(slice(size, None)))

    def mark(self) -> None:
        self.opened.mark.write(self.core.durable)

    def cut_behind_mark(self, size: int) -> None:
        """Have the end mark name the end of the journal, then cut the journal."""
        self.mark()
        self.cut(size)

    def killed(self) -> Recovered:
        self.disk.kill()
        return self.open()

    def messages(self) -> set[tuple[int, int]]:
        return {(queue_no, msg_no) for (queue_no, _), msg_no in self.found().items()}


@pytest.fixture
def rig(rng: random.Random) -> Rig:
    return Rig(rng)


def test_messages_of_two_flushes_prove_that_the_journal_was_cut(rig: Rig) -> None:
    first = rig.publish((1,), 2)
    rig.run()
    end = rig.end
    others = rig.publish((1,), 2)
    rig.run()
    others += rig.publish((2,), 2)
    rig.run()
    rig.cut(end)

    report = rig.killed().report

    assert rig.messages() == {(1, no) for no in first + others[:2]} | {(2, no) for no in others[2:]}
    assert report.reclaimed == {1: 2, 2: 2}
    assert "that no record names" in report.gaps[0]
    rig.compare()


def test_an_end_mark_tells_of_a_single_flush(rig: Rig) -> None:
    rig.publish((1,), 2)
    rig.run()
    end = rig.end
    rig.publish((1,), 2)
    rig.run()
    rig.cut_behind_mark(end)

    report = rig.killed().report

    assert len(report.gaps) == 1
    assert report.reclaimed == {1: 2}
    rig.compare()


def test_lost_acks_are_told_by_the_end_mark_and_their_messages_come_back(rig: Rig) -> None:
    rig.publish((1,), 3)
    rig.run()
    end = rig.end
    rows = rig.found()
    rig.ack(*rig.held)
    rig.run()
    rig.cut_behind_mark(end)

    report = rig.killed().report

    assert len(report.gaps) == 1
    assert report.reclaimed == {}
    assert rig.found() == rows


def test_a_deleted_journal_is_named(rig: Rig) -> None:
    rig.publish((1,), 2)
    rig.run()
    rig.mark()
    name = rig.journal.name
    rig.files.unlink(rig.journal)

    report = rig.killed().report

    assert name in report.gaps[0]
    assert report.reclaimed == {1: 2}
    rig.compare()
    held = rig.messages()
    assert not rig.killed().report.is_damage
    assert rig.messages() == held


def test_a_journal_of_another_store_in_place_of_the_last_is_a_gap(rig: Rig) -> None:
    rig.publish((1,), 2)
    rig.run()
    rig.checkpoint()
    rig.publish((1,), 2)
    rig.run()
    header = Identity(bytes(reversed(UUID)), 1).header(JOURNAL_MAGIC, 1, 7)
    rig.disk.damage(rig.journal, lambda image: image.__setitem__(slice(None), header))

    report = rig.killed().report

    assert len(report.foreign) == len(report.gaps) == 1
    assert report.reclaimed == {1: 2}
    rig.compare()


def test_a_row_that_names_a_place_before_others_of_its_flush_hides_none_of_them(rig: Rig) -> None:
    shared = rig.write((1, 2))
    own = rig.write((2,))
    rig.accept(1, shared)
    rig.accept(2, own + shared)  # the message of the last row lies first in the segment
    rig.run()
    end = rig.end
    rig.publish((1,))  # the flush in flight at the kill
    rig.run()
    rig.cut(end)

    assert not rig.killed().report.is_damage


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_rows_of_messages_that_were_written_before_come_back(
    rig: Rig, is_checkpointed: bool
) -> None:
    """A slow queue takes its messages behind the checkpoint; their bytes lie before it."""
    msg_nos = rig.write((1, 2), 3)
    rig.accept(1, msg_nos)
    rig.run()
    if is_checkpointed:
        rig.checkpoint()
        rig.publish((3,))
        rig.run()
    end = rig.end
    rig.accept(2, msg_nos)
    rig.run()
    rig.cut_behind_mark(end)

    report = rig.killed().report

    assert len(report.gaps) == 1
    assert report.reclaimed == {2: 3}
    rig.compare()


def test_messages_that_whole_frames_have_acked_stay_away(rig: Rig) -> None:
    rig.publish((1,), 4)
    rig.run()
    rig.ack(*rig.held[:3])
    rig.run()
    kept = rig.messages()
    end = rig.end
    made = rig.publish((1,), 2)
    rig.run()
    rig.cut_behind_mark(end)

    rig.killed()

    assert rig.messages() == kept | {(1, no) for no in made}
    rig.compare()


def test_reclaimed_messages_survive_a_crash_before_the_checkpoint(rig: Rig) -> None:
    rig.publish((1,), 3)
    rig.run()
    rig.cut_behind_mark(HEADER_BYTES + 60)
    rig.disk.kill()
    image = rig.location.index.image()
    rig.open()
    held = rig.messages()
    rig.location.index.restore(image)  # as if it had not been written

    rig.killed()

    assert rig.messages() == held
    assert len(held) == 3


def test_reclaimed_messages_survive_a_crash_that_finds_no_gap_any_more(rig: Rig) -> None:
    """Two flushes prove the gap. The next start has a durable position behind them, which proves nothing."""
    rig.publish((1,), 2)
    rig.run()
    end = rig.end
    for _ in range(2):
        rig.publish((1,), 2)
        rig.run()
    rig.cut(end)
    rig.disk.kill()
    image = rig.location.index.image()
    assert rig.open().report.gaps
    held = rig.messages()
    rig.location.index.restore(image)  # as if it had not been written

    rig.killed()

    assert rig.messages() == held
    assert len(held) == 6


def test_a_store_without_mark_and_journals_is_a_snapshot(rig: Rig) -> None:
    rig.publish((1,), 2)
    rig.run()
    rig.checkpoint()
    for file_no in rig.folder.journal_nos():
        rig.files.unlink(rig.folder.journal_path(file_no))
    rig.files.unlink(STORE / END)

    report = rig.killed().report

    assert not report.is_damage
    rig.compare()


def test_a_store_of_an_earlier_version_has_no_mark(rig: Rig) -> None:
    rig.publish((1,), 2)
    rig.run()
    rig.core.has_end_mark = False  # as its checkpoints say
    rig.checkpoint()
    rig.files.unlink(STORE / END)
    rig.publish((1,), 2)
    rig.run()

    report = rig.killed().report

    assert not report.is_damage
    rig.compare()


def test_a_mark_from_before_an_earlier_version_was_used_says_nothing(rig: Rig) -> None:
    old = bytes(rig.disk.image(STORE / END))
    rig.killed()
    rig.core.has_end_mark = False
    rig.publish((1,), 2)
    rig.run()
    rig.checkpoint()
    rig.files.write_new(STORE / END, old)

    assert not rig.killed().report.is_damage
    rig.compare()
