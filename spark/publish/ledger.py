"""The ledger: how far a partition's rows are settled, so that another attempt skips them.

A ledger is a folder that all attempts share::

    LEDGER/plan.json                 fingerprint of the plan; another plan is refused
    LEDGER/[SCOPE/]part-00003.json   the last entry of partition 3
    LEDGER/rejects/                  reject files (``rejects``)
    LEDGER/report.json               counts of the last run (``leveret.spark.sink``)

An *entry* says: the first ``rows`` rows of the partition are settled, the last of them has ``key``, and ``digest`` is
that of all their keys. A row is settled when it is confirmed and not returned, or when it was given to a reject file
or the dead-letter exchange, or dropped as ordered.

Another attempt reads the entry, skips ``rows`` rows, and compares the digest. So rows are skipped only if they are the
very rows that were settled. Rows in another order, or other rows, end the attempt with an error; nothing is lost.
Keys must rise strictly, which makes the order of rows the same in all attempts and finds keys that come twice.

Two attempts of one partition may run at once (Spark gave one up, and it still runs): each entry is true whoever
wrote it, and none replaces one with more rows.

Entries are written at multiples of ``step`` rows and at the end. An attempt that is killed leaves at most
``window + step`` rows that are confirmed but not in the ledger; the next attempt sends them again.

Turned down: skipping by count alone (another order loses rows); an entry per row (a synced file per message).
"""

from __future__ import annotations

import json
import os
import uuid
from collections import deque
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from leveret.spark.publish.errors import LedgerError
from leveret.spark.publish.identity import Key

FORMAT: Final = 2  # 1 had keys without queue_no
_PLAN: Final = "plan.json"
_REMEDY: Final = (
    "sort the partition by vhost, queue, queue_no, seq_id, read the same snapshot with the same filter and"
    " the same number of partitions, or use a new ledger (which sends all rows again)"
)


class Entry(NamedTuple):
    """The first ``rows`` rows are settled; ``digest`` is that of their keys, in hex."""

    rows: int
    key: Key
    digest: str


def check_plan(folder: Path, fingerprint: str) -> None:
    """Give a new ledger its plan, or compare; LedgerError: it is another plan's, or no ledger."""
    path = folder / _PLAN
    if not path.exists():
        if any(folder.glob("**/part-*.json")):
            raise LedgerError(f"ledger {folder} has entries and no {_PLAN}: use a new folder")
        replace(path, {"format": FORMAT, "fingerprint": fingerprint})
    found = _load(path)
    if found.get("format") != FORMAT:
        raise LedgerError(
            f"{path} has format {found.get('format')}, this version reads {FORMAT}: end the job with the"
            " version that began it, or use a new ledger (which sends all rows again)"
        )
    if found.get("fingerprint") != fingerprint:
        raise LedgerError(
            f"ledger {folder} belongs to another job (plan, target, exchange, routing key or"
            " policy differ): use a new folder, or the options it was made with"
        )


class KeyOrder:
    """Checks that the keys of a partition rise strictly."""

    def __init__(self) -> None:
        self._last: Key | None = None

    def check(self, key: Key) -> None:
        """Take the next key; LedgerError: it does not rise."""
        if self._last is not None and key <= self._last:
            raise LedgerError(f"key {_shown(key)} comes after {_shown(self._last)}: {_REMEDY}")
        self._last = key


class Ledger:
    """One attempt's use of one partition's entry.

    Args:
        path: the entry's file.
        step: rows between two entries.
    """

    def __init__(self, path: Path, step: int) -> None:
        self.rows = 0  # seen by this attempt
        self._path = path
        self._step = step
        self._hash = blake2b(digest_size=16)
        self._last: Key | None = None
        self._found = self._read()  # what an earlier attempt left
        self._written_rows = self._found.rows if self._found else 0
        self._due: deque[Entry] = deque()
        self._digests: dict[int, str] = {}

    def skips(self, key: Key) -> bool:
        """Take the next row; return whether it is settled.

        Raises:
            LedgerError: the rows are not those that the entry counts.
        """
        self.rows += 1
        self._last = key
        self._hash.update(
            f"{len(key.vhost)} {len(key.queue)} {key.vhost}{key.queue}{key.queue_no} {key.seq_id}\n".encode()
        )
        found = self._found
        if found is not None and self.rows <= found.rows:
            if self.rows == found.rows and self._hash.hexdigest() != found.digest:
                raise self._other_rows(found)
            return True
        if not self.rows % self._step:
            self._mark()
        return False

    def ready(self, settled_rows: int) -> Entry | None:
        """Return the next entry to write once so many rows are settled, None if it has been written."""
        entry = None
        while self._due and self._due[0].rows <= settled_rows:
            entry = self._due.popleft()
        return entry

    def write(self, entry: Entry) -> None:
        """Write an entry, unless another attempt has written a later one.

        Raises:
            LedgerError: another attempt of this partition has other rows.
        """
        found = self._read()
        if found is not None and self._digests.get(found.rows, found.digest) != found.digest:
            raise self._other_rows(found)
        if found is None or found.rows < entry.rows:
            key = list(entry.key)
            values = {"rows": entry.rows, "key": key, "digest": entry.digest}
            replace(self._path, {"format": FORMAT, **values})

    def end(self) -> None:
        """Note that there are no more rows; LedgerError: there were fewer than the entry counts."""
        if self._found is not None and self.rows < self._found.rows:
            raise LedgerError(
                f"{self._path} counts {self._found.rows} settled rows, and the partition has only"
                f" {self.rows}: {_REMEDY}"
            )
        if self.rows > self._written_rows and self.rows % self._step:
            self._mark()

    def _mark(self) -> None:
        assert self._last is not None
        digest = self._hash.hexdigest()
        self._digests[self.rows] = digest
        self._due.append(Entry(self.rows, self._last, digest))

    def _read(self) -> Entry | None:
        if not self._path.exists():
            return None
        values = _load(self._path)
        try:
            vhost, queue, queue_no, seq_id = values["key"]
            key = Key(vhost, queue, int(queue_no), int(seq_id))
            return Entry(int(values["rows"]), key, values["digest"])
        except (KeyError, TypeError, ValueError):
            raise LedgerError(
                f"{self._path} is not an entry of a ledger: use a new ledger"
            ) from None

    def _other_rows(self, found: Entry) -> LedgerError:
        return LedgerError(
            f"{self._path} counts {found.rows} settled rows up to {_shown(found.key)}, and the"
            f" partition's first {found.rows} rows are others: {_REMEDY}"
        )


def part_path(folder: Path, scope: str, number: int) -> Path:
    """Return the file of a partition's entry."""
    return folder / scope / f"part-{number:05}.json"


def replace(path: Path, values: dict[str, Any]) -> None:
    """Write a JSON file whole or not at all, and durably; LedgerError: it cannot be written."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("x") as file:
            json.dump(values, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise LedgerError(f"{path} cannot be written: {error}") from None


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _load(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise LedgerError(f"{path} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise LedgerError(f"{path} is not a JSON object: use a new ledger")
    return values


def _shown(key: Key) -> str:
    number = f" number {key.queue_no}" if key.queue_no else ""
    return f'(vhost "{key.vhost}", queue "{key.queue}"{number}, seq_id {key.seq_id})'
