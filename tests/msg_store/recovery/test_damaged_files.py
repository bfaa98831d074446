"""Every file of a store, damaged in every way: it is said, and the damage costs what the file alone held.

A row of the matrix is a file and a damage, done to a copy of a store that was killed, or stopped. Two rules hold:

* No message is lost that the other files have.
* The damage is named, by ``leveret store verify`` (the audit) and by the start, which has it in its report, its log and
  its status; or it has no effect whatever. A start does not read messages of the index: damaged ones are named by the
  audit, and when they are read.

Tests: msg_store/recovery/reclaim.py, msg_store/format/end_mark.py
"""

from __future__ import annotations

import logging
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from leveret.core.errors import StoreError
from leveret.msg_store.format.end_mark import NAME as END
from leveret.msg_store.format.errors import FormatLost
from leveret.msg_store.format.file_header import HEADER_BYTES, uuid_of
from leveret.msg_store.offline.audit import Audit, audited
from leveret.msg_store.offline.repair import repair
from leveret.msg_store.offline.repair_plan import plan_repair
from leveret.msg_store.recovery.journal_reader import JournalFile
from rigs.store.live_store import opened_at
from rigs.store.offline.offline_rig import UUID, OfflineRig, bodies_of, quiet, rows_of

Messages = set[tuple[int, int]]  # queue_no, msg_no
START = 100  # the boot epoch of the start after the damage
COUNTS = [(1, 5, 2), (2, 7, 1)]
OTHER = bytes(reversed(UUID))


class Rig(OfflineRig):
    """A store with a clock that moves, an end mark as of the last flush, and delivery counts."""

    def __init__(self, path: Path, uuid: bytes = UUID) -> None:
        self.times = count(1)
        self.uuid = uuid
        super().__init__(path, now_ms=lambda: next(self.times), new_uuid=lambda: uuid)

    def mark(self) -> None:
        self.opened.mark.write(self.core.durable)

    def messages(self) -> Messages:
        return {(queue_no, msg_no) for (queue_no, _), msg_no in self.rows.items()}

    def busy(self, rng: random.Random, rounds: int = 3) -> None:
        """Fan-outs and acks; large flushes, and small ones that go inline."""
        for _ in range(rounds):
            self.publish((1,), 4)
            self.publish((1, 2), 3, size=9_000)
            self.last = self.publish((2,), 2, size=300)
            self.ack(*rng.sample(sorted(self.rows), 5))
            self.opened.count_file.write(COUNTS)


@dataclass
class Store:
    """A store as it was ended, and what it must have."""

    path: Path
    messages: Messages
    bodies: dict[int, bytes]
    places: dict[int, int] = field(default_factory=dict)  # segments by msg_no

    def file(self, kind: str) -> Path:
        """Return the file of a kind."""
        segments = sorted((self.path / "rdq").iterdir())
        journals = sorted((self.path / "journal").iterdir())
        files = {
            "first segment": segments[0],
            "middle segment": segments[len(segments) // 2],
            "last segment": segments[-1],
            "first journal": journals[0],
            "last journal": journals[-1],
            "index": self.path / "store.lmdb" / "data.mdb",
            "index lock": self.path / "store.lmdb" / "lock.mdb",
        }
        return files.get(kind, self.path / kind)


KINDS = [
    "first segment",
    "middle segment",
    "last segment",
    "first journal",
    "last journal",
    "index",
    "index lock",
    "FORMAT",
    END,
    "delivery_counts",
]


class Stores(NamedTuple):
    """Templates, each made once."""

    killed: Store
    stopped: Store
    yesterday: Path  # the same store before, stopped
    other: Path  # another store, killed


def _ended(rig: Rig) -> Store:
    with audited(rig.path, quiet) as audit:
        assert audit.is_sound
        places = {no: place[0] for no, place in audit.store.locations()}
    return Store(rig.path, rig.messages(), dict(rig.bodies), places)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    folder, rng = tmp_path_factory.mktemp("stores"), random.Random(1)
    rig = Rig(folder / "killed")
    rig.busy(rng)
    rig.stop()
    shutil.copytree(rig.path, folder / "yesterday")
    rig.open()
    rig.busy(rng)
    rig.store.checkpoint()
    rig.busy(rng)
    rig.mark()
    rig.crash()
    shutil.copytree(rig.path, folder / "stopped")
    killed = _ended(rig)
    rig.path = folder / "stopped"
    rig.open()
    rig.publish((1,), 3)
    rig.stop()
    other = Rig(folder / "other", OTHER)
    other.busy(rng)
    other.crash()
    return Stores(killed, _ended(rig), folder / "yesterday", folder / "other")


# Damages: each yields functions that do it to a file.

Damage = Callable[[Path], None]


def cut_at(size: int, path: Path) -> None:
    os.truncate(path, size)


def flip_at(bit: int, path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def replaced_by(other: Path, path: Path) -> None:
    shutil.copy(other, path)


def borders(path: Path) -> list[int]:
    """Return where frames of a journal, records of a segment, or pages begin and end."""
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    match path.suffix:
        case ".jnl":
            file = JournalFile(data, uuid_of(data[:HEADER_BYTES]) or UUID)
            return [HEADER_BYTES, *(frame.end for frame, _ in file.frames())]
        case ".rdq":
            ends, at = [HEADER_BYTES], HEADER_BYTES
            while at < used:
                at += int.from_bytes(data[at + 4 : at + 8], "little")
                ends.append(at)
            return ends
        case ".mdb":
            return list(range(0, used + 4096, 4096))
    return list(range(0, used + 1, max(1, used // 4)))


def damages(store: Store, stores: Stores, kind: str, damage: str, every: int) -> Iterator[Damage]:
    """Yield the damages of a row; of many cuts and flips one in ``every``."""
    path = store.file(kind)
    size, ends = path.stat().st_size, borders(path)
    match damage:
        case "missing":
            yield lambda path: path.unlink()
        case "empty":
            yield partial(cut_at, 0)
        case "cut at a border":
            for at in ends[:-1][::-every]:
                yield partial(cut_at, at)
        case "cut inside":
            for low, high in list(pairwise(ends))[::-every]:
                yield partial(cut_at, (low + high) // 2)
        case "yesterday's" | "another store's":
            folder = stores.yesterday if damage == "yesterday's" else stores.other
            name = path.relative_to(store.path)
            if (folder / name).exists() and (folder / name).read_bytes() != path.read_bytes():
                yield partial(replaced_by, folder / name)
        case "a bit flipped":
            used = max(ends[-1], min(size, HEADER_BYTES))
            bits = [8 * at + 3 for at in range(0, min(used, HEADER_BYTES), 9)]
            bits += [8 * at + at % 8 for low in ends[:-1] for at in (low + 2, low + 21, low + 50)]
            yield from (partial(flip_at, bit) for bit in bits[::-every] if bit < 8 * used)


DAMAGES = [
    "missing",
    "empty",
    "cut at a border",
    "cut inside",
    "yesterday's",
    "another store's",
    "a bit flipped",
]


# A row.


@dataclass
class Outcome:
    """What was said of a damaged store, and what came back."""

    said: dict[str, bool] = field(default_factory=dict)  # by whom
    messages: Messages = field(default_factory=set)
    bodies: dict[int, bytes] = field(default_factory=dict)
    counts: dict[int, dict[int, int]] = field(default_factory=dict)


def look(path: Path) -> tuple[bool, Audit | None]:
    """Return whether an audit says that something is wrong."""
    try:
        with audited(path, quiet) as audit:
            return not audit.is_sound or bool(audit.notes or audit.store.report.notes), audit
    except StoreError:
        return True, None


def outcome_of(path: Path, caplog: pytest.LogCaptureFixture) -> Outcome:
    """Verify a store, start it, and look at it and its next start."""
    found = Outcome()
    found.said["verify"], _ = look(path)
    caplog.clear()
    try:
        opened = opened_at(path, START)
    except FormatLost as error:
        found.said["start"] = found.said["log"] = "leveret store repair" in str(error)
        mend(path)
        opened = opened_at(path, START)
    else:
        report = opened.recovered.report
        found.said["start"] = bool(report.damage)
        found.said["log"] = any(each.levelno >= logging.WARNING for each in caplog.records)
    found.counts = opened.counts
    opened.close()
    mend(path)
    with audited(path, quiet) as audit:
        assert audit.is_sound, "it is not sound after start and repair"
        rows = rows_of(audit)
        found.messages = {(queue_no, msg_no) for (queue_no, _), msg_no in rows.items()}
        assert len(found.messages) == len(rows), "a message is twice in a queue"
        found.bodies = bodies_of(audit)
    return found


def mend(path: Path) -> None:
    with audited(path, quiet) as audit:
        plan = plan_repair(audit)
    if plan.is_needed:
        repair(path, plan, plan.epoch_seen + 1, lambda: 9)


def check_row(
    store: Store, kind: str, damage: Damage, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copied = Store(folder / "store", store.messages, store.bodies)
    shutil.copytree(store.path, copied.path)
    path = copied.file(kind)
    damage(path)
    is_as_long = path.exists() and path.stat().st_size == store.file(kind).stat().st_size

    found = outcome_of(copied.path, caplog)

    where = f"{kind}: {damage}"
    segment = int(path.stem, 16) if path.suffix == ".rdq" else None
    of_file = {no for no, file_no in store.places.items() if file_no == segment}
    lost = {each for each in store.messages - found.messages if each[1] not in of_file}
    assert not lost, f"{where}: lost {len(lost)} messages that other files have"
    assert all(store.bodies[no] == body for no, body in found.bodies.items()), where
    counts = {no: {seq: times} for no, seq, times in COUNTS}
    has_effect = found.messages != store.messages or found.counts != counts
    if segment is not None and is_as_long:
        del found.said["start"], found.said["log"]
    assert not has_effect or all(found.said.values()), f"{where}: {found.said}"
    shutil.rmtree(copied.path)


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_damage_is_named_and_costs_what_the_file_held(
    stores: Stores,
    end: str,
    kind: str,
    damage: str,
    every: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store: Store = getattr(stores, end)
    for each in damages(store, stores, kind, damage, every):
        check_row(store, kind, each, tmp_path, caplog)


# Rounds: kills, each with a damage behind it, of one store that goes on.


def begin_again(rig: Rig) -> bool:
    """Start a store after a damage; return whether that was named."""
    was_said, _ = look(rig.path)
    rig.boot_epoch += 2
    try:
        rig.open()
    except FormatLost:
        mend(rig.path)
        rig.boot_epoch += 2
        rig.open()
        return was_said
    return was_said and bool(rig.opened.recovered.report.damage)


def one_round(rig: Rig, rng: random.Random, yesterday: Path) -> None:
    """Work, a kill at which the end mark may be behind, a damage, and a start."""
    rig.busy(rng, rng.randrange(1, 4))
    if rng.random() < 0.3:
        rig.store.checkpoint()
        rig.busy(rng, 1)
    is_marked = rng.random() < 0.7
    if is_marked:
        rig.mark()
    rig.crash()
    store = _ended(rig)
    kind, damage = rng.choice(KINDS), rng.choice(DAMAGES)
    where = f"{kind}: {damage}"
    path = store.file(kind)
    ways = list(damages(store, Stores(store, store, yesterday, yesterday), kind, damage, 1))
    if ways:
        rng.choice(ways)(path)
    is_of_record = path.suffix == ".rdq" and damage == "a bit flipped"
    segment = int(path.stem, 16) if path.suffix == ".rdq" else None

    was_said = begin_again(rig)

    rig.crash()
    mend(rig.path)
    of_file = {no for no, file_no in store.places.items() if file_no == segment}
    with audited(rig.path, quiet) as audit:
        assert audit.is_sound, where
        rig.rows = rows_of(audit)
    found = rig.messages()
    assert len(found) == len(rig.rows), "a message is twice in a queue"
    if not is_marked:
        of_file.update(rig.last)  # the flush may not have been confirmed, as far as anybody knows
    lost = {each for each in store.messages - found if each[1] not in of_file}
    assert not lost, f"{where}: lost {len(lost)}"
    is_named = was_said or is_of_record or not is_marked  # else a crash can look the same
    assert is_named or found == store.messages, where
    rig.boot_epoch += 2
    rig.open()


def play(path: Path, rng: random.Random, rounds: int) -> None:
    rig = Rig(path / "store")
    rig.busy(rng)
    rig.stop()
    shutil.copytree(rig.path, path / "yesterday")
    rig.boot_epoch += 1
    rig.open()
    for _ in range(rounds):
        one_round(rig, rng, path / "yesterday")


def test_rounds_of_kills_and_damages(tmp_path: Path, rng: random.Random) -> None:
    play(tmp_path, rng, 8)


@pytest.mark.slow
def test_rounds_of_kills_and_damages_for_long(tmp_path: Path, rng: random.Random) -> None:
    play(tmp_path, rng, 300)
