"""One file of a data directory, chosen at random and damaged at random."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.core.system.files import Files
from leveret.msg_store.format.end_mark import read_mark
from leveret.msg_store.format.folder import StorePaths, read_format
from leveret.msg_store.format.journal_records import Publishes
from leveret.msg_store.reading.verify import Segment
from leveret.msg_store.recovery.journal_reader import JournalFile

SEGMENT: Final = "rdq/*.rdq"
JOURNAL: Final = "journal/*.jnl"
INDEX: Final = "store.lmdb/data.mdb"
SNAPSHOT: Final = "snapshots"
OFTEN: Final = {SEGMENT: 4, JOURNAL: 6, INDEX: 5, "metadata/data.mdb": 3, "end": 2}
USED_MAX: Final = 1 << 24  # bytes of a file that are looked at for its end
NAME: Final = re.compile(rb"[a-z]+[0-9.]*\.[0-9]{7}\.[0-3]t?(?= )")  # of a message, see ``oracle``


def copy_of(folder: Path, target: Path) -> Path:
    """Copy a data directory with its holes and hard links; files may come and go meanwhile."""
    shutil.rmtree(target, ignore_errors=True)
    command = ["cp", "-a", "--sparse=always", str(folder), str(target)]
    subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
    return target


def files_of(folder: Path) -> list[Path]:
    """Return the paths of all regular files in a folder, relative to it."""
    return sorted(
        each.relative_to(folder)
        for each in folder.rglob("*")
        if each.is_file() and not each.is_symlink()
    )


def kind_of(path: Path) -> str:
    """Return what a file of a data directory is for: its path without numbers, below the folder of its vhost."""
    parts = path.parts[2:] if path.parts[0] == "vhosts" else path.parts
    if parts[0] in {"quarantine", SNAPSHOT}:
        return parts[0]
    return re.sub(r"[0-9a-f]{8,}", "*", "/".join(parts))


def used_bytes(path: Path) -> int:
    """Return how long a file is without the zeros at its end."""
    with path.open("rb") as file:
        return len(file.read(USED_MAX).rstrip(b"\0"))


def names_in(path: Path) -> set[str]:
    """Return the names of the messages whose bodies begin in a file."""
    return {each.decode() for each in NAME.findall(path.read_bytes())}


@dataclass(frozen=True)
class Damage:
    """The damage of one file.

    Attributes:
        path: relative to the data directory.
        way: deleted, emptied, cut, flipped, older or other.
        what: the way, with the offsets of the damaged bytes.
    """

    path: Path
    way: str
    what: str

    @property
    def kind(self) -> str:
        return kind_of(self.path)

    @property
    def is_shorter(self) -> bool:
        return self.way in {"deleted", "emptied", "cut"}

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class Damager:
    """Damages files of a data directory.

    Args:
        data: the data directory.
        rng: chooses file, way and offset.
        older: earlier copies of the data directory.
        other: a copy of another node's data directory.
    """

    def __init__(self, data: Path, rng: random.Random, older: Sequence[Path], other: Path) -> None:
        self._data, self._rng, self._older, self._other = data, rng, older, other

    def damage(self) -> Damage:
        """Damage one file; ways are tried in random order until one changes it."""
        kinds: dict[str, list[Path]] = {}
        files = files_of(self._data)
        for each in files:
            kinds.setdefault(kind_of(each), []).append(each)
        (kind,) = self._rng.choices(list(kinds), [OFTEN.get(each, 1) for each in kinds])
        path = self._rng.choice([*kinds[kind], *kinds[kind][-1:] * OFTEN.get(kind, 0)])
        links = [each for each in files if (self._data / each).samefile(self._data / path)]
        ways: dict[str, Callable[[Path], str]] = {
            "deleted": self._delete,
            "emptied": self._empty,
            "cut": self._cut,
            "flipped": self._flip,
            "older": self._take_older,
            "other": self._take_others,
        }
        for way in self._rng.sample(list(ways), len(ways)):
            if what := ways[way](path):
                return Damage(path if way == "deleted" else links[-1], way, what)
        raise AssertionError(f"{path} cannot be damaged")

    def _delete(self, path: Path) -> str:
        (self._data / path).unlink()
        return "deleted"

    def _empty(self, path: Path) -> str:
        if not (self._data / path).stat().st_size:
            return ""
        os.truncate(self._data / path, 0)
        return "emptied"

    def _cut(self, path: Path) -> str:
        target = self._data / path
        if not (used := used_bytes(target)):
            return ""
        near_end = self._rng.randrange(max(0, used - 300), used)
        at = self._rng.choice([self._rng.randrange(used), near_end])
        os.truncate(target, at)
        return f"cut at {at} of {used}"

    def _flip(self, path: Path) -> str:
        target = self._data / path
        if not (used := used_bytes(target)):
            return ""
        bit = self._rng.randrange(8 * used)
        with target.open("r+b") as file:
            file.seek(bit // 8)
            byte = file.read(1)[0]
            file.seek(bit // 8)
            file.write(bytes([byte ^ 1 << bit % 8]))
        return f"bit {bit % 8} flipped at {bit // 8} of {used}"

    def _take_older(self, path: Path) -> str:
        return self._take(path, [each / path for each in self._older])

    def _take_others(self, path: Path) -> str:
        kind = kind_of(path)
        others = [self._other / each for each in files_of(self._other) if kind_of(each) == kind]
        return self._take(path, others)

    def _take(self, path: Path, sources: Sequence[Path]) -> str:
        target = self._data / path
        found = [each for each in sources if each.is_file() and not is_same(each, target)]
        if not found:
            return ""
        source = self._rng.choice(found)
        subprocess.run(["cp", "--sparse=always", str(source), str(target)], check=True)
        return f"replaced by {source}"


def is_same(one: Path, other: Path) -> bool:
    return subprocess.run(["cmp", "-s", str(one), str(other)], check=False).returncode == 0


def held_alone(data: Path, path: Path) -> set[str]:
    """Return the names of messages that a segment of a data directory holds, and no other segment.

    Messages of a journal are in segments, too; a start looks for them only there.
    """
    if kind_of(path) != SEGMENT:
        return set()
    file = data / path
    others = [each for each in file.parent.iterdir() if not each.samefile(file)]
    return names_in(file).difference(*map(names_in, others))


def recent(data: Path) -> set[str]:
    """Return the names of the messages whose rows are in journal frames behind the end mark.

    The node wrote these frames in the last 0.2 s before the kill; it does not notice the loss of one flush among them.
    """
    (store,) = (data / "vhosts").iterdir()
    paths = StorePaths(Files(), store, read_format(Files(), store))
    mark = read_mark(paths)
    assert mark is not None
    msg_nos: set[int] = set()
    for path in sorted(paths.journal.iterdir()):
        for frame, records in JournalFile(path.read_bytes(), paths.uuid).frames():
            if frame.next_lsn > mark.durable.lsn:
                runs = [each for each in records if isinstance(each, Publishes)]
                msg_nos.update(msg_no for run in runs for msg_no in run.msg_nos)
    names: set[str] = set()
    for path in sorted(paths.rdq.iterdir()):
        with Segment(paths, int(path.stem, 16)) as segment:
            for _, record in segment.records():
                if record.msg_no in msg_nos:
                    names.update(each.decode() for each in NAME.findall(bytes(record.body))[:1])
    return names
