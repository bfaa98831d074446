"""The folder of a store: its files, its uuid, and the lock that lets one process use it.

::

    FORMAT            version, uuid; written first, as a whole
    lock              held as long as the store is open
    journal/%016x.jnl rdq/%08x.rdq     ascending
    quarantine/       bytes set aside, and a .json report for each recovery that found damage
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from leveret.core.system.files import File, Files
from leveret.msg_store.format.errors import Corrupt, FormatLost, FormatTooNew, StoreLocked
from leveret.msg_store.format.file_header import HEADER_BYTES, uuid_of

VERSION: Final = (
    2  # 2: producers, in journal and index; a store of format 1 is upgraded when it is opened
)
FORMAT: Final = "FORMAT"
LOCK: Final = "lock"
SEGMENT_NAME: Final = "%08x.rdq"
JOURNAL_NAME: Final = "%016x.jnl"
_KEYS: Final = ("leveret-message-store", "uuid", "created-ms")


class StorePaths:
    """The names of a store's files; ``uuid``, its 16 bytes, for a caller that reads them."""

    def __init__(self, files: Files, path: Path, uuid: bytes = b"") -> None:
        self.files = files
        self.path = path
        self.uuid = uuid
        self.rdq = path / "rdq"
        self.journal = path / "journal"

    def rdq_nos(self) -> list[int]:
        return _numbers(self.files.names(self.rdq), ".rdq", 8)

    def journal_nos(self) -> list[int]:
        return _numbers(self.files.names(self.journal), ".jnl", 16)

    def rdq_path(self, file_no: int) -> Path:
        return self.rdq / (SEGMENT_NAME % file_no)

    def journal_path(self, file_no: int) -> Path:
        return self.journal / (JOURNAL_NAME % file_no)


class StoreFolder(StorePaths):
    """A store's folder: created if it is missing (``is_new``), and locked until ``close``.

    Raises:
        StoreLocked: another process has it.
        FormatTooNew: it was made by a newer version.
        FormatLost: it is damaged beyond recognition.
    """

    def __init__(
        self, files: Files, path: Path, new_uuid: Callable[[], bytes], now_ms: Callable[[], int]
    ) -> None:
        super().__init__(files, path)
        self.is_new = False
        self.quarantine = path / "quarantine"
        for folder in (path, self.rdq, self.journal, self.quarantine):
            files.mkdir(folder)
        files.fsync_dir(path.parent)
        self._lock = self._locked()
        try:
            if FORMAT not in files.names(path):
                if self.rdq_nos() or self.journal_nos():
                    raise FormatLost(
                        f"{path} holds messages but no {FORMAT}; leveret store repair writes it anew"
                    )
                self.is_new = True
                write_format(files, path, new_uuid(), now_ms())
            self.uuid = read_format(files, path)
            self._check_owner()
            self._drop_drafts()
            self._upgrade()
        except BaseException:
            self._lock.close()
            raise

    def _check_owner(self) -> None:
        """Raise FormatLost if all readable files name one other store: then FORMAT is the foreign file."""
        others: set[bytes] = set()
        for path in self._headed():
            with self.files.open_read(path) as file:
                first = file.pread(HEADER_BYTES, 0)
            if (uuid := uuid_of(first)) == self.uuid:
                return
            if uuid is not None:
                others.add(uuid)
        if len(others) == 1:
            text = f"{self.path / FORMAT} is of store {self.uuid.hex()}, its files are of {others.pop().hex()}"
            raise FormatLost(f"{text}: put the right one back, or run leveret store repair")

    def _headed(self) -> Iterator[Path]:
        yield from map(self.journal_path, reversed(self.journal_nos()))
        yield from map(self.rdq_path, reversed(self.rdq_nos()))

    def _upgrade(self) -> None:
        """Raise an older format to the present one, so that an older version refuses the store."""
        fields = _fields(self.files, self.path)
        if int(fields[_KEYS[0]]) < VERSION:
            write_format(self.files, self.path, self.uuid, int(fields[_KEYS[2]]))

    def _locked(self) -> File:
        file = self.files.open_lock(self.path / LOCK)
        try:
            file.lock()
        except BlockingIOError:
            file.close()
            raise StoreLocked(f"{self.path} is in use by another process") from None
        return file

    def _drop_drafts(self) -> None:
        """Remove drafts that the collector or a report had not finished."""
        for folder, ending in ((self.rdq, ".rdt"), (self.quarantine, ".tmp"), (self.path, ".tmp")):
            for name in self.files.names(folder):
                if name.endswith(ending):
                    self.files.unlink(folder / name)

    def set_aside(self, path: Path, data: bytes, offset: int) -> str:
        """Keep doubtful bytes of a file in quarantine, the same ones only once; return their name there."""
        name = f"{path.name}-{offset:x}-{len(data):x}.bin"
        if name not in self.files.names(self.quarantine):
            self.files.write_new(self.quarantine / name, data)
        return name

    def move_aside(self, path: Path) -> str:
        """Move a whole file to the quarantine; its name is not used again."""
        name = f"{path.name}.set-aside"
        self.files.rename(path, self.quarantine / name)
        self.files.fsync_dir(self.quarantine)
        self.files.fsync_dir(path.parent)
        return name

    def report(self, name: str, contents: dict[str, Any]) -> None:
        text = json.dumps(contents, indent=1)
        self.files.write_new(self.quarantine / f"{name}.json", text.encode())

    def close(self) -> None:
        self._lock.close()


def read_format(files: Files, path: Path) -> bytes:
    """Return the uuid in a store's FORMAT; ``FormatTooNew`` or ``FormatLost`` if it has none to read."""
    try:
        fields = _fields(files, path)
        version, uuid = int(fields[_KEYS[0]]), bytes.fromhex(fields[_KEYS[1]])
        if version < 1 or len(uuid) != 16 or int(fields[_KEYS[2]]) < 0:
            raise ValueError(f"version {version}, a uuid of {len(uuid)} bytes")
    except (ValueError, KeyError) as error:
        raise FormatLost(
            f"{path / FORMAT} is damaged: {error}; leveret store repair writes it anew"
        ) from error
    if version > VERSION:
        raise FormatTooNew(f"{path} has format {version}, known are up to {VERSION}")
    return uuid


def _fields(files: Files, path: Path) -> dict[str, str]:
    text = files.read(path / FORMAT).decode("ascii")
    return dict(line.split(" ", 1) for line in text.splitlines())


def write_format(files: Files, path: Path, uuid: bytes, now_ms: int) -> None:
    """Write FORMAT: version, uuid, time."""
    values = (VERSION, uuid.hex(), now_ms)
    text = "".join(f"{key} {value}\n" for key, value in zip(_KEYS, values, strict=True))
    files.write_new(path / FORMAT, text.encode("ascii"))


def _numbers(names: list[str], ending: str, digits: int) -> list[int]:
    numbers = []
    for name in names:
        stem = name.removesuffix(ending)
        if name.endswith(ending) and len(stem) == digits:
            try:
                numbers.append(int(stem, 16))
            except ValueError:
                raise Corrupt(f"{name} is not the name of a file of the store") from None
    return sorted(numbers)
