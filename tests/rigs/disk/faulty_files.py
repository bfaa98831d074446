"""System calls that fail, lose data and run out of space: a faulty disk for ``leveret.core.system.files``.

::

    disk = FaultyCalls(MemoryDisk(), random.Random(1))       # or OsCalls(): a real folder
    files = Files(disk)
    disk.fail("fdatasync", OSError(errno.EIO, "gone"), pattern="*.rdq")
    disk.power_cut(lambda path: Fate.SCATTERED)              # everything not synced is at risk

**What a power cut does.** Every file is stored as of its last sync, with the writes and truncations since. Every
folder is stored with the names as of its last ``fsync_dir``, and the changes since. At the cut each file meets a
``Fate``, and a random subset of each folder's changes of names, which are atomic, reaches the disk. All descriptors
become invalid; the same object is then the disk of the machine that starts again.

**Points.** A system call is a point, named as in ``SystemCalls``; ``fail`` picks it by name, pattern
of the file's name, and count. The error may be any exception: an ``OSError`` for the code under test,
``Crash`` for the test itself.
"""

from __future__ import annotations

import enum
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, TypeAlias

from leveret.core.system.files import Buffer, SystemCalls

SECTOR_BYTES: Final = 512
FOR_EVER: Final = 1 << 60  # times
_ADOPT_BYTES: Final = 1 << 20


class Crash(BaseException):
    """The process dies here. ``except Exception`` does not catch this, as it cannot catch a real crash."""


class Fate(enum.Enum):
    """The effect of a power cut on a file's bytes that were not synced."""

    KEPT = "all reached the disk"
    LOST = "none did"
    CUT = "the first few did, by whatever count"
    ZEROED = "the length reached the disk, the bytes did not"
    SCATTERED = "some sectors did, in any order; the others are zero"


Fates: TypeAlias = Callable[[Path], Fate]
# Appended; truncated to a length; written at an offset.
_Change: TypeAlias = bytes | int | tuple[int, bytes]


@dataclass(eq=False)
class _Node:
    """A file: its durable bytes, and the changes since."""

    durable: bytearray = field(default_factory=bytearray)
    changes: list[_Change] = field(default_factory=list)

    def settle(self) -> None:
        self.durable = self.now()
        self.changes.clear()

    def now(self) -> bytearray:
        image = bytearray(self.durable)
        for change in self.changes:
            _apply(image, change)
        return image

    def after_cut(self, fate: Fate, rng: random.Random) -> bytearray:
        full, base = self.now(), bytearray(self.durable)
        if fate is Fate.KEPT or not self.changes:
            return full
        if fate is Fate.LOST:
            return base
        same = _common_prefix(base, full)
        if fate is Fate.CUT:
            image = full[: rng.randint(same, len(full))] if rng.random() < 0.9 else base
        elif fate is Fate.ZEROED:
            image = full[:same] + bytes(len(full) - same)
        else:
            image = self._scattered(full, same, rng)
        self._keep_sectors(image, full, rng)
        return image

    def _keep_sectors(self, image: bytearray, full: bytearray, rng: random.Random) -> None:
        """Give each durable sector either its old contents or its new ones.

        Only a sector that held zeros may be torn: the store appends there.
        """
        if not any(isinstance(change, tuple) for change in self.changes):
            return
        if len(image) < len(self.durable) <= len(full):
            image += self.durable[len(image) :]
        for start in range(0, len(image), SECTOR_BYTES):
            sector = slice(start, min(start + SECTOR_BYTES, len(image)))
            pairs = zip(self.durable[sector], full[sector], strict=False)
            if self.durable[sector] == full[sector]:
                image[sector] = full[sector]
            elif any(old and old != new for old, new in pairs) and sector.stop <= len(self.durable):
                image[sector] = (self.durable if rng.random() < 0.5 else full)[sector]

    def _scattered(self, full: bytearray, same: int, rng: random.Random) -> bytearray:
        image = full[: rng.randint(same, len(full))]
        for start in range(same - same % SECTOR_BYTES, len(image), SECTOR_BYTES):
            first, end = max(start, same), min(start + SECTOR_BYTES, len(image))
            if rng.random() < 0.5:
                image[first:end] = bytes(end - first)
        return image


def _apply(image: bytearray, change: _Change) -> None:
    if isinstance(change, int):
        del image[change:]
        image.extend(bytes(change - len(image)))
    elif isinstance(change, tuple):
        offset, data = change
        image.extend(bytes(max(0, offset - len(image))))
        image[offset : offset + len(data)] = data
    else:
        image += change


def _common_prefix(one: bytearray, other: bytearray) -> int:
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    return next(index for index in range(shorter) if one[index] != other[index])


@dataclass
class _Rename:
    """One change of names in a folder: ``old`` is removed, ``new`` added; either may be None."""

    old: Path | None
    new: Path | None
    node: _Node

    def apply(self, names: dict[Path, _Node]) -> None:
        if self.old is not None:
            names.pop(self.old, None)
        if self.new is not None:
            names[self.new] = self.node


@dataclass
class Fault:
    """A fault of a kind of call, which a test can end."""

    point: str
    error: BaseException | None
    pattern: str
    after: int
    times: int
    delay_s: float

    def end(self) -> None:
        """Let the call succeed again; other faults go on."""
        self.times = 0


class FaultyCalls:
    """Implements ``leveret.core.system.files.SystemCalls`` over another implementation.

    Args:
        calls: the underlying calls: ``MemoryDisk`` or ``OsCalls``. The folders may only contain files made
            through this object, or adopted.
        rng: decides about short writes and the effects of a power cut.
        sleep: called with the seconds of ``delay``; the test's virtual time, or ``time.sleep``.
    """

    def __init__(
        self, calls: SystemCalls, rng: random.Random, sleep: Callable[[float], None] | None = None
    ) -> None:
        self.rng = rng
        self.short_writes = 0.0  # the share of writes that stop early
        self.interrupts = 0.0  # the share of reads and writes that a signal interrupts
        self.seen: dict[str, int] = {}  # point -> how often it was reached
        self._calls = calls
        self._sleep = sleep
        self._faults: list[Fault] = []
        self._half_done: list[Fault] = []
        self._nodes: dict[Path, _Node] = {}
        self._durable_nodes: dict[Path, _Node] = {}
        self._renames: list[_Rename] = []
        self._open: dict[int, tuple[Path, _Node | None]] = {}

    # Faults.

    def fail(
        self, point: str, error: BaseException, pattern: str = "*", after: int = 0, times: int = 1
    ) -> Fault:
        """Raise ``error`` at the point, ``times`` times or until ``end``, after ``after`` successful calls."""
        self._faults = [fault for fault in self._faults if fault.times]
        self._faults.append(Fault(point, error, pattern, after, times, 0.0))
        return self._faults[-1]

    def fail_after(self, point: str, error: BaseException, pattern: str = "*") -> None:
        """Raise ``error`` once, when the call has been made; for ``open``."""
        self._half_done.append(Fault(point, error, pattern, 0, 1, 0.0))

    def delay(self, point: str, delay_s: float, pattern: str = "*", times: int = FOR_EVER) -> None:
        """Delay the call by ``delay_s``."""
        self._faults.append(Fault(point, None, pattern, 0, times, delay_s))

    def heal(self) -> None:
        self._faults.clear()
        self.short_writes = self.interrupts = 0.0

    @property
    def has_faults(self) -> bool:
        """Whether a fault or delay is pending."""
        return any(fault.times for fault in self._faults)

    def kill(self) -> None:
        """End the process that has the files open; its writes are still in the page cache."""
        for descriptor in list(self._open):
            self.close(descriptor)

    def power_cut(self, fates: Fates | Fate = Fate.LOST, names: float | None = None) -> None:
        """Cut the power and start the machine again.

        Args:
            fates: the fate of each file's bytes that were not synced.
            names: the share of unsynced changes of names that reach the disk; None: random.
        """
        self.kill()
        self.heal()
        share = self.rng.random() if names is None else names
        for change in self._renames:
            if self.rng.random() < share:
                change.apply(self._durable_nodes)
        self._renames.clear()
        left = self._durable_nodes
        for path in self._nodes:
            self._calls.unlink(path)
        images: dict[int, bytearray] = {}
        for path, node in left.items():
            if id(node) not in images:
                fate = fates if isinstance(fates, Fate) else fates(path)
                images[id(node)] = node.after_cut(fate, self.rng)
            self._put(path, images[id(node)])
        fresh = {id(node): _Node(images[id(node)]) for node in left.values()}
        self._durable_nodes = {path: fresh[id(node)] for path, node in left.items()}
        self._nodes = dict(self._durable_nodes)

    def _put(self, path: Path, image: bytearray) -> None:
        descriptor = self._calls.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        rest = memoryview(bytes(image))
        while rest:
            rest = rest[self._calls.writev(descriptor, [rest]) :]
        self._calls.close(descriptor)

    def adopt(self, path: Path) -> None:
        """Treat an existing file's bytes and name as durable."""
        descriptor = self._calls.open(path, os.O_RDONLY)
        try:
            image = bytearray()
            while piece := self._calls.pread(descriptor, _ADOPT_BYTES, len(image)):
                image += piece
        finally:
            self._calls.close(descriptor)
        self._nodes[path] = self._durable_nodes[path] = _Node(image)

    def damage(self, path: Path, change: Callable[[bytearray], None]) -> None:
        """Damage a file's durable bytes; ``change`` works in place."""
        node = self._nodes[path]
        node.settle()
        change(node.durable)
        self._calls.unlink(path)
        self._put(path, node.durable)

    def image(self, path: Path) -> bytes:
        return bytes(self._nodes[path].now())

    def paths(self) -> list[Path]:
        return sorted(self._nodes)

    @property
    def open_files(self) -> list[Path]:
        return [path for path, _ in self._open.values()]

    # System calls.

    def _reach(self, point: str, path: Path) -> None:
        self.seen[point] = self.seen.get(point, 0) + 1
        for fault in self._faults:
            if fault.point != point or not fnmatch(path.name, fault.pattern) or not fault.times:
                continue
            if fault.after:
                fault.after -= 1
                continue
            fault.times -= 1
            if fault.delay_s and self._sleep is not None:
                self._sleep(fault.delay_s)
            if fault.error is not None:
                raise fault.error

    def _processed(self, count: int) -> int:
        """Return how many of ``count`` bytes a read or write processes, unless a signal interrupts it."""
        if self.interrupts and self.rng.random() < self.interrupts:
            raise InterruptedError("interrupted")
        if count > 1 and self.rng.random() < self.short_writes:
            return self.rng.randrange(1, count)
        return count

    def open(self, path: Path, flags: int) -> int:
        self._reach("open", path)
        descriptor = self._calls.open(path, flags)
        node: _Node | None = None
        if not flags & os.O_DIRECTORY:
            if path not in self._nodes:
                self._nodes[path] = _Node()
                self._renames.append(_Rename(None, path, self._nodes[path]))
            node = self._nodes[path]
        self._open[descriptor] = (path, node)
        for fault in self._half_done:
            if fault.times and fnmatch(path.name, fault.pattern):
                assert fault.error is not None
                fault.times = 0
                self.close(descriptor)
                raise fault.error
        return descriptor

    def close(self, descriptor: int) -> None:
        """Close the descriptor; after ``kill`` it is closed already."""
        if self._open.pop(descriptor, None) is not None:
            self._calls.close(descriptor)

    def _node(self, descriptor: int) -> tuple[Path, _Node]:
        path, node = self._open.get(descriptor, (Path("closed"), None))
        assert node is not None, f"{path} is not an open file"
        return path, node

    def writev(self, descriptor: int, buffers: Sequence[Buffer]) -> int:
        path, node = self._node(descriptor)
        self._reach("writev", path)
        data = b"".join(buffers)
        data = data[: self._processed(len(data))]
        written = self._calls.writev(descriptor, [data])
        node.changes.append(data[:written])
        return written

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> int:
        path, node = self._node(descriptor)
        self._reach("pwrite", path)
        data = data[: self._processed(len(data))]
        written = self._calls.pwrite(descriptor, data, offset)
        node.changes.append((offset, bytes(data[:written])))
        return written

    def pread(self, descriptor: int, count: int, offset: int) -> bytes:
        path, _ = self._node(descriptor)
        self._reach("pread", path)
        return self._calls.pread(descriptor, self._processed(count), offset)

    def size(self, descriptor: int) -> int:
        self._node(descriptor)
        return self._calls.size(descriptor)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        path, node = self._node(descriptor)
        self._reach("truncate", path)
        self._calls.truncate(descriptor, size_bytes)
        node.changes.append(size_bytes)

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        path, node = self._node(descriptor)
        self._reach("allocate", path)
        self._calls.allocate(descriptor, size_bytes)
        node.changes.append(size_bytes)

    def fdatasync(self, descriptor: int) -> None:
        path, node = self._node(descriptor)
        self._reach("fdatasync", path)
        self._calls.fdatasync(descriptor)
        node.settle()

    def fsync(self, descriptor: int) -> None:
        path, node = self._open[descriptor]
        self._reach("fsync" if node is not None else "fsync_dir", path)
        self._calls.fsync(descriptor)
        if node is not None:
            node.settle()
            return
        for change in self._in(path):
            change.apply(self._durable_nodes)
            self._renames.remove(change)

    def _in(self, folder: Path) -> list[_Rename]:
        return [
            change
            for change in self._renames
            if folder in {each.parent for each in (change.old, change.new) if each is not None}
        ]

    def copy_range(self, source: int, offset: int, target: int, count: int) -> int:
        path, node = self._node(target)
        self._reach("copy_range", path)
        data = self._calls.pread(source, self._processed(count), offset)
        copied = self._calls.copy_range(source, offset, target, len(data)) if data else 0
        node.changes.append(data[:copied])
        return copied

    def lock(self, descriptor: int) -> None:
        self._calls.lock(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        self._reach("rename", old)
        self._calls.rename(old, new)
        node = self._nodes[new] = self._nodes.pop(old)
        self._renames.append(_Rename(old, new, node))

    def unlink(self, path: Path) -> None:
        self._reach("unlink", path)
        self._calls.unlink(path)
        self._renames.append(_Rename(path, None, self._nodes.pop(path)))

    def link(self, path: Path, new: Path) -> None:
        self._reach("link", path)
        self._calls.link(path, new)
        self._nodes[new] = self._nodes[path]
        self._renames.append(_Rename(None, new, self._nodes[path]))

    def mkdir(self, path: Path) -> None:
        """Make a folder; its name is durable at once."""
        self._calls.mkdir(path)

    def names(self, folder: Path) -> list[str]:
        return self._calls.names(folder)

    def free_bytes(self, folder: Path) -> int:
        self._reach("free_bytes", folder)
        return self._calls.free_bytes(folder)
